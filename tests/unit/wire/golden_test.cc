// Packets of Linux Soft-RoCE: every one parses, its ICRC validates, and what was read from it is emitted as the
// same bytes.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "packets.h"
#include "wire/dump.h"
#include "wire/extended_headers.h"
#include "wire/mad.h"

namespace uroce::wire {
namespace {

using testing::Bytes;
using testing::golden_frames;
using testing::GoldenFrame;

template <class Header>
void again(const std::byte* from, std::uint8_t offset, std::byte* to) {
  if (offset != 0) Header::parse(from + offset).emit(to + offset);
}

/// Everything a frame says as values, then those values as bytes.
Bytes emit_again(const GoldenFrame& golden, const RxPacket& packet) {
  const std::byte* from = golden.frame.data();
  Bytes out(golden.frame.size(), std::byte{0xa5});
  std::byte* to = out.data();
  const auto take = [&](auto header) {
    header.emit(to);
    from += header.kBytes;
    to += header.kBytes;
  };
  const auto ethernet = EthernetHeader::parse(from);
  take(ethernet);
  if (ethernet.type == kEtherTypeVlan) take(VlanTag::parse(from));
  const std::byte* const ip = to;
  if (packet.ip_bytes == 20) {
    EXPECT_EQ(Ipv4Header::parse(from).checksum, Ipv4Header::parse(from).right_checksum());
    take(Ipv4Header::parse(from));
  } else {
    take(Ipv6Header::parse(from));
  }
  const auto udp = UdpHeader::parse(from);
  take(udp);
  packet.bth.emit(to);
  const OpcodeInfo& info = *packet.info;
  again<Rdeth>(from, info.rdeth, to);
  again<Deth>(from, info.deth, to);
  again<Reth>(from, info.reth, to);
  again<AtomicEth>(from, info.atomic_eth, to);
  again<Aeth>(from, info.aeth, to);
  again<AtomicAckEth>(from, info.atomic_ack_eth, to);
  again<ImmDt>(from, info.immdt, to);
  again<Ieth>(from, info.ieth, to);
  again<XrcEth>(from, info.xrceth, to);
  std::byte* const end = to + info.header_bytes + packet.payload_bytes + packet.bth.pad;
  std::uint32_t crc = icrc_begin(ip, packet.ip_bytes);
  crc = crc_engine().update(crc, to + kBthBytes, info.header_bytes - kBthBytes);
  crc = crc_engine().copy(crc, to + info.header_bytes, packet.payload, packet.payload_bytes);
  std::memset(end - packet.bth.pad, 0, packet.bth.pad);
  crc = crc_engine().update(crc, end - packet.bth.pad, packet.bth.pad);
  store_raw(end, icrc_finish(crc));
  EXPECT_EQ(end + kIcrcBytes, to + udp.length - 8);
  // Behind the IP packet there may be what Ethernet pads short frames with.
  for (std::byte* pad = end + kIcrcBytes; pad < out.data() + out.size(); ++pad) *pad = std::byte{0};
  return out;
}

TEST(Golden, EveryPacketParsesAndComesOutAsItWentIn) {
  std::map<std::string_view, int> seen;
  std::size_t count = 0;
  for (const GoldenFrame& golden : golden_frames()) {
    RxPacket packet;
    ASSERT_EQ(parse(golden.frame, {}, packet), ParseVerdict::kOk) << golden.file << " " << golden.number;
    EXPECT_EQ(emit_again(golden, packet), golden.frame) << golden.file << " " << golden.number;
    ++seen[packet.info->name];
    ++count;
  }
  EXPECT_GT(count, 1000u);
  for (const char* name :
       {"RC SEND_FIRST",       "RC SEND_MIDDLE",    "RC SEND_LAST",      "RC SEND_LAST_IMM", "RC SEND_ONLY",
        "RC SEND_ONLY_IMM",    "RC SEND_ONLY_INV",  "RC WRITE_FIRST",    "RC WRITE_MIDDLE",  "RC WRITE_LAST",
        "RC WRITE_LAST_IMM",   "RC WRITE_ONLY",     "RC WRITE_ONLY_IMM", "RC READ_REQUEST",  "RC READ_RESP_FIRST",
        "RC READ_RESP_MIDDLE", "RC READ_RESP_LAST", "RC READ_RESP_ONLY", "RC ACK",           "RC ATOMIC_ACK",
        "RC CMP_SWAP",         "RC FETCH_ADD",      "UC SEND_FIRST",     "UC WRITE_LAST",    "UD SEND_ONLY",
        "UD SEND_ONLY_IMM"}) {
    EXPECT_GT(seen[name], 0) << name;
  }
}

TEST(Golden, EveryBitUnderTheIcrcCounts) {
  std::set<std::string> tried;
  for (const GoldenFrame& golden : golden_frames()) {
    if (!tried.insert(golden.file).second || golden.frame.size() > 400) continue;
    RxPacket packet;
    ASSERT_EQ(parse(golden.frame, {}, packet), ParseVerdict::kOk);
    const auto first = static_cast<std::size_t>(packet.bth_start - golden.frame.data());
    const std::size_t end = static_cast<std::size_t>(packet.payload - golden.frame.data()) + packet.payload_bytes +
                            packet.bth.pad + kIcrcBytes;
    for (std::size_t bit = 8 * first; bit < 8 * end; ++bit) {
      Bytes broken = golden.frame;
      broken[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      const bool masked = bit / 8 == first + 4;  // FECN, BECN, reserved
      EXPECT_EQ(parse(broken, {}, packet) == ParseVerdict::kOk, masked) << golden.file << " bit " << bit;
    }
  }
}

TEST(Golden, FieldsAreThoseThatTheProgramsUsed) {
  std::set<std::string> files;
  for (const GoldenFrame& golden : golden_frames()) {
    RxPacket packet;
    ASSERT_EQ(parse(golden.frame, {}, packet), ParseVerdict::kOk);
    EXPECT_FALSE(packet.bth.migreq) << "rxe sends 0";
    EXPECT_EQ(packet.vlan != 0, golden.file == "vlan_rping.pcap");
    EXPECT_EQ(packet.ip_bytes == 40, golden.file.find("ipv6") != std::string::npos) << golden.file;
    EXPECT_EQ(packet.multicast, golden.file == "multicast_mckey.pcap") << golden.file;
    EXPECT_EQ(packet.multicast, packet.destination().is_multicast());
    if (golden.file == "cm_ucmatose.pcap" && packet.bth.dest_qpn.value == kGsiQpn) {
      ASSERT_EQ(packet.payload_bytes, kMadBytes);
      const MadHeader mad = MadHeader::parse(packet.payload);
      EXPECT_EQ(mad.base_version, kMadBaseVersion);
      EXPECT_EQ(mad.management_class, kMadClassCm);
      EXPECT_EQ(mad.class_version, kMadCmClassVersion);
      EXPECT_EQ(mad.method, kMadMethodSend);
      EXPECT_EQ(Deth::parse(packet.bth_start + packet.info->deth).qkey, kGsiQkey);
      std::byte out[MadHeader::kBytes];
      std::memset(out, 0xa5, sizeof out);
      mad.emit(out);
      EXPECT_EQ(std::memcmp(out, packet.payload, sizeof out), 0);
      files.insert(golden.file);
    }
  }
  EXPECT_EQ(files.size(), 1u);
}

// What a QP sends is the template's, but for what each implementation chooses: IP id, traffic class, MigReq, ports.
TEST(Golden, TheTemplateBuildsTheHeadersOfLinux) {
  for (const GoldenFrame& golden : golden_frames()) {
    RxPacket packet;
    ASSERT_EQ(parse(golden.frame, {}, packet), ParseVerdict::kOk);
    const auto ethernet = EthernetHeader::parse(golden.frame.data());
    PathAddress path;
    path.source_mac = ethernet.source;
    path.dest_mac = ethernet.dest;
    if (ethernet.type == kEtherTypeVlan) path.vlan = packet.vlan;
    path.source = packet.source();
    path.dest = packet.destination();
    Bytes expected = golden.frame;
    const auto ip_at = static_cast<std::size_t>(packet.ip - golden.frame.data());
    const auto udp = UdpHeader::parse(packet.ip + packet.ip_bytes);
    path.source_port = udp.source_port;
    if (packet.ip_bytes == 20) {
      auto ip = Ipv4Header::parse(packet.ip);
      path.traffic_class = ip.traffic_class;
      path.ecn = ip.traffic_class & 3;
      path.hop_limit = ip.ttl;
      EXPECT_EQ(ip.fragment, 0x4000) << "don't fragment";
      ip.identification = 0;
      ip.checksum = ip.right_checksum();
      ip.emit(&expected[ip_at]);
    } else {
      const auto ip = Ipv6Header::parse(packet.ip);
      path.traffic_class = ip.traffic_class;
      path.ecn = ip.traffic_class & 3;
      path.hop_limit = ip.hop_limit;
      path.flow_label = ip.flow_label;
    }
    const FrameTemplate frame(path);
    Bytes out(frame.header_bytes(), std::byte{0xa5});
    ASSERT_EQ(frame.emit(out.data(), udp.length - 8u), out.size());
    expected.resize(out.size());
    EXPECT_EQ(out, expected) << golden.file << " " << golden.number;
  }
}

}  // namespace
}  // namespace uroce::wire
