// Shared receive queues and XRC.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "fixtures.h"

namespace conformance {
namespace {

Srq make_srq(ibv_pd* pd, std::uint32_t entries, std::uint32_t sges = 1) {
  ibv_srq_init_attr init{};
  init.attr.max_wr = entries;
  init.attr.max_sge = sges;
  return Srq(CHECK_MADE(ibv_create_srq(pd, &init)));
}

/// Two connections that receive from one SRQ.
struct Shared {
  explicit Shared(Bench& bench, std::uint32_t entries = 16)
      : pd(make_pd(bench.right)),
        srq(make_srq(pd.get(), entries)),
        buffer(pd.get(), 65536),
        senders{Side(bench.left, IBV_QPT_RC, 4096, {}), Side(bench.left, IBV_QPT_RC, 4096, {})},
        receivers{Side(bench.right, IBV_QPT_RC, 64, with_srq(), pd.get()),
                  Side(bench.right, IBV_QPT_RC, 64, with_srq(), pd.get())} {
    for (int i = 0; i < 2; ++i) {
      CHECK_OK(to_init(senders[i].qp.get(), kAll));
      CHECK_OK(to_init(receivers[i].qp.get(), kAll));
      CHECK_OK(to_rtr(bench.left, senders[i].qp.get(), bench.right, receivers[i].qp->qp_num, bench.mtu()));
      CHECK_OK(to_rtr(bench.right, receivers[i].qp.get(), bench.left, senders[i].qp->qp_num, bench.mtu()));
      CHECK_OK(to_rts(senders[i].qp.get()));
      CHECK_OK(to_rts(receivers[i].qp.get()));
    }
  }
  QpOptions with_srq() const {
    QpOptions options;
    options.srq = srq.get();
    return options;
  }
  Pd pd;
  Srq srq;
  Buffer buffer;
  Side senders[2], receivers[2];
};

CONFORMANCE_CASE(srq_feeds_two_qps, "ibv_create_srq(3)") {
  Shared shared(bench);
  for (std::uint64_t i = 0; i < 4; ++i) CHECK_OK(post_srq_recv(shared.srq.get(), shared.buffer, i * 100, 100, i));
  for (int i = 0; i < 4; ++i) {
    CHECK_OK(shared.senders[i % 2].send(0, 50));
    const ibv_wc wc = wait_success(shared.receivers[i % 2].cq.get(), IBV_WC_RECV);
    CHECK_EQ(wc.wr_id, static_cast<std::uint64_t>(i));
    CHECK_EQ(wc.qp_num, shared.receivers[i % 2].qp->qp_num);
    wait_success(shared.senders[i % 2].cq.get(), IBV_WC_SEND);
  }
}

CONFORMANCE_CASE(srq_qp_has_no_receive_queue, "ibv_post_recv(3)") {
  Shared shared(bench);
  CHECK(shared.receivers[0].post_recv(0, 8) != 0);
}

CONFORMANCE_CASE(srq_full_is_refused, "ibv_post_srq_recv(3)") {
  const Pd pd = make_pd(bench.right);
  const Srq srq = make_srq(pd.get(), 4);
  Buffer buffer(pd.get(), 4096);
  ibv_srq_attr attr{};
  CHECK_OK(ibv_query_srq(srq.get(), &attr));
  CHECK(attr.max_wr >= 4);
  int error = 0;
  std::uint32_t posted = 0;
  for (; error == 0 && posted < attr.max_wr + 64; ++posted) error = post_srq_recv(srq.get(), buffer, 0, 8, posted);
  CHECK_EQ(error, ENOMEM);
}

CONFORMANCE_CASE(srq_limit_event_comes_once, "ibv_modify_srq(3), IBV_SRQ_LIMIT") {
  Shared shared(bench);
  for (std::uint64_t i = 0; i < 6; ++i) CHECK_OK(post_srq_recv(shared.srq.get(), shared.buffer, 0, 100, i));
  ibv_srq_attr attr{};
  attr.srq_limit = 4;
  CHECK_OK(ibv_modify_srq(shared.srq.get(), &attr, IBV_SRQ_LIMIT));
  CHECK_OK(ibv_query_srq(shared.srq.get(), &attr));
  CHECK_EQ(attr.srq_limit, 4u);
  for (int i = 0; i < 5; ++i) {
    CHECK_OK(shared.senders[0].send(0, 8));
    wait_success(shared.receivers[0].cq.get(), IBV_WC_RECV);
    wait_success(shared.senders[0].cq.get(), IBV_WC_SEND);
  }
  const ibv_async_event event = wait_event(bench.right.context);
  CHECK_EQ(static_cast<int>(event.event_type), static_cast<int>(IBV_EVENT_SRQ_LIMIT_REACHED));
  CHECK_EQ(event.element.srq, shared.srq.get());
  CHECK(!readable(bench.right.context->async_fd, 30));
  CHECK_OK(ibv_query_srq(shared.srq.get(), &attr));
  CHECK_EQ(attr.srq_limit, 0u);
}

CONFORMANCE_CASE(srq_last_wqe_reached, "IBTA vol. 1, 11.6.3.3") {
  Shared shared(bench);
  CHECK_OK(post_srq_recv(shared.srq.get(), shared.buffer, 0, 100, 1));
  CHECK_OK(to_error(shared.receivers[0].qp.get()));
  const ibv_async_event event = wait_event(bench.right.context);
  CHECK_EQ(static_cast<int>(event.event_type), static_cast<int>(IBV_EVENT_QP_LAST_WQE_REACHED));
  CHECK_EQ(event.element.qp, shared.receivers[0].qp.get());
  // The posted receives remain for the other QP.
  CHECK_OK(shared.senders[1].send(0, 8));
  CHECK_EQ(wait_success(shared.receivers[1].cq.get(), IBV_WC_RECV).wr_id, 1u);
  wait_success(shared.senders[1].cq.get(), IBV_WC_SEND);
}

CONFORMANCE_CASE(srq_empty_is_not_ready, "IBTA vol. 1, 10.2.9") {
  Shared shared(bench);
  CHECK_OK(shared.senders[0].send(0, 8));
  CHECK(stays_empty(shared.senders[0].cq.get(), std::chrono::milliseconds(10)));
  CHECK_OK(post_srq_recv(shared.srq.get(), shared.buffer, 0, 100, 5));
  CHECK_EQ(wait_success(shared.receivers[0].cq.get(), IBV_WC_RECV).wr_id, 5u);
  wait_success(shared.senders[0].cq.get(), IBV_WC_SEND);
}

CONFORMANCE_CASE(srq_resize, "ibv_modify_srq(3), IBV_SRQ_MAX_WR") {
  if ((bench.right.attr.device_cap_flags & IBV_DEVICE_SRQ_RESIZE) == 0) throw Skipped{"no IBV_DEVICE_SRQ_RESIZE"};
  Shared shared(bench, 4);
  for (std::uint64_t i = 0; i < 3; ++i) CHECK_OK(post_srq_recv(shared.srq.get(), shared.buffer, 0, 100, i));
  ibv_srq_attr attr{};
  attr.max_wr = 64;
  CHECK_OK(ibv_modify_srq(shared.srq.get(), &attr, IBV_SRQ_MAX_WR));
  CHECK_OK(ibv_query_srq(shared.srq.get(), &attr));
  CHECK(attr.max_wr >= 64);
  for (std::uint64_t i = 3; i < 40; ++i) CHECK_OK(post_srq_recv(shared.srq.get(), shared.buffer, 0, 100, i));
  for (std::uint64_t i = 0; i < 40; ++i) {
    CHECK_OK(shared.senders[0].send(0, 8));
    CHECK_EQ(wait_success(shared.receivers[0].cq.get(), IBV_WC_RECV).wr_id, i);
    wait_success(shared.senders[0].cq.get(), IBV_WC_SEND);
  }
}

CONFORMANCE_CASE(srq_in_use_is_not_destroyed, "ibv_destroy_srq(3)") {
  Shared shared(bench);
  CHECK(shared.srq.destroy() != 0);
}

CONFORMANCE_CASE(srq_posted_by_several_threads, "ibv_post_srq_recv(3); libibverbs is thread-safe") {
  constexpr std::uint64_t kEach = 50;
  Shared shared(bench, 4 * kEach);
  std::vector<std::thread> threads;
  int errors[4] = {};
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < kEach; ++i)
        errors[t] |= post_srq_recv(shared.srq.get(), shared.buffer, 0, 64, t * kEach + i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int error : errors) CHECK_EQ(error, 0);
  std::vector<bool> seen(4 * kEach);
  for (std::uint64_t i = 0; i < 4 * kEach; ++i) {
    CHECK_OK(shared.senders[0].send(0, 8));
    const ibv_wc wc = wait_success(shared.receivers[0].cq.get(), IBV_WC_RECV);
    wait_success(shared.senders[0].cq.get(), IBV_WC_SEND);
    CHECK(wc.wr_id < seen.size() && !seen[wc.wr_id]);
    seen[wc.wr_id] = true;
  }
}

/// An initiator, and a target with two SRQs.
struct Xrc {
  explicit Xrc(Bench& bench, std::uint64_t operations = 0)
      : left_pd(make_pd(bench.left)),
        left_cq(make_cq(bench.left, 64)),
        source(left_pd.get(), 8192),
        right_pd(make_pd(bench.right)),
        right_cq(make_cq(bench.right, 64)),
        buffer(right_pd.get(), 8192),
        xrcd(make_xrcd(bench.right)),
        first(make_xrc_srq(bench.right, right_pd.get(), xrcd.get(), right_cq.get())),
        second(make_xrc_srq(bench.right, right_pd.get(), xrcd.get(), right_cq.get())),
        initiator(make_initiator(bench.left, left_pd.get(), left_cq.get(), operations)),
        target(make_target(bench.right, xrcd.get())) {
    CHECK_OK(to_init(initiator.get(), kAll));
    CHECK_OK(to_init(target.get(), kAll));
    CHECK_OK(to_rtr(bench.left, initiator.get(), bench.right, target->qp_num, bench.mtu()));
    CHECK_OK(to_rtr(bench.right, target.get(), bench.left, initiator->qp_num, bench.mtu()));
    CHECK_OK(to_rts(initiator.get()));
    CHECK_OK(to_rts(target.get()));
  }
  int send(std::uint32_t srqn, std::size_t bytes, ibv_wr_opcode opcode = IBV_WR_SEND) {
    ibv_sge sge = source.sge(0, bytes);
    ibv_send_wr *bad, wr = request(opcode, sge);
    wr.wr.rdma = {buffer.address(4096), buffer.rkey()};
    wr.qp_type.xrc.remote_srqn = srqn;
    return ibv_post_send(initiator.get(), &wr, &bad);
  }
  Pd left_pd;
  Cq left_cq;
  Buffer source;
  Pd right_pd;
  Cq right_cq;
  Buffer buffer;
  Xrcd xrcd;
  Srq first, second;
  QpObject initiator, target;
};

std::uint32_t number_of(const Srq& srq) {
  std::uint32_t number = 0;
  CHECK_OK(ibv_get_srq_num(srq.get(), &number));
  return number;
}

CONFORMANCE_CASE(xrc_message_names_its_srq, "IBTA vol. 1, annex A14; ibv_create_srq_ex(3)") {
  Xrc xrc(bench);
  xrc.source.fill(6);
  CHECK_OK(post_srq_recv(xrc.first.get(), xrc.buffer, 0, 1000, 1));
  CHECK_OK(post_srq_recv(xrc.second.get(), xrc.buffer, 1000, 1000, 2));
  CHECK_OK(xrc.send(number_of(xrc.second), 900));
  CHECK_EQ(wait_success(xrc.right_cq.get(), IBV_WC_RECV).wr_id, 2u);
  wait_success(xrc.left_cq.get(), IBV_WC_SEND);
  CHECK(xrc.buffer.holds(6, 1000, 900, 0));
  CHECK_OK(xrc.send(number_of(xrc.first), 100));
  CHECK_EQ(wait_success(xrc.right_cq.get(), IBV_WC_RECV).wr_id, 1u);
  wait_success(xrc.left_cq.get(), IBV_WC_SEND);
}

CONFORMANCE_CASE(xrc_write_and_read, "IBTA vol. 1, annex A14") {
  Xrc xrc(bench);
  xrc.source.fill(8);
  CHECK_OK(xrc.send(number_of(xrc.first), 2000, IBV_WR_RDMA_WRITE));
  wait_success(xrc.left_cq.get(), IBV_WC_RDMA_WRITE);
  CHECK(xrc.buffer.holds(8, 4096, 2000, 0));
  std::memset(xrc.source.data(), 0, 2000);
  CHECK_OK(xrc.send(number_of(xrc.first), 2000, IBV_WR_RDMA_READ));
  wait_success(xrc.left_cq.get(), IBV_WC_RDMA_READ);
  CHECK(xrc.source.holds(8, 0, 2000, 0));
}

CONFORMANCE_CASE(xrc_inline, "ibv_post_send(3), IBV_SEND_INLINE") {
  Xrc xrc(bench);
  CHECK_OK(post_srq_recv(xrc.first.get(), xrc.buffer, 0, 100, 1));
  char text[] = "inline";
  ibv_sge sge{reinterpret_cast<std::uintptr_t>(text), sizeof(text), 0};
  ibv_send_wr *bad, wr = request(IBV_WR_SEND, sge);
  wr.send_flags |= IBV_SEND_INLINE;
  wr.qp_type.xrc.remote_srqn = number_of(xrc.first);
  CHECK_OK(ibv_post_send(xrc.initiator.get(), &wr, &bad));
  std::memset(text, 0, sizeof(text));
  CHECK_EQ(wait_success(xrc.right_cq.get(), IBV_WC_RECV).byte_len, sizeof(text));
  wait_success(xrc.left_cq.get(), IBV_WC_SEND);
  CHECK(std::memcmp(xrc.buffer.data(), "inline", sizeof(text)) == 0);
}

CONFORMANCE_CASE(xrc_wr_names_its_srq, "ibv_wr_post(3), ibv_wr_set_xrc_srqn") {
  Xrc xrc(bench, IBV_QP_EX_WITH_SEND);
  xrc.source.fill(9);
  CHECK_OK(post_srq_recv(xrc.first.get(), xrc.buffer, 0, 1000, 1));
  CHECK_OK(post_srq_recv(xrc.second.get(), xrc.buffer, 1000, 1000, 2));
  ibv_qp_ex* const qp = ibv_qp_to_qp_ex(xrc.initiator.get());
  for (const Srq* srq : {&xrc.second, &xrc.first}) {
    ibv_wr_start(qp);
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(qp);
    ibv_wr_set_xrc_srqn(qp, number_of(*srq));
    ibv_wr_set_sge(qp, xrc.source.mr()->lkey, xrc.source.address(), 300);
    CHECK_EQ(ibv_wr_complete(qp), 0);
    CHECK_EQ(wait_success(xrc.right_cq.get(), IBV_WC_RECV).wr_id, srq == &xrc.first ? 1u : 2u);
    wait_success(xrc.left_cq.get(), IBV_WC_SEND);
  }
  CHECK(xrc.buffer.holds(9, 0, 300, 0));
  CHECK(xrc.buffer.holds(9, 1000, 300, 0));
}

CONFORMANCE_CASE(xrc_unknown_srq, "IBTA vol. 1, annex A14") {
  Xrc xrc(bench);
  const std::uint32_t gone = number_of(xrc.second);
  CHECK_OK(xrc.second.destroy());
  CHECK_OK(xrc.send(gone, 8));
  CHECK(wait(xrc.left_cq.get()).status != IBV_WC_SUCCESS);
}

CONFORMANCE_CASE(xrc_domain_of_a_file, "ibv_open_xrcd(3)") {
  char path[] = "/tmp/conformance-XXXXXX";
  const int fd = mkstemp(path);
  CHECK(fd >= 0);
  unlink(path);
  ibv_xrcd_init_attr init{};
  init.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  init.fd = fd;
  init.oflags = 0;
  CHECK(ibv_open_xrcd(bench.right.context, &init) == nullptr);  // it does not exist, and O_CREAT is not set
  const int reason = errno;
  if (reason == EOPNOTSUPP) {
    close(fd);
    throw Skipped{"ibv_open_xrcd: EOPNOTSUPP"};
  }
  Xrcd first = make_xrcd(bench.right, fd);
  Xrcd again = make_xrcd(bench.right, fd, 0);
  init.oflags = O_CREAT | O_EXCL;
  CHECK(ibv_open_xrcd(bench.right.context, &init) == nullptr);
  close(fd);
}

CONFORMANCE_CASE(xrc_target_opened_again, "ibv_open_qp(3)") {
  Xrc xrc(bench);
  ibv_qp_open_attr attr{};
  attr.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  attr.qp_num = xrc.target->qp_num;
  attr.xrcd = xrc.xrcd.get();
  attr.qp_type = IBV_QPT_XRC_RECV;
  QpObject opened(CHECK_MADE(ibv_open_qp(bench.right.context, &attr)));
  CHECK_EQ(opened->qp_num, xrc.target->qp_num);
  // It exists as long as one process has it open.
  CHECK_OK(xrc.target.destroy());
  CHECK_OK(post_srq_recv(xrc.first.get(), xrc.buffer, 0, 100, 1));
  CHECK_OK(xrc.send(number_of(xrc.first), 8));
  wait_success(xrc.right_cq.get(), IBV_WC_RECV);
  wait_success(xrc.left_cq.get(), IBV_WC_SEND);
}

CONFORMANCE_CASE(xrc_domain_in_use_is_not_closed, "ibv_close_xrcd(3)") {
  Xrc xrc(bench);
  CHECK(ibv_close_xrcd(xrc.xrcd.get()) != 0);
}

}  // namespace
}  // namespace conformance
