#include "pages.h"

#include <cstdint>
#include <utility>

namespace uroce::ctl {

using Json = nlohmann::ordered_json;

Json add_page(Json& whole, Json page) {
  Json next;
  if (!page.is_object()) return whole = std::move(page), next;
  std::uint64_t hidden = 0;
  for (const Json* const each : {&std::as_const(whole), &std::as_const(page)}) {
    const auto it = each->find("hidden");
    if (it != each->end() && it->is_number_unsigned()) hidden += it->get<std::uint64_t>();
  }
  whole.erase("hidden");  // stays the last
  for (auto& [name, value] : page.items()) {
    if (name == "hidden") continue;
    if (name == "next") {
      next = std::move(value);
    } else if (value.is_array() && whole.contains(name) && whole[name].is_array()) {
      for (Json& row : value) whole[name].push_back(std::move(row));
    } else {
      whole[name] = std::move(value);
    }
  }
  if (hidden != 0) whole["hidden"] = hidden;
  return next;
}

}  // namespace uroce::ctl
