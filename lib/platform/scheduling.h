// Requests of a thread to the Linux scheduler. Every function acts on the calling thread.
#pragma once

#include <cstdint>

namespace uroce::platform {

/// Scheduling slice of the calling thread (sched_setattr(2), Linux 6.12 and later; no effect before). With a short
/// slice a woken thread runs sooner. sched_yield(2) pushes the caller back by one slice, so a thread that
/// alternates with polling programs must have a slice as long as theirs.
enum class SchedSlice : std::uint8_t { kShort, kUsual };
void set_sched_slice(SchedSlice slice);

/// Moves the calling thread to CPU number `number` modulo the count of CPUs that it is allowed to use. The affinity
/// mask stays as it was, so the scheduler may move the thread again.
void move_to_core(std::uint32_t number);

/// Restricts the calling thread to one CPU. 0 or an errno.
int pin_to_cpu(std::uint32_t cpu);
/// Takes that back: the CPUs of the process's first thread. 0 or an errno.
int unpin();

/// Names the calling thread (at most 15 characters) and removes its timer slack (PR_SET_TIMERSLACK, prctl(2)).
void name_thread(const char* name);
void remove_timer_slack();

}  // namespace uroce::platform
