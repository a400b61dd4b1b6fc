// Receive side scaling: indirection tables, and QPs that distribute frames over their work queues.
#include <cstring>
#include <memory>

#include "export.h"
#include "objects.h"
#include "query.h"
#include "rss.h"

namespace uroce::verbs {
namespace {

int check(const ibv_pd* pd, const ibv_qp_init_attr_ex& attr) {
  constexpr std::uint32_t kNeeded = IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
  constexpr std::uint32_t kKnown = kNeeded | IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
  if ((attr.comp_mask & kNeeded) != kNeeded || pd == nullptr || attr.rwq_ind_tbl == nullptr) return EINVAL;
  // An RSS QP does not send. VLAN stripping is an attribute of the work queues.
  if ((attr.comp_mask & ~kKnown) != 0 || attr.cap.max_send_wr != 0) return EOPNOTSUPP;
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 && attr.create_flags != 0) return EOPNOTSUPP;
  if (attr.srq != nullptr || attr.cap.max_recv_wr != 0 || attr.cap.max_recv_sge != 0) return EINVAL;
  const ibv_rx_hash_conf& hash = attr.rx_hash_conf;
  if (hash.rx_hash_function != IBV_RX_HASH_FUNC_TOEPLITZ || (hash.rx_hash_fields_mask & ~kHashFields) != 0) {
    return EOPNOTSUPP;
  }
  return hash.rx_hash_key_len == UROCE_RSS_KEY_BYTES && hash.rx_hash_key != nullptr ? 0 : EINVAL;
}

uroce_create_rss_request to_request(const IndirectionTable& table, const ibv_rx_hash_conf& hash) {
  uroce_create_rss_request request{};
  request.count = static_cast<std::uint32_t>(table.wqs.size());
  request.fields = static_cast<std::uint32_t>(hash.rx_hash_fields_mask);
  std::memcpy(request.key, hash.rx_hash_key, sizeof(request.key));
  for (std::size_t i = 0; i < table.wqs.size(); ++i) request.wq[i] = table.wqs[i]->wq.handle;
  return request;
}

}  // namespace

ibv_rwq_ind_table* create_rwq_ind_table(ibv_context* context, ibv_rwq_ind_table_init_attr* attr) {
  const Verb verb("ibv_create_rwq_ind_table");
  return guarded<ibv_rwq_ind_table*>(nullptr, [&]() -> ibv_rwq_ind_table* {
    if (attr->comp_mask != 0 || attr->log_ind_tbl_size >= 32 || attr->ind_tbl == nullptr) return null_with(EINVAL);
    const std::uint32_t count = 1u << attr->log_ind_tbl_size;
    if (count > UROCE_MAX_RSS_ENTRIES) return null_with(EINVAL);
    for (std::uint32_t i = 0; i < count; ++i) {
      if (attr->ind_tbl[i] == nullptr || attr->ind_tbl[i]->context != context) return null_with(EINVAL);
    }
    auto table = std::make_unique<IndirectionTable>();
    table->wqs.reserve(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      table->wqs.push_back(as_wq(attr->ind_tbl[i]));
      table->wqs.back()->users.fetch_add(1);
    }
    table->table.context = context;
    return &table.release()->table;
  });
}

int destroy_rwq_ind_table(ibv_rwq_ind_table* table) {
  const Verb verb("ibv_destroy_rwq_ind_table");
  auto* const destroyed = reinterpret_cast<IndirectionTable*>(table);
  if (destroyed->users.load() != 0) return noted(EBUSY);
  for (Wq* const wq : destroyed->wqs) wq->users.fetch_sub(1);
  delete destroyed;
  return 0;
}

Qp* create_rss_qp(ibv_context* context, ibv_pd* pd, ibv_qp_init_attr_ex& attr) {
  if (const int error = check(pd, attr); error != 0) return null_with(error);
  auto* const table = reinterpret_cast<IndirectionTable*>(attr.rwq_ind_tbl);
  auto qp = std::make_unique<Qp>();
  const uroce_create_rss_request request = to_request(*table, attr.rx_hash_conf);
  if (const int error = client::QueuePair::create_rss(session_of(context), request, qp->queue); error != 0) {
    return null_with(error);
  }
  ibv_qp& made = qp->qp;
  prepare_events(made);
  made.context = context;
  made.qp_context = attr.qp_context;
  made.pd = pd;
  made.handle = qp->queue.made().handle;
  made.qp_num = qp->queue.made().qpn;
  made.qp_type = IBV_QPT_RAW_PACKET;
  qp->table = table;
  table->users.fetch_add(1);
  as_pd(pd)->users.fetch_add(1);
  attr.cap = {};
  return qp.release();
}

}  // namespace uroce::verbs
