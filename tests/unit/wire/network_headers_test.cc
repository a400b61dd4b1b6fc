// Every header as a value: emission into a buffer of 0xA5 leaves none of it inside and all of it outside, and
// parsing gives the value back. Bit positions are written out by hand.
#include "wire/network_headers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "packets.h"
#include "wire/dump.h"
#include "wire/extended_headers.h"
#include "wire/mad.h"

namespace uroce::wire {
namespace {

using testing::Bytes;

template <class Header>
Bytes emitted(const Header& header) {
  Bytes out(Header::kBytes + 16, std::byte{0xa5});
  header.emit(&out[8]);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(out[i], std::byte{0xa5});
    EXPECT_EQ(out[out.size() - 1 - i], std::byte{0xa5});
  }
  return Bytes(out.begin() + 8, out.end() - 8);
}

Bytes hex(std::initializer_list<int> values) {
  Bytes out;
  for (const int value : values) out.push_back(static_cast<std::byte>(value));
  return out;
}

TEST(Credits, CodesStandForAtMostWhatIsPosted) {
  const std::uint32_t counts[] = {0,    1,    2,    3,    4,    6,     8,     12,    16,   24,   32,
                                  48,   64,   96,   128,  192,  256,   384,   512,   768,  1024, 1536,
                                  2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768};
  for (std::uint8_t code = 0; code < 31; ++code) {
    EXPECT_EQ(credits_of(code), counts[code]);
    EXPECT_EQ(credit_code(counts[code]), code);
    EXPECT_EQ(credit_code(counts[code] + 1), code < 3 ? code + 1 : counts[code] == 3 ? 4 : code);
  }
  EXPECT_EQ(credit_code(~0u), 30);
}

TEST(Headers, StandWhereTheSpecificationPutsThem) {
  EXPECT_EQ(emitted(Reth{0x0102030405060708, Key{0x090a0b0c}, 0x0d0e0f10}),
            hex({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}));
  EXPECT_EQ(emitted(AtomicEth{0x0102030405060708, Key{0x090a0b0c}, 0x1112131415161718, 0x2122232425262728}),
            hex({1,    2,    3,    4,    5,    6,    7,    8,    9,    10,   11,   12,   0x11, 0x12,
                 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28}));
  EXPECT_EQ(emitted(Aeth{0x62, Msn(0x010203)}), hex({0x62, 1, 2, 3}));
  EXPECT_EQ(emitted(AtomicAckEth{0x0102030405060708}), hex({1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(emitted(Deth{0x80010000, Qpn{0xff000001}}), hex({0x80, 1, 0, 0, 0, 0, 0, 1}));
  EXPECT_EQ(emitted(ImmDt{0x04030201}), hex({1, 2, 3, 4})) << "passed through as it is";
  EXPECT_EQ(emitted(Ieth{Key{0x01020304}}), hex({1, 2, 3, 4}));
  EXPECT_EQ(emitted(XrcEth{0xff020304}), hex({0, 2, 3, 4}));
  EXPECT_EQ(emitted(Rdeth{0xff020304}), hex({0, 2, 3, 4}));
  EXPECT_EQ(emitted(Feth{0x11}), hex({0, 0, 0, 0x11}));
  EXPECT_EQ(emitted(VlanTag{0x6064, 0x0800}), hex({0x60, 0x64, 8, 0}));
  EXPECT_EQ(emitted(UdpHeader{0xc001, 4791, 24, 0}), hex({0xc0, 1, 0x12, 0xb7, 0, 24, 0, 0}));
  EXPECT_EQ(emitted(EthernetHeader{{1, 2, 3, 4, 5, 6}, {7, 8, 9, 10, 11, 12}, 0x86dd}),
            hex({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x86, 0xdd}));
  EXPECT_EQ(emitted(MadHeader{1, 7, 2, 3, 0x0405, 0x0607, 0x08090a0b0c0d0e0f, 0x10, 0, 0x14151617}),
            hex({1, 7, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 0x10, 0, 0, 0x14, 0x15, 0x16, 0x17}));
}

template <class Header>
void round_trip(std::mt19937& random) {
  for (int round = 0; round < 200; ++round) {
    Bytes bytes(Header::kBytes);
    std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::byte>(random()); });
    const Bytes once = emitted(Header::parse(bytes.data()));
    EXPECT_EQ(emitted(Header::parse(once.data())), once);
    if constexpr (requires { Header{} == Header{}; }) {
      EXPECT_EQ(once, bytes) << "every bit is a field's";
    }
  }
}

TEST(Headers, AnyBytesAreReadAndWrittenBack) {
  std::mt19937 random(21);
  round_trip<EthernetHeader>(random);
  round_trip<VlanTag>(random);
  round_trip<Ipv4Header>(random);
  round_trip<Ipv6Header>(random);
  round_trip<UdpHeader>(random);
  round_trip<MadHeader>(random);
  round_trip<Bth>(random);
  round_trip<Reth>(random);
  round_trip<AtomicEth>(random);
  round_trip<Aeth>(random);
  round_trip<AtomicAckEth>(random);
  round_trip<Deth>(random);
  round_trip<ImmDt>(random);
  round_trip<Ieth>(random);
  round_trip<XrcEth>(random);
  round_trip<Rdeth>(random);
  round_trip<Feth>(random);
}

TEST(Bth, HasItsBitsWhereTheSpecificationPutsThem) {
  Bth bth;
  bth.opcode = 0x64;
  bth.solicited = true;
  bth.migreq = false;
  bth.pad = 3;
  bth.version = 0;
  bth.pkey = 0x8001;
  bth.fecn = true;
  bth.dest_qpn = Qpn{0xff0a0b0c};
  bth.ack_req = true;
  bth.psn = Psn(0x010203);
  const Bytes out = emitted(bth);
  EXPECT_EQ(out, hex({0x64, 0xb0, 0x80, 1, 0x80, 0x0a, 0x0b, 0x0c, 0x80, 1, 2, 3}));
  const Bth back = Bth::parse(out.data());
  EXPECT_TRUE(back.solicited && back.fecn && back.ack_req);
  EXPECT_FALSE(back.migreq || back.becn);
  EXPECT_EQ(back.pad, 3);
  EXPECT_EQ(back.pkey, 0x8001);
  EXPECT_EQ(back.dest_qpn, Qpn{0x0a0b0c});
  EXPECT_EQ(back.psn, Psn(0x010203));
  EXPECT_EQ(emitted(Bth{.opcode = kCnpOpcode, .becn = true}),
            hex({0x81, 0x40, 0xff, 0xff, 0x40, 0, 0, 0, 0, 0, 0, 0}));
}

TEST(Checksum, IsThatOfRfc1071) {
  const Bytes example = hex({0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7});
  EXPECT_EQ(internet_checksum(example), static_cast<std::uint16_t>(~0xddf2));
  EXPECT_EQ(internet_checksum(hex({0x01})), static_cast<std::uint16_t>(~0x0100)) << "an odd byte is a high one";
  EXPECT_EQ(internet_checksum({}, 0x1ffff), static_cast<std::uint16_t>(~1));
}

std::string text_of(const Address& address) {
  char buffer[kAddressTextBytes];
  return std::string(to_text(address, buffer));
}

TEST(Text, AddressesAreWrittenAsRfc5952Says) {
  const auto v6 = [](std::array<std::uint8_t, 16> bytes) { return text_of(Address{bytes}); };
  EXPECT_EQ(text_of(testing::v4(192, 0, 2, 1)), "192.0.2.1");
  EXPECT_EQ(text_of(testing::v6(1)), "2001:db8::1");
  EXPECT_EQ(v6({}), "::");
  EXPECT_EQ(v6({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}), "::1");
  EXPECT_EQ(v6({0xfe, 0x80}), "fe80::");
  EXPECT_EQ(v6({0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4}), "1:0:2::3:0:4") << "the longest run";
  EXPECT_EQ(v6({0, 1, 0, 0, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0, 7}), "1:0:2:3:4:5:6:7") << "not a single zero";
}

template <class Header>
std::string text_of(const Header& header) {
  char buffer[kDumpBytes];
  return std::string(to_text(header, buffer));
}

TEST(Text, EachHeaderIsPrintedFieldByField) {
  EXPECT_EQ(text_of(EthernetHeader{{1, 2, 3, 4, 5, 6}, {7, 8, 9, 10, 11, 12}, 0x86dd}),
            "07:08:09:0a:0b:0c > 01:02:03:04:05:06 type=0x86dd");
  EXPECT_EQ(text_of(VlanTag{0x6064, 0x0800}), "vlan=100 priority=3 type=0x0800");
  Ipv4Header ipv4;
  ipv4.total_length = 60;
  ipv4.source = {192, 0, 2, 1};
  ipv4.dest = {192, 0, 2, 2};
  EXPECT_EQ(text_of(ipv4),
            "192.0.2.1 > 192.0.2.2 tos=0x00 len=60 id=0 fragment=0x4000 ttl=64 protocol=17 sum=0x0000");
  Ipv6Header ipv6;
  ipv6.source = testing::v6(1).bytes;
  ipv6.dest = testing::v6(2).bytes;
  EXPECT_EQ(text_of(ipv6), "2001:db8::1 > 2001:db8::2 class=0x00 flow=0x00000 len=0 next=17 hops=64");
  EXPECT_EQ(text_of(UdpHeader{0xc001, 4791, 24, 0}), "49153 > 4791 len=24 sum=0x0000");
  EXPECT_EQ(text_of(Bth{.dest_qpn = Qpn{0x11}, .ack_req = true, .psn = Psn(7)}), "qp=0x000011 psn=7 A");
  EXPECT_EQ(text_of(Rdeth{3}), "ee=3");
  EXPECT_EQ(text_of(Deth{0x80010000, Qpn{1}}), "src_qp=0x000001 qkey=0x80010000");
  EXPECT_EQ(text_of(XrcEth{0x12}), "srqn=0x000012");
  EXPECT_EQ(text_of(Feth{0x11}), "flush=0x00000011");
  EXPECT_EQ(text_of(Reth{0x1000, Key{2}, 3}), "va=0x1000 rkey=0x00000002 dma_len=3");
  EXPECT_EQ(text_of(AtomicEth{0x1000, Key{2}, 3, 4}), "va=0x1000 rkey=0x00000002 swap_add=0x3 cmp=0x4");
  EXPECT_EQ(text_of(Aeth{0x60, Msn(5)}), "nak(psn sequence) msn=5");
  EXPECT_EQ(text_of(AtomicAckEth{6}), "original=0x6");
  EXPECT_EQ(text_of(ImmDt{0x04030201}), "imm=0x01020304");
  EXPECT_EQ(text_of(Ieth{Key{7}}), "inv_rkey=0x00000007");
}

TEST(Text, OneLineSaysWhatAPacketIs) {
  char buffer[kDumpBytes];
  Bytes frame = testing::build(testing::path(false, 5), testing::kSendOnlyRc, 10);
  EXPECT_EQ(dump(frame, buffer), "192.0.2.1 > 192.0.2.2 vlan=5 RC SEND_ONLY qp=0x123456 psn=11259375 len=10");
  frame.back() ^= std::byte{1};
  EXPECT_EQ(dump(frame, buffer),
            "192.0.2.1 > 192.0.2.2 vlan=5 RC SEND_ONLY qp=0x123456 psn=11259375 len=10 [bad_icrc] 74 bytes");
  EXPECT_EQ(dump(hex({1, 2, 3}), buffer), "[truncated] 3 bytes");
  char small[8];
  EXPECT_EQ(dump(frame, small), "192.0.2") << "cut off";
  EXPECT_EQ(dump(frame, std::span<char>()), "");
  for (std::size_t code = 0; code < 256; ++code) {
    const OpcodeInfo& info = kOpcodes[code];
    if (!info.known()) continue;
    const std::string line(dump(testing::build(testing::path(true), static_cast<std::uint8_t>(code), 0), buffer));
    EXPECT_NE(line.find(info.name), std::string::npos) << line;
    EXPECT_LT(line.size() + 1, kDumpBytes);
    EXPECT_EQ(info.reth != 0, line.find("dma_len=") != std::string::npos) << line;
    EXPECT_EQ(info.aeth != 0, line.find("msn=") != std::string::npos) << line;
    EXPECT_EQ(info.immdt != 0, line.find("imm=") != std::string::npos) << line;
  }
}

TEST(Verdicts, HaveDistinctNames) {
  std::vector<std::string_view> names;
  for (int v = 0; v < static_cast<int>(ParseVerdict::kCount); ++v) {
    names.push_back(parse_verdict_name(static_cast<ParseVerdict>(v)));
    EXPECT_NE(names.back(), "unknown");
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

}  // namespace
}  // namespace uroce::wire
