// The connection manager of one port, sans-IO: CM messages and time in, CM messages and events out (IBTA vol. 1,
// chapter 12, with the RDMA IP CM service of annex A11 in the private data).
//
// Contract. One thread makes all calls. connect, accept, reject, establish and disconnect are the consumer's
// requests; receive() takes each CM message that arrived, advance() the time. Then take_message() is drained into
// GSI packets and take_event() to the consumers. A connection exists from connect() or its kRequest event until its
// kClosed event; its id is not reused soon. Nothing here allocates after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "cm/messages.h"
#include "wire/mad.h"

namespace uroce::cm {

/// Local communication id: names a connection on this side, and on the wire.
struct ConnectionId {
  std::uint32_t value = 0;
  bool operator==(const ConnectionId&) const = default;
};

enum class State : std::uint8_t {
  kFree,
  kReqSent,
  kReqReceived,
  kRepSent,
  kRepReceived,
  kEstablished,
  kDreqSent,
  kDreqReceived,
  kTimewait,
  kSidrSent,
  kSidrReceived,
};
std::string_view name(State state);

/// Where messages of a connection go.
struct Peer {
  wire::Address local, remote;
  bool operator==(const Peer&) const = default;
};

/// The local addresses that a listener serves.
struct ListenScope {
  std::optional<wire::Address> address;  ///< nullopt: all addresses of the families
  bool ipv4 = true, ipv6 = true;

  bool serves(const wire::Address& local) const {
    return address ? *address == local : local.is_v4() ? ipv4 : ipv6;
  }
  bool overlaps(const ListenScope& other) const {
    if (address || other.address) return address == other.address;
    return (ipv4 && other.ipv4) || (ipv6 && other.ipv6);
  }
  bool operator==(const ListenScope&) const = default;
};

enum class EventType : std::uint8_t {
  kRequest,       ///< passive: a REQ for a listener; call accept() or reject(). Until then repeated REQs get an MRA
  kResponse,      ///< active: a REP; call establish() or reject(). Until then repeated REPs get an MRA
  kEstablished,   ///< passive: the RTU or the first packet arrived
  kRejected,      ///< the peer rejected; the reason is in `reject`
  kUnreachable,   ///< no answer to a REQ or REP after all retries
  kDisconnected,  ///< the peer sent a DREQ, answered ours, or did not answer after all retries
  kClosed,        ///< TIMEWAIT is over or the connection was never established; the id is invalid
  kSidrRequest,
  kSidrResponse,
};

struct Event {
  EventType type{};
  ConnectionId id;
  bool timed_out = false;    ///< kDisconnected: our DREQ was not answered
  std::uint64_t cookie = 0;  ///< the consumer's, from connect() or of the listener
  Peer peer;
  Req req;     ///< kRequest
  Rep rep;     ///< kResponse
  Rej reject;  ///< kRejected
  SidrReq sidr_req;
  SidrRep sidr_rep;
};

/// A message to send or a received one: the contents of the MAD after the fixed header.
struct Message {
  Attribute attribute{};
  std::uint64_t transaction = 0;
  Peer peer;
  std::array<std::byte, kMessageBytes> bytes{};
  std::uint32_t modifier = 0;  ///< of the attribute: ECE options
  std::uint8_t class_version = wire::kMadCmClassVersion;
};

struct ManagerConfig {
  std::uint32_t max_connections = 65536;
  std::uint32_t max_listeners = 4096;
  std::uint32_t max_pending_events = 4096;
  Nanos response_timeout = 4'294'967'296;  ///< 4.096 us * 2^20, as Linux uses
  Nanos timewait = 2 * kSecond;
  std::uint8_t max_retries = 15;
  std::uint64_t seed = 1;  ///< of ids and transactions
  std::uint64_t ca_guid = 0;
};

/// Cumulative counters by reason.
struct ManagerCounters {
  std::uint64_t received[9] = {}, sent[9] = {};  ///< by attribute - 0x10
  std::uint64_t duplicates = 0, retries = 0, stale = 0, unmatched = 0, out_of_state = 0, backlog_full = 0,
                table_full = 0, bad_version = 0;
};

class Manager {
 public:
  explicit Manager(const ManagerConfig& config);
  ~Manager();
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  // Listeners. EADDRINUSE when the service is taken there, ENOMEM when there are max_listeners. A listener at
  // the request's destination address takes precedence over one at any address.
  int listen(std::uint64_t service, std::uint32_t backlog, std::uint64_t cookie, const ListenScope& where = {});
  void unlisten(std::uint64_t service, const ListenScope& where = {});

  /// Sends a REQ. local_id, CA GUID and timeouts of `req` are filled in here. nullopt: the table is full.
  std::optional<ConnectionId> connect(const Peer& peer, Req req, std::uint64_t cookie, Nanos now);
  /// Answers a request with a REP; ids and GUID are filled in. False: no such connection in that state.
  bool accept(ConnectionId id, Rep rep, std::uint64_t cookie, Nanos now);
  /// Rejects a request or a response.
  bool reject(ConnectionId id, RejReason reason, std::span<const std::byte> private_data, Nanos now);
  /// Active: sends the RTU. Passive: the first packet came before the RTU (COMM_EST).
  bool establish(ConnectionId id, std::span<const std::byte> private_data, Nanos now);
  bool disconnect(ConnectionId id, Nanos now);
  /// The consumer is gone: sends what the state requires (REJ, DREQ). The state is kFree afterwards, or kClosed is
  /// the only event that follows.
  void abandon(ConnectionId id, Nanos now);

  std::optional<ConnectionId> sidr_request(const Peer& peer, SidrReq req, std::uint64_t cookie, Nanos now);
  bool sidr_respond(ConnectionId id, SidrRep rep, Nanos now);

  void receive(const Message& message, Nanos now);
  void advance(Nanos now);
  Nanos next_timeout() const;

  bool take_message(Message& out);
  bool take_event(Event& out);

  State state(ConnectionId id) const;
  std::uint32_t connections() const;
  const ManagerCounters& counters() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace uroce::cm
