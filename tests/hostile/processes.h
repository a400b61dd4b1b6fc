// The processes of an attack: a real uroced on a loopback port in a run directory of its own, and children that run
// as other users.
//
// As root the daemon runs as root and the children as the users that the test names. Without root everything runs
// as the user of the test: attacks on what users share are then attacks of a user on itself, and tests that need
// two users skip.
#pragma once

#include <sys/types.h>

#include <functional>
#include <new>
#include <string>
#include <vector>

#include "platform/unique_fd.h"

namespace uroce::hostile {

/// Users of the tests; nobody is logged in as these.
inline constexpr uid_t kAttacker = 65534, kHonest = 65533, kOther = 65532;

bool is_root();

/// A child process that runs `work` as `user` (if the test is root) and exits with its result (0 to 255).
class Child {
 public:
  Child() = default;
  Child(uid_t user, const std::function<int()>& work);
  ~Child() { end(); }
  Child(Child&& from) noexcept;
  Child& operator=(Child&& from) noexcept;

  pid_t pid() const { return pid_; }
  bool running();
  /// Its exit status; -1: it still runs after the time, or a signal ended it.
  int wait(int timeout_ms = 30'000);
  /// Kills it, and waits.
  void end();

 private:
  pid_t pid_ = -1;
  bool ended_ = false;
  int status_ = 0;
};

void* allocate_shared(std::size_t bytes);
void release_shared(void* memory, std::size_t bytes);

/// A value that a child shares with the test. T needs no destructor; fields that both use are atomic.
template <class T>
class Shared {
 public:
  Shared() : value_(new (allocate_shared(sizeof(T))) T{}) {}
  ~Shared() { release_shared(value_, sizeof(T)); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  T* operator->() const { return value_; }
  T& operator*() const { return *value_; }

 private:
  T* value_;
};

/// A real daemon. Ends with the object; kills it when SIGTERM does not end it.
class DaemonProcess {
 public:
  /// Starts uroced with these flags besides --name, --port loopback, --ip and --run-dir, and waits until it is
  /// ready. `error_output`: its stderr; -1: a file, for log().
  explicit DaemonProcess(const std::vector<std::string>& flags = {}, int error_output = -1);
  ~DaemonProcess();
  DaemonProcess(const DaemonProcess&) = delete;
  DaemonProcess& operator=(const DaemonProcess&) = delete;

  bool ready() const { return ready_; }
  pid_t pid() const { return pid_; }
  const std::string& run_dir() const { return run_dir_; }
  std::string socket_path() const { return run_dir_ + "/uroce0.sock"; }
  bool running();
  /// Exit status after SIGTERM; -1: it did not end within 10 s, or a signal ended it.
  int stop();
  std::string log() const;

  // From /proc/PID: what an attack may exhaust.
  std::size_t threads() const;
  std::size_t descriptors() const;
  std::size_t mappings() const;
  /// States of its threads (proc_pid_stat(5)), such as "SSRD".
  std::string thread_states() const;
  /// A thread stays in state D (waits and cannot be ended) for 2 s. For a moment each may: it reads a page of the
  /// program itself from the disk.
  bool stuck() const;

 private:
  std::string run_dir_;
  UniqueFd log_;
  pid_t pid_ = -1;
  bool ready_ = false;
};

}  // namespace uroce::hostile
