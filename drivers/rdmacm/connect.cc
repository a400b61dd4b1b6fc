// Connections: rdma_connect(3), rdma_accept(3), rdma_reject(3), rdma_establish(3), rdma_disconnect(3).
#include <algorithm>
#include <cstring>

#include "export.h"
#include "objects.h"

namespace uroce::rdmacm {
namespace {

// Bytes of private data that the messages carry for the program (IBTA vol. 1, 12.6 and 12.11; in requests, annex
// A11 takes 36 for the addresses).
constexpr std::size_t kIpHeader = 36;
constexpr std::size_t kMostInReq = 92 - kIpHeader, kMostInRep = 196;
constexpr std::size_t kMostInSidrReq = 216 - kIpHeader, kMostInSidrRep = 136;

int command(CmId& id, std::uint32_t which) {
  if (id.device == nullptr) return EINVAL;
  const uroce_handle request{id.bindings.front().handle, 0};
  return id.device->call(which, request);
}

bool within_limits(const CmId& id, const rdma_conn_param* param) {
  if (id.device == nullptr) return false;
  if (id.id.ps != RDMA_PS_TCP) return true;
  if (param == nullptr) return id.id.qp != nullptr;
  return (param->responder_resources == RDMA_MAX_RESP_RES ||
          param->responder_resources <= id.device->max_responder_resources) &&
         (param->initiator_depth == RDMA_MAX_INIT_DEPTH ||
          param->initiator_depth <= id.device->max_initiator_depth);
}

/// errno: EINVAL when the private data is longer than `most`.
int fill(const CmId& id, const rdma_conn_param* param, std::size_t most, uroce_cm_parameters& out) {
  static_assert(sizeof(out.private_data) >= kMostInRep && sizeof(out.private_data) >= kMostInSidrReq);
  out.qpn = id.id.qp != nullptr ? id.id.qp->qp_num : param != nullptr ? param->qp_num : 0;
  out.srq = id.id.qp != nullptr ? id.id.qp->srq != nullptr : param != nullptr && param->srq != 0;
  out.qp_type = static_cast<std::uint8_t>(id.id.qp_type);
  out.qkey = RDMA_UDP_QKEY;
  out.ece_vendor = id.local_ece.vendor_id & 0xffffff;  // the field of the message has 24 bits
  out.ece_options = id.local_ece.options;
  out.traffic_class = id.traffic_class;
  out.ack_timeout = id.ack_timeout;
  out.retry_count = out.rnr_retry_count = 7;
  std::size_t bytes = id.connect_data.size();
  if (bytes > most) return EINVAL;
  std::ranges::copy(id.connect_data, out.private_data);
  if (param != nullptr) {
    out.flow_control = param->flow_control;
    out.retry_count = param->retry_count;
    out.rnr_retry_count = param->rnr_retry_count;
    if (param->private_data != nullptr) {
      if (bytes + param->private_data_len > most) return EINVAL;
      std::memcpy(out.private_data + bytes, param->private_data, param->private_data_len);
      bytes += param->private_data_len;
    }
  }
  out.private_data_bytes = static_cast<std::uint8_t>(bytes);
  return 0;
}

int connect(CmId& id, const rdma_conn_param* param) {
  if (!within_limits(id, param)) return EINVAL;
  uroce_cm_connect_request request{};
  request.handle = id.bindings.front().handle;
  uroce_cm_parameters& parameters = request.parameters;
  const std::size_t most = id.id.qp_type == IBV_QPT_UD ? kMostInSidrReq : kMostInReq;
  if (const int error = fill(id, param, most, parameters)) return error;
  const bool own_depth = param != nullptr && param->initiator_depth != RDMA_MAX_INIT_DEPTH;
  const bool own_resources = param != nullptr && param->responder_resources != RDMA_MAX_RESP_RES;
  parameters.initiator_depth = own_depth ? param->initiator_depth : id.device->max_initiator_depth;
  parameters.responder_resources = own_resources ? param->responder_resources : id.device->max_responder_resources;
  const int error = id.device->call(UROCE_CMD_CM_CONNECT, request);
  if (error != 0) return error;
  id.initiator_depth = parameters.initiator_depth;
  id.responder_resources = parameters.responder_resources;
  id.connect_data.clear();
  return 0;
}

int reject(CmId& id, const void* data, std::uint8_t bytes, std::uint16_t reason) {
  uroce_cm_reject_request request{};
  if (id.device == nullptr || bytes > sizeof(request.private_data)) return EINVAL;
  request.handle = id.bindings.front().handle;
  request.reason = reason;
  if (data != nullptr) {
    std::memcpy(request.private_data, data, bytes);
    request.private_data_bytes = bytes;
  }
  const int error = id.device->call(UROCE_CMD_CM_REJECT, request);
  if (error == 0) id.requested = false;
  return error;
}

/// Moves the QP of the id to RTS and sends the reply. errno.
int answer(CmId& id, const uroce_cm_connect_request& request) {
  if (id.id.qp_type != IBV_QPT_UD) {
    if (const int error = to_ready_to_receive(id, request.parameters.responder_resources)) return error;
    if (const int error = to_ready_to_send(id, request.parameters.initiator_depth)) return error;
  }
  return id.device->call(UROCE_CMD_CM_ACCEPT, request);
}

/// A call with wrong arguments changes nothing and can be repeated. When the QP may have been moved, it can't: then
/// the peer is rejected (Linux: drivers/infiniband/core/cma.c, rdma_accept).
int accept(CmId& id, const rdma_conn_param* param) {
  if (!id.requested || !within_limits(id, param) || (id.id.qp == nullptr && param == nullptr)) return EINVAL;
  const bool datagrams = id.id.qp_type == IBV_QPT_UD;
  uroce_cm_connect_request request{};
  request.handle = id.bindings.front().handle;
  uroce_cm_parameters& parameters = request.parameters;
  if (const int error = fill(id, param, datagrams ? kMostInSidrRep : kMostInRep, parameters)) return error;
  const bool own_depth = param != nullptr && param->initiator_depth != RDMA_MAX_INIT_DEPTH;
  const bool own_resources = param != nullptr && param->responder_resources != RDMA_MAX_RESP_RES;
  parameters.initiator_depth =
      own_depth ? param->initiator_depth : std::min(id.initiator_depth, id.device->max_initiator_depth);
  parameters.responder_resources = own_resources
                                       ? param->responder_resources
                                       : std::min(id.responder_resources, id.device->max_responder_resources);
  if (!datagrams) parameters.ece_vendor = id.remote_ece.vendor_id;  // the reply carries the request's vendor ID
  const int error = answer(id, request);
  const bool unchanged = datagrams || id.id.qp == nullptr;
  if (error == 0 || !unchanged) id.requested = false;
  if (error == 0 || unchanged) return error;
  to_error(id);
  reject(id, nullptr, 0, 0);
  return error;
}

}  // namespace

int establish(CmId& id) {
  int error = to_ready_to_receive(id, RDMA_MAX_RESP_RES);
  if (error == 0) error = to_ready_to_send(id, RDMA_MAX_INIT_DEPTH);
  if (error == 0) error = command(id, UROCE_CMD_CM_ESTABLISH);
  id.established = error == 0;
  if (error == 0) return 0;
  to_error(id);
  return fail(error);
}

}  // namespace uroce::rdmacm

using namespace uroce::rdmacm;

UROCE_EXPORT int rdma_connect(rdma_cm_id* id, rdma_conn_param* param) {
  const Verb verb("rdma_connect");
  return guarded(-1, [&] {
    if (const int error = connect(as_id(id), param)) return fail(error);
    return complete(as_id(id));
  });
}

UROCE_EXPORT int rdma_accept(rdma_cm_id* id, rdma_conn_param* param) {
  const Verb verb("rdma_accept");
  return guarded(-1, [&] {
    CmId& accepted = as_id(id);
    if (const int error = accept(accepted, param)) return fail(error);
    if (id->qp_type != IBV_QPT_UD) return complete(accepted);
    if (accepted.synchronous && id->event != nullptr) {
      rdma_ack_cm_event(id->event);
      id->event = nullptr;
    }
    return 0;
  });
}

UROCE_EXPORT int rdma_reject(rdma_cm_id* id, const void* data, std::uint8_t bytes) {
  const Verb verb("rdma_reject");
  return result(reject(as_id(id), data, bytes, 0));
}

UROCE_EXPORT int rdma_reject_ece(rdma_cm_id* id, const void* data, std::uint8_t bytes) {
  const Verb verb("rdma_reject_ece");
  constexpr std::uint16_t kVendorOptionNotSupported = 35;
  return result(reject(as_id(id), data, bytes, kVendorOptionNotSupported));
}

UROCE_EXPORT int rdma_establish(rdma_cm_id* id) {
  const Verb verb("rdma_establish");
  if (id->qp != nullptr || as_id(id).passive || as_id(id).established) return fail(EINVAL);
  return establish(as_id(id));
}

UROCE_EXPORT int rdma_notify(rdma_cm_id* id, ibv_event_type event) {
  const Verb verb("rdma_notify");
  if (event == IBV_EVENT_PATH_MIG) return 0;
  // Linux: drivers/infiniband/core/cm.c, ib_cm_notify. A client whose peer has accepted calls rdma_establish(3).
  const CmId& notified = as_id(id);
  if (event != IBV_EVENT_COMM_EST || (!notified.passive && !notified.established)) return fail(EINVAL);
  return result(command(as_id(id), UROCE_CMD_CM_ESTABLISH));
}

UROCE_EXPORT int rdma_disconnect(rdma_cm_id* id) {
  const Verb verb("rdma_disconnect");
  return guarded(-1, [&] {
    if (id->verbs == nullptr) return fail(EINVAL);
    if (const int error = to_error(as_id(id))) return fail(error);
    if (const int error = command(as_id(id), UROCE_CMD_CM_DISCONNECT)) return fail(error);
    return complete(as_id(id));
  });
}

UROCE_EXPORT int rdma_set_local_ece(rdma_cm_id* id, ibv_ece* ece) {
  const Verb verb("rdma_set_local_ece");
  if (id == nullptr || id->qp != nullptr || ece == nullptr || ece->comp_mask != 0) return fail(EINVAL);
  if (ece->vendor_id == 0) return fail(EOPNOTSUPP);  // of a QP without options: ibv_query_ece(3)
  as_id(id).local_ece = *ece;
  return 0;
}

UROCE_EXPORT int rdma_get_remote_ece(rdma_cm_id* id, ibv_ece* ece) {
  const Verb verb("rdma_get_remote_ece");
  if (id == nullptr || id->qp != nullptr || ece == nullptr) return fail(EINVAL);
  ece->vendor_id = as_id(id).remote_ece.vendor_id;
  ece->options = as_id(id).remote_ece.options;
  ece->comp_mask = 0;
  return 0;
}
