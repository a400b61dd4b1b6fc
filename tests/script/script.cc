#include "tests/script/script.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace uroce::script {
namespace {

constexpr std::string_view kBlanks = " \t";

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> out;
  for (std::size_t at = text.find_first_not_of(kBlanks); at != text.npos;) {
    const std::size_t end = std::min(text.find_first_of(kBlanks, at), text.size());
    out.emplace_back(text.substr(at, end - at));
    at = text.find_first_not_of(kBlanks, end);
  }
  return out;
}

std::optional<std::uint64_t> integer(std::string_view text, int base) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> ipv4(std::string_view text) {
  std::uint64_t address = 0;
  for (int part = 0; part < 4; ++part) {
    const std::size_t dot = part == 3 ? text.size() : text.find('.');
    if (dot == text.npos) return std::nullopt;
    const auto value = integer(text.substr(0, dot), 10);
    if (!value || *value > 255) return std::nullopt;
    address = address << 8 | *value;
    text.remove_prefix(std::min(dot + 1, text.size()));
  }
  return address;
}

Stamp stamp_of(const std::string& word) {
  Stamp stamp{.given = true, .relative = word[0] == '+', .time = 0, .tolerance = {}};
  std::string_view rest = std::string_view(word).substr(stamp.relative ? 1 : 0);
  const std::size_t tilde = rest.find('~');
  if (tilde != rest.npos) {
    stamp.tolerance = duration_of(rest.substr(tilde + 1));
    if (!stamp.tolerance) throw SyntaxError("'" + word + "': the tolerance after ~ is a duration: 10us");
    rest = rest.substr(0, tilde);
  }
  const auto time = duration_of(rest);
  if (!time) throw SyntaxError("'" + word + "' is not a time; allowed: a number and ns, us, ms or s, as in +10ms");
  stamp.time = *time;
  return stamp;
}

Field field_of(const std::string& word, std::size_t at) {
  Field field{word.substr(0, at), Relation::kEqual, word.substr(at + 1)};
  if (word[at] != '=') field.relation = word[at] == '<' ? Relation::kBelow : Relation::kAbove;
  if (field.value.empty()) throw SyntaxError("'" + word + "': a value follows " + word[at]);
  return field;
}

Line line_of(std::size_t number, std::string_view text) {
  Line line;
  line.number = number;
  line.text = text;
  for (const std::string& word : split(text)) {
    const bool first = line.words.empty() && !line.stamp.given;
    const std::size_t at = word.find_first_of("=<>");
    if (first && (word[0] == '+' || (word[0] >= '0' && word[0] <= '9'))) {
      line.stamp = stamp_of(word);
    } else if (at != word.npos && at != 0) {
      line.fields.push_back(field_of(word, at));
    } else {
      if (!line.fields.empty()) throw SyntaxError("'" + word + "' is not a field; allowed here: name=value");
      line.words.push_back(word);
    }
  }
  if (line.words.empty()) throw SyntaxError("a statement is missing");
  return line;
}

ExpectedFailure expected_failure_of(std::size_t number, std::string_view text) {
  const std::size_t colon = text.find(": ");
  if (split(text.substr(0, colon)).size() != 2 || colon == text.npos) {
    throw SyntaxError("allowed: expect-fail ID: what is wrong");
  }
  return {number, std::string(text)};
}

}  // namespace

std::string list_of(std::span<const std::string> names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

std::string list_of(Names names) {
  std::string out;
  for (const Name& name : names) out.append(out.empty() ? "" : ", ").append(name.text);
  return out;
}

std::optional<std::uint64_t> number_of(std::string_view text) {
  if (text.starts_with("0x")) return integer(text.substr(2), 16);
  if (text.find('.') != text.npos) return ipv4(text);
  return integer(text, 10);
}

std::optional<Nanos> duration_of(std::string_view text) {
  struct Unit {
    std::string_view text;
    Nanos length;
  };
  constexpr std::array<Unit, 4> kUnits = {{{"ns", 1}, {"us", kMicrosecond}, {"ms", kMillisecond}, {"s", kSecond}}};
  for (const Unit& unit : kUnits) {
    if (!text.ends_with(unit.text)) continue;
    if (const auto count = integer(text.substr(0, text.size() - unit.text.size()), 10)) return *count * unit.length;
  }
  return std::nullopt;
}

std::string text_of(std::uint64_t value, Names names) {
  for (const Name& name : names) {
    if (name.value == value) return std::string(name.text);
  }
  return std::to_string(value);
}

const std::string& Line::word(std::size_t index, std::string_view what, std::string_view allowed) const {
  if (index < words.size()) return words[index];
  throw SyntaxError("'" + statement() + "' needs " + std::string(what) + "; allowed: " + std::string(allowed));
}

const Field* Line::find(std::string_view name) const {
  const auto found = std::find_if(fields.begin(), fields.end(), [&](const Field& f) { return f.name == name; });
  return found == fields.end() ? nullptr : &*found;
}

void Line::check(std::size_t count, std::span<const std::string> allowed) const {
  if (words.size() > count) throw SyntaxError("'" + words[count] + "' is one word too many; allowed: name=value");
  for (const Field& field : fields) {
    if (std::find(allowed.begin(), allowed.end(), field.name) == allowed.end()) {
      std::string title;
      for (const std::string& word : words) title += (title.empty() ? "" : " ") + word;
      throw SyntaxError("'" + title + "' has no field '" + field.name + "'; allowed: " + list_of(allowed));
    }
    if (find(field.name) != &field) throw SyntaxError("field '" + field.name + "' is given twice");
  }
}

Script parse(std::string name, std::string_view text) {
  Script script;
  script.name = std::move(name);
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.starts_with('#')) continue;
    line = line.substr(0, line.find(" #"));
    line = line.substr(0, line.find_last_not_of(kBlanks) + 1);
    if (line.empty()) continue;
    try {
      if (!line.starts_with("expect-fail")) {
        script.lines.push_back(line_of(number, line));
      } else if (script.expected_failure) {
        throw SyntaxError("a second expect-fail; allowed: one");
      } else {
        script.expected_failure = expected_failure_of(number, line);
      }
    } catch (const SyntaxError& error) {
      throw SyntaxError(script.name + ":" + std::to_string(number) + ": " + error.what());
    }
  }
  script.last_line = number;
  if (script.lines.empty()) throw SyntaxError(script.name + ": no statement");
  return script;
}

}  // namespace uroce::script
