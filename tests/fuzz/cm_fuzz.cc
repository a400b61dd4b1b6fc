// The connection manager with arbitrary datagrams and an arbitrary consumer, and two of them with datagrams in
// between that are lost, duplicated, delayed and corrupted. When all ids are destroyed and time has passed, no
// state may remain.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <span>
#include <vector>

#include "cm/mad.h"
#include "cm/manager.h"

namespace {

using namespace uroce;

constexpr std::uint32_t kConnections = 16;
constexpr std::uint64_t kService = cm::service_id(cm::PortSpace::kTcp, 7000);

class Input {
 public:
  explicit Input(std::span<const std::uint8_t> bytes) : left_(bytes) {}
  bool empty() const { return left_.empty(); }
  std::uint8_t byte() {
    if (left_.empty()) return 0;
    const std::uint8_t value = left_.front();
    left_ = left_.subspan(1);
    return value;
  }
  void copy(std::span<std::byte> to) {
    const std::size_t n = std::min(left_.size(), to.size());
    std::memcpy(to.data(), left_.data(), n);
    left_ = left_.subspan(n);
  }

 private:
  std::span<const std::uint8_t> left_;
};

void require(bool holds) {
  if (!holds) std::abort();
}

cm::ManagerConfig config() {
  cm::ManagerConfig c;
  c.max_connections = kConnections;
  c.max_listeners = 2;
  c.max_pending_events = 8;
  c.max_retries = 2;
  return c;
}

wire::Address address(std::uint8_t last) {
  wire::Address a;
  a.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, last};
  return a;
}

/// A datagram in flight.
struct InFlight {
  std::array<std::byte, wire::kMadBytes> mad;
  bool to_other = false;
};

/// The expected result of parse_mad, derived from the bytes alone.
bool is_cm(cm::Mad mad) {
  constexpr std::byte kBase{1}, kClass{7}, kVersion{2}, kSend{3}, kReq{0x10}, kSidrReq{0x17}, kSidrRep{0x18};
  const bool head = mad[0] == kBase && mad[1] == kClass && mad[3] == kSend && mad[16] == std::byte{0};
  if (!head || mad[17] < kReq || mad[17] > kSidrRep) return false;
  // A request of another version gets an answer.
  return mad[2] == kVersion || mad[17] == kReq || mad[17] == kSidrReq;
}

struct World {
  cm::Manager manager{config()}, other{config()};  ///< at address 1, and at 3
  std::vector<cm::ConnectionId> known, others;
  std::deque<InFlight> in_flight;
  std::vector<std::uint32_t> peers{1, 2, 3};  ///< ids that a peer may use
  Nanos now = kSecond;

  cm::Peer peer(std::uint8_t which) const {
    return {address(1), address(static_cast<std::uint8_t>(2 + which % 2))};
  }
  cm::ConnectionId any(std::uint8_t which) const {
    return known.empty() ? cm::ConnectionId{which} : known[which % known.size()];
  }
  void drain() {
    drain(manager, known, true);
    drain(other, others, false);
  }
  void drain(cm::Manager& from, std::vector<cm::ConnectionId>& ids, bool to_other) {
    cm::Message message;
    while (from.take_message(message)) {
      InFlight sent{{}, to_other};
      cm::emit_mad(message, sent.mad);
      cm::Message back;
      require(cm::parse_mad(sent.mad, back));
      require(back.attribute == message.attribute && back.transaction == message.transaction &&
              back.modifier == message.modifier && back.bytes == message.bytes);
      const bool goes = !to_other || message.peer.remote == address(3);
      if (goes && in_flight.size() < 64) in_flight.push_back(sent);
    }
    cm::Event event;
    while (from.take_event(event)) {
      if (std::ranges::find(ids, event.id) == ids.end()) ids.push_back(event.id);
    }
    require(from.connections() <= kConnections);
  }

  /// The destination, if it is a CM message.
  void arrive(const InFlight& sent) {
    cm::Message message;
    const bool taken = cm::parse_mad(sent.mad, message);
    require(taken == is_cm(sent.mad));
    if (!taken) return;
    message.peer = sent.to_other ? cm::Peer{address(3), address(1)} : cm::Peer{address(1), address(3)};
    (sent.to_other ? other : manager).receive(message, now);
  }

  /// Transmits a datagram between the two, with faults.
  void travel(Input& in) {
    const std::uint8_t what = in.byte();
    if (what % 8 == 0) {  // insert a forged one
      InFlight raw{{}, (what & 8) != 0};
      in.copy(raw.mad);
      return arrive(raw);
    }
    if (in_flight.empty()) return;
    const std::size_t which = (what >> 3) % in_flight.size();
    InFlight sent = in_flight[which];
    if (what % 8 != 1) in_flight.erase(in_flight.begin() + static_cast<std::ptrdiff_t>(which));
    if (what % 8 == 2) return;  // lost
    for (int damage = what % 8 == 3 ? 1 + in.byte() % 4 : 0; damage != 0; --damage) {
      sent.mad[in.byte()] = std::byte{in.byte()};
    }
    arrive(sent);
  }
  /// The consumer of the other manager.
  void answer(Input& in) {
    const std::uint8_t which = in.byte();
    if (others.empty()) return;
    const cm::ConnectionId id = others[in.byte() % others.size()];
    cm::Rep rep;
    rep.local_qpn = Qpn{which};
    switch (which % 5) {
      case 0: other.accept(id, rep, which, now); break;
      case 1: other.reject(id, cm::RejReason::kConsumerDefined, {}, now); break;
      case 2: other.disconnect(id, now); break;
      case 3: other.sidr_respond(id, {}, now); break;
      case 4: other.abandon(id, now); break;
    }
  }

  /// An arbitrary message; with `aimed` its ids are ones that exist.
  void receive(Input& in, bool aimed) {
    const std::uint8_t kind = in.byte(), who = in.byte();
    cm::Message message{static_cast<cm::Attribute>(0x10 + kind % 10), in.byte(), peer(who), {}};
    const std::uint32_t theirs = peers[in.byte() % peers.size()], ours = any(in.byte()).value;
    in.copy(std::span(message.bytes).first(aimed ? 40 : message.bytes.size()));
    if (aimed && message.attribute == cm::Attribute::kReq) {
      cm::Req req = cm::Req::parse(message.bytes);
      req.local_id = theirs;
      req.service_id = kService;
      req.local_qpn = Qpn{theirs};
      req.emit(message.bytes);
    } else if (aimed) {
      for (int i = 0; i < 4; ++i) {
        message.bytes[i] = static_cast<std::byte>(theirs >> (24 - 8 * i));
        message.bytes[4 + i] = static_cast<std::byte>(ours >> (24 - 8 * i));
      }
    }
    manager.receive(message, now);
  }

  void command(Input& in) {
    const std::uint8_t which = in.byte();
    const cm::ConnectionId id = any(in.byte());
    cm::Req req;
    req.service_id = kService;
    req.local_qpn = Qpn{which};
    cm::SidrReq sidr;
    sidr.service_id = kService;
    switch (which % 10) {
      case 0: manager.accept(id, {}, which, now); break;
      case 1: manager.reject(id, cm::RejReason::kConsumerDefined, {}, now); break;
      case 2: manager.establish(id, {}, now); break;
      case 3: manager.disconnect(id, now); break;
      case 4: manager.abandon(id, now); break;
      case 5: manager.reject(id, static_cast<cm::RejReason>(in.byte()), {}, now); break;
      case 6: manager.sidr_respond(id, {}, now); break;
      case 7: note(manager.connect(peer(which), req, 1, now)); break;
      case 8: note(manager.sidr_request(peer(which / 10), sidr, 1, now)); break;
      case 9: (in.byte() & 1) != 0 ? void(manager.listen(kService, 4, 9)) : manager.unlisten(kService); break;
    }
  }
  void note(std::optional<cm::ConnectionId> id) {
    if (id) known.push_back(*id);
  }

  void pass(Nanos time) {
    now += time;
    while (std::min(manager.next_timeout(), other.next_timeout()) <= now) {
      manager.advance(now);
      other.advance(now);
      drain();
    }
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input in({data, size});
  World world;
  require(world.manager.listen(kService, 4, 9) == 0 && world.other.listen(kService, 4, 9) == 0);
  while (!in.empty()) {
    const std::uint8_t step = in.byte();
    if (step >= 0xe0) {
      step % 4 == 0 ? world.answer(in) : world.travel(in);
      world.drain();
      continue;
    }
    switch (step % 4) {
      case 0: world.receive(in, false); break;
      case 1: world.receive(in, true); break;
      case 2: world.command(in); break;
      case 3: world.pass(kMillisecond << (in.byte() % 20)); break;
    }
    world.drain();
  }
  for (const cm::ConnectionId id : world.known) {
    world.manager.abandon(id, world.now);
    world.drain();
  }
  for (const cm::ConnectionId id : world.others) {
    world.other.abandon(id, world.now);
    world.drain();
  }
  for (int i = 0; i < 10; ++i) world.pass(1000 * kSecond);
  require(world.manager.connections() == 0 && world.other.connections() == 0);
  return 0;
}
