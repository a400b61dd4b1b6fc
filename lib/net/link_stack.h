// The parts of ARP, ICMP and neighbour discovery that a RoCE port needs, sans-IO: answers for the port's addresses,
// and next hops for others. Owned by the link worker, which passes it every frame that is not RoCE.
//
// Trust: an entry is created by resolve() or by a neighbour's request for one of our addresses; answers and
// announcements only change existing entries. Claims of our own addresses, or of addresses outside our prefixes,
// are ignored. All state is bounded.
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
  std::uint16_t vlan = 0;         ///< 1 to 4094: in this 802.1Q VLAN; 0: untagged
  bool operator==(const InterfaceAddress&) const = default;
};

/// An address of ours that another station uses as well.
struct AddressConflict {
  wire::Address address;
  wire::Mac station{};
};

struct LinkConfig {
  wire::Mac mac{};
  std::uint32_t mtu = 1500;
  std::vector<InterfaceAddress> addresses;
  std::optional<wire::Address> gateway4, gateway6;
  std::uint32_t max_neighbours = 4096;
};

/// A row of the neighbour table, as `ip neighbour` has them.
struct NeighbourEntry {
  enum class State : std::uint8_t { kIncomplete, kReachable, kStale, kFailed };

  wire::Address address;
  std::uint16_t vlan = 0;
  wire::Mac mac{};
  State state = State::kIncomplete;
  Nanos confirmed_ago = kNever;  ///< kNever: it has not answered yet
  Nanos used_ago = 0;            ///< since resolve(), or since the neighbour asked for us
};

enum class Resolution : std::uint8_t { kResolved, kPending, kFailed, kNoRoute };

/// Cumulative counters.
struct LinkCounters {
  std::uint64_t received = 0;                           ///< frames passed to receive()
  std::uint64_t malformed = 0;                          ///< too short, bad checksum, bad field
  std::uint64_t ignored = 0;                            ///< not for us, or an unknown protocol
  std::uint64_t arp_requests = 0, arp_replies = 0;      ///< received
  std::uint64_t solicitations = 0, advertisements = 0;  ///< received
  std::uint64_t echo_requests = 0;                      ///< answered
  std::uint64_t address_conflicts = 0;                  ///< another station claims an address of ours
  std::uint64_t solicited = 0;                          ///< ARP requests and solicitations sent
  std::uint64_t unreachable = 0;                        ///< neighbours that never answered
  std::uint64_t group_reports = 0;                      ///< IGMP and MLD reports sent
  std::uint64_t dropped = 0;                            ///< answers lost because the output queue was full
};

class LinkStack {
 public:
  explicit LinkStack(const LinkConfig& config);
  ~LinkStack();

  /// Handles a received frame: ARP, ICMP and ICMPv6 echo, neighbour discovery; others are counted and ignored.
  /// next_frame() returns the answers. True: a request for an address of ours, which nobody else has to answer.
  bool receive(std::span<const std::byte> frame, Nanos now);

  /// Copies the next frame to send into `to` and returns its length; 0: none. A frame longer than `to` is lost.
  std::size_t next_frame(std::span<std::byte> to);

  /// MAC address of the next hop towards `destination`; sends requests when it is unknown (3 tries, 1 s
  /// apart; then kFailed for a second). Multicast and own addresses resolve at once. Each VLAN is a link of its
  /// own.
  Resolution resolve(const wire::Address& destination, Nanos now, wire::Mac& out, std::uint16_t vlan = 0);

  /// Whether, since the last call, the outcome of resolve() may have changed for a destination that was kPending: a
  /// neighbour has answered or was given up, or the addresses of the port have changed.
  bool take_resolved();

  void advance(Nanos now);
  Nanos next_timeout() const;

  bool is_local(const wire::Address& address) const;
  void add_address(const InterfaceAddress& address);
  void remove_address(const wire::Address& address);
  void set_gateways(const std::optional<wire::Address>& v4, const std::optional<wire::Address>& v6);
  /// Longer packets are neither answered nor sent after this call.
  void set_mtu(std::uint32_t bytes);
  /// All addresses are announced, and other stations asked whether they have them (RFC 5227, 2.1.1 and 2.3; RFC
  /// 4862, 5.4): after the link has come up. Also done with each new address.
  void announce_all();
  /// Who has claimed own addresses since the last call: the last claim of each.
  std::vector<AddressConflict> take_conflicts();
  /// Own addresses that the kernel also has on the same interface: the kernel answers for these, we for all others.
  void leave_to_kernel(std::span<const wire::Address> addresses);

  /// Membership of the port in a multicast group, reported to the link's switches and routers (IGMPv3, MLDv2, or
  /// the older versions where a querier uses them) at the beginning, on queries and at the end.
  void join(const wire::Address& group, Nanos now);
  void leave(const wire::Address& group, Nanos now);

  const LinkCounters& counters() const;
  std::size_t neighbours() const;
  /// Entries in the order of address and VLAN, from `first` on: `most`, and those with the same address as the
  /// last.
  std::vector<NeighbourEntry> list_neighbours(const wire::Address& first, std::size_t most, Nanos now) const;

 private:
  struct Impl;  // one link: the untagged one, or a VLAN

  Impl* find(std::uint16_t vlan) const;
  Impl& find_or_add(std::uint16_t vlan);

  LinkConfig config_;
  std::unique_ptr<LinkCounters> counters_;
  std::vector<std::unique_ptr<Impl>> links_;  // the untagged link is the first
  std::size_t turn_ = 0;                      // the link that sends next
};

}  // namespace uroce::net
