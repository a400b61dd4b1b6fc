// One RC connection made with librdmacm, with its PD, CQ and QP. All errors are thrown as Failure, whose text names
// the attempt and the reason.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "options.h"

namespace uroce::ping {

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// A Failure whose text ends with strerror(errno).
[[noreturn]] void fail_errno(const std::string& what);

/// Thrown when a wait is ended by SIGINT or SIGTERM, or by a disconnect of the peer.
struct Interrupted {};
struct Disconnected {};

class Connection {
 public:
  explicit Connection(const Options& options);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Client: resolves address and route, and creates the QP. Server: waits for a request, and creates the QP.
  void prepare();
  /// Completes the connection. Receives must have been posted.
  void establish();
  /// Disconnects, and waits until the peer has disconnected, too.
  void disconnect();

  ibv_pd* pd() { return pd_; }
  ibv_qp* qp() { return id_->qp; }
  std::string device() const;

  void send(ibv_send_wr& first);
  void receive(std::uint64_t wr_id, ibv_sge part);
  /// Waits for the next completion: blocks on the completion channel unless `poll`. A failed one is thrown as
  /// Failure.
  ibv_wc wait();
  /// Polls at most `limit` completions without waiting.
  std::size_t take(ibv_wc* out, std::size_t limit);
  /// Returns once the peer has disconnected.
  void wait_for_end();
  /// Throws Interrupted if the peer has disconnected or a signal has arrived.
  void check_alive();

 private:
  void bind_and_listen();
  void resolve();
  void make_queues();
  /// Waits for the next event, which must be `wanted`, for `milliseconds`; negative: without limit.
  void expect(rdma_cm_event_type wanted, int milliseconds);
  bool event_ready(int milliseconds);
  void check(const ibv_wc& wc) const;

  const Options& options_;
  rdma_event_channel* events_ = nullptr;
  rdma_cm_id* listener_ = nullptr;
  rdma_cm_id* id_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  std::uint8_t responder_resources_ = 0, initiator_depth_ = 0;
  bool connected_ = false;
};

/// From now on SIGINT and SIGTERM end waits with Interrupted.
void catch_interrupts();
bool interrupted();

}  // namespace uroce::ping
