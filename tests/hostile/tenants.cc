// Latency of an honest user's 8-byte WRITE, alone and next to another user that has all the work it can post: what
// fairness between users is worth. Needs root, for two users.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/hostile/processes.h"
#include "tests/hostile/raw_client.h"

namespace uroce::hostile {
namespace {

struct Figures {
  double mean_us = 0, p50_us = 0, p99_us = 0, max_us = 0;
  int errors = 0;
};

void leave_first_core() {
  cpu_set_t others;
  CPU_ZERO(&others);
  for (int cpu = 1; cpu < ::sysconf(_SC_NPROCESSORS_ONLN); ++cpu) CPU_SET(cpu, &others);
  ::sched_setaffinity(0, sizeof(others), &others);
}

/// WRITEs of 8 bytes, one after the other, for `seconds`.
Figures measure(const DaemonProcess& daemon, int seconds) {
  Shared<Figures> out;
  Child child(kHonest, [&] {
    leave_first_core();
    Tenant tenant(daemon.socket_path(), 1 << 20);
    if (!tenant.ok()) return 1;
    std::vector<double> times;
    for (const Nanos end = monotonic_now() + seconds * kSecond; monotonic_now() < end;) {
      const Nanos taken = tenant.write_once();
      if (taken == 0) {
        ++out->errors;
      } else {
        times.push_back(static_cast<double>(taken) / 1000);
      }
    }
    if (times.empty()) return 2;
    std::sort(times.begin(), times.end());
    double sum = 0;
    for (const double time : times) sum += time;
    const auto part = [&](double of) {
      return times[static_cast<std::size_t>(of * static_cast<double>(times.size() - 1))];
    };
    out->mean_us = sum / static_cast<double>(times.size());
    out->p50_us = part(0.5), out->p99_us = part(0.99), out->max_us = times.back();
    return 0;
  });
  if (child.wait((seconds + 60) * 1000) != 0) ++out->errors;
  return *out;
}

struct Load {
  int qps;
  std::uint32_t bytes;
  int depth;  ///< WRITEs outstanding of each QP
};

struct Progress {
  std::atomic<bool> started;
  std::atomic<std::uint64_t> messages;
};

/// Keeps `depth` WRITEs outstanding on each QP until it is killed.
int run(const std::string& path, const Load& load, Progress& progress) {
  leave_first_core();
  RawClient client(path);
  if (client.hello() != 0) return 1;
  const std::uint32_t pd = client.alloc_pd();
  const Memory memory = client.register_memfd(pd, std::size_t{load.bytes} * 2);
  Cq cq = client.create_cq(1 << 14);
  std::vector<Qp> qps;
  for (int i = 0; i < load.qps; ++i) {
    qps.push_back(client.create_qp(pd, cq));
    if (qps.back().status != 0 || client.connect_qp(qps.back(), qps.back().made.qpn) != 0) return 2;
  }
  const auto post = [&](Qp& qp) {
    return client.post_write(qp, memory, memory.address() + load.bytes, memory.made.rkey, load.bytes);
  };
  std::vector<std::size_t> by_qpn(1 << 24);
  for (std::size_t i = 0; i < qps.size(); ++i) by_qpn[qps[i].made.qpn] = i;
  for (int i = 0; i < load.depth; ++i) {
    for (Qp& qp : qps) post(qp);
  }
  progress.started = true;
  for (uroce_cqe done{}; client.poll(cq, done, 60'000);) {
    if (done.status != UROCE_WC_SUCCESS) return 3;
    ++progress.messages;
    post(qps[by_qpn[done.qpn]]);
  }
  return 4;
}

void print(const char* name, const Figures& figures, const Figures& alone) {
  std::printf("%-44s %9.1f %9.1f %9.1f %9.1f %8.1f %6d\n", name, figures.mean_us, figures.p50_us, figures.p99_us,
              figures.max_us, figures.mean_us / alone.mean_us, figures.errors);
  std::fflush(stdout);
}

/// Of the load, in Gbit/s, while `work` runs.
template <class Work>
double throughput(const Progress& progress, const Load& load, Work work) {
  const std::uint64_t before = progress.messages;
  const Nanos start = monotonic_now();
  work();
  const double bits = static_cast<double>(progress.messages - before) * load.bytes * 8;
  return bits / static_cast<double>(monotonic_now() - start);
}

int main_program(int seconds) {
  if (!is_root()) {
    std::fprintf(stderr, "tenants: needs root, to run as two users\n");
    return 2;
  }
  // With a core of its own the worker does not compete with the programs, whose scheduling would be measured.
  DaemonProcess daemon({"--cpus", "0", "--socket-mode", "0666"});
  if (!daemon.ready()) {
    std::fprintf(stderr, "tenants: uroced did not start:\n%s", daemon.log().c_str());
    return 1;
  }
  std::printf("%-44s %9s %9s %9s %9s %8s %6s\n", "8-byte WRITE of one user, in us", "mean", "p50", "p99", "max",
              "x alone", "errors");
  const Figures alone = measure(daemon, seconds);
  print("alone", alone, alone);
  for (const Load& load : {Load{1, 64 << 10, 4}, Load{1, 1 << 20, 8}, Load{256, 1 << 20, 8}, Load{256, 8, 64}}) {
    Shared<Progress> progress;
    Child other(kAttacker, [&] { return run(daemon.socket_path(), load, *progress); });
    for (int i = 0; i < 1000 && !progress->started && other.running(); ++i) ::usleep(10'000);
    const double other_alone = throughput(*progress, load, [&] { ::sleep(static_cast<unsigned>(seconds)); });
    Figures loaded;
    const double other_shared = throughput(*progress, load, [&] { loaded = measure(daemon, seconds); });
    char name[64];
    std::snprintf(name, sizeof(name), "next to %d QPs, %d WRITEs of %u bytes each", load.qps, load.depth,
                  load.bytes);
    print(name, loaded, alone);
    std::printf("  the other user: %.2f Gbit/s alone, %.2f next to it\n", other_alone, other_shared);
    if (!other.running()) std::printf("  the other user's program ended: %d\n", other.wait());
  }
  return 0;
}

}  // namespace
}  // namespace uroce::hostile

int main(int argc, char** argv) { return uroce::hostile::main_program(argc > 1 ? std::atoi(argv[1]) : 5); }
