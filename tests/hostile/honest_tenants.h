// Honest users next to an attack: their data is verified, the latency of their WRITEs is measured.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "tests/hostile/processes.h"

namespace uroce::hostile {

/// Latencies in buckets of 1/16 of a power of two, so that hours fit.
class Latencies {
 public:
  void add(std::uint64_t ns);
  std::uint64_t count() const;
  /// In us, rounded up to the bucket's end. `part`: 0.5, 0.99, ...
  double percentile_us(double part) const;

 private:
  static constexpr std::uint32_t kSteps = 16;
  std::array<std::atomic<std::uint64_t>, 64 * kSteps> buckets_{};
};

enum Phase { kPause, kBusyNeighbour, kAttack, kPhases };

/// What the honest processes share with the test.
struct HonestReport {
  std::atomic<int> phase{kPause};
  std::atomic<bool> stop{false};
  std::array<Latencies, kPhases> write;  ///< 8-byte WRITEs, by phase
  std::array<Latencies, kPhases> open;   ///< opening the device, with an MR, a CQ and a connected QP
  std::atomic<std::uint64_t> verified{0}, verified_bytes{0};
  std::atomic<int> errors{0};
  char first_error[256] = {};
};

/// A process each that measures, verifies, and opens the device again and again.
class HonestTenants {
 public:
  HonestTenants(const std::string& socket_path, HonestReport& report);
  /// Ends them. False: one hung or failed; the report has the reason.
  bool end();

 private:
  HonestReport& report_;
  Child measuring_, verifying_, opening_;
};

/// An ordinary user that always has WRITEs of 64 KiB outstanding, on several connections.
Child busy_neighbour(const std::string& socket_path, uid_t user);

}  // namespace uroce::hostile
