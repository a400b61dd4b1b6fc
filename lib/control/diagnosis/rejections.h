// Requests of clients that were refused: counted by reason, and the last ones with their words. Used by the control
// thread only.
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "platform/peer.h"

namespace uroce::control {

// clang-format off
#define UROCE_REJECTIONS(X)                                                                                    \
  X(malformed)       /* too short or too long, or its descriptors were cut off */                              \
  X(unknown_command) X(before_hello)                                                                           \
  X(bad_version)     /* another layout of the shared memory */                                                 \
  X(unknown_handle)  /* names an object that its session doesn't have */                                       \
  X(bad_value) X(no_permission) X(bad_memory) X(unsupported)                                                   \
  X(limit_reached)   /* of the user, the session, the device or the daemon */                                  \
  X(in_use) X(unreachable) X(other)                                                                            \
  X(sessions_closed) /* for a message without a header, or memory that was taken away */
// clang-format on

enum class Rejection : std::uint8_t {
#define UROCE_REJECTION_VALUE(name) name,
  UROCE_REJECTIONS(UROCE_REJECTION_VALUE)
#undef UROCE_REJECTION_VALUE
};

inline constexpr std::string_view kRejectionNames[] = {
#define UROCE_REJECTION_NAME(name) #name,
    UROCE_REJECTIONS(UROCE_REJECTION_NAME)
#undef UROCE_REJECTION_NAME
};

/// The reason to count for an errno that a command returned.
constexpr Rejection rejection_of(int error) {
  switch (error) {
    case EINVAL:
    case ENOENT:
    case ENODEV:
    case ENODATA:
    case EADDRNOTAVAIL: return Rejection::bad_value;
    case EPERM:
    case EACCES: return Rejection::no_permission;
    case EFAULT: return Rejection::bad_memory;
    case EOPNOTSUPP: return Rejection::unsupported;
    case EPROTO: return Rejection::bad_version;
    case ENOMEM:
    case EMFILE:
    case ENOBUFS: return Rejection::limit_reached;
    case EBUSY:
    case EEXIST:
    case EADDRINUSE: return Rejection::in_use;
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ETIMEDOUT: return Rejection::unreachable;
    default: return Rejection::other;
  }
}

/// One refused request.
struct Refusal {
  platform::Tenant tenant;
  pid_t pid = 0;
  std::string program;
  std::uint32_t command = 0;  ///< uroce_command or uroce_cm_command; 0: the connection itself
  int error = 0;              ///< errno
  Rejection reason = Rejection::other;
  std::string text;           ///< which object or value, what is allowed, what to do
  std::uint64_t time_ns = 0;  ///< CLOCK_REALTIME; set by Rejections::add()
  std::uint64_t number = 0;   ///< of those since the daemon's start, from 1 on; set by Rejections::add()
};

/// "CREATE_QP" for UROCE_CMD_CREATE_QP; "CONNECT" for 0; "?" for a number that is not a command.
std::string_view command_name(std::uint32_t command);

/// What to say about a refusal for which the command has no words of its own.
std::string_view default_text(Rejection reason);

class Rejections {
 public:
  static constexpr std::size_t kKept = 256;

  void count(Rejection reason) { ++counts_[static_cast<std::size_t>(reason)]; }
  std::uint64_t of(Rejection reason) const { return counts_[static_cast<std::size_t>(reason)]; }

  /// Counts and keeps it. Of more than kKept, the oldest of the tenant with the most is dropped: a user cannot push
  /// out the refusals of others.
  void add(Refusal refusal);
  const std::deque<Refusal>& kept() const { return kept_; }  ///< oldest first

 private:
  std::array<std::uint64_t, std::size(kRejectionNames)> counts_{};
  std::deque<Refusal> kept_;
  std::uint64_t last_number_ = 0;
};

}  // namespace uroce::control
