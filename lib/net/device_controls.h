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

  /// Rules for frames, as fault::Plan has them: "drop=0.01,seed=7; name=cut,peer=192.0.2.7,drop=1"; or "off".
  /// Returns an error message that names the value and the allowed ones, or an empty string.
  virtual std::string set_fault(std::string_view settings) = 0;
  /// In addition to those that there are.
  virtual std::string add_fault(std::string_view rules) = 0;
  /// The rule of this name.
  virtual std::string remove_fault(std::string_view name) = 0;
  /// Begins to write frames into a pipe, as a stream of drivers/packet/pcap/record.h; `reader` becomes its reading
  /// end, which the caller closes. "qp=0x12,peer=192.0.2.7,op=SEND|ACK,snaplen=96"; empty: all. Returns an error
  /// message that names the value and the allowed ones, or an empty string.
  virtual std::string start_capture(std::string_view filter, int& reader) = 0;
  /// Begins the end of a capture, which ends when its reader has what passed before. Returns an error message, or
  /// an empty string.
  virtual std::string stop_capture() = 0;
  /// Names and values to show: settings and counters.
  virtual std::vector<std::pair<std::string, std::string>> describe() const = 0;
};

}  // namespace uroce::net
