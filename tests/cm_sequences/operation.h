// The operations of librdmacm (../sequences/operation.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../sequences/operation.h"

namespace cm_sequences {

enum class Kind : std::uint8_t {
  kCreateChannel,
  kDestroyChannel,
  kCreateId,
  kDestroyId,
  kBind,
  kListen,
  kResolveAddress,
  kResolveRoute,
  kReady,
  kCreateQp,
  kDestroyQp,
  kConnect,
  kAccept,
  kReject,
  kEstablish,
  kDisconnect,
  kNotify,
  kMigrate,
  kSetOption,
  kAddresses,
  kTakeEvent,
  kTakeAll,
  kAcknowledge,
  kTakeExits,
  kCount
};

using Operation = sequences::Operation<Kind>;
using sequences::Random;

std::string name_of(Kind kind);
std::string text_of(const Operation& operation);
/// The same for a seed: first what most sequences need, then `count` operations of any kind.
std::vector<Operation> draw(std::uint64_t seed, unsigned count);

}  // namespace cm_sequences
