#include "play.h"

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <sstream>
#include <string_view>

#include "daemon_client.h"
#include "scenario.h"

namespace uroce::ctl {
namespace {

using Clock = std::chrono::steady_clock;
using Action = Step::Action;
constexpr std::chrono::milliseconds kLook{10};  // between two looks at how often a rule has matched

std::string read_whole(const std::string& path) {
  std::ostringstream text;
  if (path == "-") {
    text << std::cin.rdbuf();
    return text.str();
  }
  std::error_code error;
  std::ifstream file(path);
  if (!file || std::filesystem::is_directory(path, error)) {
    fail(1, path + ": it cannot be read: give a file with a scenario, or - for standard input");
  }
  text << file.rdbuf();
  return text.str();
}

/// Ctrl-C, SIGTERM and SIGHUP. They stay pending until wait_until() takes them, so that no request, and not the
/// end, is interrupted.
class StopSignals {
 public:
  StopSignals() {
    sigemptyset(&set_);
    for (const int each : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set_, each);
    sigprocmask(SIG_BLOCK, &set_, nullptr);
    signal(SIGPIPE, SIG_IGN);  // who reads the output may go
  }

  /// False: one has come.
  bool wait_until(Clock::time_point end) const {
    for (;;) {
      const auto left = std::chrono::nanoseconds(std::max(end - Clock::now(), Clock::duration::zero()));
      const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
      const timespec time{seconds.count(), (left - seconds).count()};
      if (sigtimedwait(&set_, nullptr, &time) >= 0) return false;
      if (errno == EAGAIN && Clock::now() >= end) return true;
    }
  }

 private:
  sigset_t set_{};
};

/// What the scenario has done to a device, and not undone.
struct Done {
  std::set<std::string> rules;    ///< names, of rules for frames
  std::set<std::uint64_t> verbs;  ///< numbers
  bool down = false;              ///< the link
};

class Player {
 public:
  explicit Player(const Options& options) : options_(options) {}

  /// False: a step failed, and what it was is printed.
  bool run(const std::vector<Step>& steps) {
    const Clock::time_point began = Clock::now();
    Clock::time_point previous = began;
    for (const Step& step : steps) {
      bool stopped = false;
      if (!wait(step, step.after ? previous : began, stopped)) return stopped;
      previous = Clock::now();
      if (!options_.quiet) {
        std::printf("%9.3f s  %s\n", std::chrono::duration<double>(previous - began).count(), step.text.c_str());
        std::fflush(stdout);
      }
      if (!perform(step)) {
        std::fprintf(stderr, "urocectl: line %u was the last\n", step.line);
        return false;
      }
    }
    return true;
  }

  /// Removes the rules of the scenario, and puts up the links that it has put down. False: a device did not do it.
  bool undo() {
    bool all = true;
    for (auto& [device, done] : done_) {
      all &= remove_rules(device, done);
      all &= remove_verbs(device, done);
      if (done.down) all &= change_link(device, "up");
    }
    return all;
  }

  bool answers(const std::string& device, const Json& request, Json* out = nullptr) const {
    Answer answer = ask(options_.run_dir, device, request);
    if (!answer.problem.empty()) {
      std::fprintf(stderr, "urocectl: %s: %s\n", device.c_str(), answer.problem.c_str());
      return false;
    }
    if (out != nullptr) *out = std::move(answer.json);
    return true;
  }

 private:
  /// False: a signal came (`stopped`), or there is no such rule.
  bool wait(const Step& step, Clock::time_point from, bool& stopped) const {
    if (step.rule.empty()) {
      const auto time = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(step.at_s));
      stopped = !signals_.wait_until(from + time);
      return !stopped;
    }
    for (std::uint64_t matched = 0;;) {
      if (!matches_of(step, matched)) return false;
      if (matched >= step.matches) return true;
      stopped = !signals_.wait_until(Clock::now() + kLook);
      if (stopped) return false;
    }
  }

  bool matches_of(const Step& step, std::uint64_t& matched) const {
    Json answer;
    if (!answers(step.rule_device, {{"command", "fault"}}, &answer)) return false;
    const Json settings = answer.value("settings", Json::object());
    const auto found = settings.find("fault_matched_by_" + step.rule);
    if (found == settings.end() || !found->is_string()) {
      std::fprintf(stderr, "urocectl: line %u: %s has no rule %s: an earlier line may add one with name=%s\n",
                   step.line, step.rule_device.c_str(), step.rule.c_str(), step.rule.c_str());
      return false;
    }
    const std::string text = *found;
    return std::from_chars(text.data(), text.data() + text.size(), matched).ec == std::errc{};
  }

  bool perform(const Step& step) {
    switch (step.action) {
      case Action::kEnd: return true;
      case Action::kAdd:
        done_[step.device].rules.insert(step.name);
        if (answers(step.device, {{"command", "fault"}, {"add", step.argument}})) return true;
        done_[step.device].rules.erase(step.name);
        return false;
      case Action::kRemove:
        return step.name.empty() ? remove_rules(step.device, done_[step.device])
                                 : remove_rule(step.device, step.name);
      case Action::kAddVerbs: return add_verbs(step);
      case Action::kRemoveVerbs: return remove_verbs(step.device, done_[step.device]);
      case Action::kLinkUp: return change_link(step.device, "up");
      case Action::kLinkDown: return change_link(step.device, "down");
    }
    return false;
  }

  bool remove_rule(const std::string& device, const std::string& name) {
    done_[device].rules.erase(name);
    return answers(device, {{"command", "fault"}, {"remove", name}});
  }

  bool remove_rules(const std::string& device, Done& done) const {
    bool all = true;
    for (const std::string& name : done.rules) all &= answers(device, {{"command", "fault"}, {"remove", name}});
    done.rules.clear();
    return all;
  }

  bool add_verbs(const Step& step) {
    Json answer;
    if (!answers(step.device, {{"command", "fault"}, {"verbs", {{"add", step.argument}}}}, &answer)) return false;
    const Json rules = answer.value("rules", Json::array());
    std::uint64_t newest = 0;
    for (const Json& rule : rules) newest = std::max(newest, rule.value("number", std::uint64_t{0}));
    done_[step.device].verbs.insert(newest);
    return true;
  }

  bool remove_verbs(const std::string& device, Done& done) const {
    bool all = true;
    for (const std::uint64_t number : done.verbs) {
      all &= answers(device, {{"command", "fault"}, {"verbs", {{"remove", number}}}});
    }
    done.verbs.clear();
    return all;
  }

  bool change_link(const std::string& device, const char* to) {
    const bool down = std::string_view(to) == "down";
    if (down) done_[device].down = true;  // though the answer may be lost
    if (!answers(device, {{"command", "link"}, {"change", to}, {"address", ""}})) return false;
    done_[device].down = down;
    return true;
  }

  const Options& options_;
  const StopSignals signals_;
  std::map<std::string, Done> done_;
};

}  // namespace

int play(const Options& options) {
  std::vector<Step> steps;
  const std::string problem = parse_scenario(read_whole(options.argument), steps);
  if (!problem.empty()) fail(2, options.argument + ": " + problem);
  Player player(options);
  for (const Step& step : steps) {
    for (const std::string& device : {step.device, step.rule_device}) {
      // A user that may not list rules may not set them either.
      const Json request = {{"command", "fault"}, {"verbs", Json::object()}};
      if (!device.empty() && !player.answers(device, request)) return 1;
    }
  }
  std::printf("%s: %zu steps\n", options.argument.c_str(), steps.size());
  std::fflush(stdout);
  const bool done = player.run(steps);
  return player.undo() && done ? 0 : 1;
}

}  // namespace uroce::ctl
