// attacks [--seed N] [--seconds N] [--processes N]: a daemon under random attacks of one user, while other users
// verify their data and measure their latency. Prints the seed, which repeats the choices of the attackers (not the
// timing).
//
// Rounds of a busy neighbour, for comparison, and of attacks take turns. At the end the daemon must have as many
// descriptors, threads, mapped files, objects and files as before. The exit status is 1 after an error of an honest
// tenant, a leak, or the daemon's death.
#include <getopt.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/hostile/honest_tenants.h"
#include "tests/hostile/processes.h"
#include "tests/hostile/random_session.h"
#include "tests/hostile/random_values.h"
#include "tests/hostile/raw_client.h"

namespace uroce::hostile {
namespace {

struct Options {
  std::uint64_t seed = static_cast<std::uint64_t>(monotonic_now());
  int seconds = 60;   ///< of attacks, in all
  int processes = 6;  ///< that attack at a time
};

constexpr int kRounds = 3;
constexpr int kSettleMs = 20'000;

// ---------------------------------------------------------------- the attackers

/// One attacking process, as the supervisor sees it.
struct Attacker {
  Nanos kill_at = 0, continue_at = 0;
};

/// Keeps `processes` attackers running until the time is over, continues stopped ones, and kills those that are
/// late.
class Supervisor {
 public:
  Supervisor(std::string path, std::uint64_t seed, int processes, Tally& tally)
      : path_(std::move(path)), random_(seed), processes_(static_cast<std::size_t>(processes)), tally_(tally) {}

  void run(Nanos life) {
    const Nanos end = monotonic_now() + life;
    while (monotonic_now() < end) {
      while (attackers_.size() < processes_) start(end);
      reap();
      ::usleep(5000);
    }
    for (auto& [pid, attacker] : attackers_) ::kill(pid, SIGKILL);
    for (auto& [pid, attacker] : attackers_) ::waitpid(pid, nullptr, 0);
  }

 private:
  void start(Nanos end) {
    const std::uint64_t seed = random_.next();
    const bool first = std::exchange(first_, false);
    const Nanos life = first ? 3 * kSecond : (10 + random_.below(3000)) * kMillisecond;
    const pid_t pid = ::fork();
    if (pid == 0) {
      run_random_attack(path_, seed, std::min(life, std::max<Nanos>(end - monotonic_now(), 1)), first, tally_);
      ::_exit(0);
    }
    if (pid > 0) attackers_[pid] = {monotonic_now() + life + 2 * kSecond, 0};
  }

  void reap() {
    int status = 0;
    for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0;) {
      if (WIFSTOPPED(status)) {
        attackers_[pid].continue_at = monotonic_now() + random_.below(500) * kMillisecond;
      } else {
        attackers_.erase(pid);
      }
    }
    const Nanos now = monotonic_now();
    for (auto& [pid, attacker] : attackers_) {
      if (attacker.continue_at != 0 && now > attacker.continue_at) {
        attacker.continue_at = 0;
        ::kill(pid, SIGCONT);
      }
      if (now > attacker.kill_at) ::kill(pid, SIGKILL);
    }
  }

  const std::string path_;
  Random random_;
  const std::size_t processes_;
  Tally& tally_;
  bool first_ = true;
  std::map<pid_t, Attacker> attackers_;
};

// ---------------------------------------------------------------- leaks

/// Everything of the daemon that clients use up, by name.
using Snapshot = std::map<std::string, std::uint64_t>;

std::uint64_t status_kb(pid_t pid, const std::string& field) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(field + ":", 0) == 0) return std::strtoull(line.c_str() + field.size() + 1, nullptr, 10);
  }
  return 0;
}

/// Mappings of files and of shared memory: without stacks, heaps and arenas, which malloc keeps.
std::uint64_t mapped_files(pid_t pid) {
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  std::uint64_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    unsigned long inode = 0;
    if (std::sscanf(line.c_str(), "%*s %*s %*s %*s %lu", &inode) == 1) count += inode != 0;
  }
  return count;
}

std::uint64_t files_below(const std::string& place) {
  std::uint64_t count = 0;
  std::error_code error;
  for (auto it = std::filesystem::recursive_directory_iterator(place, error); !error && it != end(it);
       it.increment(error)) {
    ++count;
  }
  return count;
}

std::uint64_t occurrences(const std::string& text, const std::string& word) {
  std::uint64_t count = 0;
  for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += word.size()) ++count;
  return count;
}

/// Nothing: the daemon does not answer urocectl's requests.
std::optional<Snapshot> look(const DaemonProcess& daemon) {
  std::string shown;
  {
    RawClient client(daemon.socket_path());
    if (client.connected() && client.hello() == 0) shown = client.admin(R"({"command": "show", "what": "all"})");
  }
  if (shown.empty()) return {};
  ::usleep(500'000);  // until that session is gone, too
  Snapshot out;
  constexpr const char* kObjects[] = {
      "\"pid\":", "\"qpn\":", "\"access\":", "\"cq\":", "\"srq\":", "\"cm_id\":", "\"flow\":"};
  for (const char* word : kObjects) out[std::string("objects with ") + word] = occurrences(shown, word);
  out["descriptors"] = daemon.descriptors();
  out["threads"] = daemon.threads();
  out["mapped files"] = mapped_files(daemon.pid());
  out["files in the run directory"] = files_below(daemon.run_dir());
  out["hugepages"] = status_kb(daemon.pid(), "HugetlbPages") / 2048;
  return out;
}

/// Once two looks agree: what ended sessions held is given back a moment later.
std::optional<Snapshot> steady_look(const DaemonProcess& daemon) {
  std::optional<Snapshot> last = look(daemon);
  for (const Nanos end = monotonic_now() + kSettleMs * kMillisecond; monotonic_now() < end;) {
    std::optional<Snapshot> now = look(daemon);
    if (now && now == last) return now;
    last = std::move(now);
  }
  return last;
}

/// Waits until nothing is left of the clients. Prints what is.
bool has_leaked(const DaemonProcess& daemon, const Snapshot& before) {
  const Nanos end = monotonic_now() + kSettleMs * kMillisecond;
  std::optional<Snapshot> after;
  for (;;) {
    after = look(daemon);
    if (after && *after == before) return false;
    if (monotonic_now() > end) break;
    ::usleep(100'000);
  }
  if (!after) std::printf("attacks: the daemon does not answer\n");
  for (const auto& [name, count] : after.value_or(Snapshot{})) {
    if (count == before.at(name)) continue;
    std::printf("attacks: left behind: %s: %llu, before %llu\n", name.c_str(),
                static_cast<unsigned long long>(count), static_cast<unsigned long long>(before.at(name)));
  }
  return true;
}

// ---------------------------------------------------------------- the run

/// One round. False: the daemon does not answer.
bool run_round(const DaemonProcess& daemon, const Options& options, int round, HonestReport& honest, Tally& tally) {
  const int seconds = options.seconds / kRounds;
  {
    const Child neighbour = busy_neighbour(daemon.socket_path(), kOther);
    ::usleep(300'000);
    honest.phase = kBusyNeighbour;
    ::usleep(static_cast<useconds_t>(std::max(seconds / 4, 2)) * 1'000'000);
    honest.phase = kPause;
  }
  Child attackers(kAttacker, [&] {
    const rlimit none{0, 0}, files{20'000, 20'000};
    ::setrlimit(RLIMIT_CORE, &none);
    ::setrlimit(RLIMIT_NOFILE, &files);
    ::setsid();
    const std::uint64_t seed = options.seed + static_cast<std::uint64_t>(round);
    Supervisor(daemon.socket_path(), seed, options.processes, tally).run(seconds * kSecond);
    return 0;
  });
  honest.phase = kAttack;
  ::usleep(static_cast<useconds_t>(seconds) * 500'000);
  const bool answers = look(daemon).has_value();
  attackers.wait((seconds + 60) * 1000);
  honest.phase = kPause;
  ::sleep(3);  // what attackers left behind ends by SIGALRM
  return answers;
}

void print(const HonestReport& honest, const Tally& tally) {
  const auto number = [](const auto& value) { return static_cast<unsigned long long>(value); };
  std::printf("attackers: %llu processes, %llu threads, %llu sessions, %llu refused, %llu closed by the daemon\n",
              number(tally.processes), number(tally.threads), number(tally.sessions),
              number(tally.refused_sessions), number(tally.closed));
  std::printf(
      "requests:  %llu, of those with an answer %llu accepted, %llu refused, %llu late; %llu work requests, "
      "%llu completions\n",
      number(tally.requests), number(tally.accepted), number(tally.refused), number(tally.unanswered),
      number(tally.posted), number(tally.completed));
  std::printf("honest:    %llu verified turns, %llu MiB, %d errors%s%s\n", number(honest.verified),
              number(honest.verified_bytes) >> 20, honest.errors.load(), honest.errors != 0 ? ", first: " : "",
              honest.first_error);
  constexpr const char* kNames[] = {"", "busy neighbour", "attack"};
  for (const int phase : {kBusyNeighbour, kAttack}) {
    const Latencies& write = honest.write[static_cast<std::size_t>(phase)];
    const Latencies& open = honest.open[static_cast<std::size_t>(phase)];
    std::printf("%-15s 8-byte WRITE: p50 %.1f us, p99 %.1f us, of %llu; opening: p50 %.1f ms, p99 %.1f ms\n",
                kNames[phase], write.percentile_us(0.5), write.percentile_us(0.99), number(write.count()),
                open.percentile_us(0.5) / 1000, open.percentile_us(0.99) / 1000);
  }
  const double busy = honest.write[kBusyNeighbour].percentile_us(0.99);
  std::printf("99th percentile: %.2f times that next to a busy neighbour\n",
              busy > 0 ? honest.write[kAttack].percentile_us(0.99) / busy : 0.0);
}

int run(const Options& options) {
  std::printf("attacks: --seed %llu --seconds %d --processes %d\n", static_cast<unsigned long long>(options.seed),
              options.seconds, options.processes);
  std::fflush(stdout);
  const rlimit files{20'000, 20'000};
  ::setrlimit(RLIMIT_NOFILE, &files);
  // The limit keeps the attack from taking half of the machine's memory.
  DaemonProcess daemon({"--log-level", "error", "--user-registered-bytes", "1G"});
  if (!daemon.ready()) {
    std::printf("attacks: uroced did not start:\n%s\n", daemon.log().c_str());
    return 1;
  }
  const Shared<HonestReport> honest;
  const Shared<Tally> tally;
  for (const uid_t user : {kAttacker, kHonest, kOther}) {  // what is made once stays
    Child(user, [&] { return Tenant(daemon.socket_path(), 1 << 20).write_once() != 0 ? 0 : 1; }).wait();
  }
  const std::optional<Snapshot> before = steady_look(daemon);
  bool good = before.has_value();
  {
    HonestTenants tenants(daemon.socket_path(), *honest);
    for (int round = 0; round < kRounds && good; ++round) good = run_round(daemon, options, round, *honest, *tally);
    if (!good) std::printf("attacks: the daemon did not answer during the attack\n");
    good = tenants.end() && good;
  }
  print(*honest, *tally);
  if (!daemon.running()) {
    std::printf("attacks: the daemon is gone\n");
    good = false;
  } else {
    good = before && !has_leaked(daemon, *before) && good;
    if (daemon.stop() != 0) {
      std::printf("attacks: the daemon did not end cleanly\n");
      good = false;
    }
  }
  if (tally->accepted < 2 * static_cast<std::uint64_t>(options.seconds)) {
    std::printf("attacks: too few requests succeeded: nothing was tested\n");
    good = false;
  }
  good = good && honest->errors == 0;
  if (!good) std::printf("log of the daemon:\n%s\n", daemon.log().c_str());
  std::printf("%s\n", good ? "attacks: the daemon withstood them" : "attacks: FAILED");
  return good ? 0 : 1;
}

int main_program(int argc, char** argv) {
  Options options;
  const option known[] = {{"seed", required_argument, nullptr, 's'},
                          {"seconds", required_argument, nullptr, 't'},
                          {"processes", required_argument, nullptr, 'p'},
                          {}};
  for (int c; (c = ::getopt_long(argc, argv, "", known, nullptr)) != -1;) {
    switch (c) {
      case 's': options.seed = std::strtoull(optarg, nullptr, 0); break;
      case 't': options.seconds = std::atoi(optarg); break;
      case 'p': options.processes = std::atoi(optarg); break;
      default: return 2;
    }
  }
  if (options.seconds < kRounds || options.processes < 1) {
    std::fprintf(stderr, "attacks: --seconds takes 3 or more, --processes 1 or more\n");
    return 2;
  }
  if (!is_root()) {
    std::printf("attacks: needs root, for several users\n");
    return 77;  // skipped, for meson
  }
  return run(options);
}

}  // namespace
}  // namespace uroce::hostile

int main(int argc, char** argv) { return uroce::hostile::main_program(argc, argv); }
