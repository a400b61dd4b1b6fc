// urocectl: inspects and controls running daemons.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "counters_page.h"
#include "daemon_client.h"
#include "doctor.h"
#include "metrics_http.h"
#include "open_metrics.h"
#include "options.h"
#include "play.h"
#include "row_filter.h"
#include "save.h"
#include "stat.h"
#include "stop_signal.h"
#include "table.h"
#include "top.h"
#include "trace.h"
#include "web_program.h"

namespace uroce::ctl {
namespace {

std::vector<std::string> chosen(const Options& options) {
  if (!options.devices.empty()) return options.devices;
  std::vector<std::string> names =
      options.page ? devices_with_pages(options.run_dir) : running_daemons(options.run_dir);
  if (names.empty() && options.page) fail(1, "no device has a page of counters in " + options.run_dir);
  if (names.empty()) {
    fail(1, "no daemon listens in " + options.run_dir +
                "; start one with `uroced --name uroce0 --port loopback --ip 192.0.2.1/24`, or two with "
                "`quickstart.sh up`");
  }
  return names;
}

/// The devices that a command which changes something applies to: they must be named if there are several.
std::string only(const Options& options) {
  const std::vector<std::string> names = chosen(options);
  if (names.size() != 1) fail(2, options.command + " applies to one daemon: name it with -d NAME");
  return names.front();
}

Json must(const Options& options, const std::string& name, const Json& request) {
  Answer answer = ask(options.run_dir, name, request);
  if (!answer.problem.empty()) fail(1, name + ": " + answer.problem);
  return std::move(answer.json);
}

/// One of several daemons that does not answer must not hide the others.
bool try_ask(const Options& options, const std::string& name, const Json& request, Json& out) {
  Answer answer = ask(options.run_dir, name, request);
  if (answer.problem.empty()) {
    out = std::move(answer.json);
    return true;
  }
  std::fflush(stdout);
  std::fprintf(stderr, "urocectl: %s: %s\n", name.c_str(), answer.problem.c_str());
  return false;
}

int print_answers(const Options& options, const Json& request, const RowFilter& filter = RowFilter("")) {
  Json all = Json::object();
  bool complete = true;
  for (const std::string& name : chosen(options)) {
    if (Json answer, sessions; try_ask(options, name, request, answer)) {
      if (filter.needs_sessions()) try_ask(options, name, {{"command", "show"}, {"what", "sessions"}}, sessions);
      filter.apply(answer, sessions);
      all[name] = std::move(answer);
    } else {
      complete = false;
    }
  }
  if (options.json) {
    std::printf("%s\n", all.dump(2).c_str());
    return complete ? 0 : 1;
  }
  for (const auto& [name, answer] : all.items()) {
    if (all.size() > 1) std::printf("== %s\n", name.c_str());
    std::fputs(tables(answer).c_str(), stdout);
  }
  return complete ? 0 : 1;
}

int show(const Options& options) {
  const Json request = {{"command", "show"}, {"what", options.argument.empty() ? "all" : options.argument}};
  const RowFilter filter(options.operand);
  if (!options.watch) return print_answers(options, request, filter);
  stop_on_signal();
  int status = 0;
  for (unsigned round = 0; g_stop.load() == 0 && (options.rounds == 0 || round < options.rounds); ++round) {
    if (round != 0) wait_for(options.interval_s);
    if (isatty(STDOUT_FILENO) != 0) std::fputs("\033[H\033[2J", stdout);
    status = print_answers(options, request, filter);
    if (std::fflush(stdout) != 0) return 1;
  }
  return status;
}

/// A daemon that does not answer is part of what is measured. `complete`: all have answered.
std::string metrics_of(const Options& options, const std::vector<std::string>& names, bool& complete) {
  Json answers = Json::object();
  complete = true;
  for (const std::string& name : names) {
    Json answer;
    complete &= try_ask(options, name, {{"command", "metrics"}}, answer);
    answers[name] = std::move(answer);
  }
  return open_metrics(answers);
}

int metrics(const Options& options) {
  if (options.json) return print_answers(options, {{"command", "metrics"}});
  bool complete = true;
  if (!options.http) {
    std::fputs(metrics_of(options, chosen(options), complete).c_str(), stdout);
    return complete ? 0 : 1;
  }
  const std::optional<std::string> request = read_request(STDIN_FILENO);
  if (!request) fail(1, "metrics --http: no whole request came within 5 seconds and 8 KiB");
  const std::string response = http_response(*request, [&]() -> std::optional<std::string> {
    const auto names = options.devices.empty() ? running_daemons(options.run_dir) : options.devices;
    if (names.empty()) return std::nullopt;
    return metrics_of(options, names, complete);
  });
  return write_all(STDOUT_FILENO, response) ? 0 : 1;
}

/// The "verbs" of a request.
Json change_of_rules(const Options& options) {
  if (options.operand.empty()) return Json::object();
  if (options.operand != "off") return {{"add", options.operand}};
  if (options.number.empty()) return {{"remove", "all"}};
  return {{"remove", std::stoul(options.number)}};
}

int fault(const Options& options) {
  const std::string name = only(options);
  Json request = {{"command", "fault"}};
  if (options.argument == "verbs") {
    request["verbs"] = change_of_rules(options);
  } else if (options.argument == "add") {
    request["add"] = options.operand;
  } else if (!options.operand.empty()) {
    request["remove"] = options.operand;
  } else if (!options.argument.empty()) {
    request["settings"] = options.argument;
  }
  const Json answer = must(options, name, request);
  if (options.json) {
    std::printf("%s\n", Json{{name, answer}}.dump(2).c_str());
  } else {
    std::printf("%s\n%s", name.c_str(), tables(answer).c_str());
  }
  return 0;
}

/// What is switched on and off: latency, events.
int toggle(const Options& options) {
  Json request = {{"command", options.command}};
  if (options.argument.empty()) return print_answers(options, request);
  const std::string name = only(options);
  request["set"] = options.argument;
  const Json answer = must(options, name, request);
  std::printf("%s\n", options.json ? Json{{name, answer}}.dump(2).c_str() : tables(answer).c_str());
  return 0;
}

int reload(const Options& options) {
  const std::string name = only(options);
  const Json answer = must(options, name, {{"command", "reload"}});
  if (options.json) {
    std::printf("%s\n", Json{{name, answer}}.dump(2).c_str());
    return 0;
  }
  for (const auto& [what, keys] : answer.items()) std::printf("%s: %s\n", what.c_str(), cell(keys).c_str());
  return 0;
}

int save(const Options& options) {
  const std::string name = only(options);
  const Json answer = must(options, name, {{"command", "show"}, {"what", "settings"}});
  const Json settings = answer.value("settings", Json::array());
  if (settings.empty())
    fail(1, name + ": only root, and the user that runs the daemon, see its settings; use sudo");
  const std::string text = configuration(settings);
  if (options.argument.empty()) return std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0 ? 1 : 0;
  if (const std::string problem = write_new_file(options.argument, text); !problem.empty()) fail(1, problem);
  return 0;
}

int link(const Options& options) {
  if (options.argument.empty()) return print_answers(options, {{"command", "link"}});
  const std::string name = only(options);
  Json request = {{"command", "link"}, {"change", options.argument}};
  if (options.argument == "mtu") {
    request["mtu"] = std::stoul(options.operand);
  } else {
    request["address"] = options.operand;
  }
  const Json answer = must(options, name, request);
  if (options.json) {
    std::printf("%s\n", Json{{name, answer}}.dump(2).c_str());
  } else {
    std::fputs(tables(answer).c_str(), stdout);
  }
  return 0;
}

}  // namespace
}  // namespace uroce::ctl

int main(int argc, char** argv) {
  using namespace uroce::ctl;
  const Options options = parse_options(argc, argv);
  if (options.command == "show") return show(options);
  if (options.command == "stat") return stat(options, chosen(options));
  if (options.command == "top") return top(options, chosen(options));
  if (options.command == "web") {
    chosen(options);  // there is one, or the program ends
    become_web_program(argv);
  }
  if (options.command == "doctor") return doctor(options, chosen(options));
  if (options.command == "metrics") return metrics(options);
  if (options.command == "latency" || options.command == "events") return toggle(options);
  if (options.command == "fault") return fault(options);
  if (options.command == "link") return link(options);
  if (options.command == "play") return play(options);
  if (options.command == "reload") return reload(options);
  if (options.command == "save") return save(options);
  return trace(options, only(options));
}
