// The little of Ethernet, ARP, ICMP, ND that a RoCE port needs beside RoCE, sans-IO: answers for the port's
// addresses, and next hops for others. Owned by worker 0, which feeds it every frame that is not RoCE.
//
// Who may change what we believe: an entry comes about when somebody here asks (resolve) or when a neighbour asks
// for one of our addresses; answers and announcements change entries that exist and make none. Nobody can claim one
// of our own addresses, or one outside our prefixes. All state is bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/types.h"
#include "wire/address.h"

namespace uroce::net {

struct InterfaceAddress {
  wire::Address address;
  std::uint8_t prefix_bits = 24;  ///< of the 32 or 128 bits
  std::uint16_t vlan = 0;         ///< 1 to 4094: behind this 802.1Q tag; 0: untagged
};

struct LinkConfig {
  wire::Mac mac{};
  std::uint32_t mtu = 1500;
  std::vector<InterfaceAddress> addresses;
  std::optional<wire::Address> gateway4, gateway6;
  std::uint32_t max_neighbours = 4096;
};

enum class Resolution : std::uint8_t { kResolved, kPending, kFailed, kNoRoute };

/// What came in and what was done about it, cumulative.
struct LinkCounters {
  std::uint64_t received = 0;                           ///< frames fed
  std::uint64_t malformed = 0;                          ///< too short, bad checksum, bad field
  std::uint64_t ignored = 0;                            ///< not for us, or a protocol that we don't speak
  std::uint64_t arp_requests = 0, arp_replies = 0;      ///< received
  std::uint64_t solicitations = 0, advertisements = 0;  ///< received
  std::uint64_t echo_requests = 0;                      ///< answered
  std::uint64_t address_conflicts = 0;                  ///< another station claims an address of ours
  std::uint64_t asked = 0;                              ///< ARP requests and solicitations sent
  std::uint64_t unreachable = 0;                        ///< neighbours that did not answer
  std::uint64_t group_reports = 0;                      ///< IGMP and MLD reports sent
  std::uint64_t dropped = 0;                            ///< answers that found the output queue full
};

class LinkStack {
 public:
  explicit LinkStack(const LinkConfig& config);
  ~LinkStack();

  /// Frames in. ARP, ICMP and ICMPv6 echo, neighbour discovery; anything else is counted and ignored. What it
  /// learns or wants to answer comes out of next_frame.
  void receive(std::span<const std::byte> frame, Nanos now);

  /// Copies the next frame to send into `to` and returns its length; 0: none. A frame longer than `to` is lost.
  std::size_t next_frame(std::span<std::byte> to);

  /// MAC address of the next hop towards `destination`; starts asking when it is unknown (3 tries, 1 s apart;
  /// then kFailed for a second). Multicast and own addresses resolve at once. Each VLAN is a link of its own.
  Resolution resolve(const wire::Address& destination, Nanos now, wire::Mac& out, std::uint16_t vlan = 0);

  void advance(Nanos now);
  Nanos next_timeout() const;

  bool is_local(const wire::Address& address) const;
  void add_address(const InterfaceAddress& address);
  void remove_address(const wire::Address& address);
  /// Longer packets are neither answered nor sent from now on.
  void set_mtu(std::uint32_t bytes);
  /// The addresses of ours that the kernel has on the same interface: it answers for them. All others: we do.
  void leave_to_kernel(std::span<const wire::Address> addresses);

  /// Membership of the port in a multicast group, as the switches and routers of the link learn it: reports
  /// (IGMPv3, MLDv2; the older versions where a querier speaks them) when it begins, when they ask, when it ends.
  void join(const wire::Address& group, Nanos now);
  void leave(const wire::Address& group, Nanos now);

  const LinkCounters& counters() const;
  std::size_t neighbours() const;

 private:
  struct Impl;  // one link: the untagged one, or a VLAN

  Impl* find(std::uint16_t vlan) const;
  Impl& find_or_add(std::uint16_t vlan);

  LinkConfig config_;
  std::unique_ptr<LinkCounters> counters_;
  std::vector<std::unique_ptr<Impl>> links_;  // the untagged one is the first
  std::size_t turn_ = 0;                      // whose frame goes out next
};

}  // namespace uroce::net
