// The names of QP types and states in answers.
#pragma once

#include <cstddef>
#include <iterator>

#include "proto/state/attributes.h"

namespace uroce::admin {

inline constexpr const char* kQpStateNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
/// Those that type_name() returns.
inline constexpr const char* kQpTypeNames[] = {"RC", "UC", "UD", "RAW", "WQ", "XRC"};

inline const char* state_name(proto::QpState state) {
  const auto index = static_cast<std::size_t>(state);
  return index < std::size(kQpStateNames) ? kQpStateNames[index] : "?";
}

inline const char* type_name(proto::QpType type) {
  switch (type) {
    case proto::QpType::kRc: return "RC";
    case proto::QpType::kUc: return "UC";
    case proto::QpType::kUd: return "UD";
    case proto::QpType::kRawPacket: return "RAW";
    case proto::QpType::kWq: return "WQ";
    default: return "XRC";
  }
}

}  // namespace uroce::admin
