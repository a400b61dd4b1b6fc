// Answers of `urocectl show`, with all their pages.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "test_client.h"

namespace uroce::daemon::testing {

/// Lists of later pages continue those of the first one; "hidden" is a sum.
inline nlohmann::json all_pages(Conductor& conductor, TestClient& by, nlohmann::json request) {
  nlohmann::json all = nlohmann::json::object(), next;
  request["pages"] = true;
  do {
    nlohmann::json page =
        nlohmann::json::parse(admin::handle_query(conductor.admin(), by.session(), request.dump()));
    for (auto& [name, value] : page.items()) {
      if (name == "next") continue;
      if (!all.contains(name)) {
        all[name] = std::move(value);
      } else if (value.is_array()) {
        all[name].insert(all[name].end(), value.begin(), value.end());
      } else {
        all[name] = all[name].get<std::uint64_t>() + value.get<std::uint64_t>();
      }
    }
    next = page.value("next", nlohmann::json());
    request["from"] = next;
  } while (!next.is_null());
  return all;
}

}  // namespace uroce::daemon::testing
