// Raw packets (ibv_create_flow(3)): which raw packet QPs and WQs get a frame, by flow or as sniffers. Flows exist
// on the link worker only, where all frames that are not RoCE arrive; other workers steer frames there.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/frame.h"
#include "base/types.h"
#include "net/device.h"
#include "net/flow_table.h"
#include "proto/transport.h"
#include "wire/ethernet_frame.h"

namespace uroce::worker {

class RawDispatch {
 public:
  /// `frame_bytes`: length of the largest frame.
  RawDispatch(proto::Transport& transport, const wire::Mac& mac, std::uint32_t frame_bytes);

  /// False: the table is full.
  bool add_flow(std::uint64_t id, net::Flow flow) { return flows_.add(id, std::move(flow)); }
  void remove_flow(std::uint64_t id) { flows_.remove(id); }
  bool has_flows() const { return !flows_.empty(); }
  bool has_sniffers() const { return flows_.sniffs(); }
  /// The frames that the port must deliver for the flows there are.
  net::RxFilter rx_filter() const;

  /// Delivers a received frame to the flows that match it. `sender`: base::Frame::sender.
  void dispatch(std::span<const std::byte> frame, std::uint32_t sender, Nanos now);
  /// Delivers a copy of a frame, received or sent, to all sniffers.
  void sniff(std::span<const std::byte> frame, Nanos now);

  /// The frame as the port sends it: with the IPv4 header checksum that it fills in. Valid until the next call.
  /// Empty: the frame is longer than `frame_bytes`.
  std::span<const std::byte> as_sent(const base::Frame& frame);

 private:
  void deliver_to_targets(proto::ReceivedFrame received, const wire::FrameLayout& layout,
                          std::span<const net::FlowTarget> targets, Nanos now);

  proto::Transport& transport_;
  const wire::Mac mac_;
  net::FlowTable flows_;
  const std::uint32_t frame_bytes_;
  std::unique_ptr<std::byte[]> as_sent_;
};

}  // namespace uroce::worker
