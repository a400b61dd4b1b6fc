#include "save.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "base/version.h"
#include "platform/unique_fd.h"
#include "table.h"

namespace uroce::ctl {
namespace {

bool is_bare(const std::string& text) {
  if (text == "true" || text == "false") return true;
  return !text.empty() && text.size() < 19 && text.find_first_not_of("0123456789") == std::string::npos &&
         (text.size() == 1 || text.front() != '0');
}

/// A basic string of TOML.
std::string quoted(const std::string& text) { return Json(text).dump(-1, ' ', true); }

std::string value_text(const Json& value) {
  if (!value.is_array()) return is_bare(cell(value)) ? cell(value) : quoted(cell(value));
  std::string list;
  for (const Json& each : value) list += (list.empty() ? "" : ", ") + quoted(cell(each));
  return "[" + list + "]";
}

}  // namespace

std::string configuration(const Json& settings) {
  std::map<std::string, std::string> tables;  // the lines of each; those of none come first
  for (const Json& row : settings) {
    if (!row.is_object() || !row.contains("value") || row["value"] == row.value("default", Json())) continue;
    const std::string key = cell(row.value("key", Json()));
    const std::size_t dot = key.find('.');
    const std::string table = dot == std::string::npos ? "" : key.substr(0, dot);
    tables[table] += key.substr(dot + 1) + " = " + value_text(row["value"]) + "\n";
  }
  std::string text = "# Settings of uroced " UROCE_VERSION " that differ from their defaults (urocectl save).\n";
  for (const auto& [table, lines] : tables) text += (table.empty() ? "" : "\n[" + table + "]\n") + lines;
  return text;
}

std::string write_new_file(const std::string& path, const std::string& text) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!file.valid() && errno == EEXIST) return path + " exists; give the name of a new file, and compare the two";
  if (!file.valid()) return path + ": " + std::strerror(errno);
  const auto written = ::write(file.get(), text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size())) return {};
  ::unlink(path.c_str());
  return path + ": " + (written < 0 ? std::strerror(errno) : "the disk is full");
}

}  // namespace uroce::ctl
