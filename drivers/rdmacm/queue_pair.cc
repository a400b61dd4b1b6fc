// The QP of an id, its CQs and SRQ: rdma_create_qp(3), rdma_create_srq(3), and the transitions of the QP state.
#include <algorithm>
#include <cstring>

#include "export.h"
#include "objects.h"

namespace uroce::rdmacm {
namespace {

/// Grants remote access once the peer is known.
void grant_access(const CmId& id, ibv_qp_attr& attr, int& mask) {
  attr.qp_access_flags = id.peer_known ? IBV_ACCESS_REMOTE_WRITE : 0;
  if (id.peer_known && id.path.responder_resources != 0) {
    attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  }
  mask |= IBV_QP_ACCESS_FLAGS;
}

void init_attributes(const CmId& id, ibv_qp_attr& attr, int& mask) {
  attr.pkey_index = 0;
  attr.port_num = 1;
  mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  if (id.id.qp_type == IBV_QPT_UD) {
    attr.qkey = RDMA_UDP_QKEY;
    mask |= IBV_QP_QKEY;
    return;
  }
  grant_access(id, attr, mask);
}

bool has_requester(ibv_qp_type type) { return type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND; }
bool has_responder(ibv_qp_type type) { return type == IBV_QPT_RC || type == IBV_QPT_XRC_RECV; }

void receive_attributes(const CmId& id, ibv_qp_attr& attr, int& mask) {
  mask = IBV_QP_STATE;
  if (id.id.qp_type == IBV_QPT_UD) return;
  const uroce_cm_path& path = id.path;
  std::memcpy(attr.ah_attr.grh.dgid.raw, path.gid, 16);
  attr.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(path.sgid_index);
  attr.ah_attr.grh.hop_limit = path.hop_limit;
  attr.ah_attr.grh.traffic_class = path.traffic_class;
  attr.ah_attr.grh.flow_label = path.flow_label;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.path_mtu = static_cast<ibv_mtu>(path.path_mtu);
  attr.dest_qp_num = path.remote_qpn;
  attr.rq_psn = path.local_psn;
  mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (!has_responder(id.id.qp_type)) return;
  attr.max_dest_rd_atomic = path.responder_resources;
  attr.min_rnr_timer = 0;
  mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
}

void send_attributes(const CmId& id, ibv_qp_attr& attr, int& mask) {
  mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  attr.sq_psn = id.id.qp_type == IBV_QPT_UD ? 0 : id.path.remote_psn;
  if (id.id.qp_type == IBV_QPT_XRC_RECV) {
    attr.timeout = id.ack_timeout != 0 ? id.ack_timeout : id.path.ack_timeout;
    mask |= IBV_QP_TIMEOUT;
  }
  if (!has_requester(id.id.qp_type)) return;
  attr.timeout = id.ack_timeout != 0 ? id.ack_timeout : id.path.ack_timeout;
  attr.retry_cnt = id.path.retry_count;
  attr.rnr_retry = id.path.rnr_retry_count;
  attr.max_rd_atomic = id.path.initiator_depth;
  mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
}

/// The attributes for a transition of the id's QP to `state`, as negotiated for the connection. errno.
int attributes(const CmId& id, ibv_qp_state state, ibv_qp_attr& attr, int& mask) {
  attr.qp_state = state;
  switch (state) {
    case IBV_QPS_INIT: init_attributes(id, attr, mask); return 0;
    case IBV_QPS_RTR:
      if (!id.peer_known && id.id.qp_type != IBV_QPT_UD) return EINVAL;
      receive_attributes(id, attr, mask);
      return 0;
    case IBV_QPS_RTS:
      if (!id.peer_known && id.id.qp_type != IBV_QPT_UD) return EINVAL;
      send_attributes(id, attr, mask);
      return 0;
    default: return EINVAL;
  }
}

int move_to(CmId& id, ibv_qp* qp, ibv_qp_state state) {
  ibv_qp_attr attr{};
  int mask = 0;
  if (const int error = attributes(id, state, attr, mask)) return error;
  return ibv_modify_qp(qp, &attr, mask);
}

/// Moves the QP to INIT; a UD QP to RTS. errno.
int prepare(CmId& id, ibv_qp* qp) {
  if (const int error = move_to(id, qp, IBV_QPS_INIT)) return error;
  if (id.id.qp_type != IBV_QPT_UD) return 0;
  if (const int error = move_to(id, qp, IBV_QPS_RTR)) return error;
  return move_to(id, qp, IBV_QPS_RTS);
}

void destroy_own_cqs(rdma_cm_id& id) {
  if (id.qp_type == IBV_QPT_XRC_RECV && id.srq != nullptr) return;
  if (id.send_cq != nullptr && id.send_cq != id.recv_cq) ibv_destroy_cq(id.send_cq);
  if (id.recv_cq != nullptr) ibv_destroy_cq(id.recv_cq);
  if (id.send_cq_channel != nullptr && id.send_cq_channel != id.recv_cq_channel) {
    ibv_destroy_comp_channel(id.send_cq_channel);
  }
  if (id.recv_cq_channel != nullptr) ibv_destroy_comp_channel(id.recv_cq_channel);
  id.send_cq = id.recv_cq = nullptr;
  id.send_cq_channel = id.recv_cq_channel = nullptr;
}

/// Creates a CQ with its own completion channel. errno.
int create_own_cq(rdma_cm_id& id, std::uint32_t entries, ibv_cq*& cq, ibv_comp_channel*& channel) {
  if (entries == 0) return 0;
  channel = ibv_create_comp_channel(id.verbs);
  if (channel == nullptr) return errno;
  cq = ibv_create_cq(id.verbs, static_cast<int>(entries), &id, channel, 0);
  return cq != nullptr ? 0 : errno;
}

int create_own_cqs(rdma_cm_id& id, std::uint32_t send, std::uint32_t receive) {
  int error = create_own_cq(id, receive, id.recv_cq, id.recv_cq_channel);
  if (error == 0) error = create_own_cq(id, send, id.send_cq, id.send_cq_channel);
  if (error != 0) destroy_own_cqs(id);
  return error;
}

int create_qp(CmId& owner, ibv_qp_init_attr_ex& attr) {
  rdma_cm_id& id = owner.id;
  if (id.qp != nullptr || id.verbs == nullptr) return EINVAL;
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || attr.pd == nullptr) {
    attr.comp_mask |= IBV_QP_INIT_ATTR_PD;
    attr.pd = id.pd;
  }
  if (attr.pd == nullptr || attr.pd->context != id.verbs) return EINVAL;
  const auto clash = [](const ibv_cq* ours, const ibv_cq* theirs) { return ours && theirs && ours != theirs; };
  if (clash(id.recv_cq, attr.recv_cq) || clash(id.send_cq, attr.send_cq)) return EINVAL;
  if (id.qp_type == IBV_QPT_XRC_RECV && ((attr.comp_mask & IBV_QP_INIT_ATTR_XRCD) == 0 || attr.xrcd == nullptr)) {
    if (const int error = Registry::instance().xrcd_of(*owner.device, attr.xrcd)) return error;
    attr.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
  }
  const std::uint32_t send = attr.send_cq || id.send_cq ? 0 : attr.cap.max_send_wr;
  const std::uint32_t receive = attr.recv_cq || id.recv_cq ? 0 : attr.cap.max_recv_wr;
  if (const int error = create_own_cqs(id, send, receive)) return error;
  if (attr.send_cq == nullptr) attr.send_cq = id.send_cq;
  if (attr.recv_cq == nullptr) attr.recv_cq = id.recv_cq;
  if (attr.srq == nullptr) attr.srq = id.srq;
  ibv_qp* const qp = ibv_create_qp_ex(id.verbs, &attr);
  int error = qp == nullptr ? errno : prepare(owner, qp);
  if (error != 0) {
    if (qp != nullptr) ibv_destroy_qp(qp);
    destroy_own_cqs(id);
    return error;
  }
  id.pd = attr.pd;
  id.qp = qp;
  return 0;
}

int create_srq(CmId& owner, ibv_srq_init_attr_ex& attr) {
  rdma_cm_id& id = owner.id;
  if ((attr.comp_mask & IBV_SRQ_INIT_ATTR_TYPE) == 0 || id.verbs == nullptr) return EINVAL;
  if ((attr.comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0 || attr.pd == nullptr) {
    attr.pd = id.pd;
    attr.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
  }
  if (attr.srq_type == IBV_SRQT_XRC) {
    if ((attr.comp_mask & IBV_SRQ_INIT_ATTR_XRCD) == 0 || attr.xrcd == nullptr) {
      if (const int error = Registry::instance().xrcd_of(*owner.device, attr.xrcd)) return error;
    }
    if ((attr.comp_mask & IBV_SRQ_INIT_ATTR_CQ) == 0 || attr.cq == nullptr) {
      if (const int error = create_own_cqs(id, 0, attr.attr.max_wr)) return error;
      attr.cq = id.recv_cq;
    }
    attr.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  }
  id.srq = ibv_create_srq_ex(id.verbs, &attr);
  if (id.srq == nullptr) {
    const int error = errno;
    destroy_own_cqs(id);
    return error;
  }
  if (id.pd == nullptr) id.pd = attr.pd;
  return 0;
}

}  // namespace

int to_ready_to_receive(CmId& id, std::uint8_t responder_resources) {
  ibv_qp* const qp = id.id.qp;
  if (qp == nullptr) return 0;
  if (qp->state != IBV_QPS_INIT) {
    if (const int error = move_to(id, qp, IBV_QPS_INIT)) return error;
  }
  // Access flags and RTR in one command: each command adds to the time that a connection takes.
  ibv_qp_attr attr{};
  int mask = 0;
  grant_access(id, attr, mask);
  const int granted = mask;
  if (responder_resources != RDMA_MAX_RESP_RES) id.path.responder_resources = responder_resources;
  if (const int error = attributes(id, IBV_QPS_RTR, attr, mask)) return error;
  return ibv_modify_qp(qp, &attr, mask | granted);
}

int to_ready_to_send(CmId& id, std::uint8_t initiator_depth) {
  if (id.id.qp == nullptr) return 0;
  if (initiator_depth != RDMA_MAX_INIT_DEPTH) id.path.initiator_depth = initiator_depth;
  return move_to(id, id.id.qp, IBV_QPS_RTS);
}

int to_error(CmId& id) {
  if (id.id.qp == nullptr) return 0;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  return ibv_modify_qp(id.id.qp, &attr, IBV_QP_STATE);
}

}  // namespace uroce::rdmacm

using namespace uroce::rdmacm;

UROCE_EXPORT int rdma_init_qp_attr(rdma_cm_id* id, ibv_qp_attr* attr, int* mask) {
  const Verb verb("rdma_init_qp_attr");
  return result(attributes(as_id(id), attr->qp_state, *attr, *mask));
}

UROCE_EXPORT int rdma_create_qp_ex(rdma_cm_id* id, ibv_qp_init_attr_ex* attr) {
  const Verb verb("rdma_create_qp_ex");
  return guarded(-1, [&] { return result(create_qp(as_id(id), *attr)); });
}

UROCE_EXPORT int rdma_create_qp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attr) {
  const Verb verb("rdma_create_qp");
  return guarded(-1, [&] {
    ibv_qp_init_attr_ex extended{};
    std::memcpy(&extended, attr, sizeof(*attr));  // ibv_qp_init_attr_ex begins with the fields of ibv_qp_init_attr
    extended.comp_mask = IBV_QP_INIT_ATTR_PD;
    extended.pd = pd != nullptr ? pd : id->pd;
    const int error = create_qp(as_id(id), extended);
    std::memcpy(attr, &extended, sizeof(*attr));
    return result(error);
  });
}

UROCE_EXPORT void rdma_destroy_qp(rdma_cm_id* id) {
  if (id->qp != nullptr) ibv_destroy_qp(id->qp);
  id->qp = nullptr;
  destroy_own_cqs(*id);
}

UROCE_EXPORT int rdma_create_srq_ex(rdma_cm_id* id, ibv_srq_init_attr_ex* attr) {
  const Verb verb("rdma_create_srq_ex");
  return guarded(-1, [&] { return result(create_srq(as_id(id), *attr)); });
}

UROCE_EXPORT int rdma_create_srq(rdma_cm_id* id, ibv_pd* pd, ibv_srq_init_attr* attr) {
  const Verb verb("rdma_create_srq");
  return guarded(-1, [&] {
    ibv_srq_init_attr_ex extended{};
    std::memcpy(&extended, attr, sizeof(*attr));
    extended.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
    extended.srq_type = id->qp_type == IBV_QPT_XRC_RECV ? IBV_SRQT_XRC : IBV_SRQT_BASIC;
    extended.pd = pd;
    const int error = create_srq(as_id(id), extended);
    std::memcpy(attr, &extended, sizeof(*attr));
    return result(error);
  });
}

UROCE_EXPORT void rdma_destroy_srq(rdma_cm_id* id) {
  if (id->srq != nullptr) ibv_destroy_srq(id->srq);
  id->srq = nullptr;
  destroy_own_cqs(*id);
}
