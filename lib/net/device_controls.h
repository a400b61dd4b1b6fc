// What urocectl can change in the device stack while it runs: fault injection and capture. Thread-safe. The fault
// and pcap devices implement it.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace uroce::net {

class DeviceControls {
 public:
  virtual ~DeviceControls() = default;

  /// "drop=0.01,dup=0.01,reorder=0.05,delay=0.01:200us,corrupt=0.001,seed=7,direction=rx|tx|both" or "off". Returns
  /// an error that names the value, what is allowed and what to do; empty: done.
  virtual std::string set_fault(std::string_view settings) = 0;
  /// Writes what passes to a pcapng file. The same return value.
  virtual std::string start_capture(std::string_view path) = 0;
  virtual std::string stop_capture() = 0;
  /// Names and values to show: the settings, and counters of what was done.
  virtual std::vector<std::pair<std::string, std::string>> describe() const = 0;
};

}  // namespace uroce::net
