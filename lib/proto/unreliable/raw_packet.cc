#include "proto/unreliable/raw_packet.h"

#include <algorithm>
#include <cstring>

#include "proto/unreliable/receive.h"
#include "proto/work/data_packet.h"
#include "proto/work/receive_queue.h"
#include "wire/address.h"
#include "wire/bytes.h"
#include "wire/ethernet_frame.h"
#include "wire/network_headers.h"

namespace uroce::proto::raw {
namespace {

constexpr std::uint32_t kAddresses = 2 * sizeof(wire::Mac);  // before the VLAN tag
constexpr std::uint32_t kTag = wire::VlanTag::kBytes;

/// Destination of a frame's bytes.
class FrameWriter {
 public:
  explicit FrameWriter(std::byte* at) : at_(at) {}
  void payload(const std::byte* from, std::size_t bytes) {
    if (bytes != 0) std::memcpy(at_, from, bytes);
    at_ += bytes;
  }

 private:
  std::byte* at_;
};

std::uint16_t ether_type(std::span<const std::byte> frame) { return wire::load16(&frame[kAddresses]); }
bool is_tagged(std::span<const std::byte> frame) {
  return ether_type(frame) == wire::kEtherTypeVlan || ether_type(frame) == wire::kEtherTypeServiceVlan;
}

bool is_to_group(std::span<const std::byte> frame) { return (frame[0] & std::byte{1}) != std::byte{0}; }

/// The part of a TSO's payload that the next segment carries.
DataPart segment_of(const Qp& qp, const Wqe& wqe) {
  const std::uint32_t index = psns_between(wqe.first(), qp.requester.psn);
  const std::uint32_t offset = index * wqe.tso.mss;
  const std::uint32_t left = wqe.length - offset;
  const bool last = left <= wqe.tso.mss;
  return {offset, last ? left : wqe.tso.mss, index == 0, last};
}

}  // namespace

std::uint8_t build(Context& context, Qp& qp, const Wqe& wqe, TxBurst& burst, bool& last) {
  const bool segments = wqe.kind == Kind::kSegments;
  const DataPart part = segments ? segment_of(qp, wqe) : DataPart{0, wqe.length, true, true};
  const std::uint32_t header = segments ? wqe.tso.header_bytes : 0;
  base::Frame& frame = burst.frames[burst.count];
  last = part.last;
  frame.length = header + part.bytes;
  frame.flags = 0;
  // The port's MTU may have shrunk since the WQE was checked.
  if (frame.length > std::min(frame.capacity, context.max_frame)) return UROCE_FAIL_PORT_MTU;
  const std::span bytes(frame.data, frame.length);
  FrameWriter writer(frame.data);
  if (segments) writer.payload(wqe.tso_header(), header);
  if (!add_payload(context, qp, wqe, part, writer)) return UROCE_FAIL_SEND_MEMORY;
  if (!is_tagged(bytes) && frame.length > context.max_frame - kTag) return UROCE_FAIL_PORT_MTU;
  if (segments) {
    const wire::FrameLayout layout = wire::layout_of_headers(bytes.first(header));
    const std::uint32_t index = part.offset / wqe.tso.mss;
    if (layout.payload != header || !wire::segment_header(bytes, layout, index, part.offset, part.last)) {
      return UROCE_FAIL_TSO_HEADER;
    }
    wire::fill_checksums(bytes, layout);
  } else if ((wqe.flags & UROCE_SEND_IP_CSUM) != 0) {
    wire::fill_checksums(bytes, wire::layout_of(bytes));
  }
  ++burst.count;
  return 0;
}

void receive(Context& context, Qp& qp, const ReceivedFrame& frame) {
  if (qp.settings.block_own_multicast && frame.sender == context.sender_of(qp) && is_to_group(frame.bytes)) return;
  const bool strip = qp.settings.strip_vlan && frame.vlan && ether_type(frame.bytes) == wire::kEtherTypeVlan;
  const auto bytes = static_cast<std::uint32_t>(frame.bytes.size()) - (strip ? kTag : 0);
  if (!unreliable::claim_receive(context, qp)) return;
  const ReceiveWqe& wqe = qp.receive;
  if (!has_room(wqe, bytes)) {
    ++context.counters.drop_too_long;
    return;
  }
  const auto put = [&](std::span<const std::byte> part) {
    return scatter(context, wqe.pd, wqe.sge, wqe.num_sge, qp.receives.at, part.data(),
                   static_cast<std::uint32_t>(part.size())) == ScatterResult::kOk;
  };
  const bool stored =
      strip ? put(frame.bytes.first(kAddresses)) && put(frame.bytes.subspan(kAddresses + kTag)) : put(frame.bytes);
  if (!stored) return unreliable::fail_memory(context, qp);
  ++context.counters.rcvd_frames;
  ++qp.counters.rcvd_pkts;
  uroce_cqe cqe = context.make_cqe(qp, wqe.wr_id);
  cqe.opcode = UROCE_WC_RECV;
  cqe.byte_len = bytes;
  cqe.wc_flags = frame.checksums_good ? UROCE_WC_IP_CSUM_OK : 0;
  cqe.flow_tag = frame.flow_tag;
  if (strip) {
    cqe.vlan_id = frame.vlan_tci;
    cqe.vlan_sl = static_cast<std::uint8_t>(frame.vlan_tci >> 13);
  }
  complete_receive(context, qp, cqe, false);
}

}  // namespace uroce::proto::raw
