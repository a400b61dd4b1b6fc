// Which raw packet QP gets a frame: flows by priority and age. Each worker has a table of its own; only its thread
// touches it. What a flow shares with others (counters, RSS) is behind pointers: atomic, or never changed.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "wire/address.h"
#include "wire/ethernet_frame.h"

namespace uroce::net {

enum FrameLayer : std::uint8_t {
  kLayerVlan = 1,
  kLayerIpv4 = 2,
  kLayerIpv6 = 4,
  kLayerTcp = 8,
  kLayerUdp = 16,
  kLayerFragment = 32,  ///< of this key alone: a piece of a datagram
};

/// What flows look at in a frame, in network byte order; what a frame has not is 0. Laid out as uroce_frame_key
/// (abi/control.h), whose comments hold here.
struct FrameKey {
  std::uint8_t dst_mac[6], src_mac[6];
  std::uint16_t ether_type;
  std::uint16_t vlan_tag;
  std::uint8_t dst_ip[16], src_ip[16];
  std::uint16_t dst_port, src_port;
  std::uint8_t protocol, traffic_class;
  std::uint8_t hop_limit, fragment;
  std::uint32_t flow_label;
  std::uint8_t layers;  ///< FrameLayer
  std::uint8_t reserved[3];
};
static_assert(sizeof(FrameKey) == 64);

/// `layout` is that of the frame (wire::layout_of).
FrameKey key_of(std::span<const std::byte> frame, const wire::FrameLayout& layout);

/// Who gets a frame: what the flow's owner put in.
struct FlowTarget {
  std::uint32_t qp = 0;
  std::uint32_t tag = 0;
};

/// Frames that a flow kept, copied or dropped, and their bytes. Workers add, the conductor reads; relaxed.
struct FlowCount {
  std::atomic<std::uint64_t> packets{0}, bytes{0};
};

/// Numbers of uroce_rss_field.
enum RssField : std::uint32_t {
  kRssSrcIpv4 = 1,
  kRssDstIpv4 = 2,
  kRssSrcIpv6 = 4,
  kRssDstIpv6 = 8,
  kRssSrcPortTcp = 16,
  kRssDstPortTcp = 32,
  kRssSrcPortUdp = 64,
  kRssDstPortUdp = 128,
};

struct RssTarget {
  std::vector<std::uint32_t> qps;  ///< a power of two of them, at least one
  std::uint32_t fields = 0;        ///< RssField
  std::array<std::uint8_t, 40> key{};
};

/// The QP of the table that the Toeplitz hash names. Hashed are those of the fields that the frame has, in the
/// order source address, destination address, source port, destination port; the hash of none is 0. Of a fragment
/// the ports are not, since only the first one has them.
std::uint32_t choose(const RssTarget& rss, const FrameKey& key);

/// Numbers of uroce_flow_type.
enum class FlowType : std::uint32_t { kNormal = 0, kAllDefault = 1, kMcDefault = 2, kSniffer = 3 };

struct Flow {
  FlowType type = FlowType::kNormal;
  std::uint32_t priority = 0;
  FrameKey value{}, mask{};  ///< looked at if the type is kNormal
  bool dont_trap = false, drop = false;
  std::uint32_t tag = 0;
  std::uint32_t qp = 0;                  ///< without `rss`
  std::shared_ptr<const RssTarget> rss;  ///< may be null
  std::shared_ptr<FlowCount> count;      ///< may be null
};

class FlowTable {
 public:
  static constexpr std::size_t kMaxFlows = 4096;
  static constexpr std::size_t kMaxCopies = 64;  ///< of one frame; flows behind these get none

  /// `id` is the owner's, and not in the table yet. False: the table is full.
  bool add(std::uint64_t id, Flow flow);
  void remove(std::uint64_t id);

  /// No flow at all.
  bool empty() const { return flows_.empty() && sniffers_.empty(); }
  /// There are flows of type kSniffer.
  bool sniffs() const { return !sniffers_.empty(); }

  /// Who gets a received frame, sniffers aside; returns how many were put into `out`. NORMAL flows come first, then
  /// MC_DEFAULT (for frames to a multicast or broadcast address), then ALL_DEFAULT; each kind by priority, then by
  /// age. A flow with dont_trap gets a copy, and the search goes on; the first other one that matches ends it: the
  /// frame goes to it and to those behind it that have its kind, priority, value and mask; or, if it drops, to no
  /// further. Counts.
  std::size_t classify(std::span<const std::byte> frame, const FrameKey& key, std::span<FlowTarget> out) const;

  /// Who gets a copy of a frame that was received or is sent, whatever it is: the flows of type kSniffer. Counts.
  std::size_t sniffers(std::span<const std::byte> frame, std::span<FlowTarget> out) const;

  /// Some flow that does more than drop can match a unicast destination other than `own`: only a promiscuous port
  /// shows it all that it asks for.
  bool wants_foreign(const wire::Mac& own) const;

 private:
  using Words = std::array<std::uint64_t, 8>;
  struct Rule {  ///< of the flow at the same place of flows_
    Words value, mask;
    bool operator==(const Rule&) const = default;
  };
  struct Entry {
    std::uint64_t id;
    Flow flow;
  };

  static Rule rule_of(const Flow& flow);
  static bool deliver(const Flow& flow, std::size_t bytes, const FrameKey& key, std::span<FlowTarget> out,
                      std::size_t& count);

  std::vector<Rule> rules_;      ///< beside flows_, so that a search reads nothing else
  std::vector<Entry> flows_;     ///< in the order in which they are asked
  std::vector<Entry> sniffers_;  ///< by age
};

}  // namespace uroce::net
