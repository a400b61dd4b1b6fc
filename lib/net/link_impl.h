// Shared by the parts of LinkStack (link_stack.cc, arp.cc, icmp.cc, neighbour_discovery.cc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "net/link_stack.h"
#include "net/membership.h"
#include "net/neighbour_table.h"
#include "wire/bytes.h"
#include "wire/network_headers.h"

namespace uroce::net {

/// Frames that wait to be sent, bounded; the slots keep their memory.
class OutQueue {
 public:
  static constexpr std::size_t kSlots = 64;

  /// A slot of `bytes` bytes to fill; empty: the queue is full.
  std::span<std::byte> push(std::size_t bytes);
  std::size_t pop(std::span<std::byte> to);
  /// For requests of our own: half of the slots is reserved for answers.
  bool has_room() const { return count_ < kSlots / 2; }

 private:
  std::vector<std::byte> slots_[kSlots];
  std::size_t head_ = 0, count_ = 0;
};

/// One received frame after its Ethernet header and VLAN tag.
struct LinkFrame {
  wire::Mac source{}, destination{};
  std::uint16_t ether_type = 0;
  std::span<const std::byte> body;
};

struct LinkStack::Impl {
  /// `settings` without its addresses, which follow by add_address.
  Impl(const LinkConfig& settings, std::uint16_t tag, LinkCounters& shared)
      : config(settings), vlan(tag), table(settings.max_neighbours), counters(shared) {
    config.addresses.clear();
  }

  /// As LinkStack::receive().
  bool receive(const LinkFrame& frame, Nanos now);
  Resolution resolve(const wire::Address& destination, Nanos now, wire::Mac& out);
  void advance(Nanos now);
  Nanos next_timeout() const;
  void add_address(const InterfaceAddress& address);
  void remove_address(const wire::Address& address);

  // arp.cc
  void receive_arp(const LinkFrame& frame, Nanos now);
  void send_arp(bool request, const wire::Mac& to, const wire::Mac& target_mac, const wire::Address& sender,
                const wire::Address& target);
  // icmp.cc
  void receive_ipv4(const LinkFrame& frame, Nanos now);
  void answer_echo4(const LinkFrame& frame, std::span<const std::byte> ip);
  void receive_ipv6(const LinkFrame& frame, Nanos now);
  void receive_query6(const LinkFrame& frame, Nanos now);
  void answer_echo6(const LinkFrame& frame, std::span<const std::byte> ip);
  // neighbour_discovery.cc
  void receive_solicitation(const LinkFrame& frame, std::span<const std::byte> ip, Nanos now);
  void receive_advertisement(const LinkFrame& frame, std::span<const std::byte> ip, Nanos now);
  void send_solicitation(const wire::Address& target, const wire::Mac* unicast);
  void send_duplicate_detection(const wire::Address& target);
  void send_advertisement(const wire::Mac& to_mac, const wire::Address& to, const wire::Address& target,
                          bool solicited);

  // membership.cc
  /// False: not IGMP.
  bool receive_igmp(std::span<const std::byte> ip, Nanos now);
  void receive_mld(std::span<const std::byte> mld, Nanos now);
  void report_groups(Nanos now);
  void report(const wire::Address& group, Report what, Nanos now);
  void send_igmp(const wire::Address& group, Report what, bool old);
  void send_mld(const wire::Address& group, Report what, bool old);

  // link_stack.cc
  bool addressed_to_us(const wire::Mac& destination) const;
  bool local(const wire::Address& address) const;
  bool kernel_answers_for(const wire::Address& address) const;
  bool on_link(const wire::Address& address) const;
  /// Whether a claim of `address` by `mac` is plausible: a unicast neighbour on this link other than ourselves.
  bool believable(const wire::Address& address, const wire::Mac& mac);
  /// The source address towards `target`; nullptr: no own address of that family.
  const wire::Address* source_for(const wire::Address& target) const;
  /// A link-local address of ours, or :: (RFC 3810, 5.2.13).
  wire::Address link_local_source() const;
  /// An answer, or an announcement of an address with an entry.
  void confirm(const wire::Address& address, const wire::Mac& mac, Nanos now);
  /// Learns the MAC address of a neighbour that requests ours, for the answer.
  void learn(const wire::Address& address, const wire::Mac& mac, Nanos now);
  /// The entry of an address that has none; a full table makes room.
  Neighbour& add_neighbour(const wire::Address& address, Nanos now);
  void ask(Neighbour& neighbour, Nanos now);
  void announce(const wire::Address& address);
  /// Asks whether another station has the address: its answer is a claim.
  void probe(const wire::Address& address);
  void announce_all();
  /// `station` claims `address`, which is ours: announces it, at most once a second (RFC 5227, 2.4).
  void defend(const wire::Address& address, const wire::Mac& station, Nanos now);
  /// Space for an Ethernet header, with its tag, and `bytes` more; empty: the queue is full.
  std::span<std::byte> start_frame(const wire::Mac& to, std::uint16_t ether_type, std::size_t bytes);

  LinkConfig config;
  std::uint16_t vlan;
  NeighbourTable table;
  OutQueue out;
  LinkCounters& counters;
  Membership members;
  std::vector<wire::Address> to_announce;
  std::vector<AddressConflict> conflicts;  ///< see LinkStack::take_conflicts(); one for each address
  std::vector<wire::Address> kernel_has;
  std::map<wire::Address, Nanos> defend_after;  ///< own addresses that others have claimed
  bool answered = false;                        ///< the frame that is being received
  bool resolved = false;                        ///< see LinkStack::take_resolved()
  Nanos recheck_at = kNever;                    ///< a full table may have evicted an entry that a caller waits for
};

wire::Mac multicast_mac(const wire::Address& group);

inline constexpr Nanos kAskInterval = kSecond;
inline constexpr std::uint8_t kAskTries = 3;
inline constexpr Nanos kFailedPause = kSecond;
inline constexpr Nanos kRecheckPause = 10 * kMillisecond;
/// An answer older than this is checked again when the entry is used (RFC 4861 REACHABLE_TIME).
inline constexpr Nanos kConfirmAge = 30 * kSecond;

}  // namespace uroce::net
