// Frames of any protocol (raw packet QPs): header offsets, checksums and TCP segmentation. Safe on any bytes:
// nothing outside a frame is read or written, whatever its length fields hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace uroce::wire {

inline constexpr std::uint8_t kProtocolTcp = 6;

/// The headers of a frame and their offsets in bytes; 0: absent. A header that is truncated, or whose length field
/// is below the minimum, counts as absent, as does everything after it. Bytes after the IP length are padding. An
/// IP length that is too long, and the UDP length, do not change the layout (adapters classify such frames as
/// well), but such a frame has no checksums to verify. Up to two VLAN tags (802.1Q or 802.1ad) are skipped; a frame
/// with more has no network layer. Only the first 65,535 bytes of a frame are examined.
struct FrameLayout {
  bool vlan = false, ipv4 = false, ipv6 = false;
  bool tcp = false, udp = false;  ///< the whole header is present, at `transport`
  bool fragment = false;          ///< part of a datagram; only the first fragment can have a transport header
  std::uint8_t protocol = 0;      ///< IPv4: of the header; IPv6: of the last header that was reached
  std::uint16_t ether_type = 0;   ///< after the tags
  std::uint16_t network = 0;      ///< IP header
  std::uint16_t transport = 0;    ///< TCP or UDP header
  std::uint16_t payload = 0;      ///< after the transport header and its options
  std::uint16_t vlan_tci = 0;     ///< of the outer tag, host order
};

/// Skips these IPv6 extension headers: hop-by-hop, destination, fragment, and routing with no segments left (with
/// segments left, the checksum covers another address than the header's). Stops at any other (RFC 8200, 4).
FrameLayout layout_of(std::span<const std::byte> frame);

/// The layout of headers whose payload is stored elsewhere (TCP segmentation): the datagram ends where `header`
/// does, whatever the lengths in the IP and UDP headers are.
FrameLayout layout_of_headers(std::span<const std::byte> header);

/// Whether the TCP or UDP checksum and, with IPv4, the header checksum are right; over IPv4 a UDP checksum of 0 is
/// right (RFC 768). False for frames without such checksums or whose checksums cannot be verified: other protocols,
/// fragments, wrong lengths.
bool checksums_good(std::span<const std::byte> frame, const FrameLayout& layout);

/// Writes the checksums of the IPv4 header, TCP and UDP where these are present; a fragment gets the header
/// checksum only. The lengths are those in the headers of `frame`, so `layout` may be layout_of_headers().
void fill_checksums(std::span<std::byte> frame, const FrameLayout& layout);

/// TCP segmentation: adapts the headers of segment number `index`, whose payload begins `offset` bytes into the
/// whole: IP length, IPv4 identification + index, TCP sequence number + offset, FIN and PSH only in the last, CWR
/// only in the first (RFC 3168, 6.1.2). `frame` holds a copy of the whole's headers and the segment's payload. The
/// caller fills in the checksums afterwards. `layout` is layout_of_headers() of the headers, whose length must be
/// layout.payload. False, with nothing written: not an unfragmented TCP datagram, or the segment exceeds the
/// largest IP length.
bool segment_header(std::span<std::byte> frame, const FrameLayout& layout, std::uint32_t index,
                    std::uint32_t offset, bool last);

}  // namespace uroce::wire
