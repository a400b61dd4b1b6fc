// failing-calls DEVICE: reads the name of a control command from each line, makes its call, and prints the name
// with the errno that the call gave, or 0. `wq_event` waits for an asynchronous event of a work queue, and prints
// its number. What tests/e2e/pyverbs_calls.py cannot call.
#include "failing_calls.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "frames.h"

namespace conformance {
namespace {

Wq make_wq(Bench& bench, ibv_pd* pd, ibv_cq* cq) {
  ibv_wq_init_attr init{};
  init.wq_type = IBV_WQT_RQ;
  init.max_wr = 4;
  init.max_sge = 1;
  init.pd = pd;
  init.cq = cq;
  Wq wq(CHECK_MADE(ibv_create_wq(bench.right.context, &init)));
  ibv_wq_attr attr{};
  attr.attr_mask = IBV_WQ_ATTR_STATE;
  attr.wq_state = IBV_WQS_RDY;
  CHECK_OK(ibv_modify_wq(wq.get(), &attr));
  return wq;
}

/// A QP that passes all frames to one work queue.
struct Spreading {
  explicit Spreading(Bench& bench)
      : pd(make_pd(bench.right)),
        cq(make_cq(bench.right, 4)),
        buffer(pd.get(), 2048),
        wq(make_wq(bench, pd.get(), cq.get())),
        context(bench.right.context) {
    ibv_wq* only = wq.get();
    ibv_rwq_ind_table_init_attr init{};
    init.ind_tbl = &only;
    table = Table(CHECK_MADE(ibv_create_rwq_ind_table(context, &init)));
  }
  ibv_qp* make() {
    static std::uint8_t key[40] = {0x6d};
    ibv_qp_init_attr_ex init{};
    init.qp_type = IBV_QPT_RAW_PACKET;
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
    init.pd = pd.get();
    init.rwq_ind_tbl = table.get();
    init.rx_hash_conf = {IBV_RX_HASH_FUNC_TOEPLITZ, sizeof(key), key, IBV_RX_HASH_SRC_IPV4};
    return ibv_create_qp_ex(context, &init);
  }
  void post_receive() {
    ibv_sge sge = buffer.sge(0, buffer.size());
    ibv_recv_wr wr{1, nullptr, &sge, 1}, *bad;
    CHECK_OK(ibv_post_wq_recv(wq.get(), &wr, &bad));
  }

  Pd pd;
  Cq cq;
  Buffer buffer;
  Wq wq;
  Table table;
  ibv_context* context;
};

int create_rss(Bench& bench) {
  Spreading spreading(bench);
  QpObject qp(spreading.make());
  return errno_of(qp.get());
}
int destroy_rss(Bench& bench) {
  Spreading spreading(bench);
  QpObject qp(CHECK_MADE(spreading.make()));
  return errno_of(qp.destroy());
}

int wq_event(Bench& bench) {
  RawSide sender(bench.right);
  Spreading spreading(bench);
  QpObject qp(CHECK_MADE(spreading.make()));
  const Link link{mac_of(bench.right, bench.right), mac_of(bench.right, bench.right)};
  const Flow flow = Rule().add(to_mac(link.to, kExperimental)).apply(qp.get());
  spreading.post_receive();
  CHECK_OK(sender.send(link.frame(kExperimental, pattern(64))));
  const ibv_async_event event = wait_event(bench.right.context);
  CHECK(event.event_type != IBV_EVENT_WQ_FATAL || event.element.wq == spreading.wq.get());
  return event.event_type;
}

constexpr ibv_gid kGroup{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3}};
int attach_mcast(Bench& bench) {
  Side side(bench.right, IBV_QPT_UD, 64, {});
  CHECK_OK(to_init(side.qp.get(), 0));
  const int error = errno_of(ibv_attach_mcast(side.qp.get(), &kGroup, 0));
  if (error == 0) CHECK_OK(ibv_detach_mcast(side.qp.get(), &kGroup, 0));
  return error;
}
int detach_mcast(Bench& bench) {
  Side side(bench.right, IBV_QPT_UD, 64, {});
  CHECK_OK(to_init(side.qp.get(), 0));
  CHECK_OK(ibv_attach_mcast(side.qp.get(), &kGroup, 0));
  const int error = errno_of(ibv_detach_mcast(side.qp.get(), &kGroup, 0));
  if (error != 0) CHECK_OK(ibv_detach_mcast(side.qp.get(), &kGroup, 0));
  return error;
}

int open_qp(Bench& bench) {
  const Xrcd xrcd = make_xrcd(bench.right);
  const QpObject target = make_target(bench.right, xrcd.get());
  ibv_qp_open_attr attr{};
  attr.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  attr.qp_num = target->qp_num;
  attr.xrcd = xrcd.get();
  attr.qp_type = IBV_QPT_XRC_RECV;
  const QpObject opened(ibv_open_qp(bench.right.context, &attr));
  return errno_of(opened.get());
}

int alloc_null_mr(Bench& bench) {
  const Pd pd = make_pd(bench.right);
  const Mr mr(ibv_alloc_null_mr(pd.get()));
  return errno_of(mr.get());
}

int modify_cq(Bench& bench) {
  const Cq cq = make_cq(bench.right, 4);
  ibv_modify_cq_attr attr{IBV_CQ_ATTR_MODERATE, {4, 10}};
  return errno_of(ibv_modify_cq(cq.get(), &attr));
}

int resolve_neighbour(Bench& bench) {
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.dgid = bench.right.gid;
  attr.grh.sgid_index = static_cast<std::uint8_t>(bench.right.gid_index);
  std::uint8_t mac[6];
  return errno_of(ibv_resolve_eth_l2_from_gid(bench.right.context, &attr, mac, nullptr));
}

/// The objects that another context of the program imports.
template <class Import>
int import(Bench& bench, Import&& import) {
  const Pd pd = make_pd(bench.right);
  const Buffer buffer(pd.get(), 64);
  ibv_alloc_dm_attr attr{64, 0, 0};
  const Dm dm(CHECK_MADE(ibv_alloc_dm(bench.right.context, &attr)));
  ibv_context* const context = ibv_import_device(bench.right.context->cmd_fd);
  if (context == nullptr) return errno;
  const int error = import(context, pd.get(), buffer.mr(), dm.get());
  CHECK_OK(ibv_close_device(context));
  return error;
}
int import_device(Bench& bench) {
  return import(bench, [](auto...) { return 0; });
}
int import_pd(Bench& bench) {
  return import(bench, [](ibv_context* context, ibv_pd* pd, ibv_mr*, ibv_dm*) {
    ibv_pd* const imported = ibv_import_pd(context, pd->handle);
    if (imported == nullptr) return errno;
    ibv_unimport_pd(imported);
    return 0;
  });
}
int import_mr(Bench& bench) {
  return import(bench, [](ibv_context* context, ibv_pd* pd, ibv_mr* mr, ibv_dm*) {
    ibv_pd* const imported = CHECK_MADE(ibv_import_pd(context, pd->handle));
    ibv_mr* const region = ibv_import_mr(imported, mr->handle);
    const int error = errno_of(region);
    if (region != nullptr) ibv_unimport_mr(region);
    ibv_unimport_pd(imported);
    return error;
  });
}
int import_dm(Bench& bench) {
  return import(bench, [](ibv_context* context, ibv_pd*, ibv_mr*, ibv_dm* dm) {
    ibv_dm* const imported = ibv_import_dm(context, dm->handle);
    if (imported == nullptr) return errno;
    ibv_unimport_dm(imported);
    return 0;
  });
}

int create_counters(Bench& bench) {
  ibv_counters_init_attr init{};
  const Counters counters(ibv_create_counters(bench.right.context, &init));
  return errno_of(counters.get());
}
int destroy_counters_object(Bench& bench) {
  ibv_counters_init_attr init{};
  Counters counters(CHECK_MADE(ibv_create_counters(bench.right.context, &init)));
  return errno_of(counters.destroy());
}
int read_counters(Bench& bench) {
  RawSide side(bench.right);
  ibv_counters_init_attr init{};
  const Counters counters(CHECK_MADE(ibv_create_counters(bench.right.context, &init)));
  ibv_counter_attach_attr attr{};
  attr.counter_desc = IBV_COUNTER_PACKETS;
  CHECK_OK(ibv_attach_counters_point_flow(counters.get(), &attr, nullptr));
  ibv_flow_spec_counter_action action{};
  action.type = IBV_FLOW_SPEC_ACTION_COUNT;
  action.counters = counters.get();
  const Mac mac = mac_of(bench.right, bench.right);
  const Flow flow = Rule().add(to_mac(mac, kExperimental)).add(action).apply(side.qp.get());
  std::uint64_t value = 0;
  return errno_of(ibv_read_counters(counters.get(), &value, 1, 0));
}

int query_device(Bench& bench) {
  ibv_device_attr attr{};
  return errno_of(ibv_query_device(bench.right.context, &attr));
}
int query_port(Bench& bench) {
  ibv_port_attr attr{};
  return errno_of(ibv_query_port(bench.right.context, 1, &attr));
}
int query_gid(Bench& bench) {
  ibv_gid gid{};
  return errno_of(ibv_query_gid(bench.right.context, 1, 0, &gid));
}

}  // namespace

std::map<std::string, FailingCall> failing_verbs() {
  return {{"attach_mcast", attach_mcast},
          {"detach_mcast", detach_mcast},
          {"open_qp", open_qp},
          {"alloc_null_mr", alloc_null_mr},
          {"modify_cq", modify_cq},
          {"resolve_neighbour", resolve_neighbour},
          {"import_device", import_device},
          {"import_pd", import_pd},
          {"import_mr", import_mr},
          {"import_dm", import_dm},
          {"create_rss", create_rss},
          {"destroy_rss", destroy_rss},
          {"create_counters", create_counters},
          {"destroy_counters", destroy_counters_object},
          {"read_counters", read_counters},
          {"query_device", query_device},
          {"query_port", query_port},
          {"query_gid", query_gid},
          {"wq_event", wq_event}};
}

}  // namespace conformance

int main(int argc, char** argv) {
  using namespace conformance;
  if (argc != 2) return std::fputs("usage: failing-calls DEVICE\n", stderr), 2;
  try {
    Bench bench(argv[1], argv[1]);
    auto calls = failing_verbs();
    calls.merge(failing_connections());
    calls.merge(failing_counters());
    std::cout << "ready" << std::endl;
    for (std::string name; std::getline(std::cin, name);) {
      const int error = calls.at(name)(bench);
      const std::string leaks = take_leaks();
      if (!leaks.empty()) throw Failed{leaks};
      std::cout << name << ' ' << error << std::endl;
    }
    return 0;
  } catch (const Failed& failed) {
    std::cout << failed.what << std::endl;
  } catch (const Skipped& skipped) {
    std::cout << skipped.why << std::endl;
  } catch (const std::exception& error) {
    std::cout << error.what() << std::endl;
  }
  return 1;
}
