// What is unusual about each frame of a capture: repeated packets, injected faults. A capture knows no QP, so a
// repeated packet is one whose PSN it has seen pass already.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "base/types.h"
#include "drivers/packet/pcap/headers.h"
#include "drivers/packet/pcap/record.h"
#include "wire/extended_headers.h"

namespace uroce::pcap {

class Remarks {
 public:
  /// The program of a QP of this device, such as "ib_write_bw (pid 4711)"; empty: unknown.
  using Owner = std::function<std::string(std::uint32_t qpn)>;

  explicit Remarks(Owner owner = {}) : owner_(std::move(owner)) {}

  /// "retransmitted, dropped by urocectl fault; QP 0x000012 of ib_write_bw (pid 4711)"; empty: nothing unusual.
  /// To be called for all frames, in their order.
  std::string about(const Record& record, std::span<const std::byte> bytes);

 private:
  /// Requests, or responses, on their way to a QP: addresses, QPN, whether responses, direction. Of a packet from
  /// one QP of a device to another both directions pass.
  using Flow = std::tuple<wire::Address, wire::Address, std::uint32_t, bool, Direction>;
  struct Seen {
    Psn highest;
    Psn read_psn;  ///< of the last READ request
    wire::Reth read;
  };
  static constexpr std::size_t kFlows = 65'536;          // then all are forgotten
  static constexpr std::int32_t kRepeatWindow = 32'768;  // a lower PSN is of another QP with this number

  bool repeated(const Headers& headers, Direction direction);

  Owner owner_;
  std::map<Flow, Seen> flows_;
};

}  // namespace uroce::pcap
