// Completion queues and channels: arming, solicited events, resizing, overrun, extended polling.
#include <fcntl.h>

#include <cerrno>
#include <chrono>
#include <ctime>

#include "fixtures.h"

namespace conformance {
namespace {

/// Receives one event and acknowledges it.
ibv_cq* take_event(ibv_comp_channel* channel) {
  if (!readable(channel->fd, 5000)) throw Failed{"no completion event within 5 s"};
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  CHECK_OK(ibv_get_cq_event(channel, &cq, &context));
  ibv_ack_cq_events(cq, 1);
  return cq;
}

struct Watched {
  explicit Watched(Bench& bench)
      : channel(CHECK_MADE(ibv_create_comp_channel(bench.right.context))),
        sender(bench.left, IBV_QPT_RC, 4096, {}),
        receiver(bench.right, IBV_QPT_RC, 4096, {}, nullptr, channel.get()) {
    connect(bench, sender, receiver);
  }
  void deliver(unsigned flags = 0) {
    CHECK_OK(receiver.post_recv(0, 64));
    CHECK_OK(sender.send(0, 8, 2, IBV_SEND_SIGNALED | flags));
    wait_success(sender.cq.get(), IBV_WC_SEND);
  }
  void arm() { CHECK_OK(ibv_req_notify_cq(receiver.cq.get(), 0)); }
  int drain() {
    int entries = 0;
    ibv_wc wc;
    while (ibv_poll_cq(receiver.cq.get(), 1, &wc) == 1) ++entries;
    return entries;
  }
  /// Sends a message, and waits for the first event.
  void deliver_and_take() {
    CHECK_OK(receiver.post_recv(0, 64));
    CHECK_OK(sender.send(0, 8));
    take_event(channel.get());
  }
  Channel channel;
  Side sender, receiver;
};

CONFORMANCE_CASE(cq_overrun_ignored, "ibv_create_cq_ex(3), IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN") {
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 4;
  attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
  attr.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
  Cq small(ibv_cq_ex_to_cq(CHECK_MADE(ibv_create_cq_ex(bench.left.context, &attr))));
  Side right(bench.right, IBV_QPT_RC, 4096, {});
  const Pd pd = make_pd(bench.left);
  Buffer buffer(pd.get(), 4096);
  const auto room = static_cast<std::uint32_t>(small->cqe);
  QpOptions options;
  options.send_wr = 2 * room;
  QpObject qp = make_qp(bench.left, pd.get(), small.get(), small.get(), IBV_QPT_RC, options);
  CHECK_OK(to_init(qp.get(), kAll));
  CHECK_OK(to_init(right.qp.get(), kAll));
  CHECK_OK(to_rtr(bench.left, qp.get(), bench.right, right.qp->qp_num, bench.mtu()));
  CHECK_OK(to_rtr(bench.right, right.qp.get(), bench.left, qp->qp_num, bench.mtu()));
  CHECK_OK(to_rts(qp.get()));
  const auto write = [&](std::uint64_t id, std::size_t to) {
    ibv_sge sge = buffer.sge(0, 8);
    ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, sge), *bad = nullptr;
    wr.wr_id = id;
    wr.wr.rdma = {right.buffer.address(to), right.buffer.rkey()};
    CHECK_OK(ibv_post_send(qp.get(), &wr, &bad));
  };
  buffer.fill(9);
  for (std::uint32_t i = 0; i < 2 * room; ++i) write(i, i + 1 == 2 * room ? 64 : 0);
  // All must complete before the first poll.
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (!right.buffer.holds(9, 64, 8, 0)) CHECK(std::chrono::steady_clock::now() < give_up);
  ibv_qp_attr now{};
  now.qp_state = IBV_QPS_SQD;
  CHECK_OK(ibv_modify_qp(qp.get(), &now, IBV_QP_STATE));
  ibv_qp_init_attr init{};
  do {
    CHECK(std::chrono::steady_clock::now() < give_up);
    CHECK_OK(ibv_query_qp(qp.get(), &now, IBV_QP_STATE, &init));
  } while (now.sq_draining != 0);
  now.qp_state = IBV_QPS_RTS;
  CHECK_OK(ibv_modify_qp(qp.get(), &now, IBV_QP_STATE));
  CHECK(!readable(bench.left.context->async_fd, 20));
  std::uint32_t polled = 0;
  for (ibv_wc wc; ibv_poll_cq(small.get(), 1, &wc) == 1; ++polled) CHECK_EQ(wc.status, IBV_WC_SUCCESS);
  CHECK(polled >= 1 && polled <= room);
  write(77, 0);
  CHECK_EQ(wait_success(small.get(), IBV_WC_RDMA_WRITE).wr_id, 77u);
}

CONFORMANCE_CASE(cq_event_comes_once, "ibv_req_notify_cq(3)") {
  Watched watched(bench);
  CHECK(!readable(watched.channel->fd, 0));
  watched.arm();
  watched.deliver();
  CHECK_EQ(take_event(watched.channel.get()), watched.receiver.cq.get());
  wait_success(watched.receiver.cq.get(), IBV_WC_RECV);
  watched.deliver();
  wait_success(watched.receiver.cq.get(), IBV_WC_RECV);
  CHECK(!readable(watched.channel->fd, 20));
}

CONFORMANCE_CASE(cq_solicited_only, "ibv_req_notify_cq(3), solicited_only") {
  Watched watched(bench);
  CHECK_OK(ibv_req_notify_cq(watched.receiver.cq.get(), 1));
  watched.deliver();
  wait_success(watched.receiver.cq.get(), IBV_WC_RECV);
  CHECK(!readable(watched.channel->fd, 20));
  watched.deliver(IBV_SEND_SOLICITED);
  CHECK_EQ(take_event(watched.channel.get()), watched.receiver.cq.get());
  wait_success(watched.receiver.cq.get(), IBV_WC_RECV);
}

CONFORMANCE_CASE(cq_solicited_only_after_any, "ibv_req_notify_cq(3), solicited_only") {
  Watched watched(bench);
  watched.deliver();
  watched.deliver();
  watched.arm();
  watched.deliver();
  CHECK_EQ(take_event(watched.channel.get()), watched.receiver.cq.get());
  CHECK_OK(ibv_req_notify_cq(watched.receiver.cq.get(), 1));
  CHECK_OK(fcntl(watched.channel->fd, F_SETFL, O_NONBLOCK));
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  CHECK_EQ(ibv_get_cq_event(watched.channel.get(), &cq, &context), -1);
  CHECK_EQ(errno, EAGAIN);
  CHECK_EQ(watched.drain(), 3);
}

// A request lasts until an event comes of it, and no longer; when the program takes the event makes no difference.
CONFORMANCE_CASE(cq_request_lasts_until_its_event, "IBTA vol. 1, 11.4.2.2") {
  Watched watched(bench);
  ibv_cq* const cq = watched.receiver.cq.get();
  watched.arm();
  watched.deliver();
  CHECK(readable(watched.channel->fd, 5000));
  wait_success(cq, IBV_WC_RECV);
  watched.arm();
  CHECK_EQ(take_event(watched.channel.get()), cq);  // of the first request: the second one lasts
  CHECK_OK(ibv_req_notify_cq(cq, 1));
  watched.deliver();
  CHECK(readable(watched.channel->fd, 5000));
  wait_success(cq, IBV_WC_RECV);
  CHECK_OK(ibv_req_notify_cq(cq, 1));
  CHECK_EQ(take_event(watched.channel.get()), cq);
  watched.deliver();
  wait_success(cq, IBV_WC_RECV);
  CHECK(!readable(watched.channel->fd, 20));
}

// The program polls an entry and requests the next event before the device has reported the first one.
CONFORMANCE_CASE(cq_each_request_has_its_event, "IBTA vol. 1, 11.4.2.2") {
  Watched watched(bench);
  const auto deliver = [&watched] {
    CHECK_OK(watched.receiver.post_recv(0, 64));
    CHECK_OK(watched.sender.send(0, 8));
    wait_success(watched.receiver.cq.get(), IBV_WC_RECV);
  };
  for (int i = 0; i < 1000; ++i) {
    watched.arm();
    deliver();
    watched.arm();
    take_event(watched.channel.get());
    deliver();
    take_event(watched.channel.get());
    wait_success(watched.sender.cq.get(), IBV_WC_SEND);
    wait_success(watched.sender.cq.get(), IBV_WC_SEND);
  }
  CHECK(!readable(watched.channel->fd, 20));
}

CONFORMANCE_CASE(cq_error_counts_as_solicited, "IBTA vol. 1, 11.4.2.2") {
  Watched watched(bench);
  CHECK_OK(ibv_req_notify_cq(watched.receiver.cq.get(), 1));
  CHECK_OK(watched.receiver.post_recv(0, 64));
  CHECK_OK(to_error(watched.receiver.qp.get()));
  CHECK_EQ(take_event(watched.channel.get()), watched.receiver.cq.get());
  wait_status(watched.receiver.cq.get(), IBV_WC_WR_FLUSH_ERR);
}

CONFORMANCE_CASE(cq_arm_then_poll_loses_nothing, "ibv_get_cq_event(3), EXAMPLES") {
  Watched watched(bench);
  watched.arm();
  for (int i = 0; i < 300; ++i) {
    watched.deliver_and_take();
    for (;;) {
      watched.arm();
      if (watched.drain() > 0) break;
      take_event(watched.channel.get());
    }
    wait_success(watched.sender.cq.get(), IBV_WC_SEND);
  }
}

CONFORMANCE_CASE(cq_polled_entry_has_no_event_left, "ibv_req_notify_cq(3); IBTA vol. 1, 11.4.2.2") {
  // The CQ is armed while it has one entry, which is polled afterwards: the next event belongs to the next entry.
  Watched watched(bench);
  ibv_wc wc;
  watched.arm();
  for (int i = 0; i < 1000; ++i) {
    watched.deliver_and_take();
    watched.arm();
    CHECK_EQ(ibv_poll_cq(watched.receiver.cq.get(), 1, &wc), 1);
    wait_success(watched.sender.cq.get(), IBV_WC_SEND);
  }
}

CONFORMANCE_CASE(cq_channel_in_use_is_not_destroyed, "ibv_destroy_comp_channel(3)") {
  Channel channel(CHECK_MADE(ibv_create_comp_channel(bench.left.context)));
  Cq cq = make_cq(bench.left, 8, channel.get());
  CHECK(channel.destroy() != 0);
}

CONFORMANCE_CASE(cq_in_use_is_not_destroyed, "ibv_destroy_cq(3)") {
  Side side(bench.left, IBV_QPT_RC, 4096, {});
  CHECK(side.cq.destroy() != 0);
}

CONFORMANCE_CASE(cq_of_no_entries_is_refused, "ibv_create_cq(3)") {
  CHECK(ibv_create_cq(bench.left.context, 0, nullptr, nullptr, 0) == nullptr);
  CHECK(ibv_create_cq(bench.left.context, -1, nullptr, nullptr, 0) == nullptr);
  CHECK(ibv_create_cq(bench.left.context, bench.left.attr.max_cqe + 1, nullptr, nullptr, 0) == nullptr);
  CHECK(ibv_create_cq(bench.left.context, 8, nullptr, nullptr, bench.left.context->num_comp_vectors) == nullptr);
}

CONFORMANCE_CASE(cq_resize_keeps_what_waits, "ibv_resize_cq(3)") {
  Pair pair(bench);
  for (std::uint64_t i = 0; i < 10; ++i) {
    CHECK_OK(pair.left.write(0, 8, pair.right.buffer.address(), pair.right.buffer.rkey(), i));
  }
  CHECK_EQ(wait_success(pair.left.cq.get(), IBV_WC_RDMA_WRITE).wr_id, 0u);
  CHECK_OK(ibv_resize_cq(pair.left.cq.get(), 1000));
  CHECK(pair.left.cq->cqe >= 1000);
  for (std::uint64_t i = 1; i < 10; ++i) CHECK_EQ(wait_success(pair.left.cq.get(), IBV_WC_RDMA_WRITE).wr_id, i);
  CHECK_OK(ibv_resize_cq(pair.left.cq.get(), 16));
  for (std::uint64_t i = 0; i < 100; ++i) {
    CHECK_OK(pair.left.write(0, 8, pair.right.buffer.address(), pair.right.buffer.rkey(), i));
    CHECK_EQ(wait_success(pair.left.cq.get(), IBV_WC_RDMA_WRITE).wr_id, i);
  }
}

CONFORMANCE_CASE(cq_resize_below_what_waits, "ibv_resize_cq(3)") {
  QpOptions options;
  options.send_wr = 64;
  Pair pair(bench, IBV_QPT_RC, 65536, options);
  for (std::uint64_t i = 0; i < 40; ++i) {
    CHECK_OK(pair.left.write(0, 8, pair.right.buffer.address(), pair.right.buffer.rkey(), i));
  }
  CHECK_OK(pair.right.post_recv(0, 8));
  CHECK_OK(pair.left.send(0, 8, 40));
  wait_success(pair.right.cq.get(), IBV_WC_RECV);
  const int error = ibv_resize_cq(pair.left.cq.get(), 4);
  if (error == EOPNOTSUPP) throw Skipped{"ibv_resize_cq: EOPNOTSUPP"};
  CHECK(error != 0);
  for (std::uint64_t i = 0; i < 40; ++i) CHECK_EQ(wait_success(pair.left.cq.get(), IBV_WC_RDMA_WRITE).wr_id, i);
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
}

CONFORMANCE_CASE(cq_overrun_is_an_event, "IBTA vol. 1, 11.6.3.2; ibv_get_async_event(3)") {
  OverrunCq full(bench);
  bool told = false;
  while (!told) {
    const ibv_async_event event = wait_event(bench.left.context);
    told = event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == full.cq.get();
  }
  // Further events may report the QP that could not complete.
  while (readable(bench.left.context->async_fd, 20)) wait_event(bench.left.context);
}

CONFORMANCE_CASE(cq_channels_of_one_context, "ibv_create_comp_channel(3)") {
  Watched first(bench), second(bench);
  const Cq third = make_cq(bench.right, 4, first.channel.get());  // two CQs on one channel
  first.arm();
  second.arm();
  CHECK_OK(ibv_req_notify_cq(third.get(), 0));
  second.deliver();
  CHECK_EQ(take_event(second.channel.get()), second.receiver.cq.get());
  CHECK(!readable(first.channel->fd, 20));
  first.deliver();
  CHECK_EQ(take_event(first.channel.get()), first.receiver.cq.get());
  CHECK(!readable(first.channel->fd, 20));
  CHECK(!readable(second.channel->fd, 0));
}

CONFORMANCE_CASE(cq_moderation_by_count, "ibv_modify_cq(3)") {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kLongest{65};  // maximum of cq_period, which has 16 bits
  Watched watched(bench);
  ibv_modify_cq_attr attr{};
  attr.attr_mask = IBV_CQ_ATTR_MODERATE;
  attr.moderate = {4, 65535};
  CHECK_OK(ibv_modify_cq(watched.receiver.cq.get(), &attr));
  const auto until_event = [&](int messages) {
    watched.arm();
    const auto start = Clock::now();
    for (int i = 0; i < messages; ++i) watched.deliver();
    take_event(watched.channel.get());
    const auto took = Clock::now() - start;
    CHECK_EQ(watched.drain(), messages);
    return took;
  };
  CHECK(until_event(3) >= kLongest);
  // Four entries reach cq_count, so their event does not wait for cq_period. On a busy machine it may take that
  // long all the same.
  bool sooner = false;
  for (int i = 0; i < 20 && !sooner; ++i) sooner = until_event(4) < kLongest;
  CHECK(sooner);
}

CONFORMANCE_CASE(cq_moderation, "ibv_modify_cq(3)") {
  Watched watched(bench);
  ibv_modify_cq_attr attr{};
  attr.attr_mask = IBV_CQ_ATTR_MODERATE;
  attr.moderate = {1000, 20000};
  CHECK_OK(ibv_modify_cq(watched.receiver.cq.get(), &attr));
  watched.arm();
  watched.deliver();
  CHECK_EQ(take_event(watched.channel.get()), watched.receiver.cq.get());  // after cq_period
  wait_success(watched.receiver.cq.get(), IBV_WC_RECV);
}

struct ExtendedCq {
  ExtendedCq(const End& end, std::uint64_t flags, std::uint32_t create_flags = 0) {
    ibv_cq_init_attr_ex init{};
    init.cqe = 64;
    init.wc_flags = flags;
    if (create_flags != 0) {
      init.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
      init.flags = create_flags;
    }
    ex = CHECK_MADE(ibv_create_cq_ex(end.context, &init));
    owner = Cq(ibv_cq_ex_to_cq(ex));
  }
  void start() {
    ibv_poll_cq_attr attr{};
    for (;;) {
      const int error = ibv_start_poll(ex, &attr);
      if (error == 0) return;
      CHECK_EQ(error, ENOENT);
    }
  }
  ibv_cq_ex* ex = nullptr;
  Cq owner;
};

std::int64_t wall_now() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

std::int64_t first_post;  // of check_extended(), wall clock

void check_extended(Bench& bench, std::uint64_t flags, std::uint32_t create_flags,
                    void (*look)(ibv_cq_ex*, const Pair&)) {
  ExtendedCq cq(bench.right, flags, create_flags);
  Pair pair(bench);
  // The receiving QP of the pair uses this CQ in place of its own.
  pair.right.qp = make_qp(bench.right, pair.right.pd, cq.owner.get(), cq.owner.get(), IBV_QPT_RC);
  CHECK_OK(to_init(pair.right.qp.get(), kAll));
  CHECK_OK(to_rtr(bench.right, pair.right.qp.get(), bench.left, pair.left.qp->qp_num, bench.mtu()));
  CHECK_OK(to_rts(pair.right.qp.get()));
  ibv_qp_attr reset{};
  reset.qp_state = IBV_QPS_RESET;
  CHECK_OK(ibv_modify_qp(pair.left.qp.get(), &reset, IBV_QP_STATE));
  CHECK_OK(to_init(pair.left.qp.get(), kAll));
  CHECK_OK(to_rtr(bench.left, pair.left.qp.get(), bench.right, pair.right.qp->qp_num, bench.mtu()));
  CHECK_OK(to_rts(pair.left.qp.get()));
  constexpr std::uint64_t kMessages = 16;
  for (std::uint64_t i = 0; i < kMessages; ++i) CHECK_OK(pair.right.post_recv(i * 100, 100, 40 + i));
  first_post = wall_now();
  for (std::uint64_t i = 0; i < kMessages; ++i) CHECK_OK(pair.left.send(0, 60));
  std::uint64_t seen = 0;
  while (seen < kMessages) {
    cq.start();
    do {
      CHECK_EQ(cq.ex->wr_id, 40 + seen);
      CHECK_EQ(static_cast<int>(cq.ex->status), int{IBV_WC_SUCCESS});
      CHECK_EQ(static_cast<int>(ibv_wc_read_opcode(cq.ex)), int{IBV_WC_RECV});
      look(cq.ex, pair);
      ++seen;
    } while (ibv_next_poll(cq.ex) == 0);
    ibv_end_poll(cq.ex);
  }
  pair.right.qp = QpObject();
}

CONFORMANCE_CASE(cq_extended_polling, "ibv_create_cq_ex(3)") {
  check_extended(bench, IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_QP_NUM, 0, [](ibv_cq_ex* cq, const Pair& pair) {
    CHECK_EQ(ibv_wc_read_byte_len(cq), 60u);
    CHECK_EQ(ibv_wc_read_qp_num(cq), pair.right.qp->qp_num);
  });
}

CONFORMANCE_CASE(cq_extended_single_threaded, "ibv_create_cq_ex(3), IBV_CREATE_CQ_ATTR_SINGLE_THREADED") {
  check_extended(bench, IBV_WC_EX_WITH_BYTE_LEN, IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
                 [](ibv_cq_ex* cq, const Pair&) { CHECK_EQ(ibv_wc_read_byte_len(cq), 60u); });
}

CONFORMANCE_CASE(cq_extended_time_stamps, "ibv_create_cq_ex(3), IBV_WC_EX_WITH_COMPLETION_TIMESTAMP") {
  if (bench.right.extended.completion_timestamp_mask == 0) throw Skipped{"completion_timestamp_mask is 0"};
  static std::uint64_t last;
  last = 0;
  check_extended(bench, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, 0, [](ibv_cq_ex* cq, const Pair&) {
    const std::uint64_t now = ibv_wc_read_completion_ts(cq);
    CHECK(now != 0 && now >= last);
    last = now;
  });
}

CONFORMANCE_CASE(cq_extended_wall_clock, "ibv_create_cq_ex(3), IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK") {
  struct Stamp {
    std::int64_t stamp, read_at;
  };
  static std::vector<Stamp> stamps;  // checked after the poll, which holds the CQ
  stamps.clear();
  check_extended(bench, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK, 0, [](ibv_cq_ex* cq, const Pair&) {
    const auto stamp = static_cast<std::int64_t>(ibv_wc_read_completion_wallclock_ns(cq));
    stamps.push_back({stamp, wall_now()});
  });
  std::int64_t last = first_post;
  for (const Stamp& each : stamps) {
    CHECK(each.stamp >= last);
    CHECK(each.stamp <= each.read_at);
    CHECK(each.read_at - each.stamp < 3'000'000'000);
    last = each.stamp;
  }
}

CONFORMANCE_CASE(cq_extended_flow_tag, "ibv_create_cq_ex(3), IBV_WC_EX_WITH_FLOW_TAG") {
  check_extended(bench, IBV_WC_EX_WITH_FLOW_TAG, 0,
                 [](ibv_cq_ex* cq, const Pair&) { CHECK_EQ(ibv_wc_read_flow_tag(cq), 0u); });
}

CONFORMANCE_CASE(cq_extended_poll_of_an_empty_cq, "ibv_start_poll(3)") {
  ExtendedCq cq(bench.left, IBV_WC_STANDARD_FLAGS);
  ibv_poll_cq_attr attr{};
  CHECK_EQ(ibv_start_poll(cq.ex, &attr), ENOENT);
  attr.comp_mask = 1;
  CHECK(ibv_start_poll(cq.ex, &attr) != 0);
}

}  // namespace
}  // namespace conformance
