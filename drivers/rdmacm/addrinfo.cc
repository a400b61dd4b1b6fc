// rdma_resolve_addrinfo(3) and rdma_query_addrinfo(3), since rdma-core 60: rdma_getaddrinfo(3) on a thread of its
// own, which reports its end by an event of the id.
#include <csignal>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "export.h"
#include "objects.h"

namespace uroce::rdmacm {
namespace {

constexpr int kSa = 0x10, kDns = 0x20;  // RAI_SA, RAI_DNS

using Bytes = std::vector<std::uint8_t>;

Bytes copy(const void* from, std::size_t bytes) {
  const auto* const first = static_cast<const std::uint8_t*>(from);
  return from != nullptr ? Bytes(first, first + bytes) : Bytes();
}

sockaddr* address_in(Bytes& bytes) { return bytes.empty() ? nullptr : reinterpret_cast<sockaddr*>(bytes.data()); }

/// The arguments of a call, which end with it.
class Request {
 public:
  Request(std::uint32_t serial, const char* node, const char* service, const rdma_addrinfo* hints)
      : serial_(serial) {
    if (node != nullptr) node_ = node;
    if (service != nullptr) service_ = service;
    if (hints == nullptr) return;
    hints_ = *hints;
    hints_->ai_flags &= ~kDns;
    source_ = copy(hints->ai_src_addr, hints->ai_src_len);
    destination_ = copy(hints->ai_dst_addr, hints->ai_dst_len);
  }

  void run() {
    if (hints_) {
      hints_->ai_src_addr = address_in(source_);
      hints_->ai_dst_addr = address_in(destination_);
    }
    rdma_addrinfo* found = nullptr;
    int error = rdma_getaddrinfo(node_ ? node_->c_str() : nullptr, service_ ? service_->c_str() : nullptr,
                                 hints_ ? &*hints_ : nullptr, &found);
    if (error == -1) error = -errno;
    const std::lock_guard lock(Registry::instance().mutex);
    CmId* const id = Registry::instance().find(kLibrary, serial_);
    if (id == nullptr) return rdma_freeaddrinfo(found);  // it was destroyed meanwhile
    id->addrinfo = found;
    id->resolving = found != nullptr;
    add_own_event(*id, found != nullptr ? kAddrinfoResolved : kAddrinfoError, error);
  }

 private:
  std::uint32_t serial_;
  std::optional<std::string> node_, service_;
  std::optional<rdma_addrinfo> hints_;
  Bytes source_, destination_;
};

/// errno.
int start(Request request) {
  // Signals are to be handled by the application's threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = 0;
  try {
    std::thread([request = std::move(request)]() mutable { request.run(); }).detach();
  } catch (const std::system_error&) {
    error = EAGAIN;
  } catch (const std::bad_alloc&) {
    error = ENOMEM;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error;
}

}  // namespace
}  // namespace uroce::rdmacm

using namespace uroce::rdmacm;

UROCE_EXPORT int rdma_resolve_addrinfo(rdma_cm_id* id, const char* node, const char* service,
                                       const rdma_addrinfo* hints) {
  const Verb verb("rdma_resolve_addrinfo");
  return guarded(-1, [&] {
    if (id == nullptr || (node == nullptr && service == nullptr && hints == nullptr)) return fail(EINVAL);
    const int flags = hints != nullptr ? hints->ai_flags & (kSa | kDns) : 0;
    if (flags == (kSa | kDns)) return fail(EINVAL, "RAI_SA and RAI_DNS exclude each other");
    if (flags == kSa) return fail(EOPNOTSUPP, "RoCE has no subnet administrator to ask: leave RAI_SA out");
    CmId& resolved = as_id(id);
    Request request(resolved.serial, node, service, hints);
    {
      const std::lock_guard lock(Registry::instance().mutex);
      if (resolved.resolving) return fail(EBUSY, "the result of the call before was not taken yet");
      resolved.resolving = true;
    }
    if (const int error = start(std::move(request))) {
      const std::lock_guard lock(Registry::instance().mutex);
      resolved.resolving = false;
      return fail(error);
    }
    return complete(resolved);
  });
}

UROCE_EXPORT int rdma_query_addrinfo(rdma_cm_id* id, rdma_addrinfo** out) {
  const Verb verb("rdma_query_addrinfo");
  if (id == nullptr || out == nullptr) return fail(EINVAL);
  CmId& resolved = as_id(id);
  const std::lock_guard lock(Registry::instance().mutex);
  if (resolved.addrinfo == nullptr) return fail(ENOENT);
  *out = std::exchange(resolved.addrinfo, nullptr);
  resolved.resolving = false;
  return 0;
}
