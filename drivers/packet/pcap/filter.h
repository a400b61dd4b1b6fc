// Which frames a capture keeps, and how many bytes of each.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/frame.h"
#include "drivers/packet/pcap/record.h"
#include "wire/address.h"

namespace uroce::pcap {

struct Filter {
  enum Class : std::uint32_t {
    kSend = 1,
    kWrite = 2,
    kRead = 4,    ///< requests and responses
    kAtomic = 8,  ///< requests and responses, ATOMIC_WRITE too
    kFlush = 16,
    kAck = 32,  ///< acknowledges, NAKs and RNR NAKs
    kCnp = 64,
    kOther = 128,     ///< not RoCE: ARP, neighbour discovery, ICMP, raw packets
    kCmOther = 256,   ///< to QP 1: no message of connection management, or an unknown one
    kCmFirst = 512,   ///< to QP 1: the bits from here on are CM messages, by their attribute
    kCm = ~0u << 8u,  ///< all to QP 1
  };
  static constexpr std::uint32_t kLeastSnaplen = 64, kMostSnaplen = 262'144;

  std::optional<std::uint32_t> qpn;   ///< of this device: the sender, or the destination of what arrives
  std::optional<wire::Address> peer;  ///< the other end of what is sent or arrives
  std::uint32_t classes = ~0u;
  std::uint32_t snaplen = kMostSnaplen;  ///< bytes of a frame

  /// "qp=0x12,peer=192.0.2.7,op=SEND|ACK,snaplen=96"; empty: all of all frames. Returns an error that names the
  /// value, what is allowed and what to do; empty: parsed.
  static std::string parse(std::string_view text, Filter& out);

  bool all() const { return !qpn && !peer && classes == ~0u; }
  bool matches(const base::Frame& frame, Direction direction) const;
};

/// A filter that changes while workers use it.
///
/// Edges: set() publishes version_ with release after the filter; a tap reads it relaxed each burst, and filter()
/// (under the mutex) when it has changed.
class SharedFilter {
 public:
  void set(const Filter& filter) {
    std::lock_guard lock(mutex_);
    filter_ = filter;
    version_.fetch_add(1, std::memory_order_release);
  }
  Filter filter() const {
    std::lock_guard lock(mutex_);
    return filter_;
  }
  std::uint32_t version() const { return version_.load(std::memory_order_relaxed); }

 private:
  mutable std::mutex mutex_;
  Filter filter_;
  std::atomic<std::uint32_t> version_{0};
};

}  // namespace uroce::pcap
