#include "open_metrics.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <vector>

namespace uroce::ctl {
namespace {

/// ABNF of OpenMetrics 1.0: the characters that must be escaped in labels and HELP.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out;
}

/// Of metrics and labels; the daemon's are, but another server may listen in the run directory.
bool is_name(const std::string& text) {
  const auto first = [](unsigned char c) { return std::isalpha(c) != 0 || c == '_'; };
  return !text.empty() && first(static_cast<unsigned char>(text[0])) &&
         std::all_of(text.begin(), text.end(), [&](unsigned char c) { return first(c) || std::isdigit(c) != 0; });
}

std::string text_of(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// An empty list if there is none.
Json list_of(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_array() ? *found : Json::array();
}

struct Family {
  std::string name, type, head;
  std::string samples;
};

std::string head_of(const std::string& name, const std::string& type, const std::string& unit,
                    const std::string& help) {
  std::string head = "# TYPE " + name + " " + type + "\n";
  if (!unit.empty() && name.ends_with("_" + unit)) head += "# UNIT " + name + " " + unit + "\n";
  return head + "# HELP " + name + " " + escaped(help) + "\n";
}

/// nullptr: it is not a family, or has another type with an earlier device.
Family* family_of(const Json& described, std::vector<Family>& families) {
  const std::string name = text_of(described, "name"), type = text_of(described, "type");
  if (!is_name(name) || (type != "counter" && type != "gauge" && type != "histogram")) return nullptr;
  const auto found =
      std::find_if(families.begin(), families.end(), [&](const Family& f) { return f.name == name; });
  if (found != families.end()) return found->type == type ? &*found : nullptr;
  families.push_back({name, type, head_of(name, type, text_of(described, "unit"), text_of(described, "help")), {}});
  return &families.back();
}

/// `name="text"` of each, with commas between them; nothing if one is not a label.
std::optional<std::string> labels_of(const std::string& device, const Json& sample) {
  std::string all = "device=\"" + escaped(device) + "\"";
  const auto labels = sample.find("labels");
  if (labels == sample.end() || !labels->is_object()) return all;
  for (const auto& [name, text] : labels->items()) {
    if (!is_name(name) || name == "device" || name == "le" || !text.is_string()) return {};
    all += "," + name + "=\"" + escaped(text.get<std::string>()) + "\"";
  }
  return all;
}

/// The lines of a histogram: OpenMetrics 1.0, "Histogram". Nothing if it is none.
std::string histogram_lines(const std::string& name, const std::string& labels, const Json& sample) {
  const Json count = sample.value("count", Json()), sum = sample.value("sum", Json());
  if (!count.is_number() || !sum.is_number()) return {};
  std::string lines;
  for (const Json& bucket : list_of(sample, "buckets")) {
    if (!bucket.is_array() || bucket.size() != 2 || !bucket[0].is_number() || !bucket[1].is_number()) return {};
    lines += name + "_bucket{" + labels + ",le=\"" + bucket[0].dump() + "\"} " + bucket[1].dump() + "\n";
  }
  lines += name + "_bucket{" + labels + ",le=\"+Inf\"} " + count.dump() + "\n";
  lines += name + "_count{" + labels + "} " + count.dump() + "\n";
  return lines + name + "_sum{" + labels + "} " + sum.dump() + "\n";
}

void add_sample(const std::string& device, const Json& sample, Family& to) {
  const std::optional<std::string> labels = sample.is_object() ? labels_of(device, sample) : std::nullopt;
  if (!labels) return;
  if (to.type == "histogram") {
    to.samples += histogram_lines(to.name, *labels, sample);
    return;
  }
  const auto value = sample.find("value");
  if (value == sample.end() || !value->is_number()) return;
  to.samples += to.name + (to.type == "counter" ? "_total" : "") + "{" + *labels + "} " + value->dump() + "\n";
}

}  // namespace

std::string open_metrics(const Json& answers) {
  std::vector<Family> families{
      {"uroce_up",
       "gauge",
       head_of("uroce_up", "gauge", "", "1 if the daemon of the device answers, 0 if not."),
       {}}};
  for (const auto& [device, answer] : answers.items()) {
    add_sample(device, {{"value", answer.is_null() ? 0 : 1}}, families.front());
    for (const Json& described : list_of(answer, "families")) {
      Family* const family = family_of(described, families);
      if (family == nullptr || family->name == "uroce_up") continue;
      for (const Json& sample : list_of(described, "samples")) add_sample(device, sample, *family);
    }
  }
  std::string out;
  for (const Family& family : families) {
    if (!family.samples.empty()) out += family.head + family.samples;
  }
  return out + "# EOF\n";
}

}  // namespace uroce::ctl
