// Reads the counters of a device from its page (abi/counters_page.h), for which no thread of the daemon has to run.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/types.h"
#include "daemon_client.h"

namespace uroce::ctl {

/// A thread of the daemon. Durations end with the reading.
struct PageThread {
  std::string name;              ///< "worker 0", "control"
  pid_t thread = 0;              ///< TID in the daemon's namespace; 0: it has not started
  bool sleeps = false;           ///< else it runs a duty cycle, or a round of the control thread
  Nanos since = 0;               ///< how long it has done that
  std::string command;           ///< of the control thread, or that it waits for this worker to run; empty: none
  bool command_started = false;  ///< by the worker
  Nanos command_since = 0;       ///< how long ago it was given
  std::uint64_t session = 0;     ///< whose command the control thread runs; 0: none
  Nanos age = 0;                 ///< of the values that the thread has published
  bool whole = true;             ///< these are of one time; false: the thread has ended while it wrote them
};

struct CountersPage {
  std::string problem;              ///< empty: the rest is there
  Json counters = Json::object();   ///< as in the answer to "stat", without what is not a number
  std::vector<PageThread> threads;  ///< workers, then the control thread
  pid_t process = 0;                ///< in the daemon's namespace
  bool same_clock = true;           ///< false: the daemon has another time namespace, and durations are wrong
};

CountersPage read_counters(const std::string& run_dir, const std::string& device);

/// Names of the devices that have a page in `run_dir`, sorted.
std::vector<std::string> devices_with_pages(const std::string& run_dir);

/// "worker 0 has been in one duty cycle for 12.3 s": the first thread that has not moved for `limit`; empty: none.
std::string hanging_thread(const CountersPage& page, Nanos limit);

/// A row for each thread, as `urocectl stat --page` has them.
Json threads_json(const CountersPage& page);

}  // namespace uroce::ctl
