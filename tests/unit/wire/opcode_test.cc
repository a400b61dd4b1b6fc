// The opcode table against the lengths and bits of the specification, written out by hand.
#include "wire/opcode.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "packets.h"
#include "wire/extended_headers.h"

namespace uroce::wire {
namespace {

struct Expected {
  int code;
  const char* name;
  int header_bytes;
};
// IBTA vol. 1, tables 38-40: 12 of BTH, then DETH 8, RETH 16, AtomicETH 28, AETH 4, AtomicAckETH 8, ImmDt 4,
// IETH 4.
constexpr Expected kExpected[] = {
    {0x00, "RC SEND_FIRST", 12},        {0x01, "RC SEND_MIDDLE", 12},
    {0x02, "RC SEND_LAST", 12},         {0x03, "RC SEND_LAST_IMM", 16},
    {0x04, "RC SEND_ONLY", 12},         {0x05, "RC SEND_ONLY_IMM", 16},
    {0x06, "RC WRITE_FIRST", 28},       {0x07, "RC WRITE_MIDDLE", 12},
    {0x08, "RC WRITE_LAST", 12},        {0x09, "RC WRITE_LAST_IMM", 16},
    {0x0a, "RC WRITE_ONLY", 28},        {0x0b, "RC WRITE_ONLY_IMM", 32},
    {0x0c, "RC READ_REQUEST", 28},      {0x0d, "RC READ_RESP_FIRST", 16},
    {0x0e, "RC READ_RESP_MIDDLE", 12},  {0x0f, "RC READ_RESP_LAST", 16},
    {0x10, "RC READ_RESP_ONLY", 16},    {0x11, "RC ACK", 16},
    {0x12, "RC ATOMIC_ACK", 24},        {0x13, "RC CMP_SWAP", 40},
    {0x14, "RC FETCH_ADD", 40},         {0x16, "RC SEND_LAST_INV", 16},
    {0x17, "RC SEND_ONLY_INV", 16},     {0x1c, "RC FLUSH", 32},
    {0x1d, "RC ATOMIC_WRITE", 28},      {0x20, "UC SEND_FIRST", 12},
    {0x21, "UC SEND_MIDDLE", 12},       {0x22, "UC SEND_LAST", 12},
    {0x23, "UC SEND_LAST_IMM", 16},     {0x24, "UC SEND_ONLY", 12},
    {0x25, "UC SEND_ONLY_IMM", 16},     {0x26, "UC WRITE_FIRST", 28},
    {0x27, "UC WRITE_MIDDLE", 12},      {0x28, "UC WRITE_LAST", 12},
    {0x29, "UC WRITE_LAST_IMM", 16},    {0x2a, "UC WRITE_ONLY", 28},
    {0x2b, "UC WRITE_ONLY_IMM", 32},    {0x64, "UD SEND_ONLY", 20},
    {0x65, "UD SEND_ONLY_IMM", 24},     {0x81, "CNP", 28},
    {0xa0, "XRC SEND_FIRST", 16},       {0xa1, "XRC SEND_MIDDLE", 16},
    {0xa2, "XRC SEND_LAST", 16},        {0xa3, "XRC SEND_LAST_IMM", 20},
    {0xa4, "XRC SEND_ONLY", 16},        {0xa5, "XRC SEND_ONLY_IMM", 20},
    {0xa6, "XRC WRITE_FIRST", 32},      {0xa7, "XRC WRITE_MIDDLE", 16},
    {0xa8, "XRC WRITE_LAST", 16},       {0xa9, "XRC WRITE_LAST_IMM", 20},
    {0xaa, "XRC WRITE_ONLY", 32},       {0xab, "XRC WRITE_ONLY_IMM", 36},
    {0xac, "XRC READ_REQUEST", 32},     {0xad, "XRC READ_RESP_FIRST", 16},
    {0xae, "XRC READ_RESP_MIDDLE", 12}, {0xaf, "XRC READ_RESP_LAST", 16},
    {0xb0, "XRC READ_RESP_ONLY", 16},   {0xb1, "XRC ACK", 16},
    {0xb2, "XRC ATOMIC_ACK", 24},       {0xb3, "XRC CMP_SWAP", 44},
    {0xb4, "XRC FETCH_ADD", 44},        {0xb6, "XRC SEND_LAST_INV", 20},
    {0xb7, "XRC SEND_ONLY_INV", 20},
};

TEST(Opcodes, AreThoseOfTheSpecificationAndNoOthers) {
  std::set<int> known;
  for (const Expected& expected : kExpected) {
    const OpcodeInfo& info = kOpcodes[static_cast<std::size_t>(expected.code)];
    EXPECT_EQ(info.name, expected.name);
    EXPECT_EQ(info.header_bytes, expected.header_bytes) << expected.name;
    known.insert(expected.code);
  }
  for (int code = 0; code < 256; ++code) {
    const bool rd = code >= 0x40 && code <= 0x54;
    EXPECT_EQ(kOpcodes[static_cast<std::size_t>(code)].known(), rd || known.count(code) != 0) << code;
  }
}

// Present headers are adjacent, in range, and exactly those whose flags are set.
TEST(Opcodes, HeadersFollowEachOther) {
  for (std::size_t code = 0; code < 256; ++code) {
    const OpcodeInfo& info = kOpcodes[code];
    if (!info.known() || code == kCnpOpcode) continue;
    std::map<int, int> sizes;
    const auto header = [&](std::uint32_t flag, std::uint8_t offset, std::size_t bytes) {
      EXPECT_EQ(info.has(flag), offset != 0) << info.name;
      if (offset != 0) sizes[offset] = static_cast<int>(bytes);
    };
    header(kHasRdeth, info.rdeth, Rdeth::kBytes);
    header(kHasDeth, info.deth, Deth::kBytes);
    header(kHasReth, info.reth, Reth::kBytes);
    header(kHasAtomicEth, info.atomic_eth, AtomicEth::kBytes);
    header(kHasAeth, info.aeth, Aeth::kBytes);
    header(kHasAtomicAckEth, info.atomic_ack_eth, AtomicAckEth::kBytes);
    header(kHasImmDt, info.immdt, ImmDt::kBytes);
    header(kHasIeth, info.ieth, Ieth::kBytes);
    header(kHasXrcEth, info.xrceth, XrcEth::kBytes);
    header(kHasFeth, info.feth, Feth::kBytes);
    int at = kBthBytes;
    for (const auto& [offset, bytes] : sizes) {
      EXPECT_EQ(offset, at) << info.name;
      at = offset + bytes;
    }
    EXPECT_EQ(at, info.header_bytes) << info.name;
  }
}

TEST(Opcodes, RolesAgreeWithNames) {
  for (const OpcodeInfo& info : kOpcodes) {
    if (!info.known() || info.service == Service::kCnp) continue;
    const std::string name(info.name);
    const auto says = [&](const char* word) { return name.find(word) != std::string::npos; };
    const bool response = says("RESP") || says("ACK");
    EXPECT_EQ(info.has(kResponse), response) << name;
    EXPECT_EQ(info.has(kRequest), !response) << name;
    EXPECT_EQ(info.has(kSend), says(" SEND")) << name;
    EXPECT_EQ(info.has(kRead), says("READ")) << name;
    EXPECT_EQ(info.has(kFirst), says("FIRST")) << name;
    EXPECT_EQ(info.has(kMiddle), says("MIDDLE")) << name;
    EXPECT_EQ(info.has(kLast), says("LAST")) << name;
    EXPECT_EQ(info.has(kHasImmDt), says("IMM")) << name;
    EXPECT_EQ(info.has(kHasIeth), says("INV")) << name;
    const bool last = info.has(kLast | kOnly);
    EXPECT_EQ(info.has(kConsumesRecv), last && (info.has(kSend) || info.has(kHasImmDt))) << name;
  }
}

TEST(Opcodes, EveryOneMakesTheWholeWay) {
  for (std::size_t code = 0; code < 256; ++code) {
    const OpcodeInfo& info = kOpcodes[code];
    if (!info.known()) continue;
    for (const bool v6 : {false, true}) {
      for (const std::size_t payload : {0u, 1u, 2u, 3u, 64u, 4096u}) {
        if (payload != 0 && !info.has(kHasPayload)) continue;
        const auto frame = testing::build(testing::path(v6, 42), static_cast<std::uint8_t>(code), payload);
        RxPacket packet;
        ASSERT_EQ(parse(frame, {}, packet), ParseVerdict::kOk) << info.name << " " << payload;
        EXPECT_EQ(packet.info, &info);
        EXPECT_EQ(packet.payload_bytes, payload);
        EXPECT_EQ(packet.payload - packet.bth_start, info.header_bytes);
        EXPECT_EQ(packet.bth.dest_qpn, Qpn{0x123456});
        EXPECT_EQ(packet.bth.psn, Psn(0xabcdef));
        EXPECT_EQ(packet.vlan, 42);
      }
    }
  }
}

}  // namespace
}  // namespace uroce::wire
