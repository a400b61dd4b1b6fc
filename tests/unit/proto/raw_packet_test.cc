// Raw packet QPs and WQs: frames as the program built them, TCP segmentation, VLAN tags, and frames that do not
// fit.
#include <algorithm>
#include <cerrno>

#include "tests/unit/proto/pair.h"
#include "wire/bytes.h"
#include "wire/ethernet_frame.h"
#include "wire/network_headers.h"
#include "wire/packet.h"

namespace uroce::proto::test {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::uint32_t kMaxFrame = 1518, kRoom = 9216;

Options raw(QpType type = QpType::kRawPacket) {
  Options options;
  options.type = type;
  options.max_tso_header = 128;
  return options;
}

class RawEnd : public End {
 public:
  explicit RawEnd(const Options& with = raw()) : End(with, Qpn{0x11}, 1) {
    transport->set_max_frame(kMaxFrame);
    EXPECT_EQ(transport->modify(qp, state(QpState::kInit), kAttrState | kAttrPort, 0).error, 0);
    EXPECT_EQ(to(QpState::kRtr, 0).error, 0);
    EXPECT_EQ(to(QpState::kRts, 0).error, 0);
  }

  /// The frames that it wants to send, `at_once` in a burst.
  std::vector<Bytes> take(std::size_t at_once = 8) {
    std::vector<Bytes> out;
    std::vector<std::byte> buffer(at_once * kRoom);
    std::vector<base::Frame> frames(at_once);
    for (;;) {
      for (std::size_t i = 0; i < at_once; ++i)
        frames[i] = {buffer.data() + i * kRoom, 0, kRoom, base::kIcrcGood, 0, nullptr};
      TxBurst burst{frames, 0};
      transport->transmit(burst, 0);
      if (burst.count == 0) return out;
      for (const base::Frame& frame : std::span(frames).first(burst.count)) {
        EXPECT_EQ(frame.flags & base::kIcrcGood, 0u) << "a program may have written a wrong one";
        out.emplace_back(frame.data, frame.data + frame.length);
      }
    }
  }
  void receive(const ReceivedFrame& frame) { transport->receive_frame(qp, frame, 5); }

  static QpAttr state(QpState to) {
    QpAttr attr;
    attr.state = to;
    return attr;
  }
};

/// Ethernet, IPv4 and TCP headers; ID 7, sequence 1000, FIN, PSH, ACK and CWR.
Bytes tcp_header() {
  Bytes bytes(54);
  wire::EthernetHeader{{2, 0, 0, 0, 0, 2}, {2, 0, 0, 0, 0, 1}, wire::kEtherTypeIpv4}.emit(bytes.data());
  wire::Ipv4Header ip;
  ip.identification = 7;
  ip.protocol = wire::kProtocolTcp;
  ip.source = {192, 0, 2, 1}, ip.dest = {192, 0, 2, 2};
  ip.emit(bytes.data() + 14);
  wire::store16(bytes.data() + 34, 1000), wire::store16(bytes.data() + 36, 80);
  bytes[41] = std::byte{232}, bytes[40] = std::byte{3};
  bytes[46] = std::byte{0x50}, bytes[47] = std::byte{0x99};
  return bytes;
}

std::uint32_t load32(const Bytes& frame, std::size_t at) {
  return std::uint32_t{wire::load16(frame.data() + at)} << 16 | wire::load16(frame.data() + at + 2);
}

TEST(Raw, AFrameGoesOutAsItWasPosted) {
  RawEnd end;
  end.fill(0, 200, 1);
  end.post({.wr_id = 3, .sges = {end.sge(0, 14), end.sge(14, 100), end.sge(114, 0), end.sge(114, 20)}});
  Work inlined{.wr_id = 4};
  inlined.inline_data.assign(end.at(0), end.at(60));
  end.post(inlined);
  const auto frames = end.take();
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_EQ(frames[0], Bytes(end.at(0), end.at(134)));
  EXPECT_EQ(frames[1], inlined.inline_data);
  const auto sent = end.poll();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].status, UROCE_WC_SUCCESS);
  EXPECT_EQ(sent[0].opcode, UROCE_WC_SEND);
  EXPECT_EQ(end.counters().sent_frames, 2u);
  EXPECT_EQ(end.counters().sent_pkts, 0u) << "that counts packets of the transport";
}

TEST(Raw, AFrameTooShortOrTooLongEndsTheQp) {
  for (const std::uint32_t bytes : {0u, 13u, kMaxFrame + 1}) {
    RawEnd end;
    end.post({.wr_id = 3, .sges = {end.sge(0, bytes)}});
    EXPECT_TRUE(end.take().empty());
    const auto sent = end.poll();
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_EQ(sent[0].status, UROCE_WC_LOC_LEN_ERR);
    EXPECT_EQ(end.snapshot().state, QpState::kErr);
  }
  RawEnd end;
  end.post({.wr_id = 3, .sges = {end.sge(0, 14)}});
  wire::store16(end.at(12), wire::kEtherTypeVlan);
  end.post({.wr_id = 3, .sges = {end.sge(0, kMaxFrame)}});
  wire::store16(end.at(112), wire::kEtherTypeIpv4);
  end.post({.wr_id = 3, .sges = {end.sge(100, kMaxFrame - 4)}});
  EXPECT_EQ(end.take().size(), 3u);
  end.post({.wr_id = 3, .sges = {end.sge(100, kMaxFrame - 3)}});
  EXPECT_TRUE(end.take().empty()) << "the last four bytes are for a tag";
}

TEST(Raw, AFrameOfMemoryThatIsNotMappedMayBeLongerThanAPacket) {
  constexpr std::uint32_t kLong = 9000;
  const memory::IndirectIo io{.read =
                                  [](void*, std::uint64_t at, std::byte* to, std::size_t bytes) {
                                    for (std::size_t i = 0; i < bytes; ++i) to[i] = std::byte((at + i) / 256);
                                    return true;
                                  },
                              .write = [](void*, std::uint64_t, const std::byte*, std::size_t) { return true; }};
  RawEnd end;
  end.transport->set_max_frame(kLong + 4);
  const Key key = *end.table.insert({.pd = end.pd, .access = kAllAccess, .length = kLong, .indirect = &io});
  end.post({.wr_id = 3, .sges = {{0, kLong, key.value}}});
  const auto frames = end.take();
  ASSERT_EQ(frames.size(), 1u);
  ASSERT_EQ(frames[0].size(), kLong);
  for (std::size_t i = 0; i < kLong; ++i) ASSERT_EQ(frames[0][i], std::byte(i / 256)) << i;
}

TEST(Raw, OperationsOfTheTransportAreRefusedAndItsOwnElsewhere) {
  for (const std::uint8_t opcode : {UROCE_WR_RDMA_WRITE, UROCE_WR_RDMA_READ, UROCE_WR_SEND_WITH_IMM,
                                    UROCE_WR_SEND_WITH_INV, UROCE_WR_LOCAL_INV, UROCE_WR_BIND_MW}) {
    RawEnd end;
    end.post({.opcode = opcode, .sges = {end.sge(0, 64)}});
    EXPECT_TRUE(end.take().empty()) << int{opcode};
    EXPECT_EQ(end.poll().at(0).status, UROCE_WC_LOC_QP_OP_ERR) << int{opcode};
  }
  for (const QpType type : {QpType::kRc, QpType::kUc, QpType::kUd, QpType::kXrcSend}) {
    Pair pair = Pair::of(type);
    Work work{.opcode = UROCE_WR_TSO, .sges = {pair.a.sge(0, 64)}};
    work.mss = 32;
    work.header = Bytes(16);
    pair.a.post(work);
    pair.run();
    EXPECT_EQ(pair.a.poll().at(0).status, UROCE_WC_LOC_QP_OP_ERR);
    EXPECT_TRUE(pair.log.empty());
  }
}

TEST(Raw, ChecksumsAreFilledInWhereAsked) {
  RawEnd end;
  const Bytes header = tcp_header();
  std::ranges::copy(header, end.at(0));
  end.fill(header.size(), 50, 9);
  wire::store16(end.at(16), 20 + 20 + 50);
  end.post({.flags = UROCE_SEND_SIGNALED | UROCE_SEND_IP_CSUM, .sges = {end.sge(0, 104)}});
  end.post({.sges = {end.sge(0, 104)}});
  const auto frames = end.take();
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_TRUE(wire::checksums_good(frames[0], wire::layout_of(frames[0])));
  EXPECT_FALSE(wire::checksums_good(frames[1], wire::layout_of(frames[1])));
}

class Segments : public testing::TestWithParam<std::size_t> {};

TEST_P(Segments, OfALongPayloadFollowEachOther) {
  RawEnd end;
  constexpr std::uint32_t kBytes = 5000, kMss = 1400;
  end.fill(0, kBytes, 3);
  Work work{.wr_id = 9, .opcode = UROCE_WR_TSO, .sges = {end.sge(0, 1000), end.sge(1000, 4000)}};
  work.mss = kMss;
  work.header = tcp_header();
  end.post(work);
  const auto frames = end.take(GetParam());
  ASSERT_EQ(frames.size(), 4u);
  std::uint32_t offset = 0;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const Bytes& frame = frames[i];
    const bool last = i == 3;
    const wire::FrameLayout layout = wire::layout_of(frame);
    EXPECT_TRUE(wire::checksums_good(frame, layout)) << i;
    ASSERT_EQ(layout.payload, 54);
    EXPECT_EQ(wire::load16(frame.data() + 18), 7 + i) << "IPv4 identification";
    EXPECT_EQ(load32(frame, 38), 1000 + offset) << "TCP sequence";
    EXPECT_EQ(frame[47], static_cast<std::byte>(i == 0 ? 0x90
                                                : last ? 0x19
                                                       : 0x10))
        << "CWR first, FIN and PSH last";
    EXPECT_EQ(std::memcmp(frame.data() + 54, end.at(offset), frame.size() - 54), 0);
    offset += static_cast<std::uint32_t>(frame.size()) - 54;
  }
  EXPECT_EQ(offset, kBytes);
  const auto sent = end.poll();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].opcode, UROCE_WC_TSO);
  EXPECT_EQ(sent[0].status, UROCE_WC_SUCCESS);
}

INSTANTIATE_TEST_SUITE_P(FramesABurst, Segments, testing::Values(1, 3, 8));

TEST(Raw, SegmentationThatCannotBeIsRefused) {
  const auto status_of = [](std::uint16_t mss, Bytes header, std::uint32_t bytes) {
    RawEnd end;
    Work work{.opcode = UROCE_WR_TSO, .sges = {end.sge(0, bytes)}};
    work.mss = mss;
    work.header = std::move(header);
    end.post(work);
    EXPECT_TRUE(end.take().empty());
    const auto sent = end.poll();
    return sent.empty() ? 0xff : int{sent[0].status};
  };
  Bytes not_tcp = tcp_header();
  not_tcp[23] = std::byte{17};
  Bytes longer = tcp_header();
  longer.push_back({});
  EXPECT_EQ(status_of(0, tcp_header(), 100), UROCE_WC_LOC_LEN_ERR) << "no segment size";
  EXPECT_EQ(status_of(kMaxFrame - 53, tcp_header(), 100), UROCE_WC_LOC_LEN_ERR)
      << "segments longer than the port takes";
  EXPECT_EQ(status_of(100, Bytes(129), 100), UROCE_WC_LOC_LEN_ERR) << "more header than the QP was made for";
  EXPECT_EQ(status_of(100, tcp_header(), (1u << 18) + 1), UROCE_WC_LOC_LEN_ERR);
  EXPECT_EQ(status_of(100, not_tcp, 100), UROCE_WC_LOC_QP_OP_ERR);
  EXPECT_EQ(status_of(100, longer, 100), UROCE_WC_LOC_QP_OP_ERR)
      << "something between the TCP header and the payload";
}

TEST(Raw, AReceivedFrameFillsTheListAndSaysWhatIsKnownOfIt) {
  RawEnd end;
  Bytes frame = tcp_header();
  end.post_receive(7, {end.sge(0, 20), end.sge(100, 100)});
  end.receive({.bytes = frame, .flow_tag = 0xabcdef01, .checksums_good = true});
  const auto received = end.poll(true);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].wr_id, 7u);
  EXPECT_EQ(received[0].opcode, UROCE_WC_RECV);
  EXPECT_EQ(received[0].byte_len, frame.size());
  EXPECT_EQ(received[0].wc_flags, UROCE_WC_IP_CSUM_OK);
  EXPECT_EQ(received[0].flow_tag, 0xabcdef01u);
  EXPECT_EQ(std::memcmp(end.at(0), frame.data(), 20), 0);
  EXPECT_EQ(std::memcmp(end.at(100), frame.data() + 20, frame.size() - 20), 0);
}

TEST(Raw, ATagGoesIntoTheEntryOfAQpThatStripsIt) {
  for (const bool strip : {false, true}) {
    Options options = raw();
    options.strip_vlan = strip;
    RawEnd end(options);
    Bytes frame(64);
    for (std::size_t i = 0; i < frame.size(); ++i) frame[i] = static_cast<std::byte>(i);
    Bytes service = frame;
    wire::store16(&frame[12], wire::kEtherTypeVlan);
    wire::store16(&service[12], wire::kEtherTypeServiceVlan);
    end.post_receive(1, {end.sge(0, 100)});
    end.post_receive(2, {end.sge(200, 100)});
    end.post_receive(3, {end.sge(300, 100)});
    end.receive({.bytes = frame, .vlan = true, .vlan_tci = 0x6005});
    end.receive({.bytes = frame});
    end.receive({.bytes = service, .vlan = true, .vlan_tci = 0x6005});
    const auto received = end.poll(true);
    ASSERT_EQ(received.size(), 3u);
    EXPECT_EQ(received[2].byte_len, 64u) << "a provider's tag stays";
    EXPECT_EQ(received[0].byte_len, strip ? 60u : 64u);
    EXPECT_EQ(received[0].vlan_id, strip ? 0x6005 : 0);
    EXPECT_EQ(received[1].byte_len, 64u);
    EXPECT_EQ(std::memcmp(end.at(0), frame.data(), 12), 0);
    EXPECT_EQ(std::memcmp(end.at(12), frame.data() + (strip ? 16 : 12), 48), 0);
  }
}

TEST(Raw, AFrameWithoutARoomyReceiveIsDropped) {
  RawEnd end;
  const Bytes frame = tcp_header();
  end.receive({.bytes = frame});
  EXPECT_EQ(end.counters().drop_no_receive, 1u);
  end.post_receive(7, {end.sge(0, 53)});
  end.receive({.bytes = frame});
  EXPECT_EQ(end.counters().drop_too_long, 1u);
  EXPECT_TRUE(end.poll(true).empty());
  end.receive({.bytes = std::span(frame).first(53)});
  EXPECT_EQ(end.poll(true).size(), 1u) << "the receive waited for one that fits";
}

TEST(Raw, MemoryThatIsNotThereEndsTheQp) {
  RawEnd end;
  uroce_sge bad = end.sge(0, 100);
  bad.lkey ^= 0x100;
  end.post_receive(7, {bad});
  end.receive({.bytes = tcp_header()});
  EXPECT_EQ(end.poll(true).at(0).status, UROCE_WC_LOC_PROT_ERR);
  EXPECT_EQ(end.snapshot().state, QpState::kErr);
}

TEST(Raw, NoPacketOfTheTransportReachesIt) {
  Pair pair;  // the QPN of its b is 0x22
  RawEnd end;
  ASSERT_EQ(end.qpn.value, 0x11u);
  end.post_receive(7, {end.sge(0, 100)});
  pair.b.post({.sges = {pair.b.sge(0, 8)}});
  for (const Packet& packet : pair.take(pair.b)) {
    wire::RxPacket rx = packet.rx;
    end.transport->receive(rx, 0);
  }
  EXPECT_EQ(end.counters().drop_no_qp, 1u);
  EXPECT_TRUE(end.poll(true).empty());
}

TEST(Raw, AWorkQueueReceivesAndNeverSends) {
  End wq(raw(QpType::kWq), Qpn{0x11}, 1);
  const Bytes frame = tcp_header();
  const auto receive = [&] { wq.transport->receive_frame(wq.qp, {.bytes = frame}, 0); };
  wq.post_receive(1, {wq.sge(0, 100)});
  receive();
  EXPECT_EQ(wq.counters().drop_bad_state, 1u) << "it isn't ready";
  EXPECT_NE(wq.to(QpState::kRts, 0).error, 0);
  ASSERT_EQ(wq.to(QpState::kRtr, 0).error, 0);
  receive();
  EXPECT_EQ(wq.poll(true).at(0).wr_id, 1u);
  wq.post_receive(2, {wq.sge(0, 100)});
  ASSERT_EQ(wq.to(QpState::kErr, 0).error, 0);
  EXPECT_EQ(wq.poll(true).at(0).status, UROCE_WC_WR_FLUSH_ERR);
  ASSERT_EQ(wq.to(QpState::kReset, 0).error, 0);
  ASSERT_EQ(wq.to(QpState::kRtr, 0).error, 0);
  wq.transport->destroy(wq.qp, 0);
  receive();
}

TEST(Raw, AttributesOfItsStatesAreThoseOfLinux) {
  const auto check = [](QpType type, QpState from, QpState to, std::uint32_t mask) {
    return check_modify(type, from, RawEnd::state(to), kAttrState | mask).error;
  };
  using enum QpState;
  constexpr QpType kRaw = QpType::kRawPacket;
  EXPECT_EQ(check(kRaw, kReset, kInit, kAttrPort), 0);
  EXPECT_EQ(check(kRaw, kReset, kInit, 0), EINVAL);
  EXPECT_EQ(check(kRaw, kReset, kInit, kAttrPort | kAttrPkeyIndex), EINVAL);
  EXPECT_EQ(check(kRaw, kInit, kRtr, 0), 0);
  EXPECT_EQ(check(kRaw, kRtr, kRts, kAttrSqPsn), EINVAL);
  EXPECT_EQ(check(kRaw, kRtr, kRts, kAttrRateLimit), 0);
  EXPECT_EQ(check(kRaw, kRts, kSqd, 0), 0);
  EXPECT_EQ(check(QpType::kWq, kReset, kRtr, 0), 0);
  EXPECT_EQ(check(QpType::kWq, kReset, kInit, kAttrPort), EINVAL);
  EXPECT_EQ(check(QpType::kWq, kRtr, kSqd, 0), EINVAL);
}

}  // namespace
}  // namespace uroce::proto::test
