// The command line of urocectl.
#pragma once

#include <string>
#include <vector>

namespace uroce::ctl {

struct Options {
  std::vector<std::string> devices;  ///< empty: all running daemons
  std::string run_dir;
  bool json = false;
  bool watch = false;
  double interval_s = 1.0;
  std::string command;   ///< show, stat, metrics, fault, trace, link
  std::string argument;  ///< first argument of the command; may be empty
  std::string operand;   ///< of link add, link remove and link mtu; of fault verbs: a rule, or off
  std::string number;    ///< of fault verbs off; may be empty
};

/// Exits with status 2 and a message if the arguments are wrong.
Options parse_options(int argc, char** argv);

[[noreturn]] void fail(int status, const std::string& message);

}  // namespace uroce::ctl
