// One RC connection over librdmacm, with its PD, CQ and QP. All errors are exceptions of type Failure, whose text
// says what was tried and why it failed.
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
/// Failure with errno's text behind it.
[[noreturn]] void fail_errno(const std::string& what);

/// Thrown where a wait ends since the user interrupted it (SIGINT, SIGTERM) or the peer disconnected.
struct Interrupted {};
struct Disconnected {};

class Connection {
 public:
  explicit Connection(const Options& options);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Client: address, route, QP. Server: listens until a request comes, then QP.
  void prepare();
  /// Completes the connection; receives must have been posted.
  void establish();
  /// Ends it, and waits for the other side to do so.
  void disconnect();

  ibv_pd* pd() { return pd_; }
  ibv_qp* qp() { return id_->qp; }
  std::string device() const;

  void send(ibv_send_wr& first);
  void receive(std::uint64_t wr_id, ibv_sge part);
  /// The next completion; one that is no success is a Failure. Blocks on the completion channel unless `poll`.
  ibv_wc wait();
  /// At most `limit` completions without waiting.
  std::size_t take(ibv_wc* out, std::size_t limit);
  /// Returns once the peer has disconnected.
  void wait_for_end();
  /// Whether the peer has disconnected or the user has had enough: throws so.
  void check_alive();

 private:
  void bind_and_listen();
  void resolve();
  void make_queues();
  /// The next event, which must be `wanted`; waits for `milliseconds`, or for ever when below 0.
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

/// SIGINT and SIGTERM end waits with Interrupted from now on.
void catch_interrupts();
bool interrupted();

}  // namespace uroce::ping
