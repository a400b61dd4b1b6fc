// Runs sequences of operations, and finds the shortest one that fails.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace sequences {

inline constexpr const char* kUsage =
    "[--seed N] [--count M] [--calls K] [--seconds S] [--first-failure] [--trace]";

struct Options {
  std::uint64_t seed = 1, count = 100;
  unsigned calls = 200;
  unsigned seconds = 0;
  bool first_failure = false, trace = false;
  std::vector<std::string> ends{};  ///< one, or two
};

inline bool parse(int argc, char** argv, Options& out) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // if a library crashes, the operation is in the output
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
      out.ends.push_back(word);
    }
  }
  return out.ends.size() == 1 || out.ends.size() == 2;
}

template <class Operation>
struct Suite {
  std::function<std::vector<Operation>(std::uint64_t seed, unsigned calls)> draw;
  /// Runs a sequence. Returns what is wrong, or nothing; `last` is the operation that failed.
  std::function<std::string(const std::vector<Operation>& all, std::size_t& last)> run;
  std::function<std::string(const Operation&)> name;
  std::function<void()> start_trace;
};

/// The text up to its first number, which may change when operations are left out.
inline std::string kind_of(const std::string& what) { return what.substr(0, what.find_first_of("0123456789")); }

/// Leaves out operations as long as the sequence fails in the same way.
template <class Operation>
std::vector<Operation> shrink(const Suite<Operation>& suite, std::vector<Operation> all, std::string& what) {
  std::size_t last = 0;
  for (std::size_t step = (all.size() + 1) / 2; step > 0;) {
    bool removed = false;
    for (std::size_t at = 0; at < all.size();) {
      std::vector<Operation> fewer(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(at));
      if (at + step < all.size())
        fewer.insert(fewer.end(), all.begin() + static_cast<std::ptrdiff_t>(at + step), all.end());
      const std::string found = suite.run(fewer, last);
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

template <class Operation>
void show_shortest(const Suite<Operation>& suite, const std::vector<Operation>& all, std::string what) {
  const std::vector<Operation> shortest = shrink(suite, all, what);
  std::printf("the shortest sequence that fails so, %zu operations:\n", shortest.size());
  std::size_t last = 0;
  suite.start_trace();
  const std::string again = suite.run(shortest, last);
  std::printf("%s\n", again.empty() ? "this time it did not fail" : again.c_str());
}

struct Result {
  std::uint64_t done = 0, failures = 0;
};

/// Sequence i of M has the seed N + i and K operations; the same seed makes the same calls.
template <class Operation>
Result run_all(const Options& options, const Suite<Operation>& suite) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(options.seconds);
  Result result;
  for (; result.done < options.count && result.failures < 20; ++result.done) {
    if (options.seconds != 0 && std::chrono::steady_clock::now() >= end) break;
    const std::uint64_t seed = options.seed + result.done;
    const std::vector<Operation> all = suite.draw(seed, options.calls);
    std::size_t last = 0;
    const std::string what = suite.run(all, last);
    if (what.empty()) continue;
    ++result.failures;
    std::printf("not ok - seed %llu, operation %zu (%s): %s\n", static_cast<unsigned long long>(seed), last,
                last < all.size() ? suite.name(all[last]).c_str() : "the end", what.c_str());
    std::fflush(stdout);
    if (!options.first_failure) continue;
    show_shortest(suite, all, what);
    ++result.done;
    break;
  }
  return result;
}

/// What the program prints at its end.
inline void print_counts(const std::vector<std::pair<const char*, std::uint64_t>>& counts) {
  for (const auto& [name, value] : counts) std::printf("%s: %llu\n", name, static_cast<unsigned long long>(value));
}

}  // namespace sequences
