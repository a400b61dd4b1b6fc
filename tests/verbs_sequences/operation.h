// The operations of verbs (../sequences/operation.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../sequences/operation.h"

namespace verbs_sequences {

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

using Operation = sequences::Operation<Kind>;
using sequences::Random;

std::string name_of(Kind kind);
std::string text_of(const Operation& operation);
/// The same for a seed: first what most sequences need, then `count` operations of any kind.
std::vector<Operation> draw(std::uint64_t seed, unsigned count);

}  // namespace verbs_sequences
