// A hostile client: arbitrary bytes in its queues and arbitrary producer indices at any time. Its peer and the
// daemon's other clients must at most see a broken connection.
//
// Input: steps. The first byte of each selects a send entry, a receive entry, raw bytes somewhere in a ring, an
// index, a doorbell, time, or a change of state.
#pragma once

#include <algorithm>
#include <cstring>

#include "tests/fuzz/proto_fixture.h"
#include "wire/ethernet_frame.h"

namespace uroce::fuzz {

/// Scatter elements, most of which name existing memory.
inline void write_sges(Fixture& world, Input& input, std::byte* at, std::size_t room) {
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

/// Fields for the entries of other QP types and of newer operations.
inline void write_extras(Fixture& world, Input& input, uroce_sq_entry& entry) {
  constexpr std::uint8_t kOpcodes[] = {
      UROCE_WR_SEND,   UROCE_WR_SEND_WITH_IMM, UROCE_WR_RDMA_WRITE,   UROCE_WR_BIND_MW,   UROCE_WR_LOCAL_INV,
      UROCE_WR_REG_MR, UROCE_WR_FLUSH,         UROCE_WR_ATOMIC_WRITE, UROCE_WR_RDMA_READ, UROCE_WR_SEND_WITH_INV};
  const std::uint8_t control = input.byte();
  if ((control & 1) != 0) entry.opcode = kOpcodes[input.byte() % 10];
  if (world.raw() && (control & 1) == 0) entry.opcode = (control & 2) != 0 ? UROCE_WR_TSO : UROCE_WR_SEND;
  entry.remote_srqn = (control & 2) != 0 ? static_cast<std::uint32_t>(input.number(4)) : Fixture::kSrq.value;
  const auto& keys = world.a.all_perishable;
  const std::uint32_t key = keys[input.byte() % keys.size()].value;
  switch (entry.opcode) {
    case UROCE_WR_BIND_MW:
    case UROCE_WR_REG_MR:
      entry.mw_handle = (control & 4) != 0 ? static_cast<std::uint32_t>(input.number(4)) : key;
      entry.rkey = (control & 8) != 0 ? static_cast<std::uint32_t>(input.number(4)) : (key & ~0xffu) | input.byte();
      entry.remote_addr = (control & 16) != 0 ? input.number(8) : world.a.target.iova;
      entry.bind.lkey = world.a.target.key.value;
      if ((control & 32) != 0) entry.bind.lkey = static_cast<std::uint32_t>(input.number(4));
      entry.bind.access = static_cast<std::uint32_t>(input.number(2));
      entry.bind.length = input.number((control & 64) != 0 ? 8 : 2);
      break;
    case UROCE_WR_LOCAL_INV:
      if ((control & 4) == 0) entry.imm_data = key;
      break;
    case UROCE_WR_TSO:
      entry.tso.mss = static_cast<std::uint16_t>(input.number((control & 4) != 0 ? 2 : 1));
      entry.tso.header_bytes = static_cast<std::uint16_t>((control & 8) != 0 ? input.number(2) : 54);
      break;
    case UROCE_WR_FLUSH:
      entry.flush.type = static_cast<std::uint32_t>(input.number(1));
      entry.flush.level = static_cast<std::uint32_t>(input.number(1));
      entry.flush.length = input.number((control & 4) != 0 ? 8 : 2);
      break;
    default:
      if (world.a.qp->sizes.type != proto::QpType::kUd) break;
      entry.ah = (control & 4) != 0 ? static_cast<std::uint32_t>(input.number(4)) : input.byte() % 5;
      entry.ud.remote_qpn = (control & 8) != 0 ? static_cast<std::uint32_t>(input.number(4)) : 0x12;
      entry.ud.remote_qkey = (control & 16) != 0 ? static_cast<std::uint32_t>(input.number(4)) : Fixture::kQkey;
  }
}

/// Ethernet, IPv4 and TCP headers after the list, with arbitrary changes.
inline void write_tso_header(Input& input, const uroce_sq_entry& entry, std::span<std::byte> list) {
  constexpr std::uint8_t kHeader[54] = {2,    0,    0, 0, 0, 1, 2, 0, 0,   0, 0,    2,    8,   0, 0x45, 0, 0, 0,
                                        0,    1,    0, 0, 9, 6, 0, 0, 192, 0, 2,    1,    192, 0, 2,    2, 3, 0xe8,
                                        0x07, 0xd0, 0, 0, 0, 1, 0, 0, 0,   0, 0x50, 0x19, 1,   0, 0,    0, 0, 0};
  const std::size_t at =
      (entry.flags & UROCE_SEND_INLINE) != 0 ? entry.inline_length : entry.num_sge * sizeof(uroce_sge);
  if (at > list.size() || list.size() - at < sizeof kHeader) return;
  std::memcpy(list.data() + at, kHeader, sizeof kHeader);
  for (std::uint8_t changed = input.byte() % 4; changed != 0; --changed) {
    list[at + input.byte() % sizeof kHeader] = static_cast<std::byte>(input.byte());
  }
}

inline void write_send(Fixture& world, Input& input) {
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
  if (world.a.qp->sizes.type != proto::QpType::kRc || world.a.srq) write_extras(world, input, entry);
  std::memcpy(slot, &entry, sizeof(entry));
  const std::uint32_t list_at = abi::operation_of(entry.opcode).list_at;
  write_sges(world, input, slot + list_at, ring.stride - list_at);
  if (entry.opcode == UROCE_WR_TSO) write_tso_header(input, entry, {slot + list_at, ring.stride - list_at});
  world.a.qp->sq.advance();
}

inline void write_receive(Fixture& world, Input& input) {
  queue::WorkProducer& queue = world.a.receive_ring();
  const queue::RingShape& ring = queue.ring();
  std::byte* slot = ring.at(queue.head());
  const std::uint8_t control = input.byte();
  uroce_rq_entry entry{};
  entry.wr_id = input.byte();
  entry.num_sge = static_cast<std::uint32_t>((control & 1) != 0 ? input.number(4) : input.byte() % 5);
  std::memcpy(slot, &entry, sizeof(entry));
  write_sges(world, input, slot + sizeof(entry), ring.stride - sizeof(entry));
  queue.advance();
}

inline void write_raw(Input& input, sim::AlignedBytes& ring) {
  const std::size_t bytes = input.byte() % 64;
  const std::size_t at = input.number(2) % (ring.size() - bytes);
  input.copy(ring.data() + at, bytes);
}

/// Delivers a raw packet to the raw packet QPs of both hosts, as a flow would.
inline void receive_raw(Fixture& world, std::span<const std::byte> frame) {
  const wire::FrameLayout layout = wire::layout_of(frame);
  const proto::ReceivedFrame received{.bytes = frame,
                                      .flow_tag = 7,
                                      .vlan = layout.vlan,
                                      .vlan_tci = layout.vlan_tci,
                                      .checksums_good = wire::checksums_good(frame, layout)};
  world.host_a.transport(*world.a.qp).receive_frame(world.a.qp->index, received, world.now);
  world.host_b.transport(*world.b.qp).receive_frame(world.b.qp->index, received, world.now);
}

inline void run(Fixture& world) {
  for (int round = 0; round < 4; ++round) {
    world.flush(world.host_a, [&](std::span<const std::byte> frame) {
      wire::RxPacket packet;
      if (world.raw() && wire::parse(frame, {}, packet) != wire::ParseVerdict::kOk)
        return receive_raw(world, frame);
      world.host_b.arrive(frame);
    });
    world.flush(world.host_b, [&](std::span<const std::byte> frame) { world.host_a.arrive(frame); });
    world.advance(5'000);
  }
  world.poll(world.host_a);
  world.poll(world.host_b);
}

inline void step(Fixture& world, Input& input) {
  sim::SimQp& qp = *world.a.qp;
  switch (input.byte() % 12) {
    case 0:
    case 1:
    case 2: write_send(world, input); break;
    case 3: write_receive(world, input); break;
    case 4: write_raw(input, qp.sq_ring); break;
    case 5: write_raw(input, world.a.srq ? world.a.srq->ring : qp.rq_ring); break;
    case 6: qp.client.sq.index = static_cast<std::uint32_t>(input.number(4)); break;
    case 7:
      (world.a.srq ? world.a.srq->client : qp.client.rq).index = static_cast<std::uint32_t>(input.number(4));
      break;
    case 8: world.a.receive_ring().publish(); break;
    case 9:
      qp.sq.publish();
      world.host_a.doorbell(qp);
      break;
    case 10: run(world); break;
    default: {
      constexpr proto::QpState kStates[] = {proto::QpState::kErr, proto::QpState::kSqd, proto::QpState::kRts,
                                            proto::QpState::kReset};
      sim::change_state(world.host_a, qp, kStates[input.byte() % 4], world.now);
    }
  }
}

/// Executes the steps and checks the resulting state.
inline void run_hostile_client(Fixture& world, Input& input) {
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
  // The other connection must still work.
  world.post_works(world.c, world.d, 4);
  const std::size_t works = world.c.out.works.size();
  for (int i = 0; i < 10; ++i) run(world);
  proto::QpSnapshot snapshot;
  if (!world.host_a.query(*world.c.qp, snapshot) || snapshot.state != proto::QpState::kRts ||
      (works != 0 && snapshot.sq_outstanding != 0)) {
    fuzz::fail("another connection suffered");
  }
}

}  // namespace uroce::fuzz
