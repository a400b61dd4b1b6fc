// Two QPs of one process, whose frames may name their payload.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "proto/work/by_reference.h"
#include "tests/unit/proto/pair.h"

namespace uroce::proto::test {

/// A frame on its way from one QP to the other.
struct Sent {
  wire::Operation operation{};
  std::uint32_t psn = 0;
  bool by_reference = false;
  std::uint32_t packets = 1;
  std::size_t bytes = 0;
};

/// Two QPs of one transport, whose frames come back as from drivers/packet/loopback; or of two devices, whose
/// frames arrive as over drivers/packet/switch.
struct LocalPair {
  explicit LocalPair(const Options& first, std::optional<Options> second = {})
      : a(first, Qpn{0x11}, 1), b(second.value_or(first), Qpn{0x22}, apart ? 2 : 1, apart ? nullptr : &a) {
    if (apart) a.transport->join(devices), b.transport->join(devices);
    connect(a, {b.qpn, b.options.psn, b.path.source, b.path.source_mac}, now);
    connect(b, {a.qpn, a.options.psn, a.path.source, a.path.source_mac}, now);
    allow(true);
  }

  void allow(bool references) {
    for (End* end : ends()) end->transport->allow_references(references);
  }
  /// Of both ends.
  std::uint64_t sum(std::uint64_t Counters::*counter) {
    std::uint64_t all = 0;
    for (End* end : ends()) all += end->counters().*counter;
    return all;
  }

  /// Carries frames until none is left; `meet` is called for each before it arrives. False: it is lost.
  void run(const std::function<bool(const Sent&)>& meet = {}) {
    for (bool sent = true; sent;) {
      sent = false;
      for (End* end : ends()) sent |= carry_from(*end, meet);
    }
  }
  /// Carries what the transport of this end sends at once. False: nothing.
  bool carry_from(End& end, const std::function<bool(const Sent&)>& meet = {}) {
    constexpr std::uint32_t kFrames = 32, kBytes = 4096 + wire::kMaxOverhead;
    std::vector<std::byte> buffer(kFrames * kBytes);
    std::array<base::Frame, kFrames> frames;
    for (std::uint32_t i = 0; i < kFrames; ++i) frames[i] = {buffer.data() + i * kBytes, 0, kBytes, 0, 0, nullptr};
    TxBurst burst{frames, 0};
    end.transport->transmit(burst, now);
    for (const base::Frame& frame : burst.frames.first(burst.count)) arrive(frame, meet);
    return burst.count != 0;
  }

  /// Goes from timer to timer.
  void settle(const std::function<bool(const Sent&)>& meet = {}) {
    run(meet);
    const auto next = [this] { return std::min(a.transport->next_timeout(), b.transport->next_timeout()); };
    for (int i = 0; i < 1000 && next() != kNever; ++i) {
      now = std::max(now, next());
      for (End* end : ends()) end->transport->advance(now);
      run(meet);
    }
  }

  std::size_t by_reference() const {
    return static_cast<std::size_t>(std::ranges::count_if(log, [](const Sent& sent) { return sent.by_reference; }));
  }

  static inline bool apart = false;  ///< for all that follow: ByReference sets it

  Nanos now = kSecond;
  LocalDevices devices;
  End a, b;
  std::vector<Sent> log;

 private:
  /// One for each transport.
  std::vector<End*> ends() { return apart ? std::vector<End*>{&a, &b} : std::vector<End*>{&a}; }
  void arrive(const base::Frame& frame, const std::function<bool(const Sent&)>& meet) {
    const bool named = (frame.flags & base::kByReference) != 0;
    wire::RxPacket rx;
    ASSERT_EQ(wire::parse(frame.bytes(), {.check_icrc = !named}, rx), wire::ParseVerdict::kOk);
    rx.sender = frame.sender;
    if (named) rx.state = wire::PacketState::kByReference;
    log.push_back({rx.info->operation, rx.bth.psn.value(), named,
                   named ? base::reference_of(frame).packets : std::uint32_t{1}, frame.length});
    if (meet && !meet(log.back())) return;
    End& to = rx.bth.dest_qpn == a.qpn ? a : b;
    EXPECT_EQ(to.transport->receive(rx, now), wire::ParseVerdict::kOk);
  }
};

}  // namespace uroce::proto::test
