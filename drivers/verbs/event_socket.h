// The client's end of a socket on which the daemon reports events, one record for each.
//
// Destroying an object removes its events (Linux: drivers/infiniband/core/uverbs_main.c, ib_uverbs_release_ucq), so
// that poll(2) reports no event that a read would then skip. Only the first record of a socket can be removed.
// Records of destroyed objects are removed when they have become the first one: by discard(), and after each
// read(). So the first record is one of an object that exists.
//
// Any thread may call any function. `stale(record)` tells whether the record's object was destroyed.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <mutex>

#include "client/system.h"

namespace uroce::verbs {

class EventSocket {
 public:
  /// As read(2): a cancellation point, which waits for a record unless the program has set O_NONBLOCK. The record
  /// may be stale.
  template <class Record, class Stale>
  ssize_t read(int fd, Record& record, const Stale& stale) {
    while (true) {
      // A thread that waits holds nothing that a cancellation would have to give back: this library is linked with
      // its own unwinder, which can't run destructors for the one of pthread_cancel(3).
      const ssize_t first = ::recv(fd, &record, sizeof(record), MSG_PEEK);
      if (first != ssize_t{sizeof(record)}) return first;
      const std::lock_guard lock(mutex_);
      if (!receive(fd, record, 0)) continue;  // another thread has taken it
      if (may_hold_stale_) discard_first<Record>(fd, stale);
      return first;
    }
  }

  /// Call after an object was destroyed, when the daemon reports no further events of it.
  template <class Record, class Stale>
  void discard(int fd, const Stale& stale) {
    const std::lock_guard lock(mutex_);
    discard_first<Record>(fd, stale);
  }

 private:
  /// With mutex_ held.
  template <class Record, class Stale>
  void discard_first(int fd, const Stale& stale) {
    Record record;
    while (receive(fd, record, MSG_PEEK)) {
      may_hold_stale_ = true;
      if (!stale(record)) return;
      receive(fd, record, 0);
    }
    may_hold_stale_ = false;
  }

  /// False: no record, or the end of the file.
  template <class Record>
  static bool receive(int fd, Record& record, int flags) {
    iovec part{&record, sizeof(record)};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    return client::sys::receive_message(fd, &message, MSG_DONTWAIT | flags) == ssize_t{sizeof(record)};
  }

  std::mutex mutex_;             ///< held for each receive
  bool may_hold_stale_ = false;  ///< false once the socket was found empty
};

}  // namespace uroce::verbs
