// Decides which raw packet QP gets a frame: flows by priority and age. Each worker has its own table; only its
// thread uses it. State that flows share (counters, RSS) is reached by pointers, and atomic or immutable.
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
  kLayerFragment = 32,  ///< in keys only: a fragment of a datagram
};

/// The fields of a frame that flows match, in network byte order; 0: the frame has no such field. The layout and
/// meaning are those of uroce_frame_key (abi/control.h).
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

/// The receiver of a frame, as set by the flow's owner.
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

/// The QP that the Toeplitz hash selects. The hash covers the selected fields that the frame has, in the order
/// source address, destination address, source port, destination port; without any it is 0. It never covers the
/// ports of a fragment, since only the first fragment has them.
std::uint32_t choose(const RssTarget& rss, const FrameKey& key);

/// Numbers of uroce_flow_type.
enum class FlowType : std::uint32_t { kNormal = 0, kAllDefault = 1, kMcDefault = 2, kSniffer = 3 };

struct Flow {
  FlowType type = FlowType::kNormal;
  std::uint32_t priority = 0;
  FrameKey value{}, mask{};  ///< used if the type is kNormal
  bool dont_trap = false, drop = false;
  std::uint32_t tag = 0;
  std::uint32_t qp = 0;                  ///< without `rss`
  std::shared_ptr<const RssTarget> rss;  ///< may be null
  std::shared_ptr<FlowCount> count;      ///< may be null
};

class FlowTable {
 public:
  static constexpr std::size_t kMaxFlows = 4096;
  static constexpr std::size_t kMaxCopies = 64;  ///< of one frame; further flows get none

  /// `id` is chosen by the owner and not in the table yet. False: the table is full.
  bool add(std::uint64_t id, Flow flow);
  void remove(std::uint64_t id);

  /// Whether there are no flows.
  bool empty() const { return flows_.empty() && sniffers_.empty(); }
  /// Whether there are flows of type kSniffer.
  bool sniffs() const { return !sniffers_.empty(); }

  /// The receivers of a received frame, except sniffers; returns how many were put into `out`. NORMAL flows come
  /// first, then MC_DEFAULT (for frames to a multicast or broadcast address), then ALL_DEFAULT; each type by
  /// priority, then by age. A flow with dont_trap gets a copy, and the search continues. The first other flow that
  /// matches ends it: the frame goes to that flow and to later ones of the same type, priority, value and mask, or,
  /// if it drops, to none of them. Updates the flows' counts.
  std::size_t classify(std::span<const std::byte> frame, const FrameKey& key, std::span<FlowTarget> out) const;

  /// The flows of type kSniffer, which get a copy of every frame received or sent. Updates their counts.
  std::size_t sniffers(std::span<const std::byte> frame, std::span<FlowTarget> out) const;

  /// Whether some flow that does not drop can match a unicast destination other than `own`: it needs a promiscuous
  /// port.
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

  std::vector<Rule> rules_;      ///< separate from flows_, so that a search reads nothing else
  std::vector<Entry> flows_;     ///< in matching order
  std::vector<Entry> sniffers_;  ///< by age
};

}  // namespace uroce::net
