// The configuration file: TOML with the keys of the settings table (knobs.cc).
#include <toml++/toml.h>

#include <filesystem>

#include "apps/uroced/settings.h"

namespace uroce::uroced {
namespace {

struct Reader {
  const std::string& path;
  Settings& settings;

  std::string at(const toml::node& node) const {
    return path + ":" + std::to_string(node.source().begin.line) + ": ";
  }

  static const Knob* find(const std::string& key) {
    for (const Knob& knob : knobs()) {
      if (key == knob.key) return &knob;
    }
    return nullptr;
  }

  static bool is_table(const std::string& key) {
    for (const Knob& knob : knobs()) {
      if (std::string_view(knob.key).substr(0, key.size() + 1) == key + ".") return true;
    }
    return false;
  }

  static std::string unknown(const std::string& key) {
    std::vector<std::string> names;
    for (const Knob& knob : knobs()) names.emplace_back(knob.key);
    const std::string near = nearest(key, names);
    return "there is no key \"" + key + "\"" + (near.empty() ? "." : "; did you mean \"" + near + "\"?") +
           " config/uroced.toml lists all";
  }

  /// The elements of a [[device]] as its flag has them: "KEY=VALUE,KEY=VALUE".
  std::string join(const toml::table& table, std::string& text) {
    const auto add = [&](const toml::key& key, const toml::node& node) -> std::string {
      const auto* const value = node.as_string();
      if (value == nullptr || value->get().find(',') != std::string::npos) {
        return at(node) + std::string(key.str()) +
               " of a device must be a string without a comma, or a list of these";
      }
      text += (text.empty() ? "" : ",") + std::string(key.str()) + "=" + value->get();
      return {};
    };
    for (const auto& [key, node] : table) {
      const toml::array* const list = node.as_array();
      if (list == nullptr) {
        if (std::string error = add(key, node); !error.empty()) return error;
        continue;
      }
      if (list->empty())
        return at(node) + std::string(key.str()) + " of a device is empty; leave it out, or give one";
      for (const toml::node& element : *list) {
        if (std::string error = add(key, element); !error.empty()) return error;
      }
    }
    return {};
  }

  std::string set(const Knob& knob, const toml::node& node, bool first) {
    std::string text;
    if (const auto* table = node.as_table(); table != nullptr && std::string_view(knob.key) == "device") {
      if (std::string error = join(*table, text); !error.empty()) return error;
    } else if (const auto* value = node.as_string()) {
      text = value->get();
    } else if (const auto* number = node.as_integer()) {
      text = std::to_string(number->get());
    } else if (const auto* flag = node.as_boolean()) {
      text = flag->get() ? "true" : "false";
    } else {
      return at(node) + knob.key + " must be a string, a whole number, or true or false";
    }
    const std::string allowed = apply(knob, settings, text, first);
    return allowed.empty() ? "" : at(node) + knob.key + " = \"" + text + "\": it must be " + allowed;
  }

  std::string read_value(const std::string& key, const toml::node& node) {
    const Knob* knob = find(key);
    if (knob == nullptr) return at(node) + unknown(key);
    const toml::array* list = node.as_array();
    if (list == nullptr) return set(*knob, node, true);
    if (!knob->repeats) return at(node) + key + " takes one value, not a list";
    bool first = true;
    for (const toml::node& element : *list) {
      if (std::string error = set(*knob, element, first); !error.empty()) return error;
      first = false;
    }
    return {};
  }

  std::string read_table(const std::string& prefix, const toml::table& table) {
    for (const auto& [name, node] : table) {
      const std::string key = prefix + std::string(name.str());
      std::string error;
      if (const toml::table* inner = node.as_table(); inner != nullptr && key != "device") {
        error = is_table(key) ? read_table(key + ".", *inner) : at(node) + unknown(key);
      } else {
        error = read_value(key, node);
      }
      if (!error.empty()) return error;
    }
    return {};
  }
};

}  // namespace

std::string read_config_file(const std::string& path, Settings& settings) {
  // toml++ takes one for an empty file.
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown)) return path + " is a folder; give the file with --config";
  try {
    const toml::table table = toml::parse_file(path);
    return Reader{path, settings}.read_table("", table);
  } catch (const toml::parse_error& error) {
    const auto line = error.source().begin.line;
    const std::string where = path + (line != 0 ? ":" + std::to_string(line) : "");
    return where + ": " + std::string(error.description()) + ". Correct the file, or start without --config";
  }
}

}  // namespace uroce::uroced
