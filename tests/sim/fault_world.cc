#include "tests/sim/fault_world.h"

#include <algorithm>
#include <cstdio>

#include "tests/sim/hostile_frames.h"
#include "wire/dump.h"

namespace uroce::sim {
namespace {

constexpr std::uint64_t kMostSteps = 1'000'000;
constexpr std::size_t kRecent = 16;

}  // namespace

FaultWorld::FaultWorld(const WorldOptions& options) : options_(options), random_(options.seed) {
  network_settings_ = draw_short_network(random_, 0.4);
  network_ = std::make_unique<Network>(network_settings_, random_.next());
  ghosts_ = random_.chance(0.6) ? 0.03 : 0;
  strangers_ = random_.chance(0.3) ? 0.1 : 0;
  HostSettings settings;
  settings.ipv6 = random_.chance(0.3);
  if (random_.chance(0.2)) settings.vlan = static_cast<std::uint16_t>(random_.between(1, 4094));
  settings.workers = random_.chance(0.5) ? 1 : random_.between(2, 3);
  settings.busy_port = random_.chance(0.2);
  settings.max_qps = 32;
  settings.cq_entries = 256;  // many laps
  if (!network_settings_.harmless() && random_.chance(0.6)) settings.min_early_retry_delay = 20 * kMicrosecond;
  for (std::uint32_t id = 0; id < 2; ++id) {
    settings.id = id;
    settings.seed = random_.next();
    settings.cqs = random_.between(1, 3);
    settings.quantum_packets = random_.between(1, 32);
    settings.receive_ring_bytes = random_.chance(0.7) ? 4u << 20 : random_.between(8192, 60'000);
    host_settings_[id] = settings;
    hosts_[id] = std::make_unique<Host>(settings);
  }
  FaultSetting setting;
  setting.hosts = &hosts_;
  setting.graveyard = &graveyard_;
  setting.longest_trip =
      network_settings_.latency + network_settings_.jitter + network_settings_.reorder_by + 100'000;
  constexpr std::uint32_t kSizes[] = {32, 400, 1300};
  setting.largest = random_.pick(kSizes);
  setting.wrap = random_.chance(0.4);
  setting.calm = options.mutation != Mutation::kNone;  // a fault might hide the mutation
  if (options_.trace) {
    setting.trace = [this](const std::string& text) {
      std::printf("%12.3f us  %s\n", static_cast<double>(now_) / 1e3, text.c_str());
    };
  }
  for (std::uint32_t i = random_.between(2, 4); i > 0; --i) {
    links_.push_back(
        std::make_unique<FaultLink>(setting, static_cast<std::uint32_t>(links_.size()), random_.next()));
  }
  if (!setting.calm && random_.chance(0.25)) restart_at_ = random_.below(1'000'000);
  mutation_countdown_ = random_.between(1, 10);
}

bool FaultWorld::all_closed() const { return std::ranges::all_of(links_, &FaultLink::closed); }

void FaultWorld::run() {
  for (auto& link : links_) link->begin(now_);
  while (!all_closed()) step();
  check_end();
}

Nanos FaultWorld::next_moment() const {
  Nanos next = std::min(network_->next_arrival(), restart_at_);
  if (!late_.empty()) next = std::min(next, late_.begin()->first);
  for (const auto& host : hosts_) {
    next = std::min(next, host->next_timeout());
    if (host->has_work()) next = std::min(next, now_ + 300);
  }
  for (const auto& link : links_) {
    if (!link->closed()) next = std::min(next, link->next_action());
  }
  return next;
}

void FaultWorld::step() {
  if (++steps_ > kMostSteps) fail("no end after " + std::to_string(steps_) + " steps");
  now_ = std::max(now_, next_moment());
  if (now_ >= restart_at_) restart(random_.below(2));
  deliver();
  act();
  attack();
  run_hosts();
  for (auto& link : links_) link->release_retired();
  if (!random_.chance(0.4)) return;
  poll();
  for (auto& link : links_) {
    if (!link->closed() && link->done()) link->finish(now_, [this] { poll(); });
  }
}

void FaultWorld::deliver() {
  const auto take = [this](const Arrival& arrival, std::span<const std::byte> frame) {
    trace(arrival.damaged ? "damaged" : "arrives", frame);
    hosts_[arrival.to]->arrive(frame);
  };
  for (std::uint32_t i = random_.between(1, 48); i > 0 && network_->receive(now_, take); --i) {
  }
  while (!late_.empty() && late_.begin()->first <= now_) {
    const auto& [to, frame] = late_.begin()->second;
    trace("late   ", frame);
    hosts_[to]->arrive(frame);
    late_.erase(late_.begin());
  }
}

/// Between two duty cycles, or as a command within one.
void FaultWorld::act() {
  for (auto& link : links_) {
    if (link->closed()) continue;
    if (link->next_action() <= now_) link->act(now_);
    if (!link->fault_due()) continue;
    if (random_.chance(0.5)) {
      apply(*link);
    } else {
      hosts_[random_.below(2)]->in_next_step([this, &link = *link] {
        if (link.fault_due()) apply(link);
      });
    }
  }
}

void FaultWorld::apply(FaultLink& link) {
  poll();  // what a program has polled before stays its own
  link.apply_fault(now_);
}

/// Forged packets for QPs whose peer is hostile, and packets from strangers for all.
void FaultWorld::attack() {
  if (recent_.empty()) return;
  for (std::uint32_t i = random_.below(3); i > 0; --i) {
    const auto& [to, frame] = recent_[random_.below(static_cast<std::uint32_t>(recent_.size()))];
    for (const auto& link : links_) {
      const FaultEnd* const victim = link->end_of(to, dest_qpn_of(frame));
      if (victim == nullptr) continue;
      const FaultZone& zone = victim->zones[random_.chance(0.5) ? kTargetZone : kSourceZone];
      const VictimMemory memory{zone.key, zone.iova, static_cast<std::uint32_t>(zone.size)};
      if (link->is_hostile() && random_.chance(0.3)) {
        const Frame forged = forge(frame, memory, random_);
        trace("forged ", forged);
        hosts_[to]->arrive(forged);
      } else if (random_.chance(strangers_)) {
        const Frame foreign = from_elsewhere(random_.chance(0.5) ? forge(frame, memory, random_) : frame);
        trace("foreign", foreign);
        hosts_[to]->arrive(foreign);
      }
    }
  }
}

void FaultWorld::run_hosts() {
  for (std::uint32_t id = 0; id < 2; ++id) {
    for (std::uint32_t i = random_.between(1, 3); i > 0; --i) {
      hosts_[id]->step(now_, [&](std::span<const std::byte> frame) { send(id, frame); });
      if (!hosts_[id]->has_work()) break;
    }
  }
}

void FaultWorld::send(std::uint32_t from, std::span<const std::byte> frame) {
  trace("sends  ", frame);
  const std::uint32_t to = 1 - from, qpn = dest_qpn_of(frame);
  for (const auto& link : links_) {
    if (link->loses_frames() && link->end_of(to, qpn) != nullptr) return;
  }
  if (random_.chance(ghosts_)) {
    const Nanos at = now_ + (random_.chance(0.5) ? random_.below(200'000) : random_.below(20'000'000));
    late_.emplace(at, std::pair(to, Frame(frame.begin(), frame.end())));
  }
  if (recent_.size() < kRecent) recent_.emplace_back();
  recent_[steps_ % recent_.size()] = {to, Frame(frame.begin(), frame.end())};
  network_->send(to, frame, now_);
}

void FaultWorld::poll() {
  for (std::uint32_t id = 0; id < 2; ++id) {
    for (std::uint32_t i = 0; i < hosts_[id]->cqs.size(); ++i) {
      SimCq& cq = *hosts_[id]->cqs[i];
      if (cq.producer.in_error()) fail("a CQ overran that has room");
      for (const uroce_cqe* cqe = cq.consumer.peek(); cqe != nullptr; cqe = cq.consumer.peek()) {
        const uroce_cqe copy = *cqe;
        cq.consumer.pop();
        cq.consumer.publish();
        dispatch(id, CqId{i}, copy);
      }
    }
    hosts_[id]->take_events();
  }
}

void FaultWorld::dispatch(std::uint32_t host, CqId cq, const uroce_cqe& cqe) {
  if (options_.trace) {
    std::printf("%12.3f us  host %u %s\n", static_cast<double>(now_) / 1e3, host, text(cqe).c_str());
  }
  ++completions_;
  const auto hand_on = [&] {
    const bool known = std::ranges::any_of(links_, [&](auto& link) { return link->on_completion(host, cq, cqe); });
    if (!known) fail("a completion for no QP: " + text(cqe));
  };
  const bool strikes = options_.mutation != Mutation::kNone && !mutated_ && cqe.status == UROCE_WC_SUCCESS &&
                       --mutation_countdown_ == 0;
  mutated_ |= strikes;
  if (strikes && options_.mutation == Mutation::kDropCompletion) return;
  if (strikes && options_.mutation == Mutation::kStrayByte) links_[0]->harm();
  hand_on();
  if (strikes && options_.mutation == Mutation::kDoubleCompletion) hand_on();
}

/// All state of the host is lost. It comes back with nothing, perhaps even with the same keys.
void FaultWorld::restart(std::uint32_t id) {
  if (options_.trace) std::printf("%12.3f us  host %u restarts\n", static_cast<double>(now_) / 1e3, id);
  restart_at_ = kNever;
  poll();
  for (auto& link : links_) link->release_retired();
  frames_before_restart_ += hosts_[id]->frames_sent();
  hosts_[id].reset();
  for (auto& link : links_) link->on_restart(id);
  if (random_.chance(0.5)) host_settings_[id].seed = random_.next();
  hosts_[id] = std::make_unique<Host>(host_settings_[id]);
}

void FaultWorld::check_end() {
  // Acknowledges that destroyed QPs owe.
  for (int i = 0; i < 64; ++i) run_hosts();
  poll();
  for (const auto& host : hosts_) {
    if (host->next_timeout() != kNever) fail("a timer runs though there is no QP");
    if (host->wants_transmit()) fail("there is something to send though there is no QP");
    if (host->table.size() != 0) fail("keys remain");
  }
  for (const auto& qp : graveyard_) {
    if (!is_untouched(*qp)) fail("a destroyed QP's memory was written");
  }
}

void FaultWorld::trace(const char* what, std::span<const std::byte> frame) const {
  if (!options_.trace) return;
  char text[wire::kDumpBytes];
  const std::string_view line = wire::dump(frame, text);
  std::printf("%12.3f us  %s %.*s\n", static_cast<double>(now_) / 1e3, what, static_cast<int>(line.size()),
              line.data());
}

std::string FaultWorld::describe() const {
  std::string text = "  at " + std::to_string(now_) + " ns, " + std::to_string(host_settings_[0].workers) +
                     " workers, drop " + std::to_string(network_settings_.drop);
  for (const auto& link : links_) {
    if (!link->closed()) text += "\n  " + link->describe();
  }
  return text;
}

WorldReport FaultWorld::report() const {
  WorldReport report;
  report.frames = frames_before_restart_;
  for (const auto& host : hosts_) report.frames += host->frames_sent();
  report.harmed = network_->harmed();
  report.damaged = network_->damaged();
  report.completions = completions_;
  report.virtual_time = now_;
  report.mutated = mutated_;
  return report;
}

WorldReport run_fault_world(const WorldOptions& options) { return run_one<FaultWorld>(options); }

}  // namespace uroce::sim
