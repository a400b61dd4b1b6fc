// Packets from a hostile peer, with arbitrary headers and payload and a good or bad ICRC, to QPs that have work in
// progress.
//
// Input: 3 bytes of setup, the last of which contains the type of the attacked QP, then packets: control, opcode,
// PSN offset (signed), flags, payload length, extended headers, payload. The control byte selects whether correct
// R_Key and address (Q_Key, SRQ) are put into the headers, and whether the bytes are sent raw, without ICRC.
#include <algorithm>
#include <cstring>

#include "tests/fuzz/proto_fixture.h"
#include "wire/extended_headers.h"
#include "wire/frame_template.h"
#include "wire/icrc.h"
#include "wire/opcode.h"

namespace {

using namespace uroce;
using fuzz::Fixture;
using fuzz::Input;

using proto::QpType;

/// Bits 3 to 5 of the set-up's last byte; bit 6: it has an SRQ, if its type may.
constexpr QpType kTypes[8] = {QpType::kRc,      QpType::kUc, QpType::kUd, QpType::kXrcRecv,
                              QpType::kXrcSend, QpType::kRc, QpType::kRc, QpType::kRc};

/// The opcode's upper bits, for what such a QP is sent.
constexpr std::uint8_t service_of(QpType type) {
  if (type == QpType::kUc) return 0x20;
  if (type == QpType::kUd) return 0x60;
  return type == QpType::kRc ? 0 : 0xa0;
}

/// Makes the extended headers of QP types other than RC valid.
void name_target(const wire::OpcodeInfo& info, std::byte* start) {
  if (info.deth != 0) {
    wire::Deth deth = wire::Deth::parse(start + info.deth);
    deth.qkey = Fixture::kQkey;
    deth.emit(start + info.deth);
  }
  if (info.xrceth != 0) wire::XrcEth{Fixture::kAttackedSrq.value}.emit(start + info.xrceth);
}

/// One packet of at most 1,500 bytes.
std::vector<std::byte> build(Fixture& world, Input& input) {
  const std::uint8_t control = input.byte();
  wire::Bth bth;
  bth.opcode = input.byte();
  const QpType type = world.a.qp->sizes.type;
  if (type != QpType::kRc && (control & 0x80) == 0) bth.opcode = (bth.opcode & 0x1f) | service_of(type);
  const auto offset = static_cast<std::int8_t>(input.byte());
  bth.dest_qpn = (control & 0x40) != 0 ? Qpn{static_cast<std::uint32_t>(input.number(3))} : world.a.qp->qpn;
  bth.psn = Psn(0xfffff0u) + static_cast<std::uint32_t>(static_cast<std::int32_t>(offset));
  const std::uint8_t flags = input.byte();
  bth.ack_req = (flags & 1) != 0;
  bth.solicited = (flags & 2) != 0;
  bth.becn = (flags & 4) != 0;
  bth.pad = flags >> 4 & 3;
  if ((flags & 0x80) != 0) bth.pkey = static_cast<std::uint16_t>(input.number(2));
  std::size_t payload = input.byte();
  if ((control & 0x20) != 0) payload = (control & 1) != 0 ? 256 : payload * 5;

  const wire::FrameTemplate path(world.host_b.path_to(world.host_a));
  const wire::OpcodeInfo& info = wire::kOpcodes[bth.opcode];
  const std::size_t headers = info.known() ? info.header_bytes : wire::kBthBytes;
  const std::size_t ib_bytes = headers + payload + bth.pad + wire::kIcrcBytes;
  std::vector<std::byte> frame(path.header_bytes() + ib_bytes);
  path.emit(frame.data(), ib_bytes);
  std::byte* const start = frame.data() + path.header_bytes();
  bth.emit(start);
  input.copy(start + wire::kBthBytes, headers - wire::kBthBytes);
  if ((control & 2) != 0) name_target(info, start);
  if (info.reth != 0 && (control & 2) != 0) {
    wire::Reth reth = wire::Reth::parse(start + info.reth);
    reth.rkey = world.a.target.key;
    reth.address = world.a.target.iova + reth.address % 8192;
    if ((control & 4) != 0) reth.length %= 5000;
    reth.emit(start + info.reth);
  }
  if (info.atomic_eth != 0 && (control & 2) != 0) {
    wire::AtomicEth atomic = wire::AtomicEth::parse(start + info.atomic_eth);
    atomic.rkey = world.a.target.key;
    atomic.address = world.a.target.iova + atomic.address % 8192;
    if ((control & 4) != 0) atomic.address &= ~std::uint64_t{7};
    atomic.emit(start + info.atomic_eth);
  }
  input.copy(start + headers, std::min<std::size_t>(payload, 8));
  if ((control & 8) != 0) {  // damage anywhere
    frame[input.number(2) % frame.size()] ^= static_cast<std::byte>(input.byte());
  }
  if ((control & 0x10) == 0) {
    const std::size_t covered = frame.size() - path.header_bytes() - wire::kIcrcBytes;
    const std::uint32_t icrc = wire::icrc_of(frame.data() + path.ip_offset(), path.ip_bytes(), covered);
    std::memcpy(frame.data() + frame.size() - wire::kIcrcBytes, &icrc, sizeof(icrc));
  }
  return frame;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  const std::uint8_t seed = input.byte(), receives = input.byte(), works = input.byte();
  const QpType type = kTypes[works >> 3 & 7];
  Fixture world(type, (works & 0x40) != 0);
  world.random = sim::Random(seed);
  if (type != QpType::kXrcSend) world.post_receives(world.a, world.b, receives % 8);
  if (type == QpType::kRc || type == QpType::kXrcSend) world.post_works(world.a, world.b, works % 8);
  const auto drop = [](std::span<const std::byte>) {};
  world.flush(world.host_a, drop);

  std::uint64_t sent = 0;
  for (int i = 0; i < 64 && !input.empty(); ++i) {
    const std::vector<std::byte> frame = build(world, input);
    world.host_a.arrive(frame);
    ++sent;
    if (i % 4 == 3) {
      world.advance(20'000);
      world.flush(world.host_a, drop);
      world.poll(world.host_a);
    }
  }
  for (int i = 0; i < 20; ++i) {
    world.advance(i < 10 ? 1'000'000 : 100'000'000);
    world.flush(world.host_a, drop);
    world.poll(world.host_a);
  }
  if (world.host_a.frames_parsed() != sent) fuzz::fail("a frame was not counted");
  Fixture::expect_untouched(world.a, {&world.a.target, &world.a.landing, &world.a.receive});
  Fixture::expect_untouched(world.c, {});
  Fixture::expect_untouched(world.b, {});
  return 0;
}
