// A one-way stream of records from the daemon to a client: an AF_UNIX SOCK_SEQPACKET pair.
//
// The client holds its end and may do anything with it. No lock that a reader holds while it sleeps is taken by
// send(2) with MSG_DONTWAIT, so the daemon never waits; a pipe's lock is held by splice(2) and by page faults of a
// reader, and O_NONBLOCK does not cover it. Nothing can be sent to the daemon's end, so closing it frees no
// descriptor of the client.
#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "platform/unique_fd.h"

namespace uroce::platform {

/// `reader` goes to the client. False: no descriptor or memory is free.
inline bool open_record_socket(UniqueFd& writer, UniqueFd& reader) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return false;
  UniqueFd ours(ends[0]), theirs(ends[1]);
  // About 350 records; the kernel doubles the value. Records of a client that does not read take memory of the
  // daemon.
  constexpr int kBytes = 128 << 10;
  ::setsockopt(ours.get(), SOL_SOCKET, SO_SNDBUF, &kBytes, sizeof(kBytes));
  if (::shutdown(ours.get(), SHUT_RD) != 0) return false;
  writer = std::move(ours);
  reader = std::move(theirs);
  return true;
}

enum class Sent : std::uint8_t {
  kYes,
  kLater,  ///< the reader is slow, or memory is short
  kNever,  ///< the client has closed its end
};

/// Sends one record. Never waits.
inline Sent send_record(int writer, std::span<const std::byte> record) {
  if (::send(writer, record.data(), record.size(), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return Sent::kYes;
  const bool later = errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM || errno == EINTR;
  return later ? Sent::kLater : Sent::kNever;
}

}  // namespace uroce::platform
