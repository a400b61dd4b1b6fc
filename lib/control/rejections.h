// Requests of clients that were refused, counted by reason. Used by the control thread only.
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace uroce::daemon {

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

class Rejections {
 public:
  void count(Rejection reason) { ++counts_[static_cast<std::size_t>(reason)]; }
  std::uint64_t of(Rejection reason) const { return counts_[static_cast<std::size_t>(reason)]; }

 private:
  std::array<std::uint64_t, std::size(kRejectionNames)> counts_{};
};

}  // namespace uroce::daemon
