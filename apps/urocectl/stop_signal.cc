#include "stop_signal.h"

#include <chrono>
#include <csignal>
#include <thread>

namespace uroce::ctl {

std::atomic<int> g_stop{0};

void stop_on_signal() {
  struct sigaction action {};
  action.sa_handler = [](int) { g_stop.fetch_add(1); };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

void wait_for(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (g_stop.load() == 0 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace uroce::ctl
