// conformance [--list] [--only PATTERN] DEVICE [DEVICE]: holds a verbs device to its man pages and the
// specification.
//
// With one device both ends of each connection are on it. Prints TAP version 13; the exit status is 1 when a case
// failed, 2 when the devices can't be used.
#include <fnmatch.h>

#include <cstdio>
#include <exception>

#include "fixtures.h"

namespace conformance {

std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

namespace {

struct Options {
  bool list = false;
  std::string only = "*";
  std::vector<std::string> devices;
};

bool parse(int argc, char** argv, Options& out) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--list") {
      out.list = true;
    } else if (word == "--only" && i + 1 < argc) {
      out.only = argv[++i];
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

int run_all(const std::vector<Case>& chosen, const Options& options) {
  std::printf("TAP version 13\n1..%zu\n", chosen.size());
  int number = 0, failures = 0;
  try {
    Bench bench(options.devices.front(), options.devices.back());
    for (const Case& one : chosen) {
      std::string text;
      const Result result = run(one, bench, text);
      failures += result == Result::kFailed;
      std::printf("%sok %d - %s (%s)%s%s\n", result == Result::kFailed ? "not " : "", ++number, one.name,
                  one.clause, result == Result::kSkipped ? " # SKIP " : "",
                  result == Result::kSkipped ? text.c_str() : "");
      if (result == Result::kFailed) std::printf("# %s\n", text.c_str());
      std::fflush(stdout);
    }
  } catch (const Failed& failed) {
    std::printf("Bail out! %s\n", failed.what.c_str());
    return 2;
  } catch (const Skipped& skipped) {
    std::printf("Bail out! %s\n", skipped.why.c_str());
    return 2;
  }
  return failures != 0;
}

}  // namespace
}  // namespace conformance

int main(int argc, char** argv) {
  using namespace conformance;
  Options options;
  if (!parse(argc, argv, options)) {
    std::fprintf(stderr, "usage: conformance [--list] [--only PATTERN] DEVICE [DEVICE]\n");
    return 2;
  }
  std::vector<Case> chosen;
  for (const Case& one : cases()) {
    if (fnmatch(options.only.c_str(), one.name, 0) == 0) chosen.push_back(one);
  }
  if (!options.list) return run_all(chosen, options);
  for (const Case& one : chosen) std::printf("%s (%s)\n", one.name, one.clause);
  return 0;
}
