// What a capture keeps of a frame: this header and the first bytes of the frame follow each other in a worker's
// ring, and in the pipe from the daemon to urocectl, which is of the same build.
#pragma once

#include <cstdint>
#include <ctime>

namespace uroce::pcap {

enum class Direction : std::uint32_t { kInbound = 1, kOutbound = 2 };  ///< bits of epb_flags

struct Record {
  std::uint64_t time_ns = 0;  ///< CLOCK_REALTIME
  std::uint64_t lost = 0;     ///< frames that the capture has lost so far, because it was read too slowly
  std::uint32_t length = 0;   ///< of the frame
  std::uint32_t kept = 0;     ///< bytes of the frame that follow
  std::uint32_t qpn = 0;      ///< of the sending QP; 0: received, or not sent by a QP
  std::uint32_t marks = 0;    ///< fault::Mark
  Direction direction = Direction::kInbound;
  std::uint32_t end = 0;  ///< 1: the end of a stream, without a frame
};
static_assert(sizeof(Record) == 40);

inline std::uint64_t realtime_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace uroce::pcap
