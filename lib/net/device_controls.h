// Fault injection and capture, which urocectl controls at run time. Thread-safe. Implemented by the fault and pcap
// devices.
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
  /// an error message that names the value and the allowed ones, or an empty string.
  virtual std::string set_fault(std::string_view settings) = 0;
  /// Writes all frames as pcapng to an open file, which it closes at the end and on an error; `name` is for
  /// messages. Returns an error message, or an empty string.
  virtual std::string capture_to(int file, std::string_view name) = 0;
  virtual std::string stop_capture() = 0;
  /// Names and values to show: settings and counters.
  virtual std::vector<std::pair<std::string, std::string>> describe() const = 0;
};

}  // namespace uroce::net
