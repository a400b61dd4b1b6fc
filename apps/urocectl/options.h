// The command line of urocectl.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace uroce::ctl {

struct TraceOptions {
  std::string filter;            ///< of the daemon (lib/net/device_controls.h)
  std::string file;              ///< to write; empty: text on standard output; "-": pcapng there
  std::uint32_t snaplen = 0;     ///< bytes of each frame; 0: all
  std::uint64_t count = 0;       ///< frames; 0: no limit
  std::uint64_t file_bytes = 0;  ///< after which the next file begins; 0: never
  unsigned rotate_s = 0;         ///< seconds after which the next file begins; 0: never
  unsigned files = 0;  ///< with rotate_s: after which the trace ends; else the first begins again; 0: never
  bool operator==(const TraceOptions&) const = default;
};

struct Options {
  std::vector<std::string> devices;  ///< empty: all running daemons
  std::string run_dir;
  bool json = false;
  bool quiet = false;  ///< trace says nothing but errors; play does not print its steps, either
  bool watch = false;
  bool page = false;          ///< stat reads the page of counters, and asks no daemon
  bool http = false;          ///< metrics answers a request on standard input
  std::string listen;         ///< of web; empty: kDefaultListen
  double interval_s = 1.0;    ///< also of doctor
  std::string sort = "sent";  ///< of top
  unsigned rounds = 0;        ///< of --watch and top; 0: until Ctrl-C
  std::string command;        ///< show, stat, top, web, doctor, metrics, ...: those of check()
  std::string argument;       ///< first argument of the command; may be empty
  std::string operand;  ///< of show: a filter; of link add, remove and mtu; of fault verbs and fault add: a rule;
                        ///< of fault off: a name
  std::string number;   ///< of fault verbs off; may be empty
  TraceOptions trace;
};

/// Exits with status 2 and a message if the arguments are wrong.
Options parse_options(int argc, char** argv);

[[noreturn]] void fail(int status, const std::string& message);

}  // namespace uroce::ctl
