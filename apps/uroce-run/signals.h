// Signals that end a command reach its program, also those that come before it runs. Ignored ones stay ignored, as
// nohup(1) wants it.
#pragma once

#include <sys/types.h>

namespace uroce::run {

/// From now on SIGINT, SIGQUIT, SIGTERM and SIGHUP end nothing: the last one that comes is kept for the program.
void keep_signals();

/// The signal that was kept; 0: none.
int kept_signal();

/// In the program's process, before it becomes the program: signals act as ever, and one that was kept acts now.
void act_on_signals();

/// In the process that waits for the program: SIGTERM and SIGHUP are passed on, and so is the one that was kept.
/// SIGINT and SIGQUIT are ignored then, since the terminal sends Ctrl-C and Ctrl-\ to the program as well.
void pass_signals_to(pid_t program);

}  // namespace uroce::run
