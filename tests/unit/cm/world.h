// Two connection managers in one virtual world: messages are lost, doubled and delayed by seed.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <map>
#include <random>
#include <vector>

#include "cm/manager.h"

namespace uroce::cm {

inline constexpr std::uint64_t kService = service_id(PortSpace::kTcp, 7174);

inline wire::Address address(std::uint8_t last) {
  wire::Address a;
  a.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, last};
  return a;
}

inline ManagerConfig config(std::uint64_t seed) {
  ManagerConfig c;
  c.max_connections = 64;
  c.max_listeners = 4;
  c.max_pending_events = 256;
  c.response_timeout = 100 * kMillisecond;
  c.timewait = 200 * kMillisecond;
  c.seed = seed;
  c.ca_guid = 0x0200'0000'0000'0000 + seed;
  return c;
}

/// Both ends and the wire between them.
class World {
 public:
  explicit World(std::uint64_t seed = 1, ManagerConfig (*make)(std::uint64_t) = config)
      : ends{Manager(make(seed)), Manager(make(seed + 1000))}, random_(seed) {}

  double loss = 0, duplicate = 0;
  Nanos max_delay = 0;
  std::function<bool(int from, const Message&)> drops;  ///< true: this message gets lost
  std::function<void(int from, Message&)> changes;      ///< what arrives in its place
  std::array<Manager, 2> ends;
  std::array<std::vector<Event>, 2> events;
  Nanos now = kSecond;

  Peer peer_of(int end) const { return {address(end == 0 ? 1 : 2), address(end == 0 ? 2 : 1)}; }

  /// End 0 asks for a datagram service of end 1.
  void ask(std::uint64_t service) {
    SidrReq req;
    req.service_id = service;
    ends[0].sidr_request(peer_of(0), req, 5, now);
  }

  /// What is to be sent now gets lost; what is sent in its place arrives.
  void lose_then_repeat() {
    loss = 1;
    run(kMillisecond);
    loss = 0;
    run(100 * kMillisecond);
  }

  void run(Nanos duration) {
    const Nanos until = now + duration;
    while (true) {
      collect();
      const Nanos next = std::min({until, in_flight_.empty() ? kNever : in_flight_.begin()->first,
                                   ends[0].next_timeout(), ends[1].next_timeout()});
      now = std::max(now, next);
      while (!in_flight_.empty() && in_flight_.begin()->first <= now) {
        const auto [to, message] = in_flight_.begin()->second;
        in_flight_.erase(in_flight_.begin());
        ends[to].receive(message, now);
        collect();
      }
      for (Manager& end : ends) end.advance(now);
      collect();
      if (now >= until && (in_flight_.empty() || in_flight_.begin()->first > now)) return;
    }
  }

  std::vector<Event> take(int end, EventType type) {
    std::vector<Event> taken;
    std::erase_if(events[end], [&](const Event& e) {
      if (e.type == type) taken.push_back(e);
      return e.type == type;
    });
    return taken;
  }

 private:
  bool chance(double p) { return std::uniform_real_distribution<>()(random_) < p; }

  void collect() {
    for (int end = 0; end < 2; ++end) {
      Message message;
      while (ends[end].take_message(message)) {
        if (drops && drops(end, message)) continue;
        if (changes) changes(end, message);
        std::swap(message.peer.local, message.peer.remote);
        for (int copies = chance(loss) ? 0 : chance(duplicate) ? 2 : 1; copies > 0; --copies) {
          in_flight_.emplace(now + (max_delay == 0 ? 0 : random_() % max_delay), std::pair(1 - end, message));
        }
      }
      Event event;
      while (ends[end].take_event(event)) events[end].push_back(event);
    }
  }

  std::mt19937_64 random_;
  std::multimap<Nanos, std::pair<int, Message>> in_flight_;
};

inline Req request(std::uint32_t qpn) {
  Req req;
  req.service_id = kService;
  req.local_qpn = Qpn{qpn};
  req.starting_psn = Psn(qpn * 7);
  req.private_data[0] = std::byte{0x42};
  return req;
}
inline Rep reply(std::uint32_t qpn) {
  Rep rep;
  rep.local_qpn = Qpn{qpn};
  return rep;
}

struct Ids {
  ConnectionId active, passive;
};
inline Ids connected(World& world, std::uint32_t qpn = 17) {
  if (world.ends[1].listen(kService, 8, 99) == EINVAL) ADD_FAILURE();
  const auto active = world.ends[0].connect(world.peer_of(0), request(qpn), 5, world.now);
  world.run(kMillisecond);
  const auto requests = world.take(1, EventType::kRequest);
  EXPECT_EQ(requests.size(), 1u);
  EXPECT_TRUE(world.ends[1].accept(requests.at(0).id, reply(qpn + 100), 6, world.now));
  world.run(kMillisecond);
  EXPECT_EQ(world.take(0, EventType::kResponse).size(), 1u);
  EXPECT_TRUE(world.ends[0].establish(*active, {}, world.now));
  world.run(kMillisecond);
  EXPECT_EQ(world.take(1, EventType::kEstablished).size(), 1u);
  return {*active, requests.at(0).id};
}

}  // namespace uroce::cm
