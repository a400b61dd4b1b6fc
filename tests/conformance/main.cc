// conformance [--list] [--only PATTERN] [--skip PATTERN] [--isolate] [--timeout SECONDS] DEVICE [DEVICE]: tests
// a verbs device against its man pages and the specification.
//
// With one device, both ends of each connection are on it. With --isolate each case runs in a process of its own,
// so that a crash fails only that case. --timeout sets the timeout for completions and events (5 s). Prints TAP
// version 13. Exit status: 1 a case failed, 2 the devices can't be used.
#include <fnmatch.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "fixtures.h"

namespace conformance {

std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

namespace {

struct Options {
  bool list = false, isolate = false;
  std::string only = "*", skip;
  std::vector<std::string> devices;
};

bool parse(int argc, char** argv, Options& out) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--list") {
      out.list = true;
    } else if (word == "--isolate") {
      out.isolate = true;
    } else if (word == "--timeout" && i + 1 < argc) {
      const int seconds = std::atoi(argv[++i]);
      if (seconds < 1 || seconds > 3600) return false;
      set_timeout(std::chrono::seconds(seconds));
    } else if (word == "--only" && i + 1 < argc) {
      out.only = argv[++i];
    } else if (word == "--skip" && i + 1 < argc) {
      out.skip = argv[++i];
    } else if (word.empty() || word[0] == '-') {
      return false;
    } else {
      out.devices.push_back(word);
    }
  }
  return out.list || (out.devices.size() >= 1 && out.devices.size() <= 2);
}

enum class Result { kPassed, kFailed, kSkipped };

Result run(const Case& one, Bench& bench, std::string& text) {
  Result result = Result::kPassed;
  try {
    one.run(bench);
  } catch (const Failed& failed) {
    result = Result::kFailed;
    text = failed.what;
  } catch (const Skipped& skipped) {
    result = Result::kSkipped;
    text = skipped.why;
  } catch (const std::exception& thrown) {
    result = Result::kFailed;
    text = thrown.what();
  }
  const std::string leaks = take_leaks();
  if (!leaks.empty() && result != Result::kFailed) {
    result = Result::kFailed;
    text = leaks;
  }
  return result;
}

void report(std::size_t number, const Case& one, Result result, const std::string& text) {
  std::printf("%sok %zu - %s (%s)%s%s\n", result == Result::kFailed ? "not " : "", number, one.name, one.clause,
              result == Result::kSkipped ? " # SKIP " : "", result == Result::kSkipped ? text.c_str() : "");
  if (result == Result::kFailed) std::printf("# %s\n", text.c_str());
  std::fflush(stdout);
}

int bail_out(const std::string& why) {
  std::printf("Bail out! %s\n", why.c_str());
  std::fflush(stdout);
  return 2;
}

/// Runs chosen[first, last). Returns the exit status of main.
int run_some(const std::vector<Case>& chosen, std::size_t first, std::size_t last, const Options& options) {
  bool failed = false;
  try {
    Bench bench(options.devices.front(), options.devices.back());
    for (std::size_t i = first; i < last; ++i) {
      std::string text;
      const Result result = run(chosen[i], bench, text);
      failed |= result == Result::kFailed;
      report(i + 1, chosen[i], result, text);
    }
  } catch (const Failed& why) {
    return bail_out(why.what);
  } catch (const Skipped& skipped) {
    return bail_out(skipped.why);
  }
  return failed;
}

/// Runs one case in a child, for a minute at most. Returns the exit status of main.
int run_apart(const std::vector<Case>& chosen, std::size_t i, const Options& options) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(run_some(chosen, i, i + 1, options));
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return bail_out("no process for a case");
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  report(i + 1, chosen[i], Result::kFailed, std::string("killed: ") + strsignal(WTERMSIG(status)));
  return 1;
}

int run_all(const std::vector<Case>& chosen, const Options& options) {
  std::printf("TAP version 13\n1..%zu\n", chosen.size());
  std::fflush(stdout);
  if (!options.isolate) return run_some(chosen, 0, chosen.size(), options);
  int worst = 0;
  for (std::size_t i = 0; i < chosen.size() && worst < 2; ++i) {
    worst = std::max(worst, run_apart(chosen, i, options));
  }
  return worst;
}

}  // namespace
}  // namespace conformance

int main(int argc, char** argv) {
  using namespace conformance;
  Options options;
  if (!parse(argc, argv, options)) {
    std::fprintf(
        stderr,
        "usage: conformance [--list] [--only PATTERN] [--skip PATTERN] [--isolate] [--timeout SECONDS] DEVICE "
        "[DEVICE]\n");
    return 2;
  }
  std::vector<Case> chosen;
  for (const Case& one : cases()) {
    if (fnmatch(options.only.c_str(), one.name, 0) != 0) continue;
    if (fnmatch(options.skip.c_str(), one.name, FNM_EXTMATCH) != 0) chosen.push_back(one);
  }
  if (!options.list) return run_all(chosen, options);
  for (const Case& one : chosen) std::printf("%s (%s)\n", one.name, one.clause);
  return 0;
}
