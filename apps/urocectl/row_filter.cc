#include "row_filter.h"

#include <fnmatch.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <set>

#include "options.h"
#include "table.h"

namespace uroce::ctl {
namespace {

bool is_number(const std::string& text, unsigned long long& value) {
  char* end = nullptr;
  value = std::strtoull(text.c_str(), &end, 0);
  return !text.empty() && *end == '\0';
}

bool matches_text(const std::string& pattern, const std::string& text) {
  unsigned long long wanted = 0, there = 0;
  if (is_number(pattern, wanted) && is_number(text, there)) return wanted == there;
  return fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
}

bool is_list(const Json& value) { return value.is_array() && !value.empty() && value.front().is_object(); }

}  // namespace

std::vector<std::string> RowFilter::Condition::columns() const {
  if (key == "user") return {"uid", "user"};
  if (key == "peer") return {"dest", "dest_qpn", "destination"};
  return {key};
}

bool RowFilter::Condition::matches(const Json& row) const {
  const std::vector<std::string> names = columns();
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    const auto value = row.find(name);
    if (value == row.end()) return false;
    if (!value->is_array()) return matches_text(pattern, cell(*value));
    return std::any_of(value->begin(), value->end(),
                       [&](const Json& each) { return matches_text(pattern, cell(each)); });
  });
}

RowFilter::RowFilter(std::string_view text) {
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    const std::size_t equals = part.find('=');
    if (equals == 0 || equals == std::string_view::npos) {
      fail(2,
           "filter \"" + std::string(part) + "\": give COLUMN=PATTERN, such as pid=4711 or state=RTS,program=ib_*");
    }
    conditions_.push_back({std::string(part.substr(0, equals)), std::string(part.substr(equals + 1))});
  }
}

bool RowFilter::needs_sessions() const {
  return std::any_of(conditions_.begin(), conditions_.end(), [](const Condition& each) {
    return each.key == "pid" || each.key == "uid" || each.key == "user";
  });
}

bool RowFilter::matches(const Json& row) const {
  return std::all_of(conditions_.begin(), conditions_.end(),
                     [&](const Condition& each) { return each.matches(row); });
}

void RowFilter::check_columns(const Json& answer) const {
  // What programs have: of a device without programs no row shows that such a column exists.
  const std::set<std::string> of_programs{"pid", "uid",   "user", "program", "session",
                                          "qpn", "state", "peer", "type"};
  std::set<std::string> columns;
  bool some_empty = false;
  for (const Json& list : answer) {
    some_empty |= list.is_array() && list.empty();
    if (!is_list(list)) continue;
    for (const Json& row : list) {
      for (const auto& [name, value] : row.items()) columns.insert(name);
    }
  }
  if (columns.empty()) return;
  for (const Condition& each : conditions_) {
    if (some_empty && of_programs.contains(each.key)) continue;
    const std::vector<std::string> names = each.columns();
    if (std::any_of(names.begin(), names.end(), [&](const auto& name) { return columns.contains(name); })) continue;
    std::string there;
    for (const std::string& name : columns) there += (there.empty() ? "" : ", ") + name;
    fail(2, "filter: there is no column \"" + each.key + "\"; there are " + there);
  }
}

void RowFilter::apply(Json& answer, const Json& sessions) const {
  if (all()) return;
  if (needs_sessions()) add_session_columns(answer, sessions);
  check_columns(answer);
  for (Json& list : answer) {
    if (!is_list(list)) continue;
    Json kept = Json::array();
    std::copy_if(list.begin(), list.end(), std::back_inserter(kept), [&](const Json& row) { return matches(row); });
    list = std::move(kept);
  }
}

void add_session_columns(Json& answer, const Json& sessions) {
  std::map<std::string, Json> of;
  for (const Json& row : sessions.value("sessions", Json::array())) of[cell(row.value("session", Json()))] = row;
  for (Json& list : answer) {
    if (!is_list(list)) continue;
    for (Json& row : list) {
      const auto found = row.contains("session") ? of.find(cell(row["session"])) : of.end();
      if (found == of.end()) continue;
      for (const char* name : {"program", "pid", "uid"}) {
        if (!row.contains(name)) row[name] = found->second.value(name, Json());
      }
    }
  }
}

}  // namespace uroce::ctl
