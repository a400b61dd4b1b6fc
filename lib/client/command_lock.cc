#include "client/command_lock.h"

#include <sys/mman.h>

#include <cerrno>
#include <new>

namespace uroce::client {

CommandLock::CommandLock() {
  void* const page = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw std::bad_alloc();
  shared_ = new (page) Shared{};
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&shared_->mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

// The mutex is not destroyed: other processes may still use it.
CommandLock::~CommandLock() { munmap(shared_, sizeof(Shared)); }

void CommandLock::lock() {
  if (pthread_mutex_lock(&shared_->mutex) != EOWNERDEAD) return;
  shared_->abandoned = true;
  pthread_mutex_consistent(&shared_->mutex);
}

}  // namespace uroce::client
