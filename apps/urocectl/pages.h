// Answers that come in pages (lib/admin/query.h, "next").
#pragma once

#include <nlohmann/json.hpp>

namespace uroce::ctl {

/// Adds a page to those before it: lists and families of metrics continue, "hidden" and what is marked with "sum"
/// are added up. Removes "next" from `page` and returns it; null after the last page.
nlohmann::ordered_json add_page(nlohmann::ordered_json& whole, nlohmann::ordered_json page);

}  // namespace uroce::ctl
