// stress DEVICE [MILLISECONDS]: eight threads post to one QP and poll its only CQ, while others create, change and
// destroy objects of all kinds in the same context, query them, and receive asynchronous events. Each work request
// must complete exactly once; otherwise the exit status is 1.
#include <sched.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "fixtures.h"

namespace conformance {

std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

namespace {

constexpr std::size_t kPosters = 8;
constexpr std::uint64_t kMostEach = 1 << 20;

struct Shared {
  Bench& bench;
  Pair& pair;
  std::atomic<bool> stop{false}, all_made{false};
  std::atomic<std::uint64_t> posted{0}, completed{0}, events{0};
  std::vector<std::atomic<std::uint8_t>> seen = std::vector<std::atomic<std::uint8_t>>(kPosters * kMostEach);
  std::atomic<const char*> problem{nullptr};
  std::mutex text_mutex{};
  std::string text{};

  void report(const std::string& what) {
    const std::lock_guard lock(text_mutex);
    if (problem != nullptr) return;
    text = what;
    problem = text.c_str();
  }
};

/// Creates objects and destroys them. `round` counts from 0.
struct Maker {
  const char* what;
  void (*make)(Shared& shared, std::uint64_t round);
  std::atomic<std::uint64_t> rounds{0};
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

void make_pair(Shared& shared, std::uint64_t round) {
  constexpr ibv_qp_type kTypes[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
  const ibv_qp_type type = kTypes[round % 3];
  Pair pair(shared.bench, type, 8192);
  Side& left = pair.left;
  const Ah ah = make_ah(left.end, left.pd, shared.bench.right);
  if (type == IBV_QPT_UD) {
    ibv_sge sge = left.buffer.sge(0, 64);
    ibv_send_wr wr = request(IBV_WR_SEND, sge);
    wr.wr.ud = {ah.get(), pair.right.qp->qp_num, kQkey};
    CHECK_OK(left.post(wr));
  } else {
    CHECK_OK(left.write(0, 64, pair.right.buffer.address(), pair.right.buffer.rkey()));
  }
  wait_success(left.cq.get(), type == IBV_QPT_UD ? IBV_WC_SEND : IBV_WC_RDMA_WRITE);
}

void make_regions(Shared& shared, std::uint64_t) {
  const End& end = shared.bench.left;
  std::vector<std::uint8_t> memory(3 * 4096);
  const Pd first = make_pd(end), second = make_pd(end);
  const Mr mr(CHECK_MADE(ibv_reg_mr(first.get(), memory.data(), 8192, kLocal)));
  CHECK_OK(ibv_rereg_mr(mr.get(), IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, &memory[4096], 8192, 0));
  CHECK_OK(ibv_rereg_mr(mr.get(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAll));
  CHECK_OK(ibv_rereg_mr(mr.get(), IBV_REREG_MR_CHANGE_PD, second.get(), nullptr, 0, 0));
}

void make_windows(Shared& shared, std::uint64_t) {
  Pair pair(shared.bench, IBV_QPT_RC, 4096);
  const Buffer buffer(pair.left.pd, 4096, kAll | IBV_ACCESS_MW_BIND);
  const Mw never_bound(CHECK_MADE(ibv_alloc_mw(pair.left.pd, IBV_MW_TYPE_2)));
  const Mw mw(CHECK_MADE(ibv_alloc_mw(pair.left.pd, IBV_MW_TYPE_1)));
  ibv_mw_bind bind{};
  bind.send_flags = IBV_SEND_SIGNALED;
  bind.bind_info = {buffer.mr(), buffer.address(), 4096, IBV_ACCESS_REMOTE_WRITE};
  CHECK_OK(ibv_bind_mw(pair.left.qp.get(), mw.get(), &bind));
  wait_success(pair.left.cq.get(), IBV_WC_BIND_MW);
  CHECK_OK(pair.right.write(0, 64, buffer.address(), mw->rkey));
  wait_success(pair.right.cq.get(), IBV_WC_RDMA_WRITE);
}

void make_completion_queues(Shared& shared, std::uint64_t) {
  const End& end = shared.bench.left;
  const Pd pd = make_pd(end);
  const Channel channel(CHECK_MADE(ibv_create_comp_channel(end.context)));
  const Cq cq = make_cq(end, 16, channel.get());
  const QpObject qp = make_qp(end, pd.get(), cq.get(), cq.get(), IBV_QPT_RC);
  CHECK_OK(to_init(qp.get(), kAll));
  ibv_recv_wr none{}, *bad;
  CHECK_OK(ibv_post_recv(qp.get(), &none, &bad));
  CHECK_OK(ibv_req_notify_cq(cq.get(), 0));
  CHECK_OK(to_error(qp.get()));
  CHECK_OK(ibv_resize_cq(cq.get(), 500));
  CHECK(readable(channel->fd, 5000));
  ibv_cq* told = nullptr;
  void* context = nullptr;
  CHECK_OK(ibv_get_cq_event(channel.get(), &told, &context));
  ibv_ack_cq_events(told, 1);
  wait_status(cq.get(), IBV_WC_WR_FLUSH_ERR);
  CHECK_OK(ibv_resize_cq(cq.get(), 16));
}

void make_shared_queues(Shared& shared, std::uint64_t) {
  const End& end = shared.bench.left;
  const std::uint64_t told_before = shared.events;
  const Pd pd = make_pd(end);
  const Cq cq = make_cq(end, 16);
  const Buffer buffer(pd.get(), 4096);
  ibv_srq_init_attr init{};
  init.attr.max_wr = 16;
  init.attr.max_sge = 1;
  const Srq srq(CHECK_MADE(ibv_create_srq(pd.get(), &init)));
  CHECK_OK(post_srq_recv(srq.get(), buffer, 0, 64, 1));
  ibv_srq_attr attr{};
  attr.srq_limit = 8;  // more than are posted: generates an event
  CHECK_OK(ibv_modify_srq(srq.get(), &attr, IBV_SRQ_LIMIT));
  attr.max_wr = 100;
  CHECK_OK(ibv_modify_srq(srq.get(), &attr, IBV_SRQ_MAX_WR));
  CHECK_OK(ibv_query_srq(srq.get(), &attr));
  QpOptions options;
  options.srq = srq.get();
  const QpObject qp = make_qp(end, pd.get(), cq.get(), cq.get(), IBV_QPT_RC, options);
  CHECK_OK(to_init(qp.get(), kAll));
  CHECK_OK(to_error(qp.get()));  // generates "last WQE reached"
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (shared.events < told_before + 2 && std::chrono::steady_clock::now() < limit) sched_yield();
  CHECK_EQ(shared.events, told_before + 2);
  const Xrcd xrcd = make_xrcd(end);
  const Srq xrc_srq = make_xrc_srq(end, pd.get(), xrcd.get(), cq.get());
  const QpObject target = make_target(end, xrcd.get()), initiator = make_initiator(end, pd.get(), cq.get());
}

void query(Shared& shared, std::uint64_t) {
  ibv_context* const context = shared.bench.left.context;
  ibv_device_attr device;
  ibv_device_attr_ex extended;
  ibv_port_attr port;
  ibv_gid gid;
  __be16 pkey;
  ibv_qp_attr attr;
  ibv_qp_init_attr init;
  CHECK_OK(ibv_query_device(context, &device));
  CHECK_OK(ibv_query_device_ex(context, nullptr, &extended));
  CHECK_OK(ibv_query_port(context, 1, &port));
  CHECK_OK(ibv_query_gid(context, 1, shared.bench.left.gid_index, &gid));
  CHECK_OK(ibv_query_pkey(context, 1, 0, &pkey));
  CHECK_OK(ibv_query_qp(shared.pair.left.qp.get(), &attr, IBV_QP_STATE, &init));
  CHECK_EQ(attr.qp_state, IBV_QPS_RTS);
}

void take_events(Shared& shared) {
  ibv_context* const context = shared.bench.left.context;
  while (!shared.all_made) {
    if (!readable(context->async_fd, 20)) continue;
    ibv_async_event event{};
    if (ibv_get_async_event(context, &event) != 0) return shared.report("ibv_get_async_event failed");
    const bool expected =
        event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED || event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED;
    ibv_ack_async_event(&event);
    if (!expected) shared.report("an event that nobody caused");
    ++shared.events;
  }
}

Maker makers[] = {{"pairs", make_pair},
                  {"regions", make_regions},
                  {"windows", make_windows},
                  {"completion queues", make_completion_queues},
                  {"shared queues and XRC", make_shared_queues},
                  {"queries", query}};

void make_and_destroy(Shared& shared, Maker& maker) {
  try {
    std::uint64_t round = 0;
    do {
      maker.make(shared, round);
      maker.rounds = ++round;
    } while (!shared.stop && shared.problem == nullptr);
  } catch (const Failed& failed) {
    shared.report(std::string(maker.what) + ": " + failed.what);
  } catch (const Skipped& skipped) {
    shared.report(std::string(maker.what) + ": " + skipped.why);
  }
}

int run(const std::string& device, int milliseconds) {
  set_timeout(std::chrono::seconds(20));  // there are many threads, possibly with a sanitizer
  Bench bench(device, device);
  QpOptions options;
  options.send_wr = 64;
  Pair pair(bench, IBV_QPT_RC, 4096, options);
  Shared shared{bench, pair};
  std::vector<std::thread> threads;
  std::thread events([&shared] { take_events(shared); });
  for (std::uint64_t i = 0; i < kPosters; ++i) threads.emplace_back([&shared, i] { post_and_poll(shared, i); });
  for (Maker& maker : makers) threads.emplace_back([&] { make_and_destroy(shared, maker); });
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  shared.stop = true;
  for (std::thread& thread : threads) thread.join();
  shared.all_made = true;
  events.join();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (shared.completed < shared.posted && std::chrono::steady_clock::now() < end) poll_some(shared);
  const std::string leaks = take_leaks();
  std::printf("%llu work requests posted, %llu completed, %llu events",
              static_cast<unsigned long long>(shared.posted), static_cast<unsigned long long>(shared.completed),
              static_cast<unsigned long long>(shared.events));
  for (const Maker& maker : makers) {
    std::printf(", %s %llu times", maker.what, static_cast<unsigned long long>(maker.rounds));
  }
  std::printf("\n");
  if (const char* const problem = shared.problem; problem != nullptr) std::printf("problem: %s\n", problem);
  if (!leaks.empty()) std::printf("problem: %s\n", leaks.c_str());
  const bool good =
      shared.problem == nullptr && leaks.empty() && shared.posted == shared.completed && shared.posted != 0;
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
