// The counters of a device in a file that everybody may read, RUN_DIR/NAME.counters: no thread of the daemon has to
// run for it. It describes itself: CountersPage, then a CounterName for each counter, then a CounterSection for
// each worker and one for the control thread.
//
// Call contract. Each thread of the daemon writes its own section, other processes only read. A reader copies a
// section, and copies it again if `sequence` was odd or has changed. Times are ns of CLOCK_MONOTONIC.
#pragma once

#include <cstddef>
#include <cstdint>

namespace uroce::abi {

inline constexpr std::uint64_t kCountersMagic = 0x544e43'65636f7275;  ///< "uroceCNT" in memory order
inline constexpr std::uint32_t kCountersVersion = 1;

struct CountersPage {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t bytes;         ///< of the file
  std::uint32_t names_offset;  ///< of the first CounterName; offsets are bytes from the start of the file
  std::uint32_t names;
  std::uint32_t
      worker_names;  ///< the first of them are the values of a worker, the rest those of the control thread
  std::uint32_t sections_offset;
  std::uint32_t section_bytes;  ///< from one to the next
  std::uint32_t workers;        ///< sections; that of the control thread follows
  std::int32_t process;         ///< PID in the namespace of the daemon
  std::uint32_t reserved;
  std::uint64_t started;
  std::uint64_t started_utc;  ///< ns since 1970
  char device[32], release[32];
};
static_assert(sizeof(CountersPage) == 128);

struct CounterName {
  char group[16], name[40];  ///< "transport", "sent_pkts"; they end with a zero
  std::uint32_t
      kind;  ///< 0: counts up; 1: duration in ns, which counts up; 2: longest duration so far; 3: time of the last
  std::uint32_t reserved;
};
static_assert(sizeof(CounterName) == 64);

struct CounterSection {
  static constexpr std::uint64_t kSleeps = std::uint64_t{1} << 63;
  static constexpr std::size_t kTextWords = 4;

  /// When the duty cycle of a worker, or the round of the control thread, began. With kSleeps: the thread has slept
  /// since then. 0: it has not started.
  std::uint64_t since;
  std::uint64_t sequence;   ///< of `published` and the values: odd while they are written
  std::uint64_t published;  ///< when the values were copied; 0: never
  /// The command that the control thread runs, or for which it waits for this worker. 0: none.
  std::uint64_t command_since;
  std::uint64_t command_started;      ///< when the worker began with it; 0: it has not
  std::uint64_t session;              ///< of the control thread's command; 0: of none
  std::uint64_t command[kTextWords];  ///< text, then zeros
  std::int32_t thread;                ///< TID in the namespace of the daemon
  std::uint32_t reserved[11];
  // The values follow.
};
static_assert(sizeof(CounterSection) == 128);

}  // namespace uroce::abi
