// What urocectl was told to do.
#pragma once

#include <string>
#include <vector>

namespace uroce::ctl {

struct Options {
  std::vector<std::string> devices;  ///< empty: all that listen
  std::string run_dir;
  bool json = false;
  bool watch = false;
  double interval_s = 1.0;
  std::string command;   ///< show, stat, fault, trace, link
  std::string argument;  ///< of the command; may be empty
  std::string operand;   ///< of link add, link remove and link mtu
};

/// Ends the program with the reason and status 2 when the arguments say nothing we understand.
Options parse_options(int argc, char** argv);

[[noreturn]] void fail(int status, const std::string& message);

}  // namespace uroce::ctl
