#include "signals.h"

#include <signal.h>

namespace uroce::run {
namespace {

constexpr int kSignals[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP};

volatile sig_atomic_t receiver = -1;
volatile sig_atomic_t kept = 0;

void keep_or_pass(int signal) {
  if (receiver > 0) {
    ::kill(receiver, signal);
  } else {
    kept = signal;
  }
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction before {};
  if (::sigaction(signal, nullptr, &before) == 0 && before.sa_handler == SIG_IGN) return;
  struct sigaction action {};
  action.sa_handler = handler;
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

void keep_signals() {
  for (const int signal : kSignals) handle(signal, keep_or_pass);
}

int kept_signal() { return kept; }

void act_on_signals() {
  for (const int signal : kSignals) handle(signal, SIG_DFL);
  if (kept != 0) ::raise(kept);
}

void pass_signals_to(pid_t program) {
  receiver = program;
  handle(SIGINT, SIG_IGN);
  handle(SIGQUIT, SIG_IGN);
  if (kept != 0) ::kill(program, kept);
}

}  // namespace uroce::run
