// Consumers of all tempers on a bad network, by seed: whatever they do, each connection ends once for each side,
// and nothing is left over.
#include <gtest/gtest.h>

#include <set>

#include "world.h"

namespace uroce::cm {
namespace {

constexpr std::uint64_t kDatagramService = service_id(PortSpace::kUdp, 7174);

/// The consumer of one end: it answers events well, badly, late or not at all.
class Consumer {
 public:
  Consumer(World& world, int end, std::uint64_t seed)
      : world_(world), manager_(world.ends[end]), end_(end), random_(seed * 2 + static_cast<unsigned>(end)) {
    manager_.listen(kService, 16, 99);
    manager_.listen(kDatagramService, 16, 98);
  }

  void connect(std::uint32_t qpn) { note(manager_.connect(world_.peer_of(end_), request(qpn), qpn, world_.now)); }
  void ask(std::uint16_t pkey) {
    SidrReq req;
    req.service_id = kDatagramService;
    req.pkey = pkey;
    note(manager_.sidr_request(world_.peer_of(end_), req, pkey, world_.now));
  }

  void step() {
    std::vector<Event> events;
    events.swap(world_.events[end_]);
    const std::set<std::uint32_t> silent = gone_;  // since before any of these
    for (const Event& event : events) {
      const std::uint32_t id = event.id.value;
      if (note_freed(event)) continue;
      EXPECT_FALSE(silent.contains(id)) << "abandoned: " << static_cast<int>(event.type);
      if (gone_.contains(id)) continue;
      live_.insert(id);
      EXPECT_TRUE(told_[id].insert(event.type).second) << "twice to " << id << ": " << static_cast<int>(event.type);
      EXPECT_FALSE(closed_.contains(id)) << "after its end: " << static_cast<int>(event.type);
      answer(event);
    }
    if (random_() % 8 == 0) someone([&](ConnectionId id) { manager_.disconnect(id, world_.now); });
    if (random_() % 32 == 0) someone([&](ConnectionId id) { leave(id); });
  }
  /// As when a program dies: no events of its ids are expected any longer.
  void die() {
    for (const std::uint32_t id : std::set(live_)) leave({id});
  }
  std::size_t established() const { return established_; }
  /// Of an abandoned connection only the end is an event.
  bool note_freed(const Event& event) {
    if (event.type != EventType::kClosed || !gone_.contains(event.id.value)) return false;
    EXPECT_TRUE(freed_.insert(event.id.value).second) << "twice: " << event.id.value;
    return true;
  }
  /// Whether the end of each abandoned connection was an event, or was seen at once.
  bool all_freed() const { return freed_ == gone_; }

 private:
  void note(std::optional<ConnectionId> id) {
    if (id) live_.insert(id->value);
  }
  void leave(ConnectionId id) {
    if (manager_.state(id) == State::kFree) return;  // its last event is under way
    manager_.abandon(id, world_.now);
    live_.erase(id.value);
    gone_.insert(id.value);
    if (manager_.state(id) == State::kFree) freed_.insert(id.value);
  }
  template <class Do>
  void someone(Do&& action) {
    if (live_.empty()) return;
    action(ConnectionId{*std::next(live_.begin(), static_cast<std::ptrdiff_t>(random_() % live_.size()))});
  }

  void answer(const Event& event) {
    const std::uint64_t mood = random_() % 8;
    switch (event.type) {
      case EventType::kRequest:
        if (mood < 5) {
          manager_.accept(event.id, reply(event.req.local_qpn.value + 1000), 6, world_.now);
        } else if (mood == 5) {
          manager_.reject(event.id, RejReason::kConsumerDefined, {}, world_.now);
        } else if (mood == 6) {
          leave(event.id);
        }
        break;
      case EventType::kResponse:
        if (mood < 6) {
          established_ += manager_.establish(event.id, {}, world_.now);
        } else if (mood == 6) {
          manager_.reject(event.id, RejReason::kNoResources, {}, world_.now);
        }
        break;
      case EventType::kSidrRequest:
        if (mood < 5) {
          manager_.sidr_respond(event.id, {}, world_.now);
        } else if (mood == 5) {
          leave(event.id);
        }
        break;
      case EventType::kClosed:
        closed_.insert(event.id.value);
        live_.erase(event.id.value);
        break;
      default: break;
    }
  }

  World& world_;
  Manager& manager_;
  int end_;
  std::mt19937_64 random_;
  std::set<std::uint32_t> live_, gone_, closed_, freed_;
  std::map<std::uint32_t, std::set<EventType>> told_;
  std::size_t established_ = 0;
};

TEST(CmSimulation, EveryConnectionEndsOnceWhateverConsumersAndNetworkDo) {
  std::size_t established = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world(seed);
    world.loss = 0.2;
    world.duplicate = 0.2;
    world.max_delay = 50 * kMillisecond;
    Consumer consumers[] = {{world, 0, seed}, {world, 1, seed}};
    for (std::uint32_t i = 0; i < 8; ++i) {
      consumers[0].connect(100 + i);
      consumers[1].connect(500 + i);
      consumers[i % 2].ask(static_cast<std::uint16_t>(i));
    }
    for (int step = 0; step < 300; ++step) {
      world.run(10 * kMillisecond);
      for (Consumer& consumer : consumers) consumer.step();
      if (step == 250 && seed % 3 == 0) consumers[seed % 2].die();
    }
    for (Consumer& consumer : consumers) consumer.die();
    for (int end : {0, 1}) {
      for (const Event& event : world.events[end]) consumers[end].note_freed(event);
      world.events[end].clear();
    }
    world.run(60 * kSecond);
    for (int end : {0, 1}) {
      // A consumer that is gone gets new requests only, which its listener gets while the peer repeats itself.
      for (const Event& event : world.events[end]) {
        EXPECT_TRUE(event.type == EventType::kRequest || event.type == EventType::kSidrRequest ||
                    event.type == EventType::kClosed);
        consumers[end].note_freed(event);
      }
      EXPECT_TRUE(consumers[end].all_freed()) << "end " << end;
      EXPECT_EQ(world.ends[end].connections(), 0u) << "end " << end;
      established += consumers[end].established();
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(established, 1000u);
}

}  // namespace
}  // namespace uroce::cm
