// Requests of the control protocol at random: valid ones, which reach deep into the daemon, and damaged ones.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/hostile/random_values.h"
#include "tests/hostile/raw_client.h"

namespace uroce::hostile {

enum class Kind : std::uint8_t {
  kPd,
  kMr,
  kChannel,
  kCq,
  kQp,
  kWq,
  kSrq,
  kXrcd,
  kMw,
  kAh,
  kDm,
  kRss,
  kFlow,
  kCounters,
  kCompCntr,
  kCmChannel,
  kCmId,
  kCount
};

/// What one session has been given: handles by kind, and numbers that occur in entries and requests.
class Belongings {
 public:
  void add(Kind kind, std::uint32_t handle);
  /// Mostly one of the handles, else anything.
  std::uint32_t handle(Kind kind, Random& random) const;

  std::vector<std::uint32_t> keys, qpns;
  std::uint8_t gid[16] = {};
  std::uint64_t address = 0;  ///< of memory of this process
  std::size_t bytes = 0;

 private:
  std::array<std::vector<std::uint32_t>, static_cast<std::size_t>(Kind::kCount)> handles_;
};

struct Request {
  std::uint32_t command = 0;
  std::vector<std::byte> body;
  std::vector<UniqueFd> fds;  ///< that the command needs
};

/// A request that is well formed; whether the daemon accepts it depends on the state of the objects.
Request well_formed_request(Random& random, const Belongings& mine);

/// A request with damaged words, another length, another command number or other descriptors.
Request random_request(Random& random, const Belongings& mine, const std::string& socket_path);

/// Keeps what an answer gave.
void take_from(const Answer& answer, Belongings& mine);

}  // namespace uroce::hostile
