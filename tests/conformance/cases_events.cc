// Events of objects that are destroyed: they leave their channel, which poll(2) then reports as empty. The kernel
// does so for every object (Linux: drivers/infiniband/core/uverbs_main.c, ib_uverbs_release_ucq and
// ib_uverbs_release_uevent).
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "fixtures.h"

namespace conformance {
namespace {

constexpr int kArrives = 5000, kStaysAway = 20;  // ms

/// Connections to the right device, whose receives complete in CQs of one channel.
struct Watched {
  Watched(Bench& bench, ibv_comp_channel* channel)
      : sender(bench.left, IBV_QPT_RC, 64, {}), receiver(bench.right, IBV_QPT_RC, 64, {}, nullptr, channel) {
    connect(bench, sender, receiver);
  }
  /// The CQ has an entry, and its event is on the channel.
  void raise() {
    CHECK_OK(ibv_req_notify_cq(receiver.cq.get(), 0));
    CHECK_OK(receiver.post_recv(0, 8));
    CHECK_OK(sender.send(0, 8));
    wait_success(sender.cq.get(), IBV_WC_SEND);
    wait_success(receiver.cq.get(), IBV_WC_RECV);
  }
  void destroy() {
    CHECK_OK(receiver.qp.destroy());
    CHECK_OK(receiver.cq.destroy());
  }
  Side sender, receiver;
};

ibv_cq* take(ibv_comp_channel* channel) {
  if (!readable(channel->fd, kArrives)) throw Failed{"no completion event"};
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  CHECK_OK(ibv_get_cq_event(channel, &cq, &context));
  ibv_ack_cq_events(cq, 1);
  return cq;
}

Channel make_channel(const End& end) { return Channel(CHECK_MADE(ibv_create_comp_channel(end.context))); }

void discard_async_events(const End& end) {
  while (readable(end.context->async_fd, 0)) wait_event(end.context);
}

CONFORMANCE_CASE(event_of_a_destroyed_cq_leaves_its_channel, "ibv_destroy_cq(3)") {
  const Channel channel = make_channel(bench.right);
  Watched watched(bench, channel.get());
  watched.raise();
  CHECK(readable(channel->fd, kArrives));
  watched.destroy();
  CHECK(!readable(channel->fd, kStaysAway));
}

CONFORMANCE_CASE(event_of_a_destroyed_cq_leaves_the_others, "ibv_destroy_cq(3)") {
  const Channel channel = make_channel(bench.right);
  for (const int destroyed : {0, 1, 2}) {
    Watched each[] = {{bench, channel.get()}, {bench, channel.get()}, {bench, channel.get()}};
    for (Watched& one : each) {
      one.raise();
      CHECK(readable(channel->fd, kArrives));
    }
    each[destroyed].destroy();
    ibv_cq* const first = take(channel.get());
    ibv_cq* const second = take(channel.get());
    CHECK(first != second);
    for (int i = 0; i < 3; ++i) {
      if (i == destroyed) continue;
      CHECK(each[i].receiver.cq.get() == first || each[i].receiver.cq.get() == second);
    }
    CHECK(!readable(channel->fd, kStaysAway));
  }
}

CONFORMANCE_CASE(events_of_destroyed_cqs_leave_one_that_waits_alone, "ibv_destroy_cq(3)") {
  const Channel channel = make_channel(bench.right);
  Watched each[] = {{bench, channel.get()}, {bench, channel.get()}, {bench, channel.get()}};
  for (Watched& one : each) one.raise();
  each[0].destroy();
  each[2].destroy();
  CHECK_EQ(take(channel.get()), each[1].receiver.cq.get());
  CHECK(!readable(channel->fd, kStaysAway));
  each[1].raise();
  CHECK_EQ(take(channel.get()), each[1].receiver.cq.get());
}

/// A thread that waits for events of a channel and counts those of one CQ. It ends by pthread_cancel(3).
class Waiter {
 public:
  Waiter(ibv_comp_channel* channel, ibv_cq* counted) : thread_([=, this] { run(channel, counted); }) {}
  ~Waiter() {
    pthread_cancel(thread_.native_handle());
    thread_.join();
  }
  int count() const { return count_; }

 private:
  void run(ibv_comp_channel* channel, ibv_cq* counted) {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    while (ibv_get_cq_event(channel, &cq, &context) == 0) {
      ibv_ack_cq_events(cq, 1);
      if (cq == counted) ++count_;
    }
  }

  std::atomic<int> count_{0};
  std::thread thread_;
};

CONFORMANCE_CASE(events_of_destroyed_cqs_take_none_from_a_thread_that_waits, "ibv_get_cq_event(3)") {
  const Channel channel = make_channel(bench.right);
  Watched stays(bench, channel.get());
  Waiter waiter(channel.get(), stays.receiver.cq.get());
  bool lost = false;
  for (int i = 1; i <= 50 && !lost; ++i) {
    Watched other(bench, channel.get());
    other.raise();
    stays.raise();
    other.destroy();
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kArrives);
    while (waiter.count() < i && !lost) lost = std::chrono::steady_clock::now() > end;
  }
  CHECK(!lost);
}

CONFORMANCE_CASE(event_of_a_destroyed_qp_leaves_the_context, "ibv_destroy_qp(3)") {
  discard_async_events(bench.left);
  Pair stays(bench), destroyed(bench);
  for (Pair* one : {&stays, &destroyed}) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_SQD;
    attr.en_sqd_async_notify = 1;
    CHECK_OK(ibv_modify_qp(one->left.qp.get(), &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
    CHECK(readable(bench.left.context->async_fd, kArrives));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(kStaysAway));  // the second event may still be on its way
  CHECK_OK(destroyed.left.qp.destroy());
  const ibv_async_event event = wait_event(bench.left.context);
  CHECK_EQ(static_cast<int>(event.event_type), static_cast<int>(IBV_EVENT_SQ_DRAINED));
  CHECK_EQ(event.element.qp, stays.left.qp.get());
  CHECK(!readable(bench.left.context->async_fd, kStaysAway));
}

CONFORMANCE_CASE(event_of_a_destroyed_srq_leaves_the_context, "ibv_destroy_srq(3)") {
  discard_async_events(bench.right);
  const Pd pd = make_pd(bench.right);
  ibv_srq_init_attr init{};
  init.attr.max_wr = 4;
  init.attr.max_sge = 1;
  Srq srq(CHECK_MADE(ibv_create_srq(pd.get(), &init)));
  Buffer buffer(pd.get(), 64);
  for (std::uint64_t i = 0; i < 4; ++i) CHECK_OK(post_srq_recv(srq.get(), buffer, 0, 8, i));
  QpOptions options;
  options.srq = srq.get();
  Side sender(bench.left, IBV_QPT_RC, 64, {}), receiver(bench.right, IBV_QPT_RC, 64, options, pd.get());
  connect(bench, sender, receiver);
  ibv_srq_attr attr{};
  attr.srq_limit = 4;
  CHECK_OK(ibv_modify_srq(srq.get(), &attr, IBV_SRQ_LIMIT));
  CHECK_OK(sender.send(0, 8));
  wait_success(receiver.cq.get(), IBV_WC_RECV);
  CHECK(readable(bench.right.context->async_fd, kArrives));
  CHECK_OK(receiver.qp.destroy());
  CHECK_OK(srq.destroy());
  CHECK(!readable(bench.right.context->async_fd, kStaysAway));
}

/// A CQ that overran, with its event and perhaps that of its QP on the context.
CONFORMANCE_CASE(error_event_of_a_destroyed_cq_leaves_the_context, "ibv_destroy_cq(3)") {
  discard_async_events(bench.left);
  OverrunCq full(bench);
  CHECK(readable(bench.left.context->async_fd, kArrives));
  CHECK_OK(full.qp.destroy());
  CHECK_OK(full.cq.destroy());
  CHECK(!readable(bench.left.context->async_fd, kStaysAway));
}

}  // namespace
}  // namespace conformance
