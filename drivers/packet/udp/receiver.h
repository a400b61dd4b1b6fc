// From datagrams to frames: reads several at once, each possibly a row of packets that the kernel has merged
// (UDP_GRO), and gives each packet the headers that it had, as far as a socket tells them.
//
// IPv4: a socket does not show the identification, which the ICRC covers. The receiver finds the one that makes the
// ICRC right, asks Identifications whether the sender's packet may have it, and hands up the packet with
// identification 0 and the ICRC for that.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/frame.h"
#include "base/types.h"
#include "drivers/packet/frame_pool.h"
#include "drivers/packet/udp/icrc_delta.h"
#include "drivers/packet/udp/identifications.h"
#include "drivers/packet/udp/sockets.h"
#include "net/device.h"
#include "wire/frame_template.h"

namespace uroce::udp {

class Receiver {
 public:
  /// All references outlive the object.
  Receiver(std::span<const Endpoint> endpoints, const wire::Mac& own, packet::FramePool& pool, IdCheck check);

  /// Returns how many frames it filled, from the front.
  std::size_t receive(std::span<base::Frame> frames, net::DeviceCounters& counters);
  /// Readable while a datagram waits; -1: there is no descriptor.
  int wake_fd() const { return poll_.get(); }
  /// Whether receive() would find something.
  bool waiting() const;
  /// Datagrams for which a socket had no room, cumulative.
  std::uint64_t dropped_by_kernel() const;

 private:
  static constexpr std::size_t kDatagrams = 8;            ///< read at once
  static constexpr std::size_t kDatagramBytes = 1 << 16;  ///< no UDP datagram is larger
  static constexpr std::size_t kControlBytes = 128;

  struct Datagram {
    std::uint32_t bytes = 0;
    std::uint32_t segment = 0;  ///< bytes of each packet in it, the last one may be shorter
    wire::Address source;
    std::uint16_t source_port = 0;
    std::uint8_t traffic_class = 0, hop_limit = 64;
  };
  /// What a template was made from.
  struct Origin {
    const Endpoint* endpoint = nullptr;
    wire::Address source;
    std::uint16_t source_port = 0;
    std::uint8_t traffic_class = 0, hop_limit = 0;
    bool operator==(const Origin&) const = default;
  };

  bool read_more();
  bool read(const Endpoint& endpoint);
  std::size_t cut(std::span<base::Frame> frames, net::DeviceCounters& counters);
  void use_template_of(const Datagram& datagram);
  void fill(base::Frame& frame, const std::byte* packet, std::size_t bytes);
  bool is_intact(std::uint32_t delta, std::size_t trailing);

  std::span<const Endpoint> endpoints_;
  wire::Mac own_;
  packet::FramePool& pool_;
  Socket poll_;  // epoll
  std::vector<std::byte> buffers_;
  std::array<Datagram, kDatagrams> datagrams_;
  std::size_t next_ = 0, count_ = 0;  // datagrams that were read
  std::uint32_t offset_ = 0;          // of the next packet in datagrams_[next_]
  const Endpoint* from_ = nullptr;    // where they were read
  Origin origin_;
  wire::FrameTemplate template_;
  IcrcDelta delta_;
  IdCheck check_;
  Identifications identifications_;
  bool settled_ = false;  // of origin_.source
  Nanos read_at_ = 0;     // when datagrams_ were read; 0: no packet of them needed it
};

}  // namespace uroce::udp
