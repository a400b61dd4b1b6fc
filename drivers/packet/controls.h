// The fault plan and the recorder of a daemon's devices, as urocectl fault and urocectl trace change them.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "drivers/packet/fault/plan.h"
#include "drivers/packet/pcap/recorder.h"
#include "net/device_controls.h"

namespace uroce::packet {

class Controls : public net::DeviceControls {
 public:
  explicit Controls(std::string interface) : recorder_(std::move(interface)) {}

  std::string set_fault(std::string_view settings) override;
  std::string add_fault(std::string_view rules) override;
  std::string remove_fault(std::string_view name) override;
  /// All frames to a pcapng file that the daemon opens itself.
  std::string start_capture(std::string_view path) { return recorder_.start(std::string(path)); }
  std::string start_capture(std::string_view filter, int& reader) override;
  std::string stop_capture() override { return recorder_.stop(); }
  std::vector<std::pair<std::string, std::string>> describe() const override;

  fault::SharedPlan& faults() { return faults_; }
  pcap::Recorder& recorder() { return recorder_; }

 private:
  pcap::Recorder recorder_;
  fault::SharedPlan faults_{&recorder_};
};

}  // namespace uroce::packet
