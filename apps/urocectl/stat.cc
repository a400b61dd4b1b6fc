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

constexpr Nanos kHang = kAnswerLimit * kSecond;

void complain(const std::string& name, const std::string& problem) {
  std::fflush(stdout);
  std::fprintf(stderr, "urocectl: %s: %s\n", name.c_str(), problem.c_str());
}

struct Reading {
  Json answer = Json::object();  ///< empty: there is none
  bool complete = false;         ///< it is from the daemon, or its page was asked for
  bool from_page = false;
};

Reading from_page(const CountersPage& page, bool complete) {
  Reading reading{page.counters, complete, true};
  reading.answer["threads"] = threads_json(page);
  return reading;
}

/// `look_for_daemon`: says so if there is none.
Reading read_page(const Options& options, const std::string& name, bool look_for_daemon) {
  const CountersPage page = read_counters(options.run_dir, name);
  if (!page.problem.empty()) {
    complain(name, page.problem);
    return {};
  }
  if (look_for_daemon && !is_served(options.run_dir, name)) {
    complain(name, "its daemon (process " + std::to_string(page.process) +
                       ") has ended; these are the counters at that time");
  }
  return from_page(page, true);
}

std::string hang_in(const CountersPage& page) { return page.problem.empty() ? hanging_thread(page, kHang) : ""; }

Reading ask_daemon(const Options& options, const std::string& name) {
  // For a thread that hangs there is no need to wait as long again.
  const bool hangs = !hang_in(read_counters(options.run_dir, name)).empty();
  Answer asked = ask(options.run_dir, name, {{"command", "stat"}}, hangs ? 1 : kAnswerLimit);
  if (asked.problem.empty()) return {std::move(asked.json), true, false};
  const CountersPage page = read_counters(options.run_dir, name);
  if (!page.problem.empty()) {
    complain(name, asked.problem);
    return {};
  }
  if (!is_served(options.run_dir, name)) {
    complain(name, asked.problem + " `urocectl stat --page` shows the counters at its end.");
    return {};
  }
  const std::string hang = hang_in(page);
  complain(name, (hang.empty() ? asked.problem : hang) + "; what follows is from its page of counters");
  return from_page(page, false);
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

void print_change(const Options& options, const std::string& name, double elapsed,
                  const std::map<std::string, std::int64_t>& change) {
  if (options.json) {
    std::printf("%s\n", Json{{"device", name}, {"seconds", elapsed}, {"change", change}}.dump().c_str());
  } else {
    std::printf("-- %s, %.1f s, change in %.2f s\n", name.c_str(), elapsed, options.interval_s);
    print_numbers(change);
  }
}

int watch(const Options& options, const std::vector<std::string>& names) {
  struct Before {
    std::map<std::string, std::int64_t> values;
    bool from_page = false;
  };
  stop_on_signal();
  std::map<std::string, Before> before;
  unsigned rounds = options.rounds == 0 ? ~0u : options.rounds + 1;  // the first round has nothing to compare with
  for (double elapsed = 0; g_stop.load() == 0 && rounds-- != 0; elapsed += options.interval_s) {
    for (const std::string& name : names) {
      Reading now = options.page ? read_page(options, name, elapsed == 0) : ask_daemon(options, name);
      if (now.answer.empty()) continue;
      now.answer.erase("threads");
      const auto values = numbers(now.answer);
      // The page is older than an answer.
      if (const auto found = before.find(name); found != before.end() && found->second.from_page == now.from_page) {
        auto change = values;
        for (auto& [path, value] : change) value -= found->second.values[path];
        print_change(options, name, elapsed, change);
      }
      before[name] = {values, now.from_page};
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
    Reading reading = options.page ? read_page(options, name, true) : ask_daemon(options, name);
    complete &= reading.complete;
    if (reading.answer.empty()) continue;
    if (options.json) {
      all[name] = std::move(reading.answer);
    } else {
      print(name, std::move(reading.answer));
    }
  }
  if (options.json) std::printf("%s\n", all.dump(2).c_str());
  return complete ? 0 : 1;
}

}  // namespace uroce::ctl
