#include "cm/messages.h"

#include <algorithm>
#include <cstring>

#include "cm/fields.h"

namespace uroce::cm {
namespace {

// The place of each field: byte offset of the big-endian word that holds it, the word's size, the field's lowest
// bit and its width (IBTA vol. 1, 12.6 and 12.11).
constexpr Field kLocalId{0, 4}, kRemoteId{4, 4};

namespace req {
constexpr Field kVendor{4, 4, 0, 24}, kServiceId{8, 8}, kCaGuid{16, 8}, kQkey{28, 4};
constexpr Field kQpn{32, 4, 8, 24}, kResponderResources{35, 1}, kInitiatorDepth{39, 1};
constexpr Field kRemoteTimeout{43, 1, 3, 5}, kTransport{43, 1, 1, 2}, kFlowControl{43, 1, 0, 1};
constexpr Field kPsn{44, 4, 8, 24}, kLocalTimeout{47, 1, 3, 5}, kRetry{47, 1, 0, 3};
constexpr Field kPkey{48, 2}, kMtu{50, 1, 4, 4}, kRnrRetry{50, 1, 0, 3};
constexpr Field kCmRetries{51, 1, 4, 4}, kSrq{51, 1, 3, 1}, kExtended{51, 1, 0, 3};
constexpr std::size_t kPrimary = 52, kAlternate = 96, kPrivate = 140;
}  // namespace req

namespace path {
constexpr Field kLocalLid{0, 2}, kRemoteLid{2, 2};
constexpr std::size_t kLocalGid = 4, kRemoteGid = 20;
constexpr Field kFlowLabel{36, 4, 12, 20}, kRate{36, 4, 0, 6};
constexpr Field kTrafficClass{40, 1}, kHopLimit{41, 1}, kSl{42, 1, 4, 4}, kSubnetLocal{42, 1, 3, 1};
constexpr Field kAckTimeout{43, 1, 3, 5};
}  // namespace path

namespace rep {
constexpr Field kQkey{8, 4}, kQpn{12, 4, 8, 24}, kPsn{20, 4, 8, 24};
constexpr Field kVendorHigh{15, 1}, kVendorMiddle{19, 1}, kVendorLow{23, 1};
constexpr Field kResponderResources{24, 1}, kInitiatorDepth{25, 1};
constexpr Field kAckDelay{26, 1, 3, 5}, kFailover{26, 1, 1, 2}, kFlowControl{26, 1, 0, 1};
constexpr Field kRnrRetry{27, 1, 5, 3}, kSrq{27, 1, 4, 1}, kCaGuid{28, 8};
}  // namespace rep

wire::Address read_gid(const std::byte* from) {
  wire::Address gid;
  std::memcpy(gid.bytes.data(), from, gid.bytes.size());
  return gid;
}

Path read_path(const std::byte* from) {
  Path p;
  p.local_lid = path::kLocalLid.read<std::uint16_t>(from);
  p.remote_lid = path::kRemoteLid.read<std::uint16_t>(from);
  p.local_gid = read_gid(from + path::kLocalGid);
  p.remote_gid = read_gid(from + path::kRemoteGid);
  p.flow_label = path::kFlowLabel.read<std::uint32_t>(from);
  p.packet_rate = path::kRate.read<std::uint8_t>(from);
  p.traffic_class = path::kTrafficClass.read<std::uint8_t>(from);
  p.hop_limit = path::kHopLimit.read<std::uint8_t>(from);
  p.sl = path::kSl.read<std::uint8_t>(from);
  p.subnet_local = path::kSubnetLocal.read<bool>(from);
  p.ack_timeout = path::kAckTimeout.read<std::uint8_t>(from);
  return p;
}

void write_path(const Path& p, std::byte* to) {
  path::kLocalLid.write(to, p.local_lid);
  path::kRemoteLid.write(to, p.remote_lid);
  std::memcpy(to + path::kLocalGid, p.local_gid.bytes.data(), 16);
  std::memcpy(to + path::kRemoteGid, p.remote_gid.bytes.data(), 16);
  path::kFlowLabel.write(to, p.flow_label);
  path::kRate.write(to, p.packet_rate);
  path::kTrafficClass.write(to, p.traffic_class);
  path::kHopLimit.write(to, p.hop_limit);
  path::kSl.write(to, p.sl);
  path::kSubnetLocal.write(to, p.subnet_local);
  path::kAckTimeout.write(to, p.ack_timeout);
}

template <std::size_t N>
void read_bytes(MessageBytes from, std::size_t offset, std::array<std::byte, N>& to) {
  std::memcpy(to.data(), from.data() + offset, N);
}
template <std::size_t N>
void write_bytes(MessageBuffer to, std::size_t offset, const std::array<std::byte, N>& from) {
  std::memcpy(to.data() + offset, from.data(), N);
}
void clear(MessageBuffer to) { std::fill(to.begin(), to.end(), std::byte{0}); }

template <class Message>
void read_ids(MessageBytes from, Message& m) {
  m.local_id = kLocalId.read<std::uint32_t>(from.data());
  m.remote_id = kRemoteId.read<std::uint32_t>(from.data());
}
template <class Message>
void write_ids(const Message& m, MessageBuffer to) {
  clear(to);
  kLocalId.write(to.data(), m.local_id);
  kRemoteId.write(to.data(), m.remote_id);
}

}  // namespace

Req Req::parse(MessageBytes from) {
  const std::byte* b = from.data();
  Req m;
  m.local_id = kLocalId.read<std::uint32_t>(b);
  m.ece.vendor = req::kVendor.read<std::uint32_t>(b);
  m.service_id = req::kServiceId.read<std::uint64_t>(b);
  m.local_ca_guid = req::kCaGuid.read<std::uint64_t>(b);
  m.local_qkey = req::kQkey.read<std::uint32_t>(b);
  m.local_qpn = Qpn{req::kQpn.read<std::uint32_t>(b)};
  m.responder_resources = req::kResponderResources.read<std::uint8_t>(b);
  m.initiator_depth = req::kInitiatorDepth.read<std::uint8_t>(b);
  m.remote_response_timeout = req::kRemoteTimeout.read<std::uint8_t>(b);
  m.local_response_timeout = req::kLocalTimeout.read<std::uint8_t>(b);
  m.transport = static_cast<TransportService>(req::kTransport.read<std::uint8_t>(b));
  m.flow_control = req::kFlowControl.read<bool>(b);
  m.starting_psn = Psn(req::kPsn.read<std::uint32_t>(b));
  m.retry_count = req::kRetry.read<std::uint8_t>(b);
  m.pkey = req::kPkey.read<std::uint16_t>(b);
  m.path_mtu = req::kMtu.read<std::uint8_t>(b);
  m.rnr_retry_count = req::kRnrRetry.read<std::uint8_t>(b);
  m.max_cm_retries = req::kCmRetries.read<std::uint8_t>(b);
  m.srq = req::kSrq.read<bool>(b);
  m.extended_transport = req::kExtended.read<std::uint8_t>(b);
  m.primary = read_path(b + req::kPrimary);
  m.alternate = read_path(b + req::kAlternate);
  read_bytes(from, req::kPrivate, m.private_data);
  return m;
}

void Req::emit(MessageBuffer to) const {
  clear(to);
  std::byte* b = to.data();
  kLocalId.write(b, local_id);
  req::kVendor.write(b, ece.vendor);
  req::kServiceId.write(b, service_id);
  req::kCaGuid.write(b, local_ca_guid);
  req::kQkey.write(b, local_qkey);
  req::kQpn.write(b, local_qpn.value);
  req::kResponderResources.write(b, responder_resources);
  req::kInitiatorDepth.write(b, initiator_depth);
  req::kRemoteTimeout.write(b, remote_response_timeout);
  req::kLocalTimeout.write(b, local_response_timeout);
  req::kTransport.write(b, static_cast<std::uint8_t>(transport));
  req::kFlowControl.write(b, flow_control);
  req::kPsn.write(b, starting_psn.value());
  req::kRetry.write(b, retry_count);
  req::kPkey.write(b, pkey);
  req::kMtu.write(b, path_mtu);
  req::kRnrRetry.write(b, rnr_retry_count);
  req::kCmRetries.write(b, max_cm_retries);
  req::kSrq.write(b, srq);
  req::kExtended.write(b, extended_transport);
  write_path(primary, b + req::kPrimary);
  if (alternate.local_gid != wire::Address{}) write_path(alternate, b + req::kAlternate);
  write_bytes(to, req::kPrivate, private_data);
}

Mra Mra::parse(MessageBytes from) {
  Mra m;
  read_ids(from, m);
  m.answered = static_cast<MessageAcked>(Field{8, 1, 6, 2}.read<std::uint8_t>(from.data()));
  m.service_timeout = Field{9, 1, 3, 5}.read<std::uint8_t>(from.data());
  read_bytes(from, 10, m.private_data);
  return m;
}

void Mra::emit(MessageBuffer to) const {
  write_ids(*this, to);
  Field{8, 1, 6, 2}.write(to.data(), static_cast<std::uint8_t>(answered));
  Field{9, 1, 3, 5}.write(to.data(), service_timeout);
  write_bytes(to, 10, private_data);
}

Rej Rej::parse(MessageBytes from) {
  Rej m;
  read_ids(from, m);
  m.answered = static_cast<MessageAcked>(Field{8, 1, 6, 2}.read<std::uint8_t>(from.data()));
  m.info_bytes = Field{9, 1, 1, 7}.read<std::uint8_t>(from.data());
  m.reason = static_cast<RejReason>(Field{10, 2}.read<std::uint16_t>(from.data()));
  read_bytes(from, 12, m.info);
  read_bytes(from, 84, m.private_data);
  return m;
}

void Rej::emit(MessageBuffer to) const {
  write_ids(*this, to);
  Field{8, 1, 6, 2}.write(to.data(), static_cast<std::uint8_t>(answered));
  Field{9, 1, 1, 7}.write(to.data(), info_bytes);
  Field{10, 2}.write(to.data(), static_cast<std::uint16_t>(reason));
  write_bytes(to, 12, info);
  write_bytes(to, 84, private_data);
}

Rep Rep::parse(MessageBytes from) {
  const std::byte* b = from.data();
  Rep m;
  read_ids(from, m);
  m.local_qkey = rep::kQkey.read<std::uint32_t>(b);
  m.local_qpn = Qpn{rep::kQpn.read<std::uint32_t>(b)};
  m.starting_psn = Psn(rep::kPsn.read<std::uint32_t>(b));
  m.ece.vendor = rep::kVendorHigh.read<std::uint32_t>(b) << 16 | rep::kVendorMiddle.read<std::uint32_t>(b) << 8 |
                 rep::kVendorLow.read<std::uint32_t>(b);
  m.responder_resources = rep::kResponderResources.read<std::uint8_t>(b);
  m.initiator_depth = rep::kInitiatorDepth.read<std::uint8_t>(b);
  m.target_ack_delay = rep::kAckDelay.read<std::uint8_t>(b);
  m.failover_accepted = rep::kFailover.read<std::uint8_t>(b);
  m.flow_control = rep::kFlowControl.read<bool>(b);
  m.rnr_retry_count = rep::kRnrRetry.read<std::uint8_t>(b);
  m.srq = rep::kSrq.read<bool>(b);
  m.local_ca_guid = rep::kCaGuid.read<std::uint64_t>(b);
  read_bytes(from, 36, m.private_data);
  return m;
}

void Rep::emit(MessageBuffer to) const {
  write_ids(*this, to);
  std::byte* b = to.data();
  rep::kQkey.write(b, local_qkey);
  rep::kQpn.write(b, local_qpn.value);
  rep::kPsn.write(b, starting_psn.value());
  rep::kVendorHigh.write(b, ece.vendor >> 16);
  rep::kVendorMiddle.write(b, ece.vendor >> 8);
  rep::kVendorLow.write(b, ece.vendor);
  rep::kResponderResources.write(b, responder_resources);
  rep::kInitiatorDepth.write(b, initiator_depth);
  rep::kAckDelay.write(b, target_ack_delay);
  rep::kFailover.write(b, failover_accepted);
  rep::kFlowControl.write(b, flow_control);
  rep::kRnrRetry.write(b, rnr_retry_count);
  rep::kSrq.write(b, srq);
  rep::kCaGuid.write(b, local_ca_guid);
  write_bytes(to, 36, private_data);
}

Rtu Rtu::parse(MessageBytes from) {
  Rtu m;
  read_ids(from, m);
  read_bytes(from, 8, m.private_data);
  return m;
}

void Rtu::emit(MessageBuffer to) const {
  write_ids(*this, to);
  write_bytes(to, 8, private_data);
}

Dreq Dreq::parse(MessageBytes from) {
  Dreq m;
  read_ids(from, m);
  m.remote_qpn = Qpn{Field{8, 4, 8, 24}.read<std::uint32_t>(from.data())};
  read_bytes(from, 12, m.private_data);
  return m;
}

void Dreq::emit(MessageBuffer to) const {
  write_ids(*this, to);
  Field{8, 4, 8, 24}.write(to.data(), remote_qpn.value);
  write_bytes(to, 12, private_data);
}

Drep Drep::parse(MessageBytes from) {
  Drep m;
  read_ids(from, m);
  read_bytes(from, 8, m.private_data);
  return m;
}

void Drep::emit(MessageBuffer to) const {
  write_ids(*this, to);
  write_bytes(to, 8, private_data);
}

SidrReq SidrReq::parse(MessageBytes from) {
  SidrReq m;
  m.request_id = kLocalId.read<std::uint32_t>(from.data());
  m.pkey = Field{4, 2}.read<std::uint16_t>(from.data());
  m.service_id = Field{8, 8}.read<std::uint64_t>(from.data());
  read_bytes(from, 16, m.private_data);
  return m;
}

void SidrReq::emit(MessageBuffer to) const {
  clear(to);
  kLocalId.write(to.data(), request_id);
  Field{4, 2}.write(to.data(), pkey);
  Field{8, 8}.write(to.data(), service_id);
  write_bytes(to, 16, private_data);
}

SidrRep SidrRep::parse(MessageBytes from) {
  const std::byte* b = from.data();
  SidrRep m;
  m.request_id = kLocalId.read<std::uint32_t>(b);
  m.status = static_cast<SidrStatus>(Field{4, 1}.read<std::uint8_t>(b));
  m.info_bytes = Field{5, 1}.read<std::uint8_t>(b);
  m.ece.vendor = Field{6, 2}.read<std::uint32_t>(b) << 8 | Field{11, 1}.read<std::uint32_t>(b);
  m.qpn = Qpn{Field{8, 4, 8, 24}.read<std::uint32_t>(b)};
  m.service_id = Field{12, 8}.read<std::uint64_t>(b);
  m.qkey = Field{20, 4}.read<std::uint32_t>(b);
  read_bytes(from, 24, m.info);
  read_bytes(from, 96, m.private_data);
  return m;
}

void SidrRep::emit(MessageBuffer to) const {
  clear(to);
  std::byte* b = to.data();
  kLocalId.write(b, request_id);
  Field{4, 1}.write(b, static_cast<std::uint8_t>(status));
  Field{5, 1}.write(b, info_bytes);
  Field{6, 2}.write(b, ece.vendor >> 8);
  Field{11, 1}.write(b, ece.vendor);
  Field{8, 4, 8, 24}.write(b, qpn.value);
  Field{12, 8}.write(b, service_id);
  Field{20, 4}.write(b, qkey);
  write_bytes(to, 24, info);
  write_bytes(to, 96, private_data);
}

IpCmHeader IpCmHeader::parse(std::span<const std::byte, kBytes> from) {
  const std::byte* b = from.data();
  IpCmHeader h;
  h.version = Field{0, 1}.read<std::uint8_t>(b);
  h.ip_version = Field{1, 1, 4, 4}.read<std::uint8_t>(b);
  h.source_port = Field{2, 2}.read<std::uint16_t>(b);
  h.source = read_gid(b + 4);
  h.destination = read_gid(b + 20);
  if (h.ip_version == 4) {
    for (wire::Address* a : {&h.source, &h.destination}) {
      std::fill_n(a->bytes.begin(), 10, std::uint8_t{0});
      a->bytes[10] = a->bytes[11] = 0xff;
    }
  }
  return h;
}

void IpCmHeader::emit(std::span<std::byte, kBytes> to) const {
  std::byte* b = to.data();
  Field{0, 1}.write(b, version);
  b[1] = std::byte{0};
  Field{1, 1, 4, 4}.write(b, ip_version);
  Field{2, 2}.write(b, source_port);
  std::memcpy(b + 4, source.bytes.data(), 16);
  std::memcpy(b + 20, destination.bytes.data(), 16);
  if (ip_version == 4) {
    std::fill_n(b + 4, 12, std::byte{0});
    std::fill_n(b + 20, 12, std::byte{0});
  }
}

}  // namespace uroce::cm
