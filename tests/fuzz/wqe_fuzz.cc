// A hostile client: any bytes in its queues, any producer index, at any time. Its peer and the daemon's other
// clients must not notice more than a broken connection.
//
// Input: steps. Each begins with a byte that says what is done: a send entry, a receive entry, raw bytes somewhere
// in a ring, an index, a doorbell, time, a change of state.
#include <algorithm>
#include <cstring>

#include "tests/fuzz/proto_fixture.h"

namespace {

using namespace uroce;
using fuzz::Fixture;
using fuzz::Input;

/// Scatter elements of which most name memory that exists.
void write_sges(Fixture& world, Input& input, std::byte* at, std::size_t room) {
  const sim::Zone* const zones[] = {&world.a.source[0], &world.a.source[1], &world.a.target, &world.a.landing,
                                    &world.a.receive};
  for (; room >= sizeof(uroce_sge); room -= sizeof(uroce_sge), at += sizeof(uroce_sge)) {
    const std::uint8_t control = input.byte();
    if (control == 0) break;
    const sim::Zone& zone = *zones[control % 5];
    uroce_sge sge;
    sge.addr = zone.iova + input.number(2) % (zone.piece.length + 64);
    sge.length = static_cast<std::uint32_t>(input.number((control & 0x40) != 0 ? 4 : 1));
    sge.lkey = (control & 0x80) != 0 ? static_cast<std::uint32_t>(input.number(4)) : zone.key.value;
    std::memcpy(at, &sge, sizeof(sge));
  }
}

void write_send(Fixture& world, Input& input) {
  const queue::RingShape& ring = world.a.qp->sq.ring();
  std::byte* slot = ring.at(world.a.qp->sq.head());
  const std::uint8_t control = input.byte();
  uroce_sq_entry entry{};
  entry.wr_id = input.byte();
  entry.opcode = (control & 1) != 0 ? input.byte() : static_cast<std::uint8_t>(input.byte() % 10);
  entry.flags = input.byte();
  entry.num_sge = static_cast<std::uint16_t>((control & 2) != 0 ? input.number(2) : input.byte() % 5);
  entry.inline_length = static_cast<std::uint32_t>((control & 4) != 0 ? input.number(4) : input.byte() % 80);
  entry.imm_data = (control & 8) != 0 ? world.b.target.key.value : static_cast<std::uint32_t>(input.number(4));
  entry.rkey = (control & 16) != 0 ? static_cast<std::uint32_t>(input.number(4)) : world.b.target.key.value;
  entry.remote_addr = (control & 32) != 0 ? input.number(8) : world.b.target.iova + input.number(2) % 4200;
  entry.atomic.compare_add = input.number(2);
  std::memcpy(slot, &entry, sizeof(entry));
  write_sges(world, input, slot + sizeof(entry), ring.stride - sizeof(entry));
  world.a.qp->sq.advance();
}

void write_receive(Fixture& world, Input& input) {
  const queue::RingShape& ring = world.a.qp->rq.ring();
  std::byte* slot = ring.at(world.a.qp->rq.head());
  const std::uint8_t control = input.byte();
  uroce_rq_entry entry{};
  entry.wr_id = input.byte();
  entry.num_sge = static_cast<std::uint32_t>((control & 1) != 0 ? input.number(4) : input.byte() % 5);
  std::memcpy(slot, &entry, sizeof(entry));
  write_sges(world, input, slot + sizeof(entry), ring.stride - sizeof(entry));
  world.a.qp->rq.advance();
}

void write_raw(Input& input, sim::AlignedBytes& ring) {
  const std::size_t bytes = input.byte() % 64;
  const std::size_t at = input.number(2) % (ring.size() - bytes);
  input.copy(ring.data() + at, bytes);
}

void run(Fixture& world) {
  for (int round = 0; round < 4; ++round) {
    world.flush(world.host_a, [&](std::span<const std::byte> frame) { world.host_b.receive(frame, world.now); });
    world.flush(world.host_b, [&](std::span<const std::byte> frame) { world.host_a.receive(frame, world.now); });
    world.advance(5'000);
  }
  world.poll(world.host_a);
  world.poll(world.host_b);
}

void step(Fixture& world, Input& input) {
  sim::SimQp& qp = *world.a.qp;
  switch (input.byte() % 12) {
    case 0:
    case 1:
    case 2: write_send(world, input); break;
    case 3: write_receive(world, input); break;
    case 4: write_raw(input, qp.sq_ring); break;
    case 5: write_raw(input, qp.rq_ring); break;
    case 6: qp.client.sq.index = static_cast<std::uint32_t>(input.number(4)); break;
    case 7: qp.client.rq.index = static_cast<std::uint32_t>(input.number(4)); break;
    case 8: qp.rq.publish(); break;
    case 9:
      qp.sq.publish();
      world.host_a.transport.doorbell(qp.index);
      break;
    case 10: run(world); break;
    default: {
      constexpr proto::QpState kStates[] = {proto::QpState::kErr, proto::QpState::kSqd, proto::QpState::kRts,
                                            proto::QpState::kReset};
      sim::change_state(world.host_a, qp.index, kStates[input.byte() % 4], world.now);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Fixture world;
  Input input(data, size);
  world.post_receives(world.b, world.a, 8);
  world.post_receives(world.d, world.c, 8);
  for (int i = 0; i < 100 && !input.empty(); ++i) step(world, input);
  run(world);
  for (int i = 0; i < 10; ++i) {
    world.advance(5'000'000);
    run(world);
  }
  Fixture::expect_untouched(world.a, {&world.a.target, &world.a.landing, &world.a.receive});
  Fixture::expect_untouched(world.b, {&world.b.target, &world.b.receive});
  Fixture::expect_untouched(world.c, {});
  Fixture::expect_untouched(world.d, {});
  // The other connection works as if nothing had happened.
  world.post_works(world.c, world.d, 4);
  const std::size_t works = world.c.out.works.size();
  for (int i = 0; i < 10; ++i) run(world);
  proto::QpSnapshot snapshot;
  if (!world.host_a.transport.query(world.c.qp->index, snapshot) || snapshot.state != proto::QpState::kRts ||
      (works != 0 && snapshot.sq_outstanding != 0)) {
    fuzz::fail("another connection suffered");
  }
  return 0;
}
