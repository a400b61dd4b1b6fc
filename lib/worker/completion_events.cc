#include "worker/completion_events.h"

#include <algorithm>

#include "platform/record_socket.h"

namespace uroce::worker {
namespace {

constexpr Nanos kRetryInterval = kMillisecond;
// A client whose CQs owe events for ever takes no more of a worker than these.
constexpr std::size_t kRetries = 128;  // in an interval

}  // namespace

CompletionEvents::CompletionEvents(std::uint32_t max_cqs, WorkerCounters& counters)
    : counters_(counters), cqs_(max_cqs) {
  held_.reserve(max_cqs);
  owed_.reserve(max_cqs);
}

void CompletionEvents::set_cq(CqId id, Cq* cq) {
  if (id.value < cqs_.size()) cqs_[id.value] = cq;
}

void CompletionEvents::remove_cq(CqId id, Cq* cq) {
  set_cq(id, nullptr);
  std::erase(owed_, cq);
  std::erase_if(held_, [cq](const Held& held) { return held.cq == cq; });
}

bool CompletionEvents::write_event(Cq& cq) {
  if (platform::send_record(cq.channel_fd, std::as_bytes(std::span(&cq.cookie, 1))) == platform::Sent::kLater)
    return false;
  ++counters_.events_sent;  // also when the client has closed its end, because then no thread waits for it
  return true;
}

void CompletionEvents::send_event(Cq& cq, Nanos now) {
  if (!cq.take_event() || write_event(cq)) return;
  // The reader is slow. One event owed is enough: a client that reads it finds all completions.
  if (!cq.event_owed.exchange(true, std::memory_order_acq_rel)) owed_.push_back(&cq);
  ++counters_.events_delayed;
  retry_at_ = now + kRetryInterval;
}

void CompletionEvents::release_held(Nanos now) {
  std::erase_if(held_, [&](const Held& held) {
    Cq& cq = *held.cq;
    const std::uint32_t made = cq.produced(), count = cq.event_count.load(std::memory_order_relaxed);
    const bool enough = count != 0 && made - cq.event_at.load(std::memory_order_relaxed) >= count;
    if (now < held.until && !enough && cq.moderated()) return false;
    cq.event_at.store(made, std::memory_order_relaxed);
    cq.event_held.store(false, std::memory_order_release);
    send_event(cq, now);
    return true;
  });
}

void CompletionEvents::retry_owed(Nanos now) {
  for (std::size_t tries = std::min(owed_.size(), kRetries); tries != 0; --tries) {
    if (next_owed_ >= owed_.size()) next_owed_ = 0;
    Cq*& cq = owed_[next_owed_];
    if (!write_event(*cq)) {
      ++next_owed_;
      continue;
    }
    cq->event_owed.store(false, std::memory_order_release);
    cq = owed_.back();
    owed_.pop_back();
  }
  retry_at_ = now + kRetryInterval;
}

void CompletionEvents::send(std::span<const CqId> touched, Nanos now) {
  for (const CqId id : touched) {
    Cq* const cq = cqs_[id.value];
    if (cq == nullptr || cq->channel_fd < 0) continue;
    if (!cq->moderated()) {
      send_event(*cq, now);
    } else if (!cq->event_held.exchange(true, std::memory_order_acq_rel)) {
      held_.push_back({cq, now + cq->event_period.load(std::memory_order_relaxed)});
    }
  }
  if (!held_.empty()) release_held(now);
  if (!owed_.empty() && now >= retry_at_) retry_owed(now);
}

Nanos CompletionEvents::next_timeout() const {
  Nanos next = owed_.empty() ? kNever : retry_at_;
  for (const Held& held : held_) next = std::min(next, held.until);
  return next;
}

}  // namespace uroce::worker
