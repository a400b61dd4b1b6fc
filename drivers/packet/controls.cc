#include "drivers/packet/controls.h"

namespace uroce::packet {

std::string Controls::set_fault(std::string_view settings) {
  fault::Plan plan;
  if (std::string error = fault::Plan::parse(settings, plan); !error.empty()) return error;
  faults_.set(plan);
  return {};
}

std::vector<std::pair<std::string, std::string>> Controls::describe() const {
  auto all = faults_.describe();
  for (auto& entry : recorder_.describe()) all.push_back(std::move(entry));
  return all;
}

}  // namespace uroce::packet
