// verbs_sequences [--seed N] [--count M] [--calls K] [--seconds S] [--first-failure] [--trace] DEVICE [DEVICE]:
// sequences of verbs calls, legal ones and others, compared with a model of what the man pages and the kernel
// promise.
//
// Sequence i of M has the seed N + i and K operations; the same seed makes the same calls. --seconds ends earlier.
// --first-failure leaves out operations of the first sequence that fails as long as it fails in the same way, and
// prints the rest. --trace prints each operation and each answer. Exit status: 1 a sequence failed, 2 the devices
// can't be used.
#include <cstdio>
#include <string>
#include <vector>

#include "../sequences/run.h"
#include "world.h"

namespace conformance {
std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}
}  // namespace conformance

namespace verbs_sequences {
namespace {

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

int run_all(const sequences::Options& options) {
  Bench bench(options.ends.front(), options.ends.back());
  Ground ground(bench, options.trace);
  const auto [done, failures] = sequences::run_all<Operation>(
      options, {draw, [&](const auto& all, std::size_t& last) { return run(ground, all, last); },
                [](const Operation& one) { return name_of(one.kind); }, [&] { ground.trace = true; }});
  sequences::print_counts({
      {"sequences", done},
      {"failed", failures},
      {"calls", ground.calls},
      {"calls refused", ground.refused},
      {"work requests posted", ground.posted},
      {"completions", ground.completed},
      {"of these errors", ground.failed_requests},
      {"events", ground.events},
  });
  ground.differs.print();
  return failures > 0 ? 1 : 0;
}

}  // namespace
}  // namespace verbs_sequences

int main(int argc, char** argv) {
  sequences::Options options;
  if (!sequences::parse(argc, argv, options)) {
    std::fprintf(stderr, "usage: verbs_sequences %s DEVICE [DEVICE]\n", sequences::kUsage);
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
