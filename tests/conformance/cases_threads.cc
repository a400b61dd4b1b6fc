// Concurrent calls on one object: the second thread waits, unless a thread domain promises that there is only one.
#include <sched.h>
#include <semaphore.h>
#include <sys/mman.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <thread>

#include "fixtures.h"

namespace conformance {
namespace {

/// A parent domain with a thread domain, or an ordinary PD.
struct Domain {
  Domain(const End& end, bool of_a_thread) : pd(make_pd(end)) {
    if (!of_a_thread) return;
    ibv_td_init_attr td_init{};
    td = Td(CHECK_MADE(ibv_alloc_td(end.context, &td_init)));
    ibv_parent_domain_init_attr init{};
    init.pd = pd.get();
    init.td = td.get();
    parent = Pd(CHECK_MADE(ibv_alloc_parent_domain(end.context, &init)));
  }
  ibv_pd* get() const { return parent.get() != nullptr ? parent.get() : pd.get(); }
  Pd pd;
  Td td;
  Pd parent;
};

/// While this thread is inside a call, or between two, another thread calls: it waits for `leave` if there is a
/// lock, and returns at once if not.
void enter_twice(bool of_a_thread, const std::function<void()>& second, const std::function<void()>& leave) {
  std::atomic<bool> started{false}, through{false};
  std::thread thread([&] {
    started = true;
    second();
    through = true;
  });
  while (!started) sched_yield();
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(of_a_thread ? 5000 : 30);
  while (!through && std::chrono::steady_clock::now() < end) sched_yield();
  const bool waited = !through;
  leave();
  thread.join();
  CHECK_EQ(waited, !of_a_thread);
}

/// Two receives. A thread that reads the second one blocks there until let_go().
class SlowList {
 public:
  SlowList() {
    void* const mapped = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapped != MAP_FAILED);
    page_ = mapped;
    first.next = new (page_) ibv_recv_wr{};
    sem_init(&reached_, 0, 0);
    sem_init(&go_on_, 0, 0);
    CHECK_OK(mprotect(page_, kPage, PROT_NONE));
    struct sigaction action {};
    action.sa_sigaction = stop;
    action.sa_flags = SA_SIGINFO;
    CHECK_OK(sigaction(SIGSEGV, &action, &before_));
  }
  ~SlowList() {
    sigaction(SIGSEGV, &before_, nullptr);
    munmap(page_, kPage);
  }
  SlowList(const SlowList&) = delete;
  SlowList& operator=(const SlowList&) = delete;
  static void await_reader() { sem_wait(&reached_); }
  static void let_go() { sem_post(&go_on_); }
  ibv_recv_wr first{};

 private:
  static constexpr std::size_t kPage = 4096;
  static void stop(int number, siginfo_t* info, void*) {
    const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr), page = reinterpret_cast<std::uintptr_t>(page_);
    if (at < page || at >= page + kPage) {
      signal(number, SIG_DFL);
      return;
    }
    sem_post(&reached_);
    while (sem_wait(&go_on_) != 0) {
    }
    mprotect(page_, kPage, PROT_READ | PROT_WRITE);
  }
  static inline void* page_ = nullptr;
  static inline sem_t reached_, go_on_;
  struct sigaction before_ {};
};

/// One thread is inside `post` when another posts.
void post_twice(bool of_a_thread, const std::function<int(ibv_recv_wr*)>& post) {
  SlowList list;
  int first_error = -1, second_error = -1;
  std::thread thread([&] { first_error = post(&list.first); });
  SlowList::await_reader();
  ibv_recv_wr one{};
  enter_twice(
      of_a_thread, [&] { second_error = post(&one); }, [&] { SlowList::let_go(), thread.join(); });
  CHECK_EQ(first_error, 0);
  CHECK_EQ(second_error, 0);
}

void check_send_queue(const End& end, bool of_a_thread) {
  const Domain domain(end, of_a_thread);
  QpOptions options;
  options.operations = IBV_QP_EX_WITH_SEND;
  const Side side(end, IBV_QPT_RC, 64, options, domain.get());
  ibv_qp_ex* const qp = ibv_qp_to_qp_ex(side.qp.get());
  ibv_wr_start(qp);
  const auto second = [&] {
    ibv_wr_start(qp);
    ibv_wr_abort(qp);
  };
  enter_twice(of_a_thread, second, [&] { ibv_wr_abort(qp); });
}

void check_receive_queue(const End& end, bool of_a_thread) {
  const Domain domain(end, of_a_thread);
  const Side side(end, IBV_QPT_RC, 64, {}, domain.get());
  CHECK_OK(to_init(side.qp.get(), kAll));
  ibv_recv_wr* bad;
  post_twice(of_a_thread, [&](ibv_recv_wr* list) { return ibv_post_recv(side.qp.get(), list, &bad); });
}

void check_srq(const End& end, bool of_a_thread) {
  const Domain domain(end, of_a_thread);
  ibv_srq_init_attr init{};
  init.attr.max_wr = 16;
  init.attr.max_sge = 1;
  const Srq srq(CHECK_MADE(ibv_create_srq(domain.get(), &init)));
  ibv_recv_wr* bad;
  post_twice(of_a_thread, [&](ibv_recv_wr* list) { return ibv_post_srq_recv(srq.get(), list, &bad); });
}

void check_cq(const End& end, bool of_a_thread) {
  const Domain domain(end, of_a_thread);
  ibv_cq_init_attr_ex init{};
  init.cqe = 16;
  if (of_a_thread) {
    init.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
    init.parent_domain = domain.get();
  }
  ibv_cq_ex* const ex = CHECK_MADE(ibv_create_cq_ex(end.context, &init));
  const Cq cq(ibv_cq_ex_to_cq(ex));
  const QpObject qp = make_qp(end, domain.get(), cq.get(), cq.get(), IBV_QPT_RC);
  CHECK_OK(to_init(qp.get(), kAll));
  for (int i = 0; i < 4; ++i) {
    ibv_recv_wr one{}, *bad;
    CHECK_OK(ibv_post_recv(qp.get(), &one, &bad));
  }
  CHECK_OK(to_error(qp.get()));  // which completes them
  ibv_poll_cq_attr attr{};
  while (ibv_start_poll(ex, &attr) != 0) sched_yield();
  ibv_wc wc;
  enter_twice(
      of_a_thread, [&] { ibv_poll_cq(cq.get(), 1, &wc); }, [&] { ibv_end_poll(ex); });
}

void check_both(Bench& bench, void (*check)(const End&, bool of_a_thread)) {
  check(bench.left, true);
  check(bench.left, false);
}

CONFORMANCE_CASE(domain_of_a_thread_has_no_send_lock, "ibv_alloc_td(3); ibv_wr_post(3)") {
  check_both(bench, check_send_queue);
}
CONFORMANCE_CASE(domain_of_a_thread_has_no_receive_lock, "ibv_alloc_td(3); ibv_post_recv(3)") {
  check_both(bench, check_receive_queue);
}
CONFORMANCE_CASE(domain_of_a_thread_has_no_srq_lock, "ibv_alloc_td(3); ibv_post_srq_recv(3)") {
  check_both(bench, check_srq);
}
CONFORMANCE_CASE(domain_of_a_thread_has_no_cq_lock, "ibv_alloc_td(3); ibv_create_cq_ex(3), parent_domain") {
  check_both(bench, check_cq);
}

// SparkUCX, DAOS and others make handles from the threads of a pool.
CONFORMANCE_CASE(address_handles_from_many_threads, "ibv_create_ah(3), ibv_destroy_ah(3)") {
  constexpr int kThreads = 8, kRounds = 20, kHandles = 25;
  const Pd pd = make_pd(bench.left);
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        std::vector<ibv_ah*> handles;
        for (int i = 0; i < kHandles; ++i) {
          ibv_ah_attr attr{};
          attr.is_global = 1;
          attr.port_num = 1;
          attr.grh.dgid = bench.right.gid;
          attr.grh.sgid_index = static_cast<std::uint8_t>(bench.left.gid_index);
          ibv_ah* const ah = ibv_create_ah(pd.get(), &attr);
          if (ah != nullptr) handles.push_back(ah);
        }
        failed += kHandles - static_cast<int>(handles.size());
        for (ibv_ah* ah : handles) failed += ibv_destroy_ah(ah) != 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(failed.load(), 0);
}

}  // namespace
}  // namespace conformance
