#include "mapping/helper_thread.h"

#include <pthread.h>
#include <signal.h>

#include <exception>
#include <utility>

namespace uroce::mapping {

bool start_helper_thread(std::function<void()> work, std::thread* keep) noexcept {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = true;
  try {
    std::thread thread(std::move(work));
    keep != nullptr ? static_cast<void>(*keep = std::move(thread)) : thread.detach();
  } catch (const std::exception&) {  // std::system_error, std::bad_alloc
    started = false;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

}  // namespace uroce::mapping
