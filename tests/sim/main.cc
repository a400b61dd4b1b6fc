// sim [--seeds N] [--first S] [--jobs J]     runs seeds S, S+1, ...; stops at the first that fails
//                                            (default of S: $UROCE_SEED, else 1); $UROCE_ICRC: as for uroced
// sim --seed S [--trace]                     one seed, with every packet, post and completion
// sim --one_host ...                         both ends on one host, whose frames may name their payload
// sim --switched ...                         the same with two hosts of one process
// sim --unreliable ...                       UC and UD instead of the reliable services
// sim --shared ...                           RC QPs that share receive queues
// sim --faults ...                           RC QPs that suffer: keys, memory, states, peers and hosts go
// sim --foreign ...                          one RC QP and a peer of another implementation
// sim --cm ...                               RC QPs that the connection manager connects
// sim --all ...                              each world in turn: --seeds counts them all
// sim --regressions FILE                     the seeds of FILE; a line: a world's name, then a seed
// sim --mutations [--seeds N]                shows that the simulator notices faults: N seeds of each kind
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "control/machine/icrc_choice.h"
#include "tests/sim/cm_world.h"
#include "tests/sim/fault_world.h"
#include "tests/sim/foreign_world.h"
#include "tests/sim/shared_receive.h"
#include "tests/sim/unreliable.h"
#include "tests/sim/world.h"

namespace {

using uroce::sim::Mutation;
using uroce::sim::run_world;
using uroce::sim::WorldOptions;
using uroce::sim::WorldReport;

struct World {
  const char* name;
  WorldReport (*run)(const WorldOptions&);
  std::uint32_t share;  ///< of 20 seeds of --all
};
constexpr World kWorlds[] = {{"reliable", run_world, 4},
                             {"one_host", uroce::sim::run_one_host_world, 1},
                             {"switched", uroce::sim::run_switched_world, 1},
                             {"unreliable", uroce::sim::run_unreliable_world, 3},
                             {"shared", uroce::sim::run_shared_receive_world, 2},
                             {"faults", uroce::sim::run_fault_world, 2},
                             {"foreign", uroce::sim::run_foreign_world, 4},
                             {"cm", uroce::sim::run_cm_world, 3}};

const World& world_of(std::uint64_t seed) {
  std::uint64_t turn = seed % 20;
  const World* world = kWorlds;
  for (; turn >= world->share; ++world) turn -= world->share;
  return *world;
}

struct Options {
  std::uint64_t first = 1, seeds = 1000;
  unsigned jobs = 1;
  bool single = false, trace = false, mutations = false, keep_going = false;
  const char* regressions = nullptr;
  bool all = false;
  const World* world = kWorlds;
};

[[noreturn]] void usage(const char* argument) {
  std::fprintf(
      stderr,
      "sim: %s is not an option. Use --seeds N, --first S, --jobs J, --keep-going, --seed S, --trace, "
      "--mutations, --reliable, --one_host, --switched, --unreliable, --shared, --faults, --foreign, --cm, --all, "
      "--regressions FILE\n",
      argument);
  std::exit(2);
}

const World* find(const std::string& name) {
  const auto* world =
      std::find_if(std::begin(kWorlds), std::end(kWorlds), [&](const World& each) { return name == each.name; });
  return world == std::end(kWorlds) ? nullptr : world;
}

const World* named(const std::string& name, const char* argument) {
  const World* const world = find(name);
  if (world == nullptr) usage(argument);
  return world;
}

Options parse(int argc, char** argv) {
  Options options;
  const char* const rotated = std::getenv("UROCE_SEED");
  if (rotated != nullptr) options.first = std::strtoull(rotated, nullptr, 0);
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto number = [&]() -> std::uint64_t {
      if (i + 1 >= argc) usage(argv[i]);
      return std::strtoull(argv[++i], nullptr, 0);
    };
    if (name == "--seeds")
      options.seeds = number();
    else if (name == "--first")
      options.first = number();
    else if (name == "--jobs")
      options.jobs = static_cast<unsigned>(number());
    else if (name == "--seed")
      options.single = true, options.first = number(), options.seeds = 1;
    else if (name == "--trace")
      options.trace = true;
    else if (name == "--mutations")
      options.mutations = true, options.first = 1;  // whether a fault shows depends on the seed
    else if (name == "--all")
      options.all = true;
    else if (name == "--regressions" && i + 1 < argc)
      options.regressions = argv[++i];
    else if (name == "--keep-going")
      options.keep_going = true;
    else
      options.world = named(name.substr(0, 2) == "--" ? name.substr(2) : "", argv[i]);
  }
  return options;
}

/// Seeds first + lane, first + lane + jobs, ... Returns how many failed.
int run_lane(const Options& options, unsigned lane) {
  int failures = 0;
  std::uint64_t frames = 0, completions = 0, harmed = 0, damaged = 0, count = 0;
  for (std::uint64_t i = lane; i < options.seeds; i += options.jobs) {
    const uroce::sim::WorldOptions world{.seed = options.first + i, .trace = options.trace};
    const World& kind = options.all ? world_of(world.seed) : *options.world;
    const WorldReport report = kind.run(world);
    frames += report.frames;
    completions += report.completions;
    harmed += report.harmed;
    damaged += report.damaged;
    ++count;
    if (report.failure.empty()) continue;
    ++failures;
    const auto seed = static_cast<unsigned long long>(world.seed);
    std::printf("seed %llu: %s  again: sim --%s --seed %llu --trace\n", seed, report.failure.c_str(), kind.name,
                seed);
    std::fflush(stdout);
    if (!options.keep_going) break;
  }
  std::printf(
      "%llu seeds from %llu on, %llu frames (%llu harmed, %llu of them damaged), %llu completions, %d failures\n",
      static_cast<unsigned long long>(count), static_cast<unsigned long long>(options.first),
      static_cast<unsigned long long>(frames), static_cast<unsigned long long>(harmed),
      static_cast<unsigned long long>(damaged), static_cast<unsigned long long>(completions), failures);
  return failures;
}

int run_all(const Options& options) {
  if (options.jobs <= 1) return run_lane(options, 0) == 0 ? 0 : 1;
  std::vector<pid_t> children;
  for (unsigned lane = 0; lane < options.jobs; ++lane) {
    const pid_t child = fork();
    if (child == 0) {
      const int failures = run_lane(options, lane);
      std::fflush(stdout);
      _exit(failures == 0 ? 0 : 1);
    }
    children.push_back(child);
  }
  int result = 0;
  for (pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) result = 1;
  }
  return result;
}

/// Lines of a world's name and a seed; # begins a comment.
int run_regressions(const char* path) {
  std::ifstream file(path);
  if (!file) {
    std::fprintf(stderr, "sim: cannot read %s\n", path);
    return 2;
  }
  int failures = 0, count = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name;
    std::uint64_t seed = 0;
    if (!(words >> name)) continue;
    const World* const world = find(name);
    if (world == nullptr || !(words >> seed)) {
      std::fprintf(
          stderr, "sim: %s: \"%s\" is not a world (reliable, unreliable, shared, faults, foreign, cm) and a seed\n",
          path, line.c_str());
      return 2;
    }
    const WorldReport report = world->run({.seed = seed});
    ++count;
    if (report.failure.empty()) continue;
    ++failures;
    std::printf("%s seed %llu: %s\n", world->name, static_cast<unsigned long long>(seed), report.failure.c_str());
  }
  std::printf("%d regressions, %d failures\n", count, failures);
  return failures == 0 ? 0 : 1;
}

int run_mutations(const Options& options) {
  int result = 0;
  for (int kind = 1; kind < uroce::sim::kMutations; ++kind) {
    const auto of = static_cast<Mutation>(kind);
    const bool for_all =
        of == Mutation::kDropCompletion || of == Mutation::kDoubleCompletion || of == Mutation::kStrayByte;
    if (options.world->run != run_world && !for_all) continue;
    std::uint64_t struck = 0, noticed = 0;
    for (std::uint64_t i = 0; i < options.seeds; ++i) {
      const auto mutation = static_cast<Mutation>(kind);
      const WorldReport report = options.world->run({.seed = options.first + i, .mutation = mutation});
      struck += report.mutated;
      noticed += report.mutated && !report.failure.empty();
      if (report.mutated && report.failure.empty()) {
        std::printf("seed %llu: %s went unnoticed\n", static_cast<unsigned long long>(options.first + i),
                    uroce::sim::name_of(mutation));
        result = 1;
      }
    }
    std::printf("%s: noticed %llu of %llu\n", uroce::sim::name_of(static_cast<Mutation>(kind)),
                static_cast<unsigned long long>(noticed), static_cast<unsigned long long>(struck));
    if (struck == 0) result = 1;
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  if (const std::string error = uroce::control::choose_icrc_engine(); !error.empty()) {
    std::fprintf(stderr, "sim: %s\n", error.c_str());
    return 2;
  }
  if (options.regressions != nullptr) return run_regressions(options.regressions);
  return options.mutations ? run_mutations(options) : run_all(options);
}
