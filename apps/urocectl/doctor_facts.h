// What `urocectl doctor` looks at: answers of daemons, and files of the machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon_client.h"

namespace uroce::ctl {

/// Answers are empty where the daemon did not give them.
struct DeviceFacts {
  std::string name;
  std::string problem;           ///< why the daemon did not answer; empty: it did
  std::string hangs;             ///< of a daemon that did not: the thread that does not move, if its page says so
  Json device = Json::object();  ///< its row of `show devices`
  Json before = Json::object();  ///< `stat`, a moment earlier
  Json now = Json::object();     ///< `stat`
  Json workers_before = Json::array();  ///< `show workers`, a moment earlier
  Json workers = Json::array();         ///< and so on
  Json users = Json::array(), qps = Json::array(), mrs = Json::array(), errors = Json::array();
  Json rejections = Json::array(), neighbours = Json::array();
  std::int64_t huge_bytes = -1;  ///< hugepages that the daemon has; -1: unknown
  std::uint64_t hidden = 0;      ///< rows that this user may not see
};

struct MachineFacts {
  std::uint64_t huge_pages = 0, huge_pages_free = 0;  ///< of the default size
  std::uint64_t huge_page_bytes = 0;                  ///< that size; 0: the kernel has none
  std::vector<std::string> governors;                 ///< of the CPUs' frequency, each once; empty: unknown
  std::uint64_t receive_buffer_bytes = 0;             ///< net.core.rmem_max; 0: unknown
};

struct Facts {
  double seconds = 0;  ///< from `before` to `now`
  std::vector<DeviceFacts> devices;
  MachineFacts machine;
  std::vector<std::string> missing;  ///< devices of UROCE_DEVICES that no daemon serves
};

/// Asks the daemons twice, `seconds` apart.
Facts collect_facts(const std::string& run_dir, const std::vector<std::string>& devices, double seconds);

/// From the files below `root`, which is "/" but in tests.
MachineFacts read_machine(const std::string& root);

/// "a,b"
std::vector<std::string> split(const std::string& names);

/// The value at "transport.sent_pkts"; 0: there is none.
std::uint64_t number_at(const Json& answer, const std::string& path);

}  // namespace uroce::ctl
