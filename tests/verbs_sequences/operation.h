// The operations that sequences consist of. An operation names its objects by their places in tables; one whose
// objects do not exist when its turn comes is skipped, so that any operation can be left out of a sequence.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace verbs_sequences {

/// splitmix64: the same numbers on each machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  std::uint32_t below(std::uint32_t limit) { return static_cast<std::uint32_t>((next() >> 32) % limit); }

 private:
  std::uint64_t state_;
};

enum class Kind : std::uint8_t {
  kAllocPd,
  kDeallocPd,
  kRegMr,
  kRegBadMr,
  kRereg,
  kDeregMr,
  kCreateChannel,
  kDestroyChannel,
  kCreateCq,
  kCreateBadCq,
  kDestroyCq,
  kResizeCq,
  kArm,
  kPoll,
  kTakeEvent,
  kCreateSrq,
  kCreateBadSrq,
  kDestroySrq,
  kModifySrq,
  kQuerySrq,
  kPostSrqRecv,
  kCreateQp,
  kCreateBadQp,
  kDestroyQp,
  kConnect,
  kModify,
  kModifyBad,
  kToError,
  kToReset,
  kQueryQp,
  kPostSend,
  kPostBadSend,
  kPostRecv,
  kCreateAh,
  kCreateBadAh,
  kDestroyAh,
  kAllocMw,
  kBindMw,
  kDeallocMw,
  kAttach,
  kDetach,
  kQueryPort,
  kTakeAsyncEvent,
  kCount
};

struct Operation {
  Kind kind;
  std::uint8_t side;      ///< 0: the first device's end, 1: the second one's
  std::uint8_t a, b, c;   ///< places of objects
  std::uint64_t choices;  ///< seed of all else: lengths, flags, ...
};

std::string name_of(Kind kind);
std::string text_of(const Operation& operation);
/// The same for a seed: first what most sequences need, then `count` operations of any kind.
std::vector<Operation> draw(std::uint64_t seed, unsigned count);

}  // namespace verbs_sequences
