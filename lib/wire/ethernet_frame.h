// Frames of any kind (raw packet QPs): where their headers are, their checksums, and cutting TCP segments. Total on
// any bytes: nothing outside a frame is read or written, whatever its lengths say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace uroce::wire {

inline constexpr std::uint8_t kProtocolTcp = 6;

/// What a frame holds, and where: offsets in bytes from its beginning, 0 for what is not there. A header that is
/// not there to its end, or says that it is shorter than it can be, counts as absent, with all behind it. What is
/// behind the IP length is padding; an IP length that is too long, and the UDP length, change nothing here
/// (adapters classify such frames as well), but there are no checksums to check. Two VLAN tags (802.1Q or 802.1ad)
/// are walked over; a frame with more has no network layer. Of a frame of more than 65,535 bytes the first 65,535
/// are looked at.
struct FrameLayout {
  bool vlan = false, ipv4 = false, ipv6 = false;
  bool tcp = false, udp = false;  ///< its whole header is there: `transport`
  bool fragment = false;          ///< not a whole datagram; only the first one can have a transport header
  std::uint8_t protocol = 0;      ///< IPv4: as the header says; IPv6: of the last header that could be reached
  std::uint16_t ether_type = 0;   ///< the one behind the tags
  std::uint16_t network = 0;      ///< IP header
  std::uint16_t transport = 0;    ///< TCP or UDP header
  std::uint16_t payload = 0;      ///< behind the transport header with its options
  std::uint16_t vlan_tci = 0;     ///< of the outer tag, host order
};

/// IPv6 headers that are walked over: hop-by-hop, destination, fragment, and routing with no segments left (with
/// some, the checksum counts for another address than the one in the header). Behind any other nothing is looked
/// for.
FrameLayout layout_of(std::span<const std::byte> frame);

/// The same of headers whose payload is elsewhere (TCP segmentation): the datagram ends where `header` does,
/// whatever the lengths in the IP and UDP headers are.
FrameLayout layout_of_headers(std::span<const std::byte> header);

/// True where TCP or UDP checksum and, with IPv4, the header's have been checked and are right; a UDP checksum of 0
/// is, over IPv4. False for what has no such checksums or can't be checked: other protocols, fragments, lengths
/// that lie.
bool checksums_good(std::span<const std::byte> frame, const FrameLayout& layout);

/// Writes the checksums of IPv4 header, TCP and UDP, as far as these are there; fragments get the header's alone.
/// The lengths are those in the headers of `frame`, so `layout` may be of its headers alone.
void fill_checksums(std::span<std::byte> frame, const FrameLayout& layout);

/// Makes `frame` (headers copied from those of the whole segment, then the payload of this piece) piece number
/// `index` whose payload begins `offset` bytes into the whole: IP length, IPv4 identification + index, TCP sequence
/// + offset, FIN and PSH only in the last, CWR only in the first (RFC 3168, 6.1.2). Checksums are the caller's,
/// afterwards. `layout` is layout_of_headers() of the headers; their length must be layout.payload. False, and
/// nothing written, when these aren't Ethernet, whole IP datagram and TCP, or the piece is longer than an IP length
/// can say.
bool segment_header(std::span<std::byte> frame, const FrameLayout& layout, std::uint32_t index,
                    std::uint32_t offset, bool last);

}  // namespace uroce::wire
