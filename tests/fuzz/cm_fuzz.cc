// The connection manager under messages of any content and consumers that do anything: whatever happens, nothing
// stays when all have let go and time has passed.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

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

struct World {
  cm::Manager manager{config()};
  std::vector<cm::ConnectionId> known;
  std::vector<std::uint32_t> peers{1, 2, 3};  ///< ids that a peer may use
  Nanos now = kSecond;

  cm::Peer peer(std::uint8_t which) const {
    return {address(1), address(static_cast<std::uint8_t>(2 + which % 2))};
  }
  cm::ConnectionId any(std::uint8_t which) const {
    return known.empty() ? cm::ConnectionId{which} : known[which % known.size()];
  }
  void drain() {
    cm::Message message;
    while (manager.take_message(message)) {
      const auto attribute = static_cast<unsigned>(message.attribute);
      require(attribute >= 0x10 && attribute <= 0x18);
    }
    cm::Event event;
    while (manager.take_event(event)) {
      if (std::ranges::find(known, event.id) == known.end()) known.push_back(event.id);
    }
    require(manager.connections() <= kConnections);
  }

  /// A message of any kind; with `aimed` its ids are such as mean something here.
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
      case 0:
        manager.accept(id, {}, which, now);
        break;
      case 1:
        manager.reject(id, cm::RejReason::kConsumerDefined, {}, now);
        break;
      case 2:
        manager.establish(id, {}, now);
        break;
      case 3:
        manager.disconnect(id, now);
        break;
      case 4:
        manager.abandon(id, now);
        break;
      case 5:
        manager.delay(id, in.byte(), now);
        break;
      case 6:
        manager.sidr_respond(id, {}, now);
        break;
      case 7:
        note(manager.connect(peer(which), req, 1, now));
        break;
      case 8:
        note(manager.sidr_request(peer(which), sidr, 1, now));
        break;
      case 9:
        (in.byte() & 1) != 0 ? void(manager.listen(kService, 4, 9)) : manager.unlisten(kService);
        break;
    }
  }
  void note(std::optional<cm::ConnectionId> id) {
    if (id) known.push_back(*id);
  }

  void pass(Nanos time) {
    now += time;
    while (manager.next_timeout() <= now) {
      manager.advance(now);
      drain();
    }
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input in({data, size});
  World world;
  require(world.manager.listen(kService, 4, 9) == 0);
  while (!in.empty()) {
    switch (in.byte() % 4) {
      case 0:
        world.receive(in, false);
        break;
      case 1:
        world.receive(in, true);
        break;
      case 2:
        world.command(in);
        break;
      case 3:
        world.pass(kMillisecond << (in.byte() % 20));
        break;
    }
    world.drain();
  }
  for (const cm::ConnectionId id : world.known) {
    world.manager.abandon(id, world.now);
    world.drain();
  }
  for (int i = 0; i < 10; ++i) world.pass(1000 * kSecond);
  require(world.manager.connections() == 0);
  return 0;
}
