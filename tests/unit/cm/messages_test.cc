// CM messages against those that Linux sent (tests/golden/pcaps) and against themselves.
#include "cm/messages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <vector>

namespace uroce::cm {
namespace {

struct GoldenMessage {
  std::string file;
  Attribute attribute;
  std::array<std::byte, kMessageBytes> bytes;
};

// Every CM MAD of the golden captures: frames to QP 1 whose management class is 7.
std::vector<GoldenMessage> golden_messages() {
  std::vector<GoldenMessage> found;
  for (const auto& entry : std::filesystem::directory_iterator(UROCE_GOLDEN_DIR)) {
    if (entry.path().extension() != ".pcap") continue;
    std::ifstream in(entry.path(), std::ios::binary);
    const std::vector<char> data((std::istreambuf_iterator<char>(in)), {});
    for (std::size_t at = 24; at + 16 <= data.size();) {
      std::uint32_t captured;
      std::memcpy(&captured, &data[at + 8], 4);
      const auto* frame = reinterpret_cast<const std::uint8_t*>(&data[at + 16]);
      at += 16 + captured;
      std::size_t ip = 14;
      if (frame[12] == 0x81) ip += 4;
      const std::size_t bth = ip + (frame[ip] >> 4 == 6 ? 40 : 20) + 8;
      if (captured < bth + 20 + 256 || frame[bth] != 0x64 || frame[bth + 7] != 1 || frame[bth + 21] != 7) continue;
      GoldenMessage message{entry.path().filename(), static_cast<Attribute>(frame[bth + 20 + 17]), {}};
      std::memcpy(message.bytes.data(), frame + bth + 20 + 24, kMessageBytes);
      found.push_back(message);
    }
  }
  return found;
}

template <class Message>
std::array<std::byte, kMessageBytes> again(MessageBytes from) {
  std::array<std::byte, kMessageBytes> out;
  out.fill(std::byte{0xa5});
  Message::parse(from).emit(out);
  return out;
}

std::array<std::byte, kMessageBytes> again(Attribute attribute, MessageBytes from) {
  switch (attribute) {
    case Attribute::kReq: return again<Req>(from);
    case Attribute::kMra: return again<Mra>(from);
    case Attribute::kRej: return again<Rej>(from);
    case Attribute::kRep: return again<Rep>(from);
    case Attribute::kRtu: return again<Rtu>(from);
    case Attribute::kDreq: return again<Dreq>(from);
    case Attribute::kDrep: return again<Drep>(from);
    case Attribute::kSidrReq: return again<SidrReq>(from);
    case Attribute::kSidrRep: return again<SidrRep>(from);
  }
  ADD_FAILURE() << "attribute " << static_cast<int>(attribute);
  return {};
}

TEST(CmMessages, EveryMessageOfLinuxComesOutAsItWentIn) {
  std::map<Attribute, int> seen;
  for (const GoldenMessage& message : golden_messages()) {
    ++seen[message.attribute];
    EXPECT_EQ(again(message.attribute, message.bytes), message.bytes)
        << message.file << " attribute " << static_cast<int>(message.attribute);
  }
  for (const Attribute a : {Attribute::kReq, Attribute::kRep, Attribute::kRtu, Attribute::kRej, Attribute::kDreq,
                            Attribute::kDrep, Attribute::kSidrReq, Attribute::kSidrRep}) {
    EXPECT_GT(seen[a], 0) << "no golden message of attribute " << static_cast<int>(a);
  }
}

TEST(CmMessages, RequestOfLinuxReadsAsItsProgramAskedFor) {
  for (const GoldenMessage& message : golden_messages()) {
    if (message.file != "rping.pcap" || message.attribute != Attribute::kReq) continue;
    const Req req = Req::parse(message.bytes);
    EXPECT_EQ(req.service_id, service_id(PortSpace::kTcp, 7174));
    EXPECT_EQ(req.transport, TransportService::kRc);
    EXPECT_EQ(req.pkey, 0xffff);
    EXPECT_EQ(req.retry_count, 7);
    EXPECT_TRUE(req.primary.local_gid.is_v4());
    const auto header = IpCmHeader::parse(std::span(req.private_data).first<IpCmHeader::kBytes>());
    EXPECT_EQ(header.ip_version, 4);
    EXPECT_EQ(header.source, req.primary.local_gid);
    EXPECT_EQ(header.destination, req.primary.remote_gid);
    std::array<std::byte, IpCmHeader::kBytes> out;
    out.fill(std::byte{0xa5});
    header.emit(out);
    EXPECT_TRUE(std::equal(out.begin(), out.end(), req.private_data.begin()));
    return;
  }
  FAIL() << "no REQ in rping.pcap";
}

// The vendor of enhanced connection establishment: one field of a REQ, three of a REP, two of a SIDR_REP. None of
// Linux' has one.
TEST(CmMessages, TheVendorOfExtendedOptionsStandsWhereTheStandardPutsIt) {
  std::array<std::byte, kMessageBytes> bytes;
  Req req;
  req.local_id = ~0u;
  req.ece.vendor = 0x0a0b0c;
  req.emit(bytes);
  EXPECT_EQ(bytes[4], std::byte{0});
  EXPECT_EQ(bytes[5], std::byte{0x0a});
  EXPECT_EQ(bytes[6], std::byte{0x0b});
  EXPECT_EQ(bytes[7], std::byte{0x0c});
  EXPECT_EQ(Req::parse(bytes).ece.vendor, 0x0a0b0cu);
  Rep rep;
  rep.local_qpn = Qpn{0xffffff};
  rep.starting_psn = Psn(0xffffff);
  rep.ece.vendor = 0x0a0b0c;
  rep.emit(bytes);
  EXPECT_EQ(bytes[15], std::byte{0x0a});
  EXPECT_EQ(bytes[19], std::byte{0x0b});
  EXPECT_EQ(bytes[23], std::byte{0x0c});
  EXPECT_EQ(Rep::parse(bytes).ece.vendor, 0x0a0b0cu);
  EXPECT_EQ(Rep::parse(bytes).local_qpn, Qpn{0xffffff});
  SidrRep sidr;
  sidr.qpn = Qpn{0xffffff};
  sidr.ece.vendor = 0x0a0b0c;
  sidr.emit(bytes);
  EXPECT_EQ(bytes[6], std::byte{0x0a});
  EXPECT_EQ(bytes[7], std::byte{0x0b});
  EXPECT_EQ(bytes[11], std::byte{0x0c});
  EXPECT_EQ(SidrRep::parse(bytes).ece.vendor, 0x0a0b0cu);
  EXPECT_EQ(SidrRep::parse(bytes).qpn, Qpn{0xffffff});
  for (const GoldenMessage& message : golden_messages()) {
    if (message.attribute == Attribute::kReq) {
      EXPECT_EQ(Req::parse(message.bytes).ece, Ece{});
    } else if (message.attribute == Attribute::kRep) {
      EXPECT_EQ(Rep::parse(message.bytes).ece, Ece{});
    } else if (message.attribute == Attribute::kSidrRep) {
      EXPECT_EQ(SidrRep::parse(message.bytes).ece, Ece{});
    }
  }
}

// Parsing is total: any bytes parse, and what was parsed emits to something that parses the same.
TEST(CmMessages, AnyBytesParseAndKeepTheirMeaning) {
  std::mt19937 random(7);
  std::array<std::byte, kMessageBytes> bytes;
  for (int round = 0; round < 2000; ++round) {
    std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::byte>(random()); });
    for (int a = 0x10; a <= 0x18; ++a) {
      const auto attribute = static_cast<Attribute>(a);
      const auto once = again(attribute, bytes);
      EXPECT_EQ(again(attribute, once), once) << "attribute " << a;
    }
  }
}

}  // namespace
}  // namespace uroce::cm
