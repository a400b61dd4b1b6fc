#include "scenario.h"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <string_view>

#include "base/parse_time.h"

namespace uroce::ctl {
namespace {

using Action = Step::Action;

constexpr Nanos kLongest = 24 * 3600 * kSecond;
constexpr const char* kWhen =
    "when it happens: a time such as 2s or 500ms after the beginning, which is not before that of an earlier line; "
    "+2s after the step before; or a number of frames that a rule has matched, such as uroce0/cut>=1000";
constexpr const char* kCommand =
    "a device and a command: fault RULE, fault off [NAME], fault verbs RULE, fault verbs off, "
    "link up or link down; or end";

/// Takes the next word off the text.
std::string_view take_word(std::string_view& text) {
  constexpr std::string_view kBlank = " \t\r";
  const auto trim = [&] {
    text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
    text = text.substr(0, text.find_last_not_of(kBlank) + 1);
  };
  trim();
  const std::string_view word = text.substr(0, text.find_first_of(kBlank));
  text.remove_prefix(word.size());
  trim();
  return word;
}

/// A comment begins with a '#' at the start or after a blank.
std::string_view without_comment(std::string_view line) {
  for (std::size_t at = line.find('#'); at != std::string_view::npos; at = line.find('#', at + 1)) {
    if (at == 0 || line[at - 1] == ' ' || line[at - 1] == '\t') return line.substr(0, at);
  }
  return line;
}

/// "uroce0/cut>=1000".
bool parse_matches(std::string_view text, Step& step) {
  const std::size_t slash = text.find('/'), sign = text.find(">=");
  if (sign == std::string_view::npos || slash == 0 || sign <= slash + 1) return false;
  step.rule_device = text.substr(0, slash);
  step.rule = text.substr(slash + 1, sign - slash - 1);
  const std::string_view number = text.substr(sign + 2);
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), step.matches);
  return error == std::errc{} && end == number.data() + number.size();
}

/// `latest`: of the times after the beginning so far.
bool parse_when(std::string_view text, Step& step, double& latest) {
  if (text.find('/') != std::string_view::npos) return parse_matches(text, step);
  step.after = text.starts_with('+');
  if (step.after) text.remove_prefix(1);
  Nanos time = 0;
  if (!base::parse_time(text, time, kLongest)) return false;
  step.at_s = static_cast<double>(time) / static_cast<double>(kSecond);
  if (step.after) return true;
  const bool in_order = step.at_s >= latest;
  latest = step.at_s;
  return in_order;
}

/// The name in a rule for frames; empty: it has none.
std::string name_of(std::string_view rule) {
  constexpr std::string_view kKey = "name=";
  while (!rule.empty()) {
    const std::string_view pair = rule.substr(0, rule.find(','));
    if (pair.starts_with(kKey)) return std::string(pair.substr(kKey.size()));
    rule.remove_prefix(std::min(pair.size() + 1, rule.size()));
  }
  return {};
}

bool parse_fault(std::string_view text, Step& step) {
  std::string_view rest = text;
  const std::string_view first = take_word(rest);
  if (first == "verbs") {
    step.action = rest == "off" ? Action::kRemoveVerbs : Action::kAddVerbs;
    step.argument = rest;
    return !rest.empty() && rest.find(' ') == std::string_view::npos;
  }
  if (first == "off") {
    step.action = Action::kRemove;
    step.name = rest;
    return rest.find(' ') == std::string_view::npos;
  }
  step.action = Action::kAdd;
  step.name = name_of(text);
  step.argument = text;
  if (step.name.empty()) {
    step.name = "line-" + std::to_string(step.line);
    step.argument = "name=" + step.name + "," + step.argument;
  }
  return !text.empty() && text.find_first_of(" ;") == std::string_view::npos;
}

bool parse_command(std::string_view text, Step& step) {
  step.text = text;
  if (text == "end") return true;
  step.device = take_word(text);
  const std::string_view command = take_word(text);
  if (command == "fault") return parse_fault(text, step);
  step.action = text == "up" ? Action::kLinkUp : Action::kLinkDown;
  return command == "link" && (text == "up" || text == "down");
}

std::string wrong(unsigned line, std::string_view what, const char* allowed) {
  return "line " + std::to_string(line) + ": \"" + std::string(what) + "\": give " + allowed;
}

}  // namespace

std::string parse_scenario(const std::string& text, std::vector<Step>& steps) {
  steps.clear();
  std::istringstream lines(text);
  std::string whole;
  double latest = 0;
  for (unsigned number = 1; std::getline(lines, whole); ++number) {
    std::string_view line = without_comment(whole);
    const bool printable = std::all_of(line.begin(), line.end(),
                                       [](char c) { return (c >= ' ' && c <= '~') || c == '\t' || c == '\r'; });
    if (!printable) return "line " + std::to_string(number) + ": there are characters that are not ASCII";
    Step step;
    step.line = number;
    const std::string_view when = take_word(line);
    if (when.empty()) continue;
    if (!parse_when(when, step, latest)) return wrong(number, when, kWhen);
    if (!parse_command(line, step)) return wrong(number, line, kCommand);
    steps.push_back(std::move(step));
  }
  return steps.empty() ? std::string("there is no step: give lines of ") + kWhen + ", then " + kCommand : "";
}

}  // namespace uroce::ctl
