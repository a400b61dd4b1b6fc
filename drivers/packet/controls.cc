#include "drivers/packet/controls.h"

#include <utility>

namespace uroce::packet {

std::string Controls::set_fault(std::string_view settings) {
  fault::Plan plan;
  if (std::string error = fault::Plan::parse(settings, plan); !error.empty()) return error;
  faults_.set(std::move(plan));
  return {};
}

std::string Controls::add_fault(std::string_view rules) {
  fault::Plan plan = faults_.plan(), more;
  if (std::string error = fault::Plan::parse(rules, more); !error.empty()) return error;
  if (more.rules.empty()) return "off adds nothing; `urocectl fault off` removes all rules";
  if (std::string error = plan.add(more); !error.empty()) return error;
  faults_.set(std::move(plan));
  return {};
}

std::string Controls::remove_fault(std::string_view name) {
  fault::Plan plan = faults_.plan();
  const auto named = [&](const fault::Rule& each) { return !name.empty() && each.name == name; };
  if (std::erase_if(plan.rules, named) == 0) {
    return "there is no rule \"" + std::string(name) + "\"; `urocectl fault` shows them";
  }
  faults_.set(std::move(plan));
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
