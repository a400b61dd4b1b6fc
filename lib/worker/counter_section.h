// A thread's part of the page of counters (abi/counters_page.h): what it is doing, and copies of what it has
// counted.
//
// Call contract. The thread itself, except await_command() and command_done(): the control thread, for a worker.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "abi/counters_page.h"
#include "base/types.h"

namespace uroce::worker {

class CounterSectionWriter {
 public:
  /// Before the thread starts. `values`: how many follow the section; it outlives this object's use.
  void open(abi::CounterSection& section, std::size_t values) { section_ = &section, values_ = values; }
  bool is_open() const { return section_ != nullptr; }

  void note_thread(pid_t thread) {
    if (is_open()) std::atomic_ref(section_->thread).store(thread, std::memory_order_relaxed);
  }
  /// A duty cycle, or a round of the control thread, begins.
  void begin(Nanos now) {
    if (is_open()) put(section_->since, now);
  }
  void sleep(Nanos now) {
    if (is_open()) put(section_->since, now | abi::CounterSection::kSleeps);
  }

  /// Copies the values: `fill` calls its argument with one after the other, in the order of their names.
  template <class Fill>
  void publish(Nanos now, Fill&& fill) {
    if (!is_open()) return;
    const std::uint64_t even = section_->sequence & ~std::uint64_t{1};  // this thread alone writes it
    put(section_->sequence, even + 1);
    put(section_->published, now);
    auto* const first = reinterpret_cast<std::uint64_t*>(section_ + 1);
    auto* next = first;
    fill([&](std::uint64_t value) {
      if (next < first + values_) put(*next++, value);
    });
    put(section_->sequence, even + 2);
  }

  /// A command is to run on this thread, for `session` (0: none) as far as that is known.
  void await_command(std::string_view name, Nanos now, std::uint64_t session = 0) {
    if (!is_open()) return;
    std::uint64_t text[abi::CounterSection::kTextWords] = {};
    std::memcpy(text, name.data(), std::min(name.size(), sizeof text - 1));
    for (std::size_t i = 0; i < abi::CounterSection::kTextWords; ++i) put(section_->command[i], text[i]);
    put(section_->session, session);
    put(section_->command_started, 0);
    put(section_->command_since, now);
  }
  void start_command(Nanos now) {
    if (is_open()) put(section_->command_started, now);
  }
  void command_done() {
    if (!is_open()) return;
    put(section_->command_since, 0);
    put(section_->command_started, 0);
  }

 private:
  // Release: a reader that sees a value sees the sequence number that was stored before it.
  static void put(std::uint64_t& word, std::uint64_t value) {
    std::atomic_ref(word).store(value, std::memory_order_release);
  }

  abi::CounterSection* section_ = nullptr;
  std::size_t values_ = 0;
};

}  // namespace uroce::worker
