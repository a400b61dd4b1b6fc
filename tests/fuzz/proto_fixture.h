// Live connections for the fuzzers of the transport: which may be damaged, and which must stay intact.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "tests/sim/end.h"
#include "tests/sim/host.h"
#include "wire/frame_template.h"

namespace uroce::fuzz {

[[noreturn]] inline void fail(const char* what) {
  std::fprintf(stderr, "fuzz: %s\n", what);
  std::abort();
}

/// Takes numbers off the front of the input; zeros when it is used up.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  bool empty() const { return size_ == 0; }
  std::uint8_t byte() { return static_cast<std::uint8_t>(number(1)); }
  std::uint64_t number(std::size_t bytes) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i) {
      if (size_ == 0) break;
      value |= std::uint64_t{*data_++} << (8 * i);
      --size_;
    }
    return value;
  }
  void copy(std::byte* to, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) to[i] = static_cast<std::byte>(byte());
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

/// A is attacked or attacks, B is its peer. C is another client of A's daemon, in another PD, which must not be
/// affected.
struct Fixture {
  sim::Host host_a, host_b;
  sim::End a, b, c, d;  // c is connected to d
  sim::Random random{1};
  Nanos now = 1000;

  static constexpr SrqId kAttackedSrq{1}, kSrq{2};  ///< A's and B's
  static constexpr std::uint32_t kQkey = 0x1234, kTsoHeader = 64;

  /// `type` is that of A; B has the type that connects to it.
  explicit Fixture(proto::QpType type = proto::QpType::kRc, bool shared = false)
      : host_a(settings(0)), host_b(settings(1)) {
    const sim::ZoneSizes zones{2048, 4096, 8192, 8192};
    // Each client has its own CQ, which it may overrun.
    sim::QueueSizes first{16, 16, 4, 4, 64, false, CqId{0}};
    const sim::QueueSizes second{16, 16, 4, 4, 64, false, CqId{1}};
    first.type = type;
    if (type == proto::QpType::kRawPacket) first.max_tso_header = kTsoHeader;
    const bool initiator = type == proto::QpType::kXrcSend, target = type == proto::QpType::kXrcRecv;
    if (target || (shared && !initiator)) first.srq = kAttackedSrq;
    sim::set_up(a, host_a, random, zones, first, Qpn{0x11}, PdId{1});
    first.srq = {};
    if (initiator) first.type = proto::QpType::kXrcRecv;
    if (target) first.type = proto::QpType::kXrcSend;
    if (initiator || (shared && !target)) first.srq = kSrq;
    sim::set_up(b, host_b, random, zones, first, Qpn{0x12}, PdId{1});
    sim::set_up(c, host_a, random, zones, second, Qpn{0x13}, PdId{2});
    sim::set_up(d, host_b, random, zones, second, Qpn{0x14}, PdId{2});
    for (sim::End* end : {&a, &b, &c, &d}) sim::begin_connection(*end, random);
    join(a, b);
    join(c, d);
    // 1: to B; 2: to A itself; 3: another PD's.
    const wire::PathAddress paths[] = {host_a.path_to(host_b), host_a.path_to(host_a)};
    for (std::uint32_t i = 0; i < 2; ++i) host_a.set_address_handle(AhId{i + 1}, PdId{1}, paths[i]);
    host_a.set_address_handle(AhId{3}, PdId{2}, paths[0]);
  }

  static sim::HostSettings settings(std::uint32_t id) {
    sim::HostSettings settings;
    settings.id = id;
    settings.cqs = 2;
    settings.cq_entries = 256;
    settings.max_qps = 4;
    settings.seed = 7 + id;
    return settings;
  }

  void join(sim::End& one, sim::End& other) {
    sim::End* const ends[2] = {&one, &other};
    for (int side = 0; side < 2; ++side) {
      sim::Connection connection;
      connection.path = ends[side]->host->path_to(*ends[1 - side]->host);
      connection.dest_qpn = ends[1 - side]->qp->qpn;
      connection.sq_psn = Psn(0xfffff0u);
      connection.rq_psn = Psn(0xfffff0u);
      connection.path_mtu = 256;
      connection.type = ends[side]->qp->sizes.type;
      connection.qkey = kQkey;
      connection.timeout = 8;
      connection.retry_cnt = 2;
      connection.rnr_retry = 2;
      connection.max_rd_atomic = connection.max_dest_rd_atomic = 4;
      if (sim::connect(*ends[side]->host, *ends[side]->qp, connection, now).error != 0) fail("connect");
    }
  }

  void post_receives(sim::End& end, sim::End& peer, int count) {
    for (int i = 0; i < count; ++i) {
      sim::draw_receive(end, peer, random, {512, 4}, false);
      if (!sim::post(end, peer.out.receives.back())) break;
    }
    end.receive_ring().publish();
  }

  void post_works(sim::End& end, sim::End& peer, int count) {
    for (int i = 0; i < count; ++i) {
      sim::draw_work(end, peer, random, {600, 4}, sim::Ending::kNormal);
      if (!sim::post(end, end.out.works.back())) break;
    }
    end.qp->sq.publish();
    end.host->doorbell(*end.qp);
  }

  /// Everything but these zones is as it was when the connection began.
  static void expect_untouched(const sim::End& end, std::initializer_list<const sim::Zone*> but) {
    std::vector<std::byte> expected = end.memory.initial;
    for (const sim::Zone* zone : but) {
      for (std::size_t i = zone->piece.offset; i < zone->piece.offset + zone->piece.length; ++i) {
        expected[i] = end.arena[i];
      }
    }
    if (expected != end.arena) fail("memory changed that nobody had the right to change");
  }

  bool raw() const { return a.qp->sizes.type == proto::QpType::kRawPacket; }

  /// Sends what `host` has to send; each frame must be good, if no raw packet QP made it. take(frame) gets it.
  template <class Take>
  void flush(sim::Host& host, Take&& take) {
    for (int step = 0; step < 16 || host.holds_frames(); ++step) {
      host.step(now, [&](std::span<const std::byte> frame) {
        wire::RxPacket packet;
        if (wire::parse(frame, {}, packet) != wire::ParseVerdict::kOk && !raw()) {
          fail("sent a frame that does not parse");
        }
        take(frame);
      });
      if (!host.has_work()) return;
    }
  }

  void poll(sim::Host& host) {
    for (auto& cq : host.cqs) {
      while (const uroce_cqe* cqe = cq->consumer.peek()) {
        if (cqe->qpn < 0x11 || cqe->qpn > 0x14) fail("completion for a QP that does not exist");
        cq->consumer.pop();
        cq->consumer.publish();
      }
    }
    host.take_events();
  }

  /// The next step of a host fires the timers that are then due.
  void advance(Nanos by) { now += by; }
};

}  // namespace uroce::fuzz
