// The two tables of operations: what a work request is (abi/operations.h), and what the wire carries
// (wire/opcode.h). Each knows the services and the payload of an operation; here they must agree.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "abi/operations.h"
#include "proto/state/attributes.h"
#include "proto/work/wqe.h"
#include "wire/opcode.h"

namespace uroce::proto {
namespace {

using abi::OperationKind;

constexpr struct {
  QpType type;
  wire::Service service;
} kServices[] = {{QpType::kRc, wire::Service::kRc},
                 {QpType::kXrcSend, wire::Service::kXrc},
                 {QpType::kUc, wire::Service::kUc},
                 {QpType::kUd, wire::Service::kUd}};

std::vector<std::uint32_t> all_opcodes() {
  return {UROCE_WR_RDMA_WRITE,
          UROCE_WR_RDMA_WRITE_WITH_IMM,
          UROCE_WR_SEND,
          UROCE_WR_SEND_WITH_IMM,
          UROCE_WR_RDMA_READ,
          UROCE_WR_ATOMIC_CMP_AND_SWP,
          UROCE_WR_ATOMIC_FETCH_AND_ADD,
          UROCE_WR_LOCAL_INV,
          UROCE_WR_BIND_MW,
          UROCE_WR_SEND_WITH_INV,
          UROCE_WR_TSO,
          UROCE_WR_FLUSH,
          UROCE_WR_ATOMIC_WRITE,
          UROCE_WR_REG_MR};
}

bool on_the_wire(const abi::Operation& operation) {
  return !operation.has(abi::kLocal) && operation.kind != OperationKind::kSegments;
}

const wire::OpcodeInfo& only_packet(wire::Service service, std::uint32_t opcode) {
  return wire::kOpcodes[wire::opcode(service, send_row(static_cast<std::uint8_t>(opcode)).only)];
}

bool of_type(const abi::Operation& operation, QpType type) {
  return operation.of_type(static_cast<std::uint32_t>(type));
}

TEST(Operations, OfAServiceAreThoseThatItsPacketsCarry) {
  for (const std::uint32_t opcode : all_opcodes()) {
    const abi::Operation& operation = abi::operation_of(opcode);
    ASSERT_NE(operation.kind, OperationKind::kInvalid) << opcode;
    if (!on_the_wire(operation)) continue;
    for (const auto& [type, service] : kServices) {
      EXPECT_EQ(of_type(operation, type), only_packet(service, opcode).known())
          << "opcode " << opcode << ", service " << static_cast<int>(service);
    }
  }
}

TEST(Operations, CarryWhatTheirPacketsCarry) {
  for (const std::uint32_t opcode : all_opcodes()) {
    const abi::Operation& operation = abi::operation_of(opcode);
    if (!on_the_wire(operation)) continue;
    const wire::OpcodeInfo& packet = only_packet(wire::Service::kRc, opcode);
    EXPECT_EQ(operation.has(abi::kPayload), packet.has(wire::kHasPayload)) << packet.name;
    const bool message = packet.has(wire::kSend | wire::kWrite);
    EXPECT_EQ(operation.has(abi::kAnswered), !message) << packet.name;
    EXPECT_EQ(operation.has(abi::kSinglePsn), !message && !packet.has(wire::kRead)) << packet.name;
  }
}

TEST(Operations, WithoutPacketsBelongToTheTypesThatExecuteThem) {
  for (const std::uint32_t opcode : {UROCE_WR_LOCAL_INV, UROCE_WR_BIND_MW, UROCE_WR_REG_MR}) {
    const abi::Operation& operation = abi::operation_of(opcode);
    EXPECT_TRUE(operation.has(abi::kLocal));
    EXPECT_FALSE(operation.has(abi::kTakesList | abi::kPayload | abi::kAnswered));
    for (const QpType type : {QpType::kRc, QpType::kXrcSend, QpType::kUc}) EXPECT_TRUE(of_type(operation, type));
    for (const QpType type : {QpType::kUd, QpType::kRawPacket}) EXPECT_FALSE(of_type(operation, type));
  }
  for (const std::uint32_t opcode : all_opcodes()) {
    const bool raw = opcode == UROCE_WR_SEND || opcode == UROCE_WR_TSO;
    EXPECT_EQ(of_type(abi::operation_of(opcode), QpType::kRawPacket), raw) << opcode;
  }
}

// A list never overlaps the fields of its operation, which end where the entry does.
TEST(Operations, KeepTheirListBehindTheirFields) {
  for (const OperationKind kind : {OperationKind::kAtomic, OperationKind::kFlush, OperationKind::kBind,
                                   OperationKind::kRegister, OperationKind::kSegments}) {
    for (const std::uint32_t opcode : all_opcodes()) {
      const abi::Operation& operation = abi::operation_of(opcode);
      if (operation.kind != kind) continue;
      EXPECT_EQ(operation.list_at, sizeof(uroce_sq_entry)) << opcode;
    }
  }
}

// Whatever number a program writes into an entry.
TEST(Operations, OfOtherNumbersAreInvalidOnEveryQp) {
  const std::vector<std::uint32_t> known = all_opcodes();
  for (std::uint32_t opcode = 0; opcode < 256; ++opcode) {
    const abi::Operation& operation = abi::operation_of(opcode);
    const bool is_known = std::ranges::find(known, opcode) != known.end();
    EXPECT_EQ(operation.kind != OperationKind::kInvalid, is_known) << opcode;
    for (std::uint32_t type = 0; !is_known && type < 256; ++type) EXPECT_FALSE(operation.of_type(type));
    EXPECT_LE(operation.list_at, sizeof(uroce_sq_entry));
  }
  EXPECT_EQ(abi::operation_of(~0u).kind, OperationKind::kInvalid);
}

}  // namespace
}  // namespace uroce::proto
