#include "tests/sim/foreign_world.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "wire/dump.h"

namespace uroce::sim {
namespace {

constexpr std::uint64_t kIova = 0x10000, kIsReceive = 1ull << 63;
constexpr std::uint32_t kMostWorks = 20, kMostReceives = 26, kWord = 64;
constexpr std::uint32_t kSource = 8192;  ///< at either side, never written
constexpr std::uint64_t kMostSteps = 400'000;
constexpr PdId kPd{1};

std::uint32_t round_up(std::uint32_t bytes) { return (bytes + 63) & ~63u; }

/// Work requests and completions have immediate data as on the wire, ibv_post_send(3).
std::uint32_t on_the_wire(std::uint32_t immediate) { return __builtin_bswap32(immediate); }

template <class Byte>
bool equal(const Byte* bytes, const std::vector<std::byte>& expected) {
  return expected.empty() || std::memcmp(bytes, expected.data(), expected.size()) == 0;
}

}  // namespace

// Our arena: source, target (a word for atomics first), landing, receive. Theirs: source, target.

ForeignWorld::ForeignWorld(const WorldOptions& options) : options_(options), random_(options.seed) {
  network_settings_ = draw_short_network(random_, 0.3);
  network_ = std::make_unique<Network>(network_settings_, random_.next());
  constexpr std::uint32_t kMtus[] = {256, 512, 1024, 4096};
  constexpr std::uint32_t kSizes[] = {64, 900, 5000};
  mtu_ = random_.pick(kMtus);
  largest_ = random_.pick(kSizes);
  const auto draw_psn = [this] {
    return random_.chance(0.4) ? 0x1000000 - random_.between(1, 60) : random_.below(0x1000000);
  };
  our_psn_ = draw_psn();
  their_psn_ = draw_psn();
  ours_left_ = random_.chance(0.1) ? 0 : random_.between(1, kMostWorks - 1);
  theirs_left_ = random_.chance(0.1) ? 0 : random_.between(1, kMostWorks - 1);
  bad_ = options.mutation != Mutation::kNone || random_.chance(0.5) ? 0 : static_cast<int>(random_.between(1, 2));
  set_up_host();
  ForeignSettings settings;
  settings.qpn = 0x00abcd;
  settings.peer_qpn = qp_.qpn.value;
  settings.sq_psn = their_psn_;
  settings.rq_psn = our_psn_;
  settings.mtu = mtu_;
  settings.ipv6 = host_->settings.ipv6;
  constexpr std::uint32_t kWindows[] = {1, 1, 2, 5, 16};
  settings.window = random_.pick(kWindows);
  settings.ask_each = random_.chance(0.3);
  settings.ack_delay = random_.chance(0.5) ? 0 : random_.below(20'000);
  settings.credits = random_.chance(0.3);
  settings.rnr_timer = static_cast<std::uint8_t>(random_.between(1, 6));
  settings.seed = random_.next();
  settings.linux_reads = settings.seed % 2 == 0;
  peer_ = std::make_unique<ForeignPeer>(settings, kSource + kWord + kMostWorks * std::size_t{round_up(largest_)});
  their_initial_ = peer_->memory;
  connect_qp();
}

void ForeignWorld::set_up_host() {
  HostSettings settings;
  settings.ipv6 = random_.chance(0.3);
  settings.workers = random_.chance(0.7) ? 1 : 2;
  settings.busy_port = random_.chance(0.2);
  settings.cqs = 1;
  settings.cq_entries = 64;
  settings.seed = random_.next();
  settings.quantum_packets = random_.between(1, 20);
  if (!network_settings_.harmless() && random_.chance(0.5)) settings.min_early_retry_delay = 20 * kMicrosecond;
  host_ = std::make_unique<Host>(settings);
  const std::size_t slots = round_up(largest_);
  const std::size_t sizes[4] = {kSource, kWord + slots * kMostWorks, slots * kMostWorks, slots * kMostReceives};
  const std::uint32_t access[4] = {memory::kRemoteRead, 15, memory::kLocalWrite, memory::kLocalWrite};
  Key* const keys[4] = {&source_, &target_, &landing_, &receive_};
  std::size_t* const used[4] = {nullptr, &target_used_, &landing_used_, &receive_used_};
  arena_.resize(sizes[0] + sizes[1] + sizes[2] + sizes[3]);
  random_.fill(arena_.data(), arena_.size());
  initial_ = arena_;
  std::size_t at = 0;
  for (int i = 0; i < 4; ++i) {
    const memory::Region region{
        .pd = kPd, .access = access[i], .iova = kIova + at, .length = sizes[i], .base = arena_.data() + at};
    *keys[i] = *host_->table.insert(region);
    if (used[i] != nullptr) *used[i] = at;
    at += sizes[i];
  }
  target_used_ += kWord;
  their_target_used_ = kSource + kWord;
  constexpr std::uint32_t kEntries[] = {2, 8, 16};
  const QueueSizes queues{.sq_entries = random_.pick(kEntries),
                          .rq_entries = random_.pick(kEntries),
                          .max_send_sge = 1,
                          .max_recv_sge = 1,
                          .max_inline = 0};
  if (host_->create_qp(queues, Qpn{0x345}, kPd, CqId{0}, CqId{0}, qp_) != 0) fail("no QP");
}

void ForeignWorld::connect_qp() {
  const Nanos trip =
      network_settings_.latency + network_settings_.jitter + network_settings_.reorder_by + 150 * kMicrosecond;
  Connection c;
  c.path = host_->path_to(*host_);
  c.path.dest_mac[5] = 2;
  c.path.dest.bytes[15] = 2;
  c.dest_qpn = Qpn{0x00abcd};
  c.sq_psn = Psn(our_psn_);
  c.rq_psn = Psn(their_psn_);
  c.path_mtu = mtu_;
  c.timeout = 6;
  while ((4096ull << c.timeout) < trip * 12) ++c.timeout;
  c.min_rnr_timer = static_cast<std::uint8_t>(random_.between(1, 6));
  c.max_rd_atomic = static_cast<std::uint8_t>(random_.between(1, 8));
  c.max_dest_rd_atomic = 1;  // it has one at a time
  const auto verdict = connect(*host_, qp_, c, now_);
  if (verdict.error != 0) fail(std::string("connect: ") + verdict.what);
}

// ---------------------------------------------------------------- our works

ForeignWorld::OurWork ForeignWorld::draw_ours() {
  constexpr std::uint8_t kOpcodes[] = {UROCE_WR_RDMA_WRITE, UROCE_WR_RDMA_WRITE_WITH_IMM,
                                       UROCE_WR_SEND,       UROCE_WR_SEND_WITH_IMM,
                                       UROCE_WR_RDMA_READ,  UROCE_WR_ATOMIC_FETCH_AND_ADD};
  OurWork work;
  uroce_sq_entry& entry = work.entry;
  entry.opcode = random_.pick(kOpcodes);
  entry.imm_data = static_cast<std::uint32_t>(random_.next());
  entry.rkey = ForeignPeer::kKey;
  if (random_.chance(0.2)) entry.flags |= UROCE_SEND_SOLICITED;
  const bool atomic = entry.opcode == UROCE_WR_ATOMIC_FETCH_AND_ADD, read = entry.opcode == UROCE_WR_RDMA_READ;
  work.length = atomic ? 8 : random_.chance(0.06) ? 0 : random_.between(1, largest_);
  if (atomic || read) {
    work.local = landing_used_;
    landing_used_ += round_up(work.length);
    work.target = read ? random_.below(kSource - work.length + 1) : kSource;
    work.payload.resize(work.length);
    if (work.length != 0) std::memcpy(work.payload.data(), &their_initial_[work.target], work.length);
  } else {
    work.local = random_.below(kSource - work.length + 1);
    const auto from = initial_.begin() + static_cast<std::ptrdiff_t>(work.local);
    work.payload.assign(from, from + work.length);
    work.target = their_target_used_;
    if (entry.opcode != UROCE_WR_SEND && entry.opcode != UROCE_WR_SEND_WITH_IMM) {
      their_target_used_ += round_up(work.length);
    }
  }
  if (atomic) {
    std::uint64_t value;
    std::memcpy(&value, work.payload.data(), 8);
    value += our_sum_;
    std::memcpy(work.payload.data(), &value, 8);
    entry.atomic.compare_add = random_.next();
    our_sum_ += entry.atomic.compare_add;
  }
  entry.remote_addr = ForeignPeer::kBase + work.target;
  return work;
}

void ForeignWorld::write_entry(const OurWork& work) {
  uroce_sq_entry entry = work.entry;
  entry.wr_id = works_.size();
  entry.flags |= UROCE_SEND_SIGNALED;
  entry.num_sge = 1;
  const bool lands = entry.opcode == UROCE_WR_RDMA_READ || entry.opcode == UROCE_WR_ATOMIC_FETCH_AND_ADD;
  const uroce_sge sge{kIova + work.local, work.length, (lands ? landing_ : source_).value};
  queue::write_send(qp_.sq.next(), entry, &sge, sizeof sge);
  qp_.sq.advance();
  qp_.sq.publish();
  works_.push_back(work);
  host_->doorbell(qp_);
}

void ForeignWorld::post_ours() {
  for (std::uint32_t i = random_.below(5); i > 0 && ours_left_ > 0; --i) {
    if (works_.size() - completed_ >= qp_.sizes.sq_entries || qp_.sq.next() == nullptr) return;
    --ours_left_;
    OurWork work = draw_ours();
    const bool message = work.entry.opcode != UROCE_WR_RDMA_WRITE && work.entry.opcode != UROCE_WR_RDMA_READ &&
                         work.entry.opcode != UROCE_WR_ATOMIC_FETCH_AND_ADD;
    if (message) messages_.push_back(works_.size());
    write_entry(work);
  }
}

void ForeignWorld::on_send(const uroce_cqe& cqe) {
  if (completed_ == works_.size() || cqe.wr_id != completed_) fail("completion out of order or lost: " + text(cqe));
  const OurWork& work = works_[completed_++];
  const bool bad = bad_ == 1 && bad_posted_ && completed_ == works_.size();
  if (bad) {
    // A NAK that is lost is not repeated.
    const bool lost = cqe.status == UROCE_WC_RETRY_EXC_ERR && !network_settings_.harmless();
    if (cqe.status != bad_status_ && !lost) fail("a bad work: " + text(cqe));
    failed_ = true;
    return;
  }
  if (cqe.status != UROCE_WC_SUCCESS) fail("unexpected error: " + text(cqe));
  switch (work.entry.opcode) {
    case UROCE_WR_RDMA_READ:
    case UROCE_WR_ATOMIC_FETCH_AND_ADD:
      if (!equal(&arena_[work.local], work.payload)) fail("wrong data: " + text(cqe));
      return;
    case UROCE_WR_RDMA_WRITE:
    case UROCE_WR_RDMA_WRITE_WITH_IMM:
      if (work.length != 0 && !equal(&peer_->memory[work.target], work.payload)) fail("a WRITE is not there");
      return;
    default: return;
  }
}

// ---------------------------------------------------------------- theirs

ForeignWork ForeignWorld::draw_theirs() {
  constexpr ForeignKind kKinds[] = {ForeignKind::kSend,       ForeignKind::kSendImm, ForeignKind::kWrite,
                                    ForeignKind::kWriteImm,   ForeignKind::kRead,    ForeignKind::kFetchAdd,
                                    ForeignKind::kCompareSwap};
  ForeignWork work;
  work.kind = random_.pick(kKinds);
  work.immediate = static_cast<std::uint32_t>(random_.next());
  work.length = random_.chance(0.06) ? 0 : random_.between(1, largest_);
  const std::size_t word = kSource;
  if (work.kind == ForeignKind::kFetchAdd || work.kind == ForeignKind::kCompareSwap) {
    work.length = 8;
    work.address = kIova + word;
    work.rkey = target_.value;
    std::uint64_t value;
    std::memcpy(&value, &initial_[word], 8);
    value += their_sum_;
    const bool swaps = work.kind == ForeignKind::kCompareSwap;
    work.compare = swaps && random_.chance(0.7) ? value : 0;
    work.swap_add = random_.next();
    if (!swaps) their_sum_ += work.swap_add;
    if (swaps && work.compare == value) their_sum_ += work.swap_add - value;
    work.data.resize(8);
    std::memcpy(work.data.data(), &value, 8);  // what the result must be
    return work;
  }
  if (work.kind == ForeignKind::kRead) {
    work.address = kIova + random_.below(kSource - work.length + 1);
    work.rkey = source_.value;
    return work;
  }
  work.data.resize(work.length);
  for (auto& byte : work.data) byte = static_cast<std::uint8_t>(random_.next());
  work.address = kIova + target_used_;
  work.rkey = target_.value;
  return work;
}

void ForeignWorld::post_theirs() {
  for (std::uint32_t i = random_.below(4); i > 0 && theirs_left_ > 0; --i) {
    --theirs_left_;
    const ForeignWork work = draw_theirs();
    peer_->post(work);
    if (work.kind >= ForeignKind::kRead) continue;
    Expected message;
    message.length = work.length;
    message.payload.resize(work.length);
    if (work.length != 0) std::memcpy(message.payload.data(), work.data.data(), work.length);
    message.immediate = work.immediate;
    message.write = work.kind == ForeignKind::kWrite || work.kind == ForeignKind::kWriteImm;
    message.with_immediate = work.kind == ForeignKind::kSendImm || work.kind == ForeignKind::kWriteImm;
    message.at = target_used_;
    if (message.write) target_used_ += round_up(work.length);
    if (!message.write || message.with_immediate) consuming_.push_back(expected_.size());
    expected_.push_back(std::move(message));
  }
}

void ForeignWorld::post_receives() {
  if (random_.chance(0.5)) {
    const std::size_t wanted = messages_.size() + (bad_ == 1 ? 1 : 0);
    const std::size_t given = peer_->messages().size() + peer_->receives();
    if (given < wanted) peer_->post_receives(random_.between(1, static_cast<std::uint32_t>(wanted - given)));
  }
  while (random_.chance(0.7) && receives_.size() < consuming_.size() + 2 &&
         receives_.size() - received_ < qp_.sizes.rq_entries) {
    std::byte* const slot = qp_.rq.next();
    if (slot == nullptr) return;
    const uroce_rq_entry entry{kIsReceive | receives_.size(), 1, 0};
    const uroce_sge sge{kIova + receive_used_, largest_, receive_.value};
    std::memcpy(slot, &entry, sizeof entry);
    std::memcpy(slot + sizeof entry, &sge, sizeof sge);
    qp_.rq.advance();
    qp_.rq.publish();
    receives_.push_back(receive_used_);
    receive_used_ += round_up(largest_);
  }
}

void ForeignWorld::on_receive(const uroce_cqe& cqe) {
  if (cqe.wr_id != (kIsReceive | received_) || received_ == receives_.size()) {
    fail("receive out of order or lost: " + text(cqe));
  }
  const std::size_t at = receives_[received_++];
  if (cqe.status != UROCE_WC_SUCCESS) {
    if (!in_error() && cqe.status != UROCE_WC_LOC_LEN_ERR) fail("unexpected receive error: " + text(cqe));
    failed_ = true;
    return;
  }
  if (received_ > consuming_.size()) fail("a message that nobody sent: " + text(cqe));
  const Expected& message = expected_[consuming_[received_ - 1]];
  const bool immediate = (cqe.wc_flags & UROCE_WC_WITH_IMM) != 0;
  if (cqe.byte_len != message.length || immediate != message.with_immediate ||
      (immediate && cqe.imm_data != on_the_wire(message.immediate)) ||
      (cqe.opcode == UROCE_WC_RECV_RDMA_WITH_IMM) != message.write) {
    fail("wrong receive: " + text(cqe));
  }
  if (!equal(&arena_[message.write ? message.at : at], message.payload)) fail("wrong data received: " + text(cqe));
}

// ---------------------------------------------------------------- refusals

bool ForeignWorld::good_part_done() const {
  return ours_left_ == 0 && theirs_left_ == 0 && completed_ == works_.size() &&
         peer_->works_done() == peer_->works().size();
}

void ForeignWorld::post_bad_one() {
  bad_posted_ = true;
  if (bad_ == 1) {
    post_bad_ours();
  } else {
    post_bad_theirs();
  }
}

void ForeignWorld::post_bad_ours() {
  OurWork work;
  constexpr std::uint8_t kOpcodes[] = {UROCE_WR_RDMA_WRITE, UROCE_WR_RDMA_READ};
  work.entry.opcode = random_.pick(kOpcodes);
  work.entry.rkey = ForeignPeer::kKey ^ (random_.chance(0.5) ? 1 : 0);
  work.entry.remote_addr = random_.chance(0.5) ? ~std::uint64_t{0} - 3 : ForeignPeer::kBase - 1;
  work.length = 8;
  if (work.entry.opcode == UROCE_WR_RDMA_READ) work.local = landing_used_;
  bad_status_ = UROCE_WC_REM_ACCESS_ERR;
  write_entry(work);
}

void ForeignWorld::post_bad_theirs() {
  constexpr std::uint8_t kInvalid = 0x61, kAccess = 0x62;
  ForeignWork work;
  work.length = std::min(largest_, 32u);
  work.data.resize(work.length);
  work.address = kIova + target_used_;
  work.rkey = target_.value;
  work.kind = ForeignKind::kWrite;
  work.nak = kAccess;
  switch (random_.below(8)) {
    case 0: work.rkey ^= 0x10000; break;
    case 1: work.rkey = landing_.value; break;  // no right
    case 2: work.address = ~std::uint64_t{0} - 3; break;
    case 3:
      work.kind = ForeignKind::kRead;
      work.address = kIova + kSource - 8;
      work.rkey = source_.value;
      work.data.clear();
      break;
    case 4:  // the data of several packets, or of one, is not as long as the RETH says
      work.length = random_.between(2, std::max(2u, std::min(largest_, 3 * mtu_)));
      work.data.resize(work.length);
      work.declared = random_.chance(0.5) ? work.length + random_.between(1, 9) : work.length - 1;
      work.nak = kInvalid;
      break;
    case 6:  // longer than any message may be
      work.kind = ForeignKind::kRead;
      work.declared = 0x80000001;
      work.data.clear();
      work.nak = kInvalid;
      break;
    case 5:
      work.kind = ForeignKind::kFetchAdd;
      work.address = kIova + kSource + 4;
      work.nak = kInvalid;
      break;
    default:
      // Longer than its receive. A receive has largest_ bytes.
      work.kind = ForeignKind::kSend;
      work.length = largest_ + 1;
      work.data.resize(work.length);
      work.nak = kInvalid;
      consuming_.push_back(expected_.size());
      expected_.push_back({.length = work.length});
  }
  peer_->post(work);
}

// ---------------------------------------------------------------- the world

bool ForeignWorld::in_error() {
  proto::QpSnapshot snapshot;
  return host_->query(qp_, snapshot) && snapshot.state == proto::QpState::kErr;
}

Nanos ForeignWorld::next_moment() const {
  Nanos next = std::min({network_->next_arrival(), host_->next_timeout(), peer_->next_time(now_)});
  if (host_->has_work()) next = std::min(next, now_ + 300);
  return std::min(next, now_ + 20'000);
}

void ForeignWorld::step() {
  if (++steps_ > kMostSteps) fail("no end");
  now_ = std::max(now_ + 100, next_moment());
  const auto take = [this](const Arrival& arrival, std::span<const std::byte> frame) {
    trace(arrival.damaged ? "damaged" : "arrives", frame);
    if (arrival.to == 0)
      host_->arrive(frame);
    else
      peer_->receive(frame, arrival.damaged, now_);
  };
  for (std::uint32_t i = random_.between(1, 32); i > 0 && network_->receive(now_, take); --i) {
  }
  if (random_.chance(0.3)) post_ours();
  if (random_.chance(0.3)) post_theirs();
  if (random_.chance(0.3)) post_receives();
  host_->step(now_, [this](std::span<const std::byte> frame) {
    trace("sends  ", frame);
    network_->send(1, frame, now_);
  });
  for (std::uint32_t i = random_.between(1, 8); i > 0; --i) {
    const std::vector<std::byte> frame = peer_->transmit(now_);
    if (frame.empty()) break;
    trace("foreign", frame);
    network_->send(0, frame, now_);
  }
  if (random_.chance(0.5)) poll();
}

void ForeignWorld::poll() {
  SimCq& cq = *host_->cqs[0];
  if (cq.producer.in_error()) fail("a CQ overran that has room");
  for (const uroce_cqe* cqe = cq.consumer.peek(); cqe != nullptr; cqe = cq.consumer.peek()) {
    const uroce_cqe copy = *cqe;
    cq.consumer.pop();
    cq.consumer.publish();
    ++completions_;
    const bool strikes = options_.mutation != Mutation::kNone && !mutated_ && copy.status == UROCE_WC_SUCCESS;
    mutated_ |= strikes;
    if (strikes && options_.mutation == Mutation::kDropCompletion) continue;
    if (strikes && options_.mutation == Mutation::kStrayByte) arena_[5] ^= std::byte{1};
    for (int i = strikes && options_.mutation == Mutation::kDoubleCompletion ? 2 : 1; i > 0; --i) {
      if ((copy.wr_id & kIsReceive) != 0)
        on_receive(copy);
      else
        on_send(copy);
    }
  }
  host_->take_events();
}

bool ForeignWorld::done() const {
  if (!good_part_done() || bad_ == 0 || !bad_posted_) return good_part_done() && bad_ == 0;
  return bad_ == 1 ? peer_->dead() && failed_ : peer_->works_done() == peer_->works().size();
}

void ForeignWorld::run() {
  while (!done()) {
    if (bad_ != 0 && !bad_posted_ && good_part_done()) post_bad_one();
    step();
  }
  check_end();
}

void ForeignWorld::check_end() {
  poll();
  if (peer_->gave_up() && network_settings_.harmless()) fail("a request that must be refused is not answered");
  if (in_error() != (bad_ != 0)) fail("a QP is in ERR without a cause, or not with one");
  // Receives posted to a QP in ERR are flushed after a while.
  while (in_error() && received_ != receives_.size()) step();
  if (!in_error() && change_state(*host_, qp_, proto::QpState::kErr, now_).error != 0) fail("to ERR");
  poll();
  // Each of their works has what it must have.
  for (const ForeignWork& work : peer_->works()) {
    if (work.nak != 0) continue;
    const bool atomic = work.kind == ForeignKind::kFetchAdd || work.kind == ForeignKind::kCompareSwap;
    if (atomic && std::memcmp(&work.result, work.data.data(), 8) != 0) fail("an atomic's result is wrong");
    if (work.kind == ForeignKind::kRead && work.length != 0 &&
        std::memcmp(work.data.data(), &arena_[work.address - kIova], work.length) != 0) {
      fail("a READ brought wrong data");
    }
  }
  if (peer_->messages().size() != messages_.size()) fail("the peer received another number of messages");
  for (std::size_t i = 0; i < messages_.size(); ++i) {
    const OurWork& work = works_[messages_[i]];
    const ForeignMessage& message = peer_->messages()[i];
    const bool write = work.entry.opcode == UROCE_WR_RDMA_WRITE_WITH_IMM;
    const bool immediate = work.entry.opcode != UROCE_WR_SEND;
    if (message.write != write || message.length != work.length || message.immediate.has_value() != immediate ||
        (immediate && on_the_wire(*message.immediate) != work.entry.imm_data) ||
        (!write && !equal(message.data.data(), work.payload))) {
      fail("the peer received another message");
    }
  }
  // Memory: what the requests name, and no other byte.
  for (const Expected& message : expected_) {
    if (message.write) std::copy(message.payload.begin(), message.payload.end(), &initial_[message.at]);
  }
  // The first packets of a WRITE whose last one is refused.
  if (bad_ == 2 && peer_->works().back().kind == ForeignKind::kWrite) {
    std::copy_n(&arena_[target_used_], round_up(largest_), &initial_[target_used_]);
  }
  std::uint64_t word;
  std::memcpy(&word, &initial_[kSource], 8);
  word += their_sum_;
  std::memcpy(&initial_[kSource], &word, 8);
  for (const OurWork& work : works_) {
    if (work.entry.opcode != UROCE_WR_RDMA_READ && work.entry.opcode != UROCE_WR_ATOMIC_FETCH_AND_ADD) continue;
    std::copy(work.payload.begin(), work.payload.end(), &initial_[work.local]);
  }
  for (std::size_t i = 0; i < receives_.size(); ++i) {
    const bool used = i < consuming_.size() && !expected_[consuming_[i]].write;
    if (used)
      std::copy_n(&arena_[receives_[i]], std::min(largest_, expected_[consuming_[i]].length),
                  &initial_[receives_[i]]);
  }
  if (initial_ != arena_) fail("a byte changed that no request names");
  if (received_ != receives_.size()) fail("receives were not flushed, or lost");
  host_->destroy_qp(qp_, now_);
  for (int i = 0; i < 4; ++i) {
    host_->step(now_, [](std::span<const std::byte>) {});
  }
  if (host_->next_timeout() != kNever || host_->wants_transmit()) fail("something is left after the QP");
}

void ForeignWorld::trace(const char* what, std::span<const std::byte> frame) const {
  if (!options_.trace) return;
  char text[wire::kDumpBytes];
  const std::string_view line = wire::dump(frame, text);
  std::printf("%12.3f us  %s %.*s\n", static_cast<double>(now_) / 1e3, what, static_cast<int>(line.size()),
              line.data());
}

std::string ForeignWorld::describe() const {
  return "  at " + std::to_string(now_) + " ns: ours " + std::to_string(completed_) + " of " +
         std::to_string(works_.size()) + " (+" + std::to_string(ours_left_) + "), theirs " +
         std::to_string(peer_->works_done()) + " of " + std::to_string(peer_->works().size()) + " (+" +
         std::to_string(theirs_left_) + "), received " + std::to_string(received_) + " of " +
         std::to_string(consuming_.size()) + ", theirs " + std::to_string(peer_->messages().size()) + " of " +
         std::to_string(messages_.size()) + ", bad " + std::to_string(bad_) + ", mtu " + std::to_string(mtu_) +
         ", drop " + std::to_string(network_settings_.drop);
}

WorldReport ForeignWorld::report() const {
  WorldReport report;
  report.frames = host_->frames_sent();
  report.harmed = network_->harmed();
  report.damaged = network_->damaged();
  report.completions = completions_;
  report.virtual_time = now_;
  report.mutated = mutated_;
  return report;
}

WorldReport run_foreign_world(const WorldOptions& options) { return run_one<ForeignWorld>(options); }

}  // namespace uroce::sim
