// A daemon for one command: it has a run directory of its own, and both end with the command.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>

namespace uroce::run {

class OwnDaemon {
 public:
  /// Starts uroced, which lies next to this program, with one device `uroce0` on a loopback port, 192.0.2.1 and
  /// 2001:db8::1. Waits until it is ready, or a signal comes (kept_signal()). `problem` is empty, or says why there
  /// is none.
  explicit OwnDaemon(std::string& problem);
  ~OwnDaemon();
  OwnDaemon(const OwnDaemon&) = delete;
  OwnDaemon& operator=(const OwnDaemon&) = delete;

  const std::string& run_dir() const { return run_dir_; }

 private:
  std::string run_dir_;
  pid_t pid_ = -1;
};

/// The uroced next to this program.
std::filesystem::path daemon_path();

/// Waits until the daemon accepts connections on its socket. False: not in this time, a signal came
/// (kept_signal()), or the daemon has ended, and `daemon` is -1.
bool wait_until_served(pid_t& daemon, const std::string& socket, int limit_ms);

/// Runs the program as a child that gets SIGTERM and SIGHUP with this process, and waits for its end. The exit
/// status as a shell's: that of the program, or 128 and the number of the signal that ended it.
int run_and_wait(char** program);

}  // namespace uroce::run
