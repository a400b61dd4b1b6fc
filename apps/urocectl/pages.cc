#include "pages.h"

#include <cstdint>
#include <utility>

namespace uroce::ctl {

using Json = nlohmann::ordered_json;

namespace {

Json* samples_of(Json& family) {
  const auto it = family.is_object() ? family.find("samples") : family.end();
  return it != family.end() && it->is_array() ? &*it : nullptr;
}

/// Adds the value to that of the sample with these labels; false: there is none.
bool add_value(Json& samples, const Json& more) {
  if (!more.is_object() || !more.contains("labels") || !more.contains("value")) return false;
  for (Json& each : samples) {
    if (!each.is_object() || !each.contains("value") || each.value("labels", Json()) != more["labels"]) continue;
    if (!each["value"].is_number_unsigned() || !more["value"].is_number_unsigned()) return false;
    each["value"] = each["value"].get<std::uint64_t>() + more["value"].get<std::uint64_t>();
    return true;
  }
  return false;
}

void add_family(Json& families, Json more) {
  Json* const added = samples_of(more);
  for (Json& each : families) {
    Json* const samples = samples_of(each);
    if (samples == nullptr || added == nullptr || each.value("name", Json()) != more.value("name", Json()))
      continue;
    const bool sum = more.value("sum", Json()) == Json(true);
    for (Json& sample : *added) {
      if (!sum || !add_value(*samples, sample)) samples->push_back(std::move(sample));
    }
    return;
  }
  families.push_back(std::move(more));
}

}  // namespace

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
      Json& list = whole[name];
      for (Json& row : value) {
        if (name == "families") {
          add_family(list, std::move(row));
        } else {
          list.push_back(std::move(row));
        }
      }
    } else {
      whole[name] = std::move(value);
    }
  }
  if (hidden != 0) whole["hidden"] = hidden;
  return next;
}

}  // namespace uroce::ctl
