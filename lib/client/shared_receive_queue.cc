#include "client/shared_receive_queue.h"

#include <bit>
#include <mutex>

namespace uroce::client {

bool SharedReceiveQueue::map_ring(const uroce_place& place, std::uint32_t entries, queue::RingShape& out) const {
  const std::size_t needed = sizeof(uroce_rq_entry) + std::size_t{made_.max_sge} * sizeof(uroce_sge);
  if (!std::has_single_bit(entries) || entries > (1u << 24) || made_.stride < needed || made_.stride > (1u << 16)) {
    return false;
  }
  auto* const base = static_cast<std::byte*>(session_->at(place, std::size_t{entries} * made_.stride));
  out = {base, entries, made_.stride};
  return base != nullptr;
}

int SharedReceiveQueue::create(Session& session, const uroce_create_srq_request& request, SharedReceiveQueue& out) {
  uroce_create_srq_response& made = out.made_;
  if (const int error = session.call_and_map(UROCE_CMD_CREATE_SRQ, request, made); error != 0) return error;
  out.session_ = &session;
  auto* const client = static_cast<uroce_producer_line*>(session.at(made.client, sizeof(uroce_producer_line)));
  auto* const daemon =
      static_cast<uroce_srq_daemon_block*>(session.at(made.daemon, sizeof(uroce_srq_daemon_block)));
  queue::RingShape ring;
  if (client == nullptr || daemon == nullptr || !out.map_ring(made.ring, made.entries, ring)) {
    out.destroy();
    return EPROTO;
  }
  out.ring_ = {ring, &client->index, &daemon->consumer};
  return 0;
}

int SharedReceiveQueue::modify(uroce_modify_srq_request request) {
  request.handle = made_.handle;
  uroce_modify_srq_response reply{};
  const std::lock_guard guard(lock);
  if (const int error = session_->call_and_map(UROCE_CMD_MODIFY_SRQ, request, reply); error != 0) return error;
  if (reply.entries == 0) return 0;
  queue::RingShape ring;
  if (!map_ring(reply.ring, reply.entries, ring)) {
    session_->set_dead();  // the daemon already uses a ring that this process can't map
    return EPROTO;
  }
  ring_.move_to(ring);
  made_.entries = reply.entries;
  made_.max_wr = reply.max_wr;
  made_.ring = reply.ring;
  return 0;
}

int SharedReceiveQueue::query(uroce_query_srq_response& out) {
  return session_->call(UROCE_CMD_QUERY_SRQ, uroce_handle{made_.handle, 0}, out);
}

bool SharedReceiveQueue::outstanding() {
  const std::lock_guard guard(lock);
  return static_cast<std::int32_t>(ring_.head() - ring_.consumer() - flushed_) > 0;
}

bool SharedReceiveQueue::flush(std::uint64_t& wr_id) {
  const std::lock_guard guard(lock);
  const std::uint32_t index = ring_.consumer() + flushed_;
  if (static_cast<std::int32_t>(ring_.head() - index) <= 0) return false;
  wr_id = reinterpret_cast<const uroce_rq_entry*>(ring_.ring().at(index))->wr_id;
  ++flushed_;
  return true;
}

}  // namespace uroce::client
