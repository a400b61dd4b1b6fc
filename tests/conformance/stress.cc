// stress DEVICE [MILLISECONDS]: eight threads post to one QP and poll its one CQ, while others create and destroy
// objects of the same context. Each work request must complete exactly once. Exit status 1 when not.
#include <sched.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "fixtures.h"

namespace conformance {

std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

namespace {

constexpr std::size_t kPosters = 8, kMakers = 2;
constexpr std::uint64_t kMostEach = 1 << 20;

struct Shared {
  Bench& bench;
  Pair& pair;
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> posted{0}, completed{0}, made{0};
  std::vector<std::atomic<std::uint8_t>> seen = std::vector<std::atomic<std::uint8_t>>(kPosters * kMostEach);
  std::atomic<const char*> problem{nullptr};
};

void poll_some(Shared& shared) {
  ibv_wc wc[4];
  const int got = ibv_poll_cq(shared.pair.left.cq.get(), 4, wc);
  if (got < 0) shared.problem = "ibv_poll_cq failed";
  for (int i = 0; i < got; ++i) {
    if (wc[i].status != IBV_WC_SUCCESS) shared.problem = ibv_wc_status_str(wc[i].status);
    if (wc[i].wr_id >= shared.seen.size() || shared.seen[wc[i].wr_id].fetch_add(1) != 0) {
      shared.problem = "a work request completed twice";
    }
    ++shared.completed;
  }
}

void post_and_poll(Shared& shared, std::uint64_t thread) {
  Side& left = shared.pair.left;
  Side& right = shared.pair.right;
  for (std::uint64_t i = 0; i < kMostEach && !shared.stop && shared.problem == nullptr;) {
    const int error =
        left.write(thread * 64, 64, right.buffer.address(thread * 64), right.buffer.rkey(), thread * kMostEach + i);
    if (error == 0) {
      ++shared.posted;
      ++i;
    } else if (error != ENOMEM) {
      shared.problem = "ibv_post_send failed";
    }
    poll_some(shared);
  }
}

void make_and_destroy(Shared& shared) {
  try {
    while (!shared.stop && shared.problem == nullptr) {
      Pair pair(shared.bench, IBV_QPT_RC, 8192);
      const Ah ah = make_ah(shared.bench.left, pair.left.pd, shared.bench.right);
      CHECK_OK(pair.left.write(0, 64, pair.right.buffer.address(), pair.right.buffer.rkey()));
      wait_success(pair.left.cq.get(), IBV_WC_RDMA_WRITE);
      ++shared.made;
    }
  } catch (const Failed& failed) {
    static std::string text;
    text = failed.what;
    shared.problem = text.c_str();
  }
}

int run(const std::string& device, int milliseconds) {
  Bench bench(device, device);
  QpOptions options;
  options.send_wr = 64;
  Pair pair(bench, IBV_QPT_RC, 4096, options);
  Shared shared{bench, pair};
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < kPosters; ++i) threads.emplace_back([&shared, i] { post_and_poll(shared, i); });
  for (std::size_t i = 0; i < kMakers; ++i) threads.emplace_back([&shared] { make_and_destroy(shared); });
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  shared.stop = true;
  for (std::thread& thread : threads) thread.join();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (shared.completed < shared.posted && std::chrono::steady_clock::now() < end) poll_some(shared);
  const std::string leaks = take_leaks();
  std::printf("%llu work requests posted, %llu completed, %llu pairs made and destroyed\n",
              static_cast<unsigned long long>(shared.posted), static_cast<unsigned long long>(shared.completed),
              static_cast<unsigned long long>(shared.made));
  if (const char* const problem = shared.problem; problem != nullptr) std::printf("problem: %s\n", problem);
  if (!leaks.empty()) std::printf("problem: %s\n", leaks.c_str());
  const bool good = shared.problem == nullptr && leaks.empty() && shared.posted == shared.completed &&
                    shared.posted != 0 && shared.made != 0;
  return good ? 0 : 1;
}

}  // namespace
}  // namespace conformance

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: stress DEVICE [MILLISECONDS]\n");
    return 2;
  }
  try {
    return conformance::run(argv[1], argc > 2 ? std::atoi(argv[2]) : 1000);
  } catch (const conformance::Failed& failed) {
    std::printf("problem: %s\n", failed.what.c_str());
    return 1;
  }
}
