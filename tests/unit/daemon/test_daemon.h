// A daemon on one thread: commands to workers run at once, and the test runs the workers' duty cycles itself.
#pragma once

#include <time.h>

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "daemon/conductor.h"
#include "memory_device.h"
#include "net/link_stack.h"
#include "platform/clock.h"
#include "worker/worker_loop.h"

namespace uroce::daemon::testing {

inline wire::Address ipv4(std::uint8_t last) {
  wire::Address a;
  a.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, last};
  return a;
}

inline control::DaemonConfig test_config() {
  control::DaemonConfig config;
  config.name = "test0";
  config.addresses = {{ipv4(1), 24}};
  config.max_qps = 1024;
  config.max_cqs = 1024;
  config.max_mrs = 4096;
  config.max_srqs = 256;
  config.hugepages = false;
  config.seed = 7;
  return config;
}

class TestDaemon {
 public:
  /// `sockets_only`: as net::DeviceInfo has it. `joined`: another device's process; nullptr: one of its own.
  explicit TestDaemon(control::DaemonConfig with = test_config(), std::uint32_t workers = 1,
                      bool sockets_only = false, std::shared_ptr<control::Process> joined = nullptr)
      : config(std::move(with)),
        process(joined != nullptr ? std::move(joined) : std::make_shared<control::Process>(config, workers)),
        memory(config.max_mrs, config.seed),
        devices(workers) {
    net::LinkConfig link_config;
    link_config.mac = devices[0].info().mac;
    link_config.mtu = 9000;
    link_config.addresses = config.addresses;
    link_config.gateway4 = config.gateway4;
    link_config.gateway6 = config.gateway6;
    link = std::make_unique<net::LinkStack>(link_config);
    for (std::uint32_t i = 0; i < workers; ++i) {
      worker::WorkerConfig worker;
      worker.index = i;
      worker.workers = workers;
      worker.transport.max_qps = config.max_qps;
      worker.transport.max_cqs = config.max_cqs;
      worker.transport.max_srqs = config.max_srqs;
      cores.push_back(std::make_unique<worker::WorkerCore>(worker, shared, memory, i == 0 ? link.get() : nullptr));
      loops.push_back(std::make_unique<worker::WorkerLoop<MemoryDevice>>(*cores[i], devices[i]));
    }
    net::DeviceInfo info = devices[0].info();
    info.sockets_only = sockets_only;
    conductor = std::make_unique<Conductor>(*process, config, info, shared, memory, config.seed);
  }
  ~TestDaemon() {
    conductor.reset();
    loops.clear();
  }

  /// Runs duty cycles of every worker until `done`, or for a second of this thread's CPU time, which other programs
  /// do not use up. Returns whether it is done.
  template <class Done>
  bool run_until(Done&& done) {
    const Nanos end = cpu_time() + kSecond;
    while (!done()) {
      if (cpu_time() > end) return false;
      const Nanos now = monotonic_now();
      for (auto& loop : loops) loop->step(now);
    }
    return true;
  }
  /// Lets the time pass that connections without ids stay: all retries, and TIMEWAIT.
  void end_connections() {
    for (int seconds = 0; seconds < 200; ++seconds) conductor->cm().step(monotonic_now() + seconds * kSecond);
  }
  /// Whether nothing is charged to any user, once closers have closed what sessions left.
  bool nothing_is_held() {
    const Nanos end = monotonic_now() + 60 * kSecond;
    end_connections();
    for (;;) {
      process->users().count_closing();
      if (conductor->state().quotas().users().empty()) return true;
      if (monotonic_now() > end) return false;
      std::this_thread::yield();
    }
  }
  static Nanos cpu_time() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<Nanos>(time.tv_sec) * kSecond + static_cast<Nanos>(time.tv_nsec);
  }
  void settle() {
    for (int i = 0; i < 200; ++i) {
      for (auto& loop : loops) loop->step(monotonic_now());
    }
  }

  control::DaemonConfig config;
  std::shared_ptr<control::Process> process;
  memory::Table memory;
  worker::WorkerShared shared;
  std::vector<MemoryDevice> devices;
  std::unique_ptr<net::LinkStack> link;
  std::vector<std::unique_ptr<worker::WorkerCore>> cores;
  std::vector<std::unique_ptr<worker::WorkerLoop<MemoryDevice>>> loops;
  std::unique_ptr<Conductor> conductor;
};

}  // namespace uroce::daemon::testing
