#include "client/queue_pair.h"

#include <algorithm>
#include <bit>
#include <mutex>

#include "client/shared_receive_queue.h"

namespace uroce::client {
namespace {

bool plausible(std::uint32_t entries, std::uint32_t stride, std::size_t needed) {
  return std::has_single_bit(entries) && entries <= (1u << 24) && stride >= needed && stride <= (1u << 16);
}

// Bytes of an entry with the largest scatter list, or the most inline data, that the QP allows.
std::size_t sq_entry_bytes(const uroce_create_qp_response& made, std::uint32_t max_tso_header) {
  return sizeof(uroce_sq_entry) + std::max<std::size_t>(made.max_send_sge * sizeof(uroce_sge), made.max_inline) +
         max_tso_header;
}
std::size_t rq_entry_bytes(const uroce_create_qp_response& made) {
  return sizeof(uroce_rq_entry) + made.max_recv_sge * sizeof(uroce_sge);
}

}  // namespace

int QueuePair::create(Session& session, const uroce_create_qp_request& request, QueuePair& out) {
  if (const int error = session.call_and_map(UROCE_CMD_CREATE_QP, request, out.made_); error != 0) return error;
  return adopt(session, request.max_tso_header, out);
}

int QueuePair::open(Session& session, const uroce_open_qp_request& request, QueuePair& out) {
  if (const int error = session.call_and_map(UROCE_CMD_OPEN_QP, request, out.made_); error != 0) return error;
  return adopt(session, 0, out);
}

int QueuePair::create_rss(Session& session, const uroce_create_rss_request& request, QueuePair& out) {
  uroce_create_rss_response made{};
  if (const int error = session.call(UROCE_CMD_CREATE_RSS, request, made); error != 0) return error;
  out.session_ = &session;
  out.destroy_command_ = UROCE_CMD_DESTROY_RSS;
  out.made_.handle = made.handle;
  out.made_.qpn = made.qpn;
  return 0;
}

int QueuePair::adopt(Session& session, std::uint32_t max_tso_header, QueuePair& out) {
  const uroce_create_qp_response& made = out.made_;
  out.session_ = &session;
  const bool has_sq = made.sq_entries != 0, has_rq = made.rq_entries != 0;
  if (!has_sq && !has_rq) return 0;
  auto* const client = static_cast<uroce_qp_client_block*>(session.at(made.client, sizeof(uroce_qp_client_block)));
  auto* const daemon = static_cast<uroce_qp_daemon_block*>(session.at(made.daemon, sizeof(uroce_qp_daemon_block)));
  bool good = client != nullptr && daemon != nullptr && made.worker < session.workers() &&
              made.doorbell_bit < UROCE_MAX_SESSION_QPS &&
              (!has_sq || plausible(made.sq_entries, made.sq_stride, sq_entry_bytes(made, max_tso_header))) &&
              (!has_rq || plausible(made.rq_entries, made.rq_stride, rq_entry_bytes(made)));
  if (good) {
    const auto ring = [&](const uroce_place& place, std::uint32_t entries, std::uint32_t stride) {
      void* const at = entries != 0 ? session.at(place, std::size_t{entries} * stride) : nullptr;
      good &= at != nullptr || entries == 0;
      return queue::RingShape{static_cast<std::byte*>(at), entries, stride};
    };
    out.sq_ = {ring(made.sq, made.sq_entries, made.sq_stride), &client->sq.index, &daemon->sq_consumer};
    out.rq_ = {ring(made.rq, made.rq_entries, made.rq_stride), &client->rq.index, &daemon->rq_consumer};
  }
  if (!good) {
    out.destroy();
    return EPROTO;
  }
  out.bell_ = {session.doorbells(made.worker), session.worker_line(made.worker)};
  return 0;
}

void QueuePair::reset() {
  const std::scoped_lock lock(sq_lock, rq_lock);
  if (made_.sq_entries != 0) sq_.reset();
  if (made_.rq_entries != 0) rq_.reset();
}

bool QueuePair::sends_outstanding() {
  if (made_.sq_entries == 0) return false;
  const std::lock_guard lock(sq_lock);
  return static_cast<std::int32_t>(sq_.head() - sq_.consumer() - sq_flushed_) > 0;
}

bool QueuePair::receives_outstanding() {
  if (srq_ != nullptr) return srq_->outstanding();
  const std::lock_guard lock(rq_lock);
  return made_.rq_entries != 0 && static_cast<std::int32_t>(rq_.head() - rq_.consumer() - rq_flushed_) > 0;
}

bool QueuePair::flush_send(std::uint64_t& wr_id) {
  if (made_.sq_entries == 0) return false;
  const std::lock_guard lock(sq_lock);
  const std::uint32_t index = sq_.consumer() + sq_flushed_;
  if (static_cast<std::int32_t>(sq_.head() - index) <= 0) return false;
  wr_id = reinterpret_cast<const uroce_sq_entry*>(sq_.ring().at(index))->wr_id;
  ++sq_flushed_;
  return true;
}

bool QueuePair::flush_receive(std::uint64_t& wr_id) {
  if (srq_ != nullptr) return srq_->flush(wr_id);
  if (made_.rq_entries == 0) return false;
  const std::lock_guard lock(rq_lock);
  const std::uint32_t index = rq_.consumer() + rq_flushed_;
  if (static_cast<std::int32_t>(rq_.head() - index) <= 0) return false;
  wr_id = reinterpret_cast<const uroce_rq_entry*>(rq_.ring().at(index))->wr_id;
  ++rq_flushed_;
  return true;
}

}  // namespace uroce::client
