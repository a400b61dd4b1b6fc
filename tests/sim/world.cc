#include "tests/sim/world.h"

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "wire/dump.h"
#include "wire/icrc.h"

namespace uroce::sim {
namespace {

constexpr std::uint64_t kMostSteps = 10'000'000;  // a world with 15 % loss needs a third of that
constexpr Nanos kLongestRun = 900 * kSecond;
constexpr std::uint32_t kLongestSleep = 300'000;

bool is_send(std::span<const std::byte> frame) {
  const std::size_t bth = bth_offset(frame);
  if (bth + 12 > frame.size()) return false;
  const auto operation = std::to_integer<std::uint8_t>(frame[bth]) & 0x1f;
  return operation <= 5 || operation == 0x16 || operation == 0x17;
}

NetworkSettings draw_network(Random& random, bool harmless) {
  NetworkSettings settings;
  settings.latency = 500 + random.below(random.chance(0.2) ? 200'000 : 5'000);
  settings.jitter = random.chance(0.5) ? 0 : random.below(static_cast<std::uint32_t>(settings.latency));
  settings.reorder_by = 100 + random.below(20'000);
  if (harmless) return settings;
  constexpr double kRates[] = {0, 0.002, 0.01, 0.05, 0.2};
  settings.drop = random.pick(kRates);
  settings.duplicate = random.pick(kRates);
  settings.reorder = random.pick(kRates);
  settings.corrupt = random.pick(kRates) / 2;
  return settings;
}

}  // namespace

const char* name_of(Mutation mutation) {
  constexpr const char* kNames[kMutations] = {
      "none", "drop-completion", "double-completion", "swap-completions", "status", "stray-byte", "forge"};
  return kNames[static_cast<int>(mutation)];
}

World::World(const WorldOptions& options)
    : options_(options), random_(options.seed), sleepy_(options.seed % 7 == 3), sleep_(~options.seed) {
  harmless_ = random_.chance(0.3);
  mortal_ = random_.chance(0.05) && options.mutation == Mutation::kNone;
  one_host_ = (random_.chance(0.1) && !options.switched) || options.one_host;
  network_settings_ = draw_network(random_, harmless_);
  harmless_ = network_settings_.harmless();
  network_ = std::make_unique<Network>(network_settings_, random_.next());
  HostSettings settings;
  settings.ipv6 = random_.chance(0.3);
  if (random_.chance(0.2)) settings.vlan = static_cast<std::uint16_t>(random_.between(1, 4094));
  settings.offload_ip_checksum = random_.chance(0.2);
  settings.workers = options.seed % 4 == 0 ? 1 + static_cast<std::uint32_t>(options.seed / 4 % 3) : 1;
  settings.busy_port = options.seed % 5 == 0;
  settings.references = (options.one_host || options.switched) && options.seed % 8 != 1;
  if (!harmless_ && options.seed % 3 != 0) settings.min_early_retry_delay = 20 * kMicrosecond;
  for (std::uint32_t id = 0; id < (one_host_ ? 1u : 2u); ++id) {
    settings.id = id;
    settings.seed = random_.next();
    settings.cqs = random_.between(1, 3);
    settings.quantum_packets = random_.chance(0.5) ? 16 : random_.between(1, 64);
    settings.receive_ring_bytes = random_.chance(0.7) ? 4u << 20 : random_.between(8192, 200'000);
    hosts_.push_back(std::make_unique<Host>(settings));
    if (options.switched) hosts_.back()->join(switched_);
  }
  Setting setting;
  setting.network = network_.get();
  setting.host[0] = hosts_.front().get();
  setting.host[1] = hosts_.back().get();
  setting.harmless = harmless_;
  setting.mortal = mortal_;
  setting.only_normal = options.mutation != Mutation::kNone;  // a cut-off message might hide the fault
  setting.longest_trip =
      network_settings_.latency + network_settings_.jitter + network_settings_.reorder_by + 100'000;
  if (sleepy_) setting.longest_trip += kLongestSleep;
  setting.sleepy = sleepy_;
  constexpr std::uint32_t kSizes[] = {64, 512, 4096, 4096, 20'000, 70'000};
  setting.largest_message = random_.chance(0.01) && network_settings_.drop < 0.1 ? 400'000 : random_.pick(kSizes);
  if (options_.trace) {
    setting.trace = [this](const std::string& text) {
      std::printf("%12.3f us  %s\n", static_cast<double>(now_) / 1e3, text.c_str());
    };
  }
  const std::uint32_t count = random_.chance(0.7) ? 1 : random_.between(2, 4);
  for (std::uint32_t i = 0; i < count; ++i) {
    pairs_.push_back(std::make_unique<Pair>(setting, i, random_.next()));
  }
  if (mortal_) death_at_ = random_.below(500'000);
  mutation_countdown_ = random_.between(1, 10);
}

void World::run() {
  for (auto& pair : pairs_) pair->begin(now_);
  while (!all_closed()) step();
  check_end();
}

bool World::all_closed() const {
  return std::all_of(pairs_.begin(), pairs_.end(), [](const auto& pair) { return pair->closed(); });
}

Nanos World::next_moment() const {
  Nanos next = std::min(network_->next_arrival(), death_at_);
  for (std::uint32_t id = 0; id < hosts_.size(); ++id) {
    const Host& host = *hosts_[id];
    next = std::min(next, std::max(host.next_timeout(), awake_at_[id]));
    if (host.has_work()) next = std::min(next, std::max(now_ + 300, awake_at_[id]));
  }
  for (const auto& pair : pairs_) next = std::min(next, pair->next_action());
  return next;
}

void World::step() {
  if (++steps_ > kMostSteps) throw Violation("no end after " + std::to_string(steps_) + " steps");
  const Nanos next = next_moment();
  if (next == kNever) {
    poll();
    take_events();
    finish_pairs();
    if (!all_closed() && next_moment() == kNever) throw Violation("deadlock: nothing will ever happen");
    return;
  }
  now_ = std::max(now_, next);
  if (now_ > kLongestRun) throw Violation("no end within the virtual time allowed");
  if (now_ >= death_at_) {
    network_->die();
    death_at_ = kNever;
  }
  deliver();
  for (auto& pair : pairs_) {
    if (pair->next_action() > now_) continue;
    if (random_.chance(0.5) && !sleeps(0)) {
      hosts_[0]->in_next_step([this, &pair] { pair->act(now_); });
    } else {
      pair->act(now_);
    }
  }
  run_hosts();
  if (random_.chance(0.3)) {
    poll();
    take_events();
    finish_pairs();
  }
}

void World::deliver() {
  const auto take = [this](const Arrival& arrival, std::span<const std::byte> frame) {
    trace(arrival.damaged ? "damaged" : "arrives", frame);
    may_be_refused_ += arrival.damaged;
    hosts_[arrival.to]->arrive(frame);
  };
  const std::uint32_t most = random_.between(1, 64);
  for (std::uint32_t i = 0; i < most && network_->receive(now_, take); ++i) {
  }
}

void World::run_hosts() {
  for (std::uint32_t id = 0; id < hosts_.size(); ++id) {
    Host& host = *hosts_[id];
    if (sleeps(id)) continue;
    for (std::uint32_t i = random_.between(1, 3); i > 0; --i) {
      const std::uint64_t before = host.frames_sent();
      // A command of one worker may give another work, which has had its cycle.
      const bool commanded = host.has_commands();
      host.step(now_, [&](std::span<const std::byte> frame) { send(id, frame); });
      if (!host.has_work()) break;
      if (host.wants_transmit() && !host.holds_frames() && host.frames_sent() == before && !commanded) {
        throw Violation("transmit wants more and sends nothing");
      }
    }
    if (sleepy_ && sleep_.chance(0.02)) awake_at_[id] = now_ + sleep_.below(kLongestSleep);
  }
  std::uint64_t refused = 0, misdirected = 0;
  for (const auto& host : hosts_) {
    refused += host->frames_refused(), misdirected += host->frames_misdirected();
    // What arrived while a host slept may be more than the ring holds.
    if (!sleepy_) misdirected += host->frames_lost_between_workers();
  }
  if (refused > may_be_refused_) throw Violation("a good frame was refused");
  if (misdirected > may_be_refused_) throw Violation("a good frame went to no QP");
}

void World::send(std::uint32_t from, std::span<const std::byte> frame) {
  trace("sends  ", frame);
  const auto to = static_cast<std::uint32_t>(one_host_ ? 0 : 1 - from);
  if (options_.mutation == Mutation::kForge && is_send(frame) && send_forged(to, frame)) return;
  network_->send(to, frame, now_);
}

bool World::send_forged(std::uint32_t to, std::span<const std::byte> frame) {
  const std::size_t bth = bth_offset(frame);
  const std::size_t ip_bytes = hosts_[0]->settings.ipv6 ? 40 : 20;
  const std::size_t covered = frame.size() - bth - wire::kIcrcBytes;
  const auto opcode = std::to_integer<std::uint8_t>(frame[bth]);
  const auto operation = opcode & 0x1f;
  const bool xrc = opcode >> 5 == static_cast<std::uint8_t>(wire::Service::kXrc);
  const std::size_t payload = (operation > 4 || operation == 3 ? 16 : 12) + (xrc ? 4 : 0);
  if (covered < payload + 4) return false;  // less than four bytes may be pad
  // Every time from then on: a forged packet that is lost comes again.
  if (!mutated_ && !strike()) return false;
  std::vector<std::byte> forged(frame.begin(), frame.end());
  forged[bth + payload] ^= std::byte{1};
  const std::uint32_t icrc = wire::icrc_of(forged.data() + bth - 8 - ip_bytes, ip_bytes, covered);
  std::memcpy(forged.data() + bth + covered, &icrc, sizeof(icrc));
  network_->send(to, forged, now_);
  return true;
}

bool World::strike() {
  if (mutated_ || --mutation_countdown_ != 0) return false;
  mutated_ = true;
  return true;
}

void World::poll() {
  for (auto& host : hosts_) {
    for (std::uint32_t cq_index = 0; cq_index < host->cqs.size(); ++cq_index) {
      SimCq* const cq = host->cqs[cq_index].get();
      if (cq->producer.in_error()) throw Violation("a CQ overran that has room");
      for (const uroce_cqe* cqe = cq->consumer.peek(); cqe != nullptr; cqe = cq->consumer.peek()) {
        const uroce_cqe copy = *cqe;
        cq->consumer.pop();
        cq->consumer.publish();
        dispatch(*host, cq_index, copy);
      }
    }
  }
}

void World::dispatch(Host& host, std::uint32_t cq, const uroce_cqe& cqe) {
  if (options_.trace) {
    std::printf("%12.3f us  host %u CQE QPN %u wr_id %llx status %u opcode %u length %u\n",
                static_cast<double>(now_) / 1e3, host.settings.id, cqe.qpn,
                static_cast<unsigned long long>(cqe.wr_id), cqe.status, cqe.opcode, cqe.byte_len);
  }
  std::vector<uroce_cqe> deliver{cqe};
  switch (options_.mutation) {
    case Mutation::kDropCompletion:
      if (strike()) deliver.clear();
      break;
    case Mutation::kDoubleCompletion:
      if (strike()) deliver.push_back(cqe);
      break;
    case Mutation::kStatus:
      if (cqe.status == UROCE_WC_SUCCESS && strike()) deliver[0].status = UROCE_WC_GENERAL_ERR;
      break;
    case Mutation::kStrayByte:
      // Not while the receives that are left are flushed: memory was checked before.
      if (cqe.status == UROCE_WC_SUCCESS && !pairs_[0]->closed() && strike()) {
        pairs_[0]->end(0).arena[7] ^= std::byte{1};
      }
      break;
    case Mutation::kSwapCompletions:
      // Two of the same QP and queue: the first waits for the second.
      if (!held_.empty() && held_[0].qpn == cqe.qpn && (held_[0].opcode & 0x80) == (cqe.opcode & 0x80)) {
        deliver.push_back(held_[0]);
        held_.clear();
      } else if (cqe.status == UROCE_WC_SUCCESS && strike()) {
        held_ = deliver;
        deliver.clear();
      }
      break;
    default: break;
  }
  for (const uroce_cqe& each : deliver) {
    const bool known = std::any_of(pairs_.begin(), pairs_.end(), [&](auto& pair) {
      return !pair->closed() && pair->on_completion(host, CqId{cq}, each);
    });
    if (!known) throw Violation("a completion for no QP: QPN " + std::to_string(each.qpn));
  }
}

void World::take_events() {
  for (auto& host : hosts_) {
    for (const proto::Event& event : host->take_events()) {
      for (auto& pair : pairs_) {
        if (!pair->closed()) pair->on_event(*host, event, now_);
      }
    }
  }
}

void World::finish_pairs() {
  // A frame that a host holds could reach the connection that begins next.
  if (std::ranges::any_of(hosts_, [](const auto& host) { return host->holds_frames(); })) return;
  for (auto& pair : pairs_) {
    if (pair->closed() || !pair->done()) continue;
    plain_ &= pair->ended_normally();
    pair->finish(now_, [this] { poll(); });
  }
}

void World::check_end() const {
  for (const auto& host : hosts_) {
    const proto::Counters counters = host->counters();
    const auto expect = [&](bool good, const char* what) {
      if (!good) throw Violation(std::string("counters: ") + what);
    };
    expect(counters.sent_pkts == host->frames_sent(), "sent_pkts is not the number of frames sent");
    expect(host->settings.references || counters.rcvd_pkts <= host->frames_taken(),
           "rcvd_pkts is more than frames that arrived");
    if (host->next_timeout() != kNever) throw Violation("a timer runs though there is no QP");
    if (host->wants_transmit()) throw Violation("there is something to send though there is no QP");
    if (!harmless_ || mortal_ || !plain_) continue;
    expect(counters.local_ack_timeout_err == 0, "an ACK timeout though nothing was lost");
    expect(counters.packet_seq_err == 0, "a sequence NAK though nothing was lost");
    if (counters.rnr_nak_rcvd != 0 || hosts_.front()->counters().rnr_nak_rcvd != 0 ||
        hosts_.back()->counters().rnr_nak_rcvd != 0) {
      continue;
    }
    if (sleepy_) continue;  // an acknowledge that is late may be taken for lost
    expect(counters.retransmitted_pkts == 0, "a retransmission though nothing was lost");
    expect(counters.duplicate_request == 0, "a duplicate though nothing was lost");
    expect(counters.out_of_sequence == 0, "out of sequence though nothing was reordered");
  }
}

void World::trace(const char* what, std::span<const std::byte> frame) const {
  if (!options_.trace) return;
  char text[wire::kDumpBytes];
  const std::string_view line = wire::dump(frame, text);
  std::printf("%12.3f us  %s %.*s\n", static_cast<double>(now_) / 1e3, what, static_cast<int>(line.size()),
              line.data());
}

std::string World::describe() const {
  std::ostringstream out;
  out << "  at " << static_cast<double>(now_) / 1e3 << " us of virtual time; drop " << network_settings_.drop
      << " duplicate " << network_settings_.duplicate << " reorder " << network_settings_.reorder << " corrupt "
      << network_settings_.corrupt << " latency " << network_settings_.latency << (mortal_ ? ", mortal" : "")
      << (one_host_ ? ", one host" : "") << ", " << network_->under_way() << " under way\n";
  for (const auto& pair : pairs_) out << "  " << pair->describe() << '\n';
  return out.str();
}

WorldReport count_frames(const std::vector<std::unique_ptr<Host>>& hosts, const Network& network) {
  WorldReport report;
  for (const auto& host : hosts) report.frames += host->frames_sent();
  report.harmed = network.harmed();
  report.damaged = network.damaged();
  return report;
}

WorldReport World::report() const {
  WorldReport report = count_frames(hosts_, *network_);
  for (const auto& pair : pairs_) report.completions += pair->completions();
  report.virtual_time = now_;
  report.mutated = mutated_ && held_.empty();
  return report;
}

WorldReport run_world(const WorldOptions& options) { return run_one<World>(options); }

WorldReport run_one_host_world(const WorldOptions& options) {
  WorldOptions one_host = options;
  one_host.one_host = true;
  return run_world(one_host);
}

WorldReport run_switched_world(const WorldOptions& options) {
  WorldOptions switched = options;
  switched.switched = true;
  return run_world(switched);
}

}  // namespace uroce::sim
