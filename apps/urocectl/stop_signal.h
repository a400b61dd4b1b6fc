// Ctrl-C and SIGTERM end what repeats.
#pragma once

#include <atomic>

namespace uroce::ctl {

/// How many such signals have come.
extern std::atomic<int> g_stop;

void stop_on_signal();

/// In short sleeps, so that Ctrl-C ends it soon.
void wait_for(double seconds);

}  // namespace uroce::ctl
