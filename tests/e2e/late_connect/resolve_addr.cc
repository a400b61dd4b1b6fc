// For LD_PRELOAD: a program that begins its second connection of librdmacm a second late.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>

struct rdma_cm_id;
struct sockaddr;

extern "C" int rdma_resolve_addr(rdma_cm_id* id, sockaddr* from, sockaddr* to, int timeout_ms) {
  static std::atomic<int> calls{0};
  using Function = int (*)(rdma_cm_id*, sockaddr*, sockaddr*, int);
  static const auto next = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "rdma_resolve_addr"));
  if (++calls == 2) ::sleep(1);
  return next(id, from, to, timeout_ms);
}
