// One end of a simulated connection: its QP, its memory in zones, and the client, which posts and polls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tests/sim/host.h"
#include "tests/sim/model.h"
#include "tests/sim/random.h"

namespace uroce::sim {

/// A part of an end's arena with an MR over it. Zones stand apart: what lies between must never change.
struct Zone {
  Piece piece;
  Key key;
  std::uint64_t iova = 0;
  std::size_t used = 0;  ///< bytes handed out, where each byte is used once

  std::uint64_t address(std::size_t arena_offset) const { return iova + (arena_offset - piece.offset); }
};

/// Sizes of one end's memory, bytes.
struct ZoneSizes {
  std::uint32_t source = 4096;   ///< of each of two: never changes, SENDs and WRITEs read it
  std::uint32_t target = 4096;   ///< the peer's WRITEs, READs and atomics
  std::uint32_t landing = 4096;  ///< of READ responses and atomic results, each byte once a connection
  std::uint32_t receive = 4096;  ///< receive buffers, each byte once a connection
};

struct End {
  Host* host = nullptr;
  std::unique_ptr<SimQp> qp;
  PdId pd;
  CqId send_cq, recv_cq;
  std::vector<std::byte> arena;
  std::vector<std::byte> image;  ///< the arena as the model has it
  Memory memory;
  Zone source[2], target, landing, receive;
  Key foreign;                  ///< an MR over the target zone in another PD
  Key window;                   ///< over the target zone, good for the whole connection
  std::vector<Key> perishable;  ///< fast registrations and windows that the peer, or the end itself, may invalidate
  std::vector<Key> unbound;     ///< such that a work may make valid
  std::vector<Key> read_keys;   ///< of `perishable`, those that READs of the peer name
  std::vector<Key> all_perishable;
  std::vector<Key> perished;  ///< such, for which an invalidation by the peer has been posted
  Connection connection;
  std::optional<SrqId> srq_id;
  std::unique_ptr<SimSrq> srq;  ///< made anew for each connection

  Flow out;                          ///< this end is the requester; the peer's receives of it
  std::uint32_t works_left = 0;      ///< to be posted
  std::uint32_t extra_receives = 0;  ///< posted beyond what the peer needs
  std::size_t receive_owed = 0;      ///< bytes of the peer's messages that have no receive yet
  Nanos next_action = 0;
  Nanos pause = 0;  ///< grows while there is nothing to do
  bool moved_to_error = false;
  std::vector<std::size_t> open_reads;  ///< works whose target or landing bytes may still be in use

  bool in_error() const;
  bool reliable_plain() const { return qp->sizes.type == proto::QpType::kRc; }
  queue::WorkProducer& receive_ring() { return srq ? srq->producer : qp->rq; }
};

/// Makes arena, zones and MRs, and a QP.
void set_up(End& end, Host& host, Random& random, const ZoneSizes& zones, const QueueSizes& queues, Qpn qpn,
            PdId pd);
/// Takes the memory as it is now for the beginning of a connection.
void begin_connection(End& end, Random& random);
/// The keys leave the table: what a client that closes leaves behind is nothing.
void tear_down(End& end);

/// How a connection is to go wrong.
enum class Ending : std::uint8_t {
  kNormal,
  kBadRemote,   ///< a request that the responder must refuse
  kBadLocal,    ///< a work that the requester itself must refuse
  kBadReceive,  ///< a receive that its message does not fit
  kToError,     ///< the client moves its QP to ERR
  kNoReceives,  ///< rnr_retry runs out
};

/// Limits for random work.
struct WorkLimits {
  std::uint32_t max_message = 1024;
  std::uint32_t max_rd_atomic = 1;
  bool may_consume = true;  ///< take a receive
};

/// Draws a work for `end`, executes it in the model, and appends it to end.out. `bad`: one that must fail.
void draw_work(End& end, End& peer, Random& random, const WorkLimits& limits, Ending bad);
/// Draws the next receive of `end` for the peer's messages, and appends it to peer.out.
void draw_receive(End& end, End& peer, Random& random, const WorkLimits& limits, bool bad);

/// Puts the work into the shared ring. False: the ring is full.
bool post(End& end, const Work& work);
bool post(End& end, const Receive& receive);

}  // namespace uroce::sim
