// What must come out: the reference model of one direction of a connection. Works are executed here at once and in
// the order in which they were posted, with no packets, no time and no loss; whatever the transports did, the
// client must see the same bytes, completions, statuses and order. Where a failure cuts a direction short, the
// model knows which prefixes of it are possible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "abi/queue_entries.h"
#include "base/types.h"

namespace uroce::sim {

/// A contradiction between the transports and the model.
struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// Throws Violation.
[[noreturn]] void fail(const std::string& what);

std::string text(const uroce_cqe& cqe);

/// Bytes [offset, offset + length) of an end's arena.
struct Piece {
  std::size_t offset = 0;
  std::uint32_t length = 0;
};

constexpr std::uint32_t status_bit(std::uint32_t status) { return 1u << status; }

/// A send work request: as posted, and what it must do.
struct Work {
  uroce_sq_entry entry{};
  std::vector<uroce_sge> sges;
  std::vector<Piece> local;        ///< where the scatter elements lie
  std::vector<std::byte> payload;  ///< leaves (SEND, WRITE) or lands (READ, atomic)
  std::size_t target = 0;          ///< offset in the peer's arena
  std::uint32_t length = 0;
  bool signaled = false;  ///< a completion is due also for success
  bool consumes = false;  ///< takes a receive
  bool modifies_target = false, lands = false;
  std::uint32_t must_fail = 0;           ///< status bits, one of which it must fail with; 0: it must succeed
  std::uint32_t must_fail_receiver = 0;  ///< of the receive that it takes; 0 with must_fail: no such completion
};

struct Receive {
  std::uint64_t wr_id = 0;
  std::vector<uroce_sge> sges;
  std::vector<Piece> local;
  std::uint32_t capacity = 0;
  bool bad_key = false;
};

/// Requests of one end (the requester) to the other (the responder).
struct Flow {
  std::vector<Work> works;
  std::vector<std::size_t> consuming;  ///< works that take a receive, in order
  std::vector<Receive> receives;       ///< of the responder, in order
  std::size_t settled = 0;             ///< receives matched with their messages

  std::size_t completed = 0;  ///< works before this one are complete, or flushed when failed
  std::size_t succeeded = 0;  ///< works before this one were successful
  bool failed = false;        ///< a work has completed in error
  std::size_t received = 0;   ///< receives before this one are complete
  std::size_t received_ok = 0;
  bool receive_failed = false;

  bool works_done() const { return completed == works.size(); }
};

/// What the world around a completion allows.
struct Surroundings {
  bool own_in_error = false;  ///< the QP that the completion is for
  bool peer_in_error = false;
  bool network_dead = false;
  bool network_harmless = true;
  bool rnr_may_exhaust = false;
  bool nak_must_arrive = false;  ///< nothing but a refusal by the responder can have gone wrong
  std::uint32_t mtu = 1024;
};

/// Matches receives and messages as far as both are known, and says which error both sides must see where they do
/// not fit.
void settle(Flow& flow);

/// Checks and books a completion of the requester's send queue. `arena` is the requester's memory.
void on_send_completion(Flow& flow, const uroce_cqe& cqe, const Surroundings& around,
                        const std::vector<std::byte>& arena);
/// The same for the responder's receive queue.
void on_receive_completion(Flow& flow, const uroce_cqe& cqe, const Surroundings& around,
                           const std::vector<std::byte>& arena, Qpn requester);

/// Whether no completion is due for any work that is left, if all of them succeed.
bool silent_rest(const Flow& flow);
/// They did.
void complete_rest(Flow& flow, const std::vector<std::byte>& arena);

/// What an end's memory held when the connection began, and where its zones are.
struct Memory {
  const std::vector<std::byte>* arena = nullptr;  ///< now
  std::vector<std::byte> initial;
  Piece target;  ///< the zone that the peer's WRITEs and atomics change
};

/// Every byte of an end's memory: `out` is the flow in which it is requester, `in` the one in which it is
/// responder.
void check_memory(const Memory& memory, const Flow& out, const Flow& in, std::uint32_t mtu);

/// Executes a work on the model's images, in posting order.
void apply(Work& work, std::vector<std::byte>& requester_image, std::vector<std::byte>& responder_image);

std::string describe(const Work& work);

}  // namespace uroce::sim
