#include "stat.h"

#include <cstdint>
#include <cstdio>
#include <map>

#include "counters_page.h"
#include "daemon_client.h"
#include "stop_signal.h"
#include "table.h"

namespace uroce::ctl {
namespace {

constexpr Nanos kHang = 5 * kSecond;  // as long as ask() waits for an answer

void complain(const std::string& name, const std::string& problem) {
  std::fflush(stdout);
  std::fprintf(stderr, "urocectl: %s: %s\n", name.c_str(), problem.c_str());
}

Json answer_of(const CountersPage& page) {
  Json answer = page.counters;
  answer["threads"] = threads_json(page);
  return answer;
}

/// False: there is no page; `answer` is empty then.
bool read_page(const Options& options, const std::string& name, Json& answer) {
  const CountersPage page = read_counters(options.run_dir, name);
  if (!page.problem.empty()) {
    complain(name, page.problem);
    return false;
  }
  answer = answer_of(page);
  if (!is_served(options.run_dir, name)) {
    complain(name, "its daemon (process " + std::to_string(page.process) +
                       ") has ended; these are the counters at that time");
  }
  return true;
}

/// False: the daemon did not answer. `answer` has what its page has, if there is one.
bool ask_or_read(const Options& options, const std::string& name, Json& answer) {
  if (options.page) return read_page(options, name, answer);
  // A daemon whose threads hang is not asked: the answer would not come.
  CountersPage page = read_counters(options.run_dir, name);
  std::string problem = page.problem.empty() && is_served(options.run_dir, name) ? hanging_thread(page, kHang) : "";
  if (problem.empty()) {
    Answer asked = ask(options.run_dir, name, {{"command", "stat"}});
    if (asked.problem.empty()) {
      answer = std::move(asked.json);
      return true;
    }
    problem = std::move(asked.problem);
    page = read_counters(options.run_dir, name);
    if (page.problem.empty() && !is_served(options.run_dir, name)) {
      problem += " `urocectl stat --page` shows the counters at its end.";
      page.problem = problem;
    }
  }
  if (page.problem.empty()) {
    answer = answer_of(page);
    problem += "; what follows is from its page of counters";
  }
  complain(name, problem);
  return false;
}

void print_numbers(const std::map<std::string, std::int64_t>& values) {
  for (const auto& [name, value] : values) {
    if (value != 0) std::printf("  %-48s %20lld\n", name.c_str(), static_cast<long long>(value));
  }
}

void print(const std::string& name, Json answer) {
  Json threads = Json::object();
  if (const auto found = answer.find("threads"); found != answer.end()) {
    threads["threads"] = *found;
    answer.erase("threads");
  }
  std::printf("%s\n", name.c_str());
  print_numbers(numbers(answer));
  if (const auto control = answer.find("control");
      control != answer.end() && control->contains("longest_command")) {
    std::printf("  %-48s %20s\n", "control.longest_command", control->value("longest_command", "").c_str());
  }
  if (!threads.empty()) std::fputs(tables(threads).c_str(), stdout);
}

int watch(const Options& options, const std::vector<std::string>& names) {
  stop_on_signal();
  std::map<std::string, std::map<std::string, std::int64_t>> before;
  unsigned rounds = options.rounds == 0 ? ~0u : options.rounds + 1;  // the first round has nothing to compare with
  for (double elapsed = 0; g_stop.load() == 0 && rounds-- != 0; elapsed += options.interval_s) {
    for (const std::string& name : names) {
      Json answer;
      ask_or_read(options, name, answer);
      if (answer.empty()) continue;
      answer.erase("threads");
      auto now = numbers(answer);
      if (before.contains(name)) {
        auto change = now;
        for (auto& [path, value] : change) value -= before[name][path];
        if (options.json) {
          std::printf("%s\n", Json{{"device", name}, {"seconds", elapsed}, {"change", change}}.dump().c_str());
        } else {
          std::printf("-- %s, %.1f s, change in %.2f s\n", name.c_str(), elapsed, options.interval_s);
          print_numbers(change);
        }
      }
      before[name] = std::move(now);
    }
    std::fflush(stdout);
    wait_for(options.interval_s);
  }
  return 0;
}

}  // namespace

int stat(const Options& options, const std::vector<std::string>& names) {
  if (options.watch) return watch(options, names);
  Json all = Json::object();
  bool complete = true;
  for (const std::string& name : names) {
    Json answer;
    complete &= ask_or_read(options, name, answer);
    if (answer.empty()) continue;
    if (options.json) {
      all[name] = std::move(answer);
    } else {
      print(name, std::move(answer));
    }
  }
  if (options.json) std::printf("%s\n", all.dump(2).c_str());
  return complete ? 0 : 1;
}

}  // namespace uroce::ctl
