#include "table.h"

#include <algorithm>
#include <vector>

namespace uroce::ctl {
namespace {

/// The counters of an object that are not zero, in one cell.
std::string inner_cell(const Json& object) {
  std::string joined;
  for (const auto& [name, number] : object.items()) {
    if (number.is_number() && number.get<double>() == 0) continue;
    joined += (joined.empty() ? "" : " ") + name + "=" + cell(number);
  }
  return joined.empty() ? "-" : joined;
}

using Row = std::vector<std::string>;

std::string aligned(const std::vector<Row>& rows) {
  std::vector<std::size_t> width;
  for (const Row& row : rows) {
    width.resize(std::max(width.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  std::string out;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      out += row[i];
      if (i + 1 < row.size()) out.append(width[i] - row[i].size() + 2, ' ');
    }
    out += '\n';
  }
  return out;
}

bool is_table(const Json& value) {
  return value.is_array() && (value.empty() || std::all_of(value.begin(), value.end(),
                                                           [](const Json& each) { return each.is_object(); }));
}

std::string table(const Json& list) {
  Row heads;
  for (const Json& object : list) {
    for (const auto& [name, value] : object.items()) {
      if (std::find(heads.begin(), heads.end(), name) == heads.end()) heads.push_back(name);
    }
  }
  std::vector<Row> rows{heads};
  for (const Json& object : list) {
    Row row;
    for (const std::string& head : heads) {
      if (!object.contains(head)) {
        row.emplace_back("-");
        continue;
      }
      row.push_back(object[head].is_object() ? inner_cell(object[head]) : cell(object[head]));
    }
    rows.push_back(std::move(row));
  }
  return aligned(rows);
}

void collect(const Json& value, const std::string& path, std::map<std::string, std::int64_t>& out) {
  if (value.is_number()) {
    out[path] =
        value.is_number_float() ? static_cast<std::int64_t>(value.get<double>()) : value.get<std::int64_t>();
  } else if (value.is_object()) {
    for (const auto& [name, inner] : value.items()) collect(inner, path.empty() ? name : path + "." + name, out);
  } else if (value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i) collect(value[i], path + "." + std::to_string(i), out);
  }
}

}  // namespace

std::string cell(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "-";
  if (!value.is_array()) return value.dump();
  std::string joined;
  for (const Json& each : value) joined += (joined.empty() ? "" : ",") + cell(each);
  return joined.empty() ? "-" : joined;
}

std::string tables(const Json& answer) {
  std::string out;
  std::vector<Row> single;
  for (const auto& [name, value] : answer.items()) {
    if (is_table(value)) {
      out += name + ": " + std::to_string(value.size()) + "\n";
      if (!value.empty()) out += table(value);
    } else if (value.is_object()) {
      std::vector<Row> lines;
      for (const auto& [path, text] : value.items()) {
        lines.push_back({"  " + path, text.is_object() ? inner_cell(text) : cell(text)});
      }
      out += name + ":\n" + aligned(lines);
    } else {
      single.push_back({name, cell(value)});
    }
  }
  return out + aligned(single);
}

std::map<std::string, std::int64_t> numbers(const Json& answer) {
  std::map<std::string, std::int64_t> out;
  collect(answer, "", out);
  return out;
}

}  // namespace uroce::ctl
