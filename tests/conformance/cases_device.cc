// Attributes of the device and its port, thread domains and parent domains, and invalid calls.
#include <unistd.h>

#include <cstring>

#include "fixtures.h"

namespace conformance {
namespace {

CONFORMANCE_CASE(device_has_limits, "ibv_query_device(3)") {
  const ibv_device_attr& attr = bench.left.attr;
  CHECK(attr.max_qp > 0 && attr.max_qp_wr > 0 && attr.max_sge > 0 && attr.max_cq > 0 && attr.max_cqe > 0);
  CHECK(attr.max_mr > 0 && attr.max_pd > 0 && attr.max_mr_size >= 1u << 20);
  CHECK(attr.phys_port_cnt >= 1 && attr.max_pkeys >= 1);
  CHECK((attr.page_size_cap & 4096) != 0);
}

CONFORMANCE_CASE(device_has_a_guid, "ibv_get_device_guid(3)") {
  CHECK(ibv_get_device_guid(bench.left.context->device) != 0);
  CHECK(bench.left.attr.node_guid != 0);
  CHECK(bench.left.attr.sys_image_guid != 0);
}

CONFORMANCE_CASE(device_extended_query_agrees, "ibv_query_device_ex(3)") {
  ibv_device_attr_ex extended{};
  CHECK_OK(ibv_query_device_ex(bench.left.context, nullptr, &extended));
  CHECK_EQ(extended.orig_attr.max_qp, bench.left.attr.max_qp);
  CHECK_EQ(extended.orig_attr.max_cqe, bench.left.attr.max_cqe);
}

CONFORMANCE_CASE(port_is_active, "ibv_query_port(3)") {
  const ibv_port_attr& port = bench.left.port;
  CHECK_EQ(static_cast<int>(port.state), int{IBV_PORT_ACTIVE});
  CHECK_EQ(int{port.link_layer}, int{IBV_LINK_LAYER_ETHERNET});
  CHECK(port.active_mtu >= IBV_MTU_256 && port.active_mtu <= port.max_mtu);
  CHECK((port.flags & IBV_QPF_GRH_REQUIRED) != 0);  // RoCE has no LIDs
  CHECK(port.gid_tbl_len > 0 && port.pkey_tbl_len > 0 && port.max_msg_sz >= 1u << 20);
  ibv_port_attr none{};
  CHECK(ibv_query_port(bench.left.context, 0, &none) != 0);
  CHECK(ibv_query_port(bench.left.context, static_cast<std::uint8_t>(bench.left.attr.phys_port_cnt + 1), &none) !=
        0);
}

CONFORMANCE_CASE(port_gid_table, "ibv_query_gid_table(3)") {
  std::vector<ibv_gid_entry> entries(static_cast<std::size_t>(bench.left.port.gid_tbl_len));
  const ssize_t count = ibv_query_gid_table(bench.left.context, entries.data(), entries.size(), 0);
  CHECK(count > 0);
  bool found = false;
  for (ssize_t i = 0; i < count; ++i) {
    const ibv_gid_entry& entry = entries[static_cast<std::size_t>(i)];
    found |= std::memcmp(entry.gid.raw, bench.left.gid.raw, 16) == 0;
    ibv_gid same{};
    CHECK_EQ(ibv_query_gid(bench.left.context, 1, static_cast<int>(entry.gid_index), &same), 0);
    CHECK(std::memcmp(entry.gid.raw, same.raw, 16) == 0);
  }
  CHECK(found);
  ibv_gid none{};
  CHECK(ibv_query_gid(bench.left.context, 1, bench.left.port.gid_tbl_len, &none) != 0);
}

CONFORMANCE_CASE(port_gid_past_the_end_of_the_table, "ibv_query_gid_ex(3)") {
  const auto end = static_cast<std::uint32_t>(bench.left.port.gid_tbl_len);
  ibv_gid_entry entry{};
  for (const std::uint32_t index : {end, end + 1, 0x10000u, ~0u}) {
    CHECK_EQ(ibv_query_gid_ex(bench.left.context, 1, index, &entry, 0), EINVAL);
  }
  // An index that is not used has a code of its own.
  for (std::uint32_t index = 0; index < end; ++index) {
    const int error = ibv_query_gid_ex(bench.left.context, 1, index, &entry, 0);
    CHECK(error == 0 || error == ENODATA);
  }
  for (const std::uint32_t port : {0u, bench.left.attr.phys_port_cnt + 1u}) {
    CHECK_EQ(ibv_query_gid_ex(bench.left.context, port, 0, &entry, 0), EINVAL);
  }
  ibv_gid none{};
  for (const int index : {static_cast<int>(end), -1})
    CHECK(ibv_query_gid(bench.left.context, 1, index, &none) != 0);
}

CONFORMANCE_CASE(port_default_pkey, "IBTA annex A17.7.1; ibv_get_pkey_index(3)") {
  __be16 key = 0;
  CHECK_EQ(ibv_query_pkey(bench.left.context, 1, 0, &key), 0);
  CHECK_EQ(key, htobe16(0xffff));
  CHECK_EQ(ibv_get_pkey_index(bench.left.context, 1, htobe16(0xffff)), 0);
  CHECK(ibv_get_pkey_index(bench.left.context, 1, htobe16(0x1234)) < 0);
}

CONFORMANCE_CASE(device_clock_runs, "ibv_query_rt_values_ex(3)") {
  ibv_values_ex values{};
  values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  CHECK_OK(ibv_query_rt_values_ex(bench.left.context, &values));
  const timespec first = values.raw_clock;
  values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  CHECK_OK(ibv_query_rt_values_ex(bench.left.context, &values));
  const timespec& second = values.raw_clock;
  CHECK(second.tv_sec > first.tv_sec || (second.tv_sec == first.tv_sec && second.tv_nsec >= first.tv_nsec));
}

CONFORMANCE_CASE(qp_type_that_nobody_has, "ibv_create_qp(3)") {
  Side side(bench.left, IBV_QPT_RC, 64, {});
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = side.cq.get();
  init.cap = {1, 1, 1, 1, 0};
  init.qp_type = static_cast<ibv_qp_type>(77);
  CHECK(ibv_create_qp(side.pd, &init) == nullptr);
}

CONFORMANCE_CASE(qp_larger_than_the_device, "ibv_create_qp(3)") {
  Side side(bench.left, IBV_QPT_RC, 64, {});
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = side.cq.get();
  init.qp_type = IBV_QPT_RC;
  init.cap = {static_cast<std::uint32_t>(bench.left.attr.max_qp_wr) + 1, 1, 1, 1, 0};
  CHECK(ibv_create_qp(side.pd, &init) == nullptr);
  init.cap = {1, 1, static_cast<std::uint32_t>(bench.left.attr.max_sge) + 1, 1, 0};
  CHECK(ibv_create_qp(side.pd, &init) == nullptr);
}

CONFORMANCE_CASE(qp_of_the_largest_size, "ibv_query_device(3), max_qp_wr, max_sge") {
  QpOptions options;
  options.send_wr = options.recv_wr = static_cast<std::uint32_t>(bench.left.attr.max_qp_wr);
  options.send_sge = options.recv_sge = 1;
  { Side side(bench.left, IBV_QPT_RC, 64, options); }
  options.send_wr = options.recv_wr = 1;
  options.send_sge = options.recv_sge = static_cast<std::uint32_t>(bench.left.attr.max_sge);
  Side side(bench.left, IBV_QPT_RC, 64, options);
}

CONFORMANCE_CASE(qp_granted_at_least_what_was_asked, "ibv_create_qp(3)") {
  QpOptions options;
  options.send_wr = 33;
  options.inline_bytes = 20;
  Side side(bench.left, IBV_QPT_RC, 64, options);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  CHECK_OK(ibv_query_qp(side.qp.get(), &attr, IBV_QP_CAP | IBV_QP_STATE, &init));
  CHECK(init.cap.max_send_wr >= 33 && init.cap.max_inline_data >= 20 && init.cap.max_recv_sge >= 2);
  CHECK_EQ(static_cast<int>(attr.qp_state), int{IBV_QPS_RESET});
  CHECK_EQ(init.send_cq, side.cq.get());
}

CONFORMANCE_CASE(qp_query_says_what_was_set, "ibv_query_qp(3)") {
  Pair pair(bench);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  CHECK_OK(
      ibv_query_qp(pair.left.qp.get(), &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_PATH_MTU, &init));
  CHECK_EQ(static_cast<int>(attr.qp_state), int{IBV_QPS_RTS});
  CHECK_EQ(attr.dest_qp_num, pair.right.qp->qp_num);
  CHECK_EQ(static_cast<int>(attr.path_mtu), static_cast<int>(bench.mtu()));
  CHECK(std::memcmp(attr.ah_attr.grh.dgid.raw, bench.right.gid.raw, 16) == 0);
  CHECK_EQ(int{attr.retry_cnt}, 7);
}

CONFORMANCE_CASE(qp_query_gives_back_the_whole_address_vector, "ibv_query_qp(3), ah_attr") {
  Side side(bench.left, IBV_QPT_RC, 64, {});
  CHECK_OK(to_init(side.qp.get(), kAll));
  CHECK_OK(to_rtr(bench.left, side.qp.get(), bench.right, 1, bench.mtu()));
  CHECK_OK(to_rts(side.qp.get()));
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  // The path of a QP may be changed after it was drained (SQD).
  attr.qp_state = IBV_QPS_SQD;
  CHECK_OK(ibv_modify_qp(side.qp.get(), &attr, IBV_QP_STATE));
  CHECK_OK(ibv_query_qp(side.qp.get(), &attr, IBV_QP_AV, &init));
  attr.ah_attr.static_rate = IBV_RATE_10_GBPS;
  attr.ah_attr.src_path_bits = 1;
  attr.ah_attr.sl = 3;
  attr.ah_attr.grh.traffic_class = 104;
  const ibv_ah_attr given = attr.ah_attr;
  attr.qp_state = IBV_QPS_SQD;
  CHECK_OK(ibv_modify_qp(side.qp.get(), &attr, IBV_QP_STATE | IBV_QP_AV));
  attr = {};
  CHECK_OK(ibv_query_qp(side.qp.get(), &attr, IBV_QP_AV, &init));
  CHECK_EQ(int{attr.ah_attr.static_rate}, int{given.static_rate});
  CHECK_EQ(int{attr.ah_attr.src_path_bits}, int{given.src_path_bits});
  CHECK_EQ(int{attr.ah_attr.sl}, int{given.sl});
  CHECK_EQ(int{attr.ah_attr.grh.traffic_class}, int{given.grh.traffic_class});
  CHECK(std::memcmp(attr.ah_attr.grh.dgid.raw, given.grh.dgid.raw, 16) == 0);
}

CONFORMANCE_CASE(qp_transition_that_is_none, "ibv_modify_qp(3); IBTA vol. 1, 10.3") {
  Side side(bench.left, IBV_QPT_RC, 64, {});
  CHECK(to_rts(side.qp.get()) != 0);
  CHECK(to_rtr(bench.left, side.qp.get(), bench.right, 1, bench.mtu()) != 0);
  CHECK_OK(to_init(side.qp.get(), kAll));
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;  // required attributes are missing
  CHECK(ibv_modify_qp(side.qp.get(), &attr, IBV_QP_STATE) != 0);
  // The state has not changed.
  ibv_qp_init_attr init{};
  CHECK_OK(ibv_query_qp(side.qp.get(), &attr, IBV_QP_STATE, &init));
  CHECK_EQ(static_cast<int>(attr.qp_state), int{IBV_QPS_INIT});
}

CONFORMANCE_CASE(domain_of_a_thread, "ibv_alloc_td(3); ibv_alloc_parent_domain(3)") {
  ibv_td_init_attr td_init{};
  Td td(CHECK_MADE(ibv_alloc_td(bench.left.context, &td_init)));
  Pd pd = make_pd(bench.left);
  ibv_parent_domain_init_attr init{};
  init.pd = pd.get();
  init.td = td.get();
  const Pd parent(CHECK_MADE(ibv_alloc_parent_domain(bench.left.context, &init)));
  CHECK(ibv_dealloc_td(td.get()) != 0);  // in use
  CHECK(pd.destroy() != 0);
  Side alone(bench.left, IBV_QPT_RC, 4096, {}, parent.get());
  Side peer(bench.right, IBV_QPT_RC, 4096, {});
  connect(bench, alone, peer);
  CHECK_OK(peer.post_recv(0, 64));
  CHECK_OK(alone.send(0, 64));
  wait_success(alone.cq.get(), IBV_WC_SEND);
  wait_success(peer.cq.get(), IBV_WC_RECV);
}

struct ParentDomain {
  explicit ParentDomain(const End& end) : base(make_pd(end)) {
    ibv_parent_domain_init_attr init{};
    init.pd = base.get();
    parent = Pd(CHECK_MADE(ibv_alloc_parent_domain(end.context, &init)));
  }
  Pd base, parent;
};

CONFORMANCE_CASE(domain_of_a_thread_with_allocators, "ibv_alloc_parent_domain(3), IBV_ALLOCATOR_USE_DEFAULT") {
  Pd base = make_pd(bench.left);
  ibv_parent_domain_init_attr init{};
  init.pd = base.get();
  init.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
  init.alloc = [](ibv_pd*, void*, std::size_t, std::size_t, std::uint64_t) { return IBV_ALLOCATOR_USE_DEFAULT; };
  init.free = [](ibv_pd*, void*, void*, std::uint64_t) { add_leak("what it did not give is not its to free"); };
  const Pd parent(CHECK_MADE(ibv_alloc_parent_domain(bench.left.context, &init)));
  Side side(bench.left, IBV_QPT_RC, 4096, {}, parent.get()), peer(bench.right, IBV_QPT_RC, 4096, {});
  connect(bench, side, peer);
  CHECK_OK(side.write(0, 64, peer.buffer.address(), peer.buffer.rkey()));
  wait_success(side.cq.get(), IBV_WC_RDMA_WRITE);
}

CONFORMANCE_CASE(domain_of_a_thread_is_its_base, "ibv_alloc_parent_domain(3); ibv_bind_mw(3)") {
  const ParentDomain domain(bench.left);
  Side side(bench.left, IBV_QPT_RC, 4096, {}, domain.parent.get());
  Side peer(bench.right, IBV_QPT_RC, 4096, {});
  connect(bench, side, peer);
  // The window and the region are in the base PD, the QP is in the parent domain.
  Buffer buffer(domain.base.get(), 4096, kAll | IBV_ACCESS_MW_BIND);
  const Mw mw(CHECK_MADE(ibv_alloc_mw(domain.base.get(), IBV_MW_TYPE_1)));
  ibv_mw_bind bind{};
  bind.send_flags = IBV_SEND_SIGNALED;
  bind.bind_info = {buffer.mr(), buffer.address(), 4096, IBV_ACCESS_REMOTE_WRITE};
  CHECK_OK(ibv_bind_mw(side.qp.get(), mw.get(), &bind));
  wait_success(side.cq.get(), IBV_WC_BIND_MW);
  peer.buffer.fill(5);
  CHECK_OK(peer.write(0, 64, buffer.address(), mw->rkey));
  wait_success(peer.cq.get(), IBV_WC_RDMA_WRITE);
  CHECK(buffer.holds(5, 0, 64, 0));
  // A window of another PD can't be bound by this QP.
  const Pd other = make_pd(bench.left);
  const Mw foreign(CHECK_MADE(ibv_alloc_mw(other.get(), IBV_MW_TYPE_1)));
  CHECK_EQ(ibv_bind_mw(side.qp.get(), foreign.get(), &bind), EPERM);
}

CONFORMANCE_CASE(domain_of_a_thread_counts_its_users, "ibv_dealloc_pd(3); ibv_create_cq_ex(3), parent_domain") {
  ParentDomain domain(bench.left);
  ibv_cq_init_attr_ex init{};
  init.cqe = 16;
  init.wc_flags = IBV_WC_STANDARD_FLAGS;
  init.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  init.parent_domain = domain.parent.get();
  Cq cq(ibv_cq_ex_to_cq(CHECK_MADE(ibv_create_cq_ex(bench.left.context, &init))));
  CHECK(domain.parent.destroy() != 0);
  CHECK_OK(cq.destroy());
  Mw mw(CHECK_MADE(ibv_alloc_mw(domain.parent.get(), IBV_MW_TYPE_1)));
  CHECK(domain.parent.destroy() != 0);
  CHECK_OK(mw.destroy());
  Ah ah = make_ah(bench.left, domain.parent.get(), bench.right);
  CHECK(domain.parent.destroy() != 0);
  CHECK_OK(ah.destroy());
  CHECK_OK(domain.parent.destroy());
}

CONFORMANCE_CASE(device_imported, "ibv_import_device(3); ibv_import_pd(3); ibv_import_mr(3)") {
  Pair pair(bench);
  const int fd = dup(bench.right.context->cmd_fd);
  CHECK(fd >= 0);
  ibv_context* const context = ibv_import_device(fd);
  if (context == nullptr && errno == EOPNOTSUPP) throw Skipped{"ibv_import_device: not supported"};
  CHECK(context != nullptr);
  ibv_pd* const pd = CHECK_MADE(ibv_import_pd(context, pair.right.pd->handle));
  ibv_mr* const mr = CHECK_MADE(ibv_import_mr(pd, pair.right.buffer.mr()->handle));
  CHECK_EQ(mr->rkey, pair.right.buffer.rkey());
  CHECK_EQ(mr->length, pair.right.buffer.size());
  ibv_unimport_mr(mr);
  ibv_unimport_pd(pd);
  CHECK_EQ(ibv_close_device(context), 0);
  // The imported objects still belong to their owner.
  CHECK_OK(pair.left.write(0, 8, pair.right.buffer.address(), pair.right.buffer.rkey()));
  wait_success(pair.left.cq.get(), IBV_WC_RDMA_WRITE);
  close(fd);
}

CONFORMANCE_CASE(device_memory_imported, "ibv_import_dm(3)") {
  ibv_alloc_dm_attr attr{100, 0, 0};
  Dm dm(CHECK_MADE(ibv_alloc_dm(bench.right.context, &attr)));
  ibv_context* const context = CHECK_MADE(ibv_import_device(bench.right.context->cmd_fd));
  ibv_dm* const imported = CHECK_MADE(ibv_import_dm(context, dm->handle));
  std::uint32_t word = 0x01020304, seen = 0;
  CHECK_OK(ibv_memcpy_to_dm(imported, 96, &word, sizeof(word)));
  CHECK_OK(ibv_memcpy_from_dm(&seen, dm.get(), 96, sizeof(seen)));
  CHECK_EQ(seen, word);
  CHECK(ibv_memcpy_to_dm(imported, 97, &word, sizeof(word)) != 0);
  ibv_unimport_dm(imported);
  const std::uint32_t handle = dm->handle;
  CHECK_OK(dm.destroy());
  CHECK(ibv_import_dm(context, handle) == nullptr);
  CHECK_EQ(ibv_close_device(context), 0);
}

CONFORMANCE_CASE(ece_that_is_queried_can_be_set, "ibv_query_ece(3); ibv_set_ece(3)") {
  Side side(bench.left, IBV_QPT_RC, 64, {});
  ibv_ece ece{};
  const int error = ibv_query_ece(side.qp.get(), &ece);
  if (error == EOPNOTSUPP) {  // a device without such options has neither call
    CHECK_EQ(ibv_set_ece(side.qp.get(), &ece), EOPNOTSUPP);
    return;
  }
  CHECK_EQ(error, 0);
  CHECK(ece.vendor_id != 0);  // rdma_set_local_ece(3) takes no other
  CHECK_OK(ibv_set_ece(side.qp.get(), &ece));
  ece.comp_mask = 1;
  CHECK(ibv_set_ece(side.qp.get(), &ece) != 0);
}

CONFORMANCE_CASE(qp_data_in_order, "ibv_query_qp_data_in_order(3)") {
  Side side(bench.left, IBV_QPT_RC, 64, {});
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_RDMA_READ}) {
    const int promised = ibv_query_qp_data_in_order(side.qp.get(), opcode, 0);
    CHECK(promised == 0 || promised == 1);
  }
  CHECK_EQ(ibv_query_qp_data_in_order(side.qp.get(), static_cast<ibv_wr_opcode>(99), 0), 0);
}

/// Waits for this event of this QP, and ignores others.
void expect_event(ibv_context* context, ibv_event_type type, const QpObject& qp) {
  for (;;) {
    const ibv_async_event event = wait_event(context);
    if (event.event_type == type && event.element.qp == qp.get()) return;
  }
}

CONFORMANCE_CASE(event_communication_established, "ibv_get_async_event(3), IBV_EVENT_COMM_EST") {
  Side left(bench.left, IBV_QPT_RC, 64, {}), right(bench.right, IBV_QPT_RC, 64, {});
  CHECK_OK(to_init(left.qp.get(), kAll));
  CHECK_OK(to_init(right.qp.get(), kAll));
  CHECK_OK(to_rtr(bench.left, left.qp.get(), bench.right, right.qp->qp_num, bench.mtu()));
  CHECK_OK(to_rtr(bench.right, right.qp.get(), bench.left, left.qp->qp_num, bench.mtu()));
  CHECK_OK(to_rts(left.qp.get()));
  CHECK_OK(left.write(0, 8, right.buffer.address(), right.buffer.rkey()));
  wait_success(left.cq.get(), IBV_WC_RDMA_WRITE);
  expect_event(bench.right.context, IBV_EVENT_COMM_EST, right.qp);
}

CONFORMANCE_CASE(event_send_queue_drained, "ibv_modify_qp(3), IBV_QP_EN_SQD_ASYNC_NOTIFY") {
  Pair pair(bench);
  for (int i = 0; i < 8; ++i) {
    CHECK_OK(pair.left.write(0, 4096, pair.right.buffer.address(), pair.right.buffer.rkey()));
  }
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_SQD;
  attr.en_sqd_async_notify = 1;
  CHECK_OK(ibv_modify_qp(pair.left.qp.get(), &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
  expect_event(bench.left.context, IBV_EVENT_SQ_DRAINED, pair.left.qp);
  ibv_qp_init_attr init{};
  CHECK_OK(ibv_query_qp(pair.left.qp.get(), &attr, IBV_QP_STATE, &init));
  CHECK_EQ(static_cast<int>(attr.qp_state), int{IBV_QPS_SQD});
}

CONFORMANCE_CASE(event_access_error, "ibv_get_async_event(3), IBV_EVENT_QP_ACCESS_ERR") {
  Pair pair(bench);
  CHECK_OK(pair.left.write(0, 8, pair.right.buffer.address(), pair.right.buffer.rkey() ^ 0x5500));
  wait_status(pair.left.cq.get(), IBV_WC_REM_ACCESS_ERR);
  expect_event(bench.right.context, IBV_EVENT_QP_ACCESS_ERR, pair.right.qp);
}

}  // namespace
}  // namespace conformance
