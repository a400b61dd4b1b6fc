// What each packet is in each state of a QP, compared with the table that is kept. A change of the rules of
// acceptance shows as a change of that file.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "abi/operations.h"
#include "memory/table.h"
#include "proto/rc/acceptance.h"
#include "proto/state/context.h"
#include "proto/state/srq.h"
#include "wire/extended_headers.h"
#include "wire/opcode.h"

namespace uroce::proto {
namespace {

using wire::Operation;

std::string program, table_path;  // as the test was called

constexpr std::uint32_t kMtu = 256, kExpected = 1000, kRegionBytes = 4096, kXrcd = 5;
constexpr std::uint64_t kIova = 0x10000;
constexpr PdId kPd{3}, kSrqPd{4};
constexpr SrqId kGoodSrq{1}, kForeignSrq{2}, kBasicSrq{3};

constexpr std::string_view kLegend =
    "# What a packet is for an RC or XRC QP, by the state of the QP: written and compared by\n"
    "# acceptance-table-test (lib/proto/rc/acceptance.h).\n"
    "#\n"
    "# path MTU 256; the region has 4096 bytes\n"
    "# \"256 of 612\": bytes of payload, and the length in the RETH; \"3 PSNs\": a packet by reference\n"
    "#\n"
    "# send, write, read, atomic, atwrite, flush   it is executed; write AT/LEFT: from that byte of the region\n"
    "#            on, where LEFT bytes of the WRITE are to come, those of the packet included\n"
    "# srq ...    over XRC: PD and receives are those of the SRQ that the packet names\n"
    "# rq ...     it takes a receive first, and without one it is answered with an RNR NAK\n"
    "# -invalid, -access, -sequence   a NAK: invalid request, remote access error, PSN sequence error\n"
    "# -srq       invalid request, as the SRQ may not be used\n"
    "# duplicate  it was executed before\n"
    "# early      dropped: the sequence NAK was sent before\n"
    "# held       dropped: a SEND with invalidate waits\n"
    "# ack        an ACK or NAK; where it passes a READ, that is an implied NAK, too\n"
    "# data I:N   the part with index I of the response to the oldest READ, N bytes; . the last of a request,\n"
    "#            ! the last of the work request\n"
    "# original   the response to the oldest atomic\n"
    "# implied    an implied NAK: the response to an earlier request is missing\n"
    "# kind, length   the request fails: this does not answer it, or has another length\n"
    "# late       dropped: to a request that has completed, or to none\n"
    "# state      dropped: the QP serves no requests, or no more, or has sent none\n";

/// A QP with everything that a plan depends on.
struct World {
  World() : table(16, 1), context(config(), table) {
    const auto key_in = [this](PdId pd) {
      return table
          .insert({.pd = pd, .access = kAllRights, .iova = kIova, .length = kRegionBytes, .base = region.data()})
          .value();
    };
    key = key_in(kPd);
    srq_key = key_in(kSrqPd);
    context.set_srq(kGoodSrq, &good_srq);
    context.set_srq(kForeignSrq, &foreign_srq);
    context.set_srq(kBasicSrq, &basic_srq);
    qp.common.state = QpState::kRts;
    qp.common.mtu_shift = 8;
    qp.common.pd = kPd;
    qp.settings.xrcd = kXrcd;
    qp.responder.epsn = Psn(kExpected);
    qp.responder.access = kAllRights;
    qp.answers.ring = answers.data();
    qp.answers.count = answers.size();
  }

  static constexpr std::uint32_t kAllRights = memory::kLocalWrite | memory::kRemoteWrite | memory::kRemoteRead |
                                              memory::kRemoteAtomic | memory::kFlushGlobal;
  static TransportConfig config() { return {.max_qps = 4, .max_cqs = 4, .max_srqs = 4, .max_ahs = 4}; }

  alignas(64) std::array<std::byte, kRegionBytes> region{};
  memory::Table table;
  Context context;
  Key key, srq_key;
  Srq good_srq{SrqCreate{.id = kGoodSrq, .pd = kSrqPd, .xrc = true, .xrcd = kXrcd}};
  Srq foreign_srq{SrqCreate{.id = kForeignSrq, .pd = kSrqPd, .xrc = true, .xrcd = kXrcd + 1}};
  Srq basic_srq{SrqCreate{.id = kBasicSrq, .pd = kSrqPd, .xrcd = kXrcd}};
  std::array<Resource, 2> answers{};
  std::array<Wqe, 4> wqes{};
  Qp qp;
};

/// A packet, with the headers that its opcode has.
struct Packet {
  std::string_view name;  ///< after the opcode's
  Operation operation{};
  std::uint32_t payload = 0, length = 0;
  std::uint64_t address = kIova;
  bool good_key = true, srq_key = false;
  std::uint32_t flush = 1;  ///< placement type, and selectivity from bit 4 on
  SrqId srq = kGoodSrq;
  std::int32_t psn = 0;  ///< from the expected one, or of the first request on
  bool ack_req = false;
  bool reserved = false;  ///< of an unknown opcode
  std::uint16_t psns = 1;
};

struct Built {
  std::array<std::byte, 128> bytes{};
  wire::RxPacket rx;
};

void build(const World& world, const Packet& packet, Psn base, Built& out) {
  const wire::OpcodeInfo& info = wire::kOpcodes[wire::opcode(world.qp.common.service, packet.operation)];
  out.rx.info = packet.reserved ? &wire::kInvalidRcRequest : &info;
  out.rx.bth_start = out.bytes.data();
  out.rx.bth.psn = packet.psn < 0 ? base - static_cast<std::uint32_t>(-packet.psn)
                                  : base + static_cast<std::uint32_t>(packet.psn);
  out.rx.bth.ack_req = packet.ack_req;
  out.rx.psns = packet.psns;
  out.rx.payload_bytes = packet.payload;
  if (packet.reserved) return;
  const Key key = packet.srq_key ? world.srq_key : packet.good_key ? world.key : Key{~world.key.value};
  if (info.xrceth != 0) wire::XrcEth{packet.srq.value}.emit(out.bytes.data() + info.xrceth);
  if (info.reth != 0) wire::Reth{packet.address, key, packet.length}.emit(out.bytes.data() + info.reth);
  if (info.feth != 0) wire::Feth{packet.flush}.emit(out.bytes.data() + info.feth);
  if (info.atomic_eth != 0) wire::AtomicEth{packet.address, key, 1, 0}.emit(out.bytes.data() + info.atomic_eth);
}

std::string text_of(const Plan& plan) {
  const auto number = [](std::uint64_t value) { return std::to_string(value); };
  switch (plan.action) {
    case Action::kSend: return "send";
    case Action::kWrite:
      return "write " + number(plan.target.reth.address - kIova) + "/" + number(plan.target.reth.length);
    case Action::kRead: return "read";
    case Action::kAtomic: return "atomic";
    case Action::kAtomicWrite: return "atwrite";
    case Action::kFlush: return "flush";
    case Action::kNakInvalidRequest: return "-invalid";
    case Action::kNakBadSrq: return "-srq";
    case Action::kNakRemoteAccess: return "-access";
    case Action::kDuplicate: return "duplicate";
    case Action::kNakSequence: return "-sequence";
    case Action::kDropEarly: return "early";
    case Action::kDropHeld: return "held";
    case Action::kAcknowledge: return "ack";
    case Action::kReadResponse:
      return "data " + number(plan.part.index) + ":" + number(plan.part.bytes) +
             (plan.part.last   ? "!"
              : plan.part.ends ? "."
                               : "");
    case Action::kAtomicResponse: return "original";
    case Action::kImpliedNak: return "implied";
    case Action::kFailKind: return "kind";
    case Action::kFailLength: return "length";
    case Action::kDropUnexpected: return "late";
    case Action::kDropBadState: return "state";
  }
  return "?";
}

struct State {
  std::string_view name;
  std::function<void(World&)> set;
};

/// Rows of packets, columns of states. `base`: the PSN from which those of the packets count.
struct Block {
  std::string_view title;
  Psn base;
  std::vector<State> states;
  std::vector<Packet> packets;
};

std::string name_of(const Packet& packet) {
  const auto& info = wire::kOpcodes[wire::opcode(wire::Service::kRc, packet.operation)];
  std::string name(packet.reserved ? "reserved" : info.name.substr(info.name.find(' ') + 1));
  return packet.name.empty() ? name : name + " " + std::string(packet.name);
}

void expect_nothing_done(World& world, const std::string& name) {
  const Counters none{};
  EXPECT_EQ(std::memcmp(&world.context.counters, &none, sizeof none), 0) << name;
  EXPECT_FALSE(world.context.scheduler.any()) << name;
  EXPECT_EQ(world.context.timers.next_timeout(), kNever) << name;
  std::array<Event, 1> events;
  EXPECT_EQ(world.context.take_events(events), 0u) << name;
}

/// As text; and the memory of what is executed is where the packet says.
std::string plan_of(const State& state, const Packet& packet, Psn base) {
  const auto world = std::make_unique<World>();
  state.set(*world);
  Built built;
  build(*world, packet, base, built);
  Plan plan;
  make_plan(world->context, world->qp, built.rx, plan);
  expect_nothing_done(*world, name_of(packet));
  if (plan.action == Action::kWrite && packet.payload != 0) {
    EXPECT_EQ(plan.target.memory.data, world->region.data() + (plan.target.reth.address - kIova))
        << name_of(packet);
  }
  if (plan.action == Action::kAtomic || plan.action == Action::kAtomicWrite) {
    EXPECT_EQ(plan.target.memory.data, world->region.data()) << name_of(packet);
  }
  return (plan.srq != nullptr ? "srq " : "") + std::string(plan.takes_receive ? "rq " : "") + text_of(plan);
}

// ---------------------------------------------------------------- requests

void in_send(World& world) { world.qp.responder.message = MessageInProgress::kSend; }
void in_write(World& world, std::uint32_t left) {
  world.qp.responder.message = MessageInProgress::kWrite;
  world.qp.write = {kIova + 512, world.key, left};
}
void outstanding(World& world) {
  world.qp.answers.used = world.qp.answers.count;
  for (Resource& answer : world.answers) answer.pending = 1;
}

std::vector<State> states_of_messages() {
  return {
      {"idle", [](World&) {}},
      {"in a SEND", in_send},
      {"WRITE, 356 left", [](World& world) { in_write(world, 356); }},
      {"WRITE, 100 left", [](World& world) { in_write(world, 100); }},
      {"no rights", [](World& world) { world.qp.responder.access = 0; }},
      {"all READs used", outstanding},
  };
}

std::vector<Packet> sends() {
  using enum Operation;
  return {
      {.name = "256", .operation = kSendFirst, .payload = 256},
      {.name = "255", .operation = kSendFirst, .payload = 255},
      {.name = "256", .operation = kSendMiddle, .payload = 256},
      {.name = "255", .operation = kSendMiddle, .payload = 255},
      {.name = "100", .operation = kSendLast, .payload = 100},
      {.name = "0", .operation = kSendLast},
      {.name = "257", .operation = kSendLast, .payload = 257},
      {.name = "100", .operation = kSendLastImm, .payload = 100},
      {.name = "100", .operation = kSendLastInvalidate, .payload = 100},
      {.name = "0", .operation = kSendOnly},
      {.name = "256", .operation = kSendOnly, .payload = 256},
      {.name = "257", .operation = kSendOnly, .payload = 257},
      {.name = "1", .operation = kSendOnlyImm, .payload = 1},
      {.name = "1", .operation = kSendOnlyInvalidate, .payload = 1},
  };
}

std::vector<Packet> writes() {
  using enum Operation;
  return {
      {.name = "256 of 612", .operation = kWriteFirst, .payload = 256, .length = 612},
      {.name = "255 of 612", .operation = kWriteFirst, .payload = 255, .length = 612},
      {.name = "256 of 256", .operation = kWriteFirst, .payload = 256, .length = 256},
      {.name = "256 of 4097", .operation = kWriteFirst, .payload = 256, .length = 4097},
      {.name = "256 of 2^31 + 1", .operation = kWriteFirst, .payload = 256, .length = (1u << 31) + 1},
      {.name = "256", .operation = kWriteMiddle, .payload = 256},
      {.name = "255", .operation = kWriteMiddle, .payload = 255},
      {.name = "100", .operation = kWriteLast, .payload = 100},
      {.name = "99", .operation = kWriteLast, .payload = 99},
      {.name = "0", .operation = kWriteLast},
      {.name = "100", .operation = kWriteLastImm, .payload = 100},
      {.name = "0 of 0, bad key", .operation = kWriteOnly, .good_key = false},
      {.name = "256 of 256", .operation = kWriteOnly, .payload = 256, .length = 256},
      {.name = "100 of 99", .operation = kWriteOnly, .payload = 100, .length = 99},
      {.name = "1 of 1, bad key", .operation = kWriteOnly, .payload = 1, .length = 1, .good_key = false},
      {.name = "1 of 1, last byte",
       .operation = kWriteOnly,
       .payload = 1,
       .length = 1,
       .address = kIova + kRegionBytes - 1},
      {.name = "1 of 1, outside",
       .operation = kWriteOnly,
       .payload = 1,
       .length = 1,
       .address = kIova + kRegionBytes},
      {.name = "1 of 1", .operation = kWriteOnlyImm, .payload = 1, .length = 1},
      {.name = "1 of 1, bad key", .operation = kWriteOnlyImm, .payload = 1, .length = 1, .good_key = false},
      {.name = "1 of 2", .operation = kWriteOnlyImm, .payload = 1, .length = 2},
      {.name = "600 of 600, 3 PSNs", .operation = kWriteOnly, .payload = 600, .length = 600, .psns = 3},
      {.name = "600 of 600, 2 PSNs", .operation = kWriteOnly, .payload = 600, .length = 600, .psns = 2},
      {.name = "600 of 600, 0 PSNs", .operation = kWriteOnly, .payload = 600, .length = 600, .psns = 0},
  };
}

std::vector<Packet> answered() {
  using enum Operation;
  return {
      {.name = "of 4096", .operation = kReadRequest, .length = 4096},
      {.name = "of 4097", .operation = kReadRequest, .length = 4097},
      {.name = "of 0, bad key", .operation = kReadRequest, .good_key = false},
      {.name = "of 1, bad key", .operation = kReadRequest, .length = 1, .good_key = false},
      {.name = "of 2^31 + 1", .operation = kReadRequest, .length = (1u << 31) + 1},
      {.operation = kCompareSwap},
      {.operation = kFetchAdd},
      {.name = "not aligned", .operation = kFetchAdd, .address = kIova + 4},
      {.name = "bad key", .operation = kFetchAdd, .good_key = false},
      {.name = "8 of 8", .operation = kAtomicWrite, .payload = 8, .length = 8},
      {.name = "8 of 4", .operation = kAtomicWrite, .payload = 8, .length = 4},
      {.name = "not aligned", .operation = kAtomicWrite, .payload = 8, .length = 8, .address = kIova + 4},
      {.name = "bad key", .operation = kAtomicWrite, .payload = 8, .length = 8, .good_key = false},
      {.name = "of 8", .operation = kFlush, .length = 8},
      {.name = "of 4097", .operation = kFlush, .length = 4097},
      {.name = "of 4097, whole region", .operation = kFlush, .length = 4097, .flush = 1 | 1 << 4},
      {.name = "of 8, persistent", .operation = kFlush, .length = 8, .flush = 2},
      {.name = "of 8, no type", .operation = kFlush, .length = 8, .flush = 0},
      {.name = "bad key", .operation = kFlush, .length = 8, .good_key = false},
      {.reserved = true},
  };
}

Block xrc() {
  using enum Operation;
  const auto target = [](World& world) {
    world.qp.common.type = QpType::kXrcRecv;
    world.qp.common.service = wire::Service::kXrc;
  };
  return {"The same over XRC: the first packet names an SRQ",
          Psn(kExpected),
          {{"target", target},
           {"in a SEND",
            [target](World& world) {
              target(world);
              in_send(world);
            }},
           {"initiator",
            [](World& world) {
              world.qp.common.type = QpType::kXrcSend;
              world.qp.common.service = wire::Service::kXrc;
            }}},
          {{.name = "1", .operation = kSendOnly, .payload = 1},
           {.name = "1, another domain's SRQ", .operation = kSendOnly, .payload = 1, .srq = kForeignSrq},
           {.name = "1, basic SRQ", .operation = kSendOnly, .payload = 1, .srq = kBasicSrq},
           {.name = "1 of 1, the QP's key", .operation = kWriteOnly, .payload = 1, .length = 1},
           {.name = "1 of 1, the SRQ's key", .operation = kWriteOnly, .payload = 1, .length = 1, .srq_key = true},
           {.name = "1, no SRQ", .operation = kSendOnly, .payload = 1, .srq = SrqId{4}},
           {.name = "256", .operation = kSendMiddle, .payload = 256},
           {.name = "of 8, the SRQ's key", .operation = kReadRequest, .length = 8, .srq_key = true},
           {.name = "of 8, no SRQ", .operation = kReadRequest, .length = 8, .srq = SrqId{4}},
           {.name = "256, PSN + 1, no SRQ", .operation = kSendFirst, .payload = 256, .srq = SrqId{4}, .psn = 1}}};
}

Block other_psns() {
  const auto told = [](std::uint8_t syndrome, Nanos next) {
    return [=](World& world) {
      world.context.now = 100;
      world.qp.responder.nak_sent = true;
      world.qp.answers.nak_syndrome = syndrome;
      world.qp.next_nak = next;
    };
  };
  constexpr auto kSequence = static_cast<std::uint8_t>(wire::Nak::kSequence);
  const auto intake = [](Intake value) { return [value](World& world) { world.qp.responder.intake = value; }; };
  const auto send = [](std::string_view name, std::int32_t psn, bool ack_req = false) {
    return Packet{.name = name, .operation = Operation::kSendOnly, .payload = 1, .psn = psn, .ack_req = ack_req};
  };
  return {"Requests with any PSN, relative to the expected one",
          Psn(kExpected),
          {{"open", [](World&) {}},
           {"NAK, due", told(kSequence, 100)},
           {"NAK, not due", told(kSequence, 101)},
           {"RNR NAK", told(wire::kRnrNak, 0)},
           {"held", intake(Intake::kHeld)},
           {"dead", intake(Intake::kDead)}},
          {send("-2^23", -(1 << 23)), send("-1", -1), send("0", 0), send("+1", 1), send("+1, AckReq", 1, true),
           send("+2^23 - 1", (1 << 23) - 1)}};
}

// ---------------------------------------------------------------- responses

/// A WRITE of two packets from PSN 0 on, a READ of 600 bytes (2 to 4), a compare and swap (5), a SEND (6).
void sent(World& world, std::uint32_t una, std::uint32_t head) {
  Qp& qp = world.qp;
  const auto put = [&](std::size_t at, uroce_wr_opcode opcode, std::uint32_t psn, std::uint32_t psns,
                       std::uint32_t bytes) {
    const abi::Operation& operation = abi::operation_of(opcode);
    world.wqes[at].kind = operation.kind;
    world.wqes[at].traits = operation.traits;
    world.wqes[at].length = bytes;
    world.wqes[at].first_psn = psn;
    world.wqes[at].psn_count = psns;
  };
  put(0, UROCE_WR_RDMA_WRITE, 0, 2, 400);
  put(1, UROCE_WR_RDMA_READ, 2, 3, 600);
  put(2, UROCE_WR_ATOMIC_CMP_AND_SWP, 5, 1, 8);
  put(3, UROCE_WR_SEND, 6, 1, 10);
  qp.requester.shadow = reinterpret_cast<std::byte*>(world.wqes.data());
  qp.requester.ring = queue::WorkConsumer({.count = 4, .stride = sizeof(Wqe)}, nullptr, nullptr);
  qp.requester.una = Psn(una);
  qp.requester.psn = qp.requester.max_psn = Psn(7);
  qp.requester.head = head;
  qp.requester.cursor = qp.requester.started = qp.requester.fetched = 4;
  qp.reads.chunk = qp.reads.chunk_before = 2;
}

Block responses() {
  using enum Operation;
  const auto from = [](std::uint32_t una, std::uint32_t head) {
    return [=](World& world) { sent(world, una, head); };
  };
  const auto row = [](std::string_view name, Operation operation, std::int32_t psn, std::uint32_t payload = 0,
                      std::uint16_t psns = 1) {
    return Packet{.name = name, .operation = operation, .payload = payload, .psn = psn, .psns = psns};
  };
  return {
      "Responses to a WRITE (PSN 0 and 1), a READ of 600 bytes (2 to 4, requested in twos), an atomic (5), a SEND "
      "(6)",
      Psn(0),
      {{"una 0", from(0, 0)},
       {"una 2", from(2, 1)},
       {"una 3", from(3, 1)},
       {"una 4", from(4, 1)},
       {"una 5", from(5, 2)},
       {"una 6", from(6, 3)},
       {"RTR", [](World& world) { world.qp.common.state = QpState::kRtr; }}},
      {row("-1", kAcknowledge, -1),
       row("0", kAcknowledge, 0),
       row("1", kAcknowledge, 1),
       row("6", kAcknowledge, 6),
       row("7", kAcknowledge, 7),
       row("256, PSN 0", kReadResponseFirst, 0, 256),
       row("256, PSN 1", kReadResponseFirst, 1, 256),
       row("256, PSN 2", kReadResponseFirst, 2, 256),
       row("255, PSN 2", kReadResponseFirst, 2, 255),
       row("256, PSN 2", kReadResponseOnly, 2, 256),
       row("256, PSN 3", kReadResponseMiddle, 3, 256),
       row("256, PSN 3", kReadResponseLast, 3, 256),
       row("88, PSN 4", kReadResponseOnly, 4, 88),
       row("87, PSN 4", kReadResponseOnly, 4, 87),
       row("88, PSN 4", kReadResponseMiddle, 4, 88),
       row("256, PSN 2", kReadResponseMiddle, 2, 256),
       row("344, PSN 3, 2 PSNs", kReadResponseLast, 3, 344, 2),
       row("344, PSN 3, 0 PSNs", kReadResponseLast, 3, 344, 0),
       row("256, PSN 5", kReadResponseFirst, 5, 256),
       row("PSN 2", kAtomicAcknowledge, 2),
       row("PSN 5", kAtomicAcknowledge, 5),
       row("PSN 6", kAtomicAcknowledge, 6)}};
}

Block confirmations() {
  using enum Operation;
  const auto sent_one = [](uroce_wr_opcode opcode, std::uint32_t bytes) {
    return [=](World& world) {
      sent(world, 0, 0);
      const abi::Operation& operation = abi::operation_of(opcode);
      world.wqes[0] = Wqe{};
      world.wqes[0].length = bytes;
      world.wqes[0].psn_count = 1;
      world.wqes[0].kind = operation.kind;
      world.wqes[0].traits = operation.traits;
    };
  };
  return {"Responses to a FLUSH, an ATOMIC WRITE, a READ of 0 bytes (PSN 0)",
          Psn(0),
          {{"FLUSH", sent_one(UROCE_WR_FLUSH, 0)},
           {"ATOMIC WRITE", sent_one(UROCE_WR_ATOMIC_WRITE, 8)},
           {"READ of 0", sent_one(UROCE_WR_RDMA_READ, 0)}},
          {{.name = "0", .operation = kReadResponseOnly},
           {.name = "8", .operation = kReadResponseOnly, .payload = 8},
           {.name = "0", .operation = kReadResponseFirst},
           {.operation = kAtomicAcknowledge}}};
}

// ---------------------------------------------------------------- the table

void add_row(std::string& out, const std::string& name, std::size_t cells,
             const std::function<std::string(std::size_t)>& cell) {
  constexpr std::size_t kNameWidth = 34, kWidth = 18;
  std::string row = name;
  for (std::size_t i = 0; i < cells; ++i) {
    row.resize(kNameWidth + i * kWidth, ' ');
    row += "| " + cell(i);
  }
  out += row + "\n";
}

std::string table() {
  const Psn expected(kExpected);
  const std::vector<Block> blocks = {
      {"SENDs with the expected PSN", expected, states_of_messages(), sends()},
      {"WRITEs with the expected PSN", expected, states_of_messages(), writes()},
      {"Other requests with the expected PSN", expected, states_of_messages(), answered()},
      xrc(),
      other_psns(),
      responses(),
      confirmations()};
  std::string out(kLegend);
  for (const Block& block : blocks) {
    out += "\n# " + std::string(block.title) + "\n";
    add_row(out, "", block.states.size(), [&](std::size_t at) { return std::string(block.states[at].name); });
    for (const Packet& packet : block.packets) {
      add_row(out, name_of(packet), block.states.size(),
              [&](std::size_t at) { return plan_of(block.states[at], packet, block.base); });
    }
  }
  return out;
}

TEST(Acceptance, IsWhatTheTableSays) {
  const std::string now = table();
  if (std::getenv("UROCE_WRITE_REFERENCE") != nullptr) std::ofstream(table_path) << now;
  std::ostringstream kept;
  kept << std::ifstream(table_path).rdbuf();
  EXPECT_EQ(kept.str(), now) << "If the change is meant, write the table anew and commit both:\n"
                             << "  UROCE_WRITE_REFERENCE=1 " << program << " " << table_path;
}

}  // namespace
}  // namespace uroce::proto

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s tests/unit/proto/acceptance_table.txt\n", argv[0]);
    return 2;
  }
  uroce::proto::program = argv[0];
  uroce::proto::table_path = argv[1];
  return RUN_ALL_TESTS();
}
