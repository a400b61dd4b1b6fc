#include "drivers/packet/controls.h"

namespace uroce::packet {

std::string Controls::set_fault(std::string_view settings) {
  fault::Plan plan;
  if (std::string error = fault::Plan::parse(settings, plan); !error.empty()) return error;
  faults_.set(plan);
  return {};
}

std::string Controls::start_capture(std::string_view filter_text, int& reader) {
  pcap::Filter filter;
  if (std::string error = pcap::Filter::parse(filter_text, filter); !error.empty()) return error;
  return recorder_.start(filter, filter_text, reader);
}

std::vector<std::pair<std::string, std::string>> Controls::describe() const {
  auto all = faults_.describe();
  for (auto& entry : recorder_.describe()) all.push_back(std::move(entry));
  return all;
}

}  // namespace uroce::packet
