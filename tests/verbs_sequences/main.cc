// verbs_sequences [--seed N] [--count M] [--calls K] [--seconds S] [--first-failure] [--trace] DEVICE [DEVICE]:
// sequences of verbs calls, legal ones and others, compared with a model of what the man pages and the kernel
// promise.
//
// Sequence i of M has the seed N + i and K operations; the same seed makes the same calls. --seconds ends earlier.
// --first-failure leaves out operations of the first sequence that fails as long as it fails in the same way, and
// prints the rest. --trace prints each operation and each answer. Exit status: 1 a sequence failed, 2 the devices
// can't be used.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "world.h"

namespace conformance {
std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}
}  // namespace conformance

namespace verbs_sequences {
namespace {

struct Options {
  std::uint64_t seed = 1, count = 100;
  unsigned calls = 200;
  unsigned seconds = 0;
  bool first_failure = false, trace = false;
  std::vector<std::string> devices{};
};

bool parse(int argc, char** argv, Options& out) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto number = [&] { return std::strtoull(argv[++i], nullptr, 0); };
    const bool more = i + 1 < argc;
    if (word == "--seed" && more) {
      out.seed = number();
    } else if (word == "--count" && more) {
      out.count = number();
    } else if (word == "--calls" && more) {
      out.calls = static_cast<unsigned>(number());
    } else if (word == "--seconds" && more) {
      out.seconds = static_cast<unsigned>(number());
    } else if (word == "--first-failure") {
      out.first_failure = true;
    } else if (word == "--trace") {
      out.trace = true;
    } else if (word.empty() || word[0] == '-') {
      return false;
    } else {
      out.devices.push_back(word);
    }
  }
  return out.devices.size() == 1 || out.devices.size() == 2;
}

/// Runs a sequence. Returns what is wrong, or nothing; `last` is the operation that failed.
std::string run(Ground& ground, const std::vector<Operation>& all, std::size_t& last) {
  World world(ground);
  try {
    for (last = 0; last < all.size(); ++last) {
      if (ground.trace) std::printf("%zu %s\n", last, text_of(all[last]).c_str());
      world.run(all[last]);
    }
    world.finish();
    return {};
  } catch (const Failed& failed) {
    world.abandon();
    return failed.what.empty() ? "failed" : failed.what;
  }
}

/// The text up to its first number, which may change when operations are left out.
std::string kind_of(const std::string& what) { return what.substr(0, what.find_first_of("0123456789")); }

std::vector<Operation> shrink(Ground& ground, std::vector<Operation> all, std::string& what) {
  std::size_t last = 0;
  for (std::size_t step = (all.size() + 1) / 2; step > 0;) {
    bool removed = false;
    for (std::size_t at = 0; at < all.size();) {
      std::vector<Operation> fewer(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(at));
      if (at + step < all.size())
        fewer.insert(fewer.end(), all.begin() + static_cast<std::ptrdiff_t>(at + step), all.end());
      const std::string found = run(ground, fewer, last);
      if (!found.empty() && kind_of(found) == kind_of(what)) {
        what = found;
        all = std::move(fewer);
        removed = true;
      } else {
        at += step;
      }
    }
    if (!removed || step > 1) step /= 2;
  }
  return all;
}

void show_shortest(Ground& ground, const std::vector<Operation>& all, std::string what) {
  const std::vector<Operation> shortest = shrink(ground, all, what);
  std::printf("the shortest sequence that fails so, %zu operations:\n", shortest.size());
  std::size_t last = 0;
  ground.trace = true;
  const std::string again = run(ground, shortest, last);
  std::printf("%s\n", again.empty() ? "this time it did not fail" : again.c_str());
}

int run_all(const Options& options) {
  Bench bench(options.devices.front(), options.devices.back());
  Ground ground(bench, options.trace);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(options.seconds);
  std::uint64_t done = 0, failures = 0;
  for (; done < options.count && failures < 20; ++done) {
    if (options.seconds != 0 && std::chrono::steady_clock::now() >= end) break;
    const std::uint64_t seed = options.seed + done;
    const std::vector<Operation> all = draw(seed, options.calls);
    std::size_t last = 0;
    const std::string what = run(ground, all, last);
    if (what.empty()) continue;
    ++failures;
    std::printf("not ok - seed %llu, operation %zu (%s): %s\n", static_cast<unsigned long long>(seed), last,
                last < all.size() ? name_of(all[last].kind).c_str() : "the end", what.c_str());
    std::fflush(stdout);
    if (!options.first_failure) continue;
    show_shortest(ground, all, what);
    ++done;
    break;
  }
  const std::pair<const char*, std::uint64_t> counts[] = {
      {"sequences", done},
      {"failed", failures},
      {"calls", ground.calls},
      {"calls refused", ground.refused},
      {"work requests posted", ground.posted},
      {"completions", ground.completed},
      {"of these errors", ground.failed_requests},
      {"events", ground.events},
  };
  for (const auto& [name, value] : counts) std::printf("%s: %llu\n", name, static_cast<unsigned long long>(value));
  return failures > 0 ? 1 : 0;
}

}  // namespace
}  // namespace verbs_sequences

int main(int argc, char** argv) {
  verbs_sequences::Options options;
  if (!verbs_sequences::parse(argc, argv, options)) {
    std::fprintf(
        stderr,
        "usage: verbs_sequences [--seed N] [--count M] [--calls K] [--seconds S] [--first-failure] [--trace] "
        "DEVICE [DEVICE]\n");
    return 2;
  }
  try {
    return verbs_sequences::run_all(options);
  } catch (const conformance::Failed& failed) {
    std::printf("Bail out! %s\n", failed.what.c_str());
  } catch (const conformance::Skipped& skipped) {
    std::printf("Bail out! %s\n", skipped.why.c_str());
  }
  return 2;
}
