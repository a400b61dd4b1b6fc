// The daemons that this process has connected to.
#include <fcntl.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "client/call_log.h"
#include "client/run_dir.h"
#include "export.h"
#include "objects.h"

namespace uroce::rdmacm {
namespace {

// libibverbs, which this library needs, reports a wrong UROCE_LOG.
[[gnu::constructor]] void start_log() { client::call_log::start("librdmacm", false); }

}  // namespace

Registry& Registry::instance() {
  static Registry* const registry = new Registry;  // never freed: ids may be used until the process ends
  return *registry;
}

void Registry::look() {
  look_error_ = 0;
  for (const std::string& name : client::list_devices(&look_error_)) {
    const bool known = std::ranges::any_of(all_, [&](const auto& d) { return d->name == name && !d->gone(); });
    if (known) continue;
    auto device = std::make_unique<Device>();
    device->name = name;
    device->index = static_cast<std::uint32_t>(all_.size());
    const int error = client::Session::open(client::socket_path(name), device->session);
    if (error == 0) all_.push_back(std::move(device));
    if (error == EMFILE || error == ENFILE || error == ENOMEM) look_error_ = error;
  }
}

int Registry::why_none() {
  const std::lock_guard lock(mutex);
  return look_error_ != 0 ? look_error_ : ENODEV;
}

void Registry::add(CmId& id) {
  do {
    id.serial = ++last_serial_;
  } while (id.serial == 0 || !by_serial_.emplace(id.serial, &id).second);
}

std::vector<Device*> Registry::devices(bool look_again) {
  const std::lock_guard lock(mutex);
  const auto living = [this] {
    std::vector<Device*> found;
    for (const auto& device : all_) {
      if (!device->gone()) device->session->check_alive();
      if (!device->gone()) found.push_back(device.get());
    }
    return found;
  };
  std::vector<Device*> found = living();
  if (!found.empty() && !look_again) return found;
  look();
  return living();
}

int Registry::open_verbs(Device& device) {
  const std::lock_guard lock(mutex);
  if (device.pd != nullptr) return 0;
  if (device.verbs == nullptr) {
    ibv_device** const list = ibv_get_device_list(nullptr);
    if (list == nullptr) return errno;
    int error = ENODEV;
    for (ibv_device** at = list; *at != nullptr && device.verbs == nullptr; ++at) {
      if (device.name != ibv_get_device_name(*at)) continue;
      device.verbs = ibv_open_device(*at);
      error = errno;
    }
    ibv_free_device_list(list);
    if (device.verbs == nullptr) return error;
    ibv_device_attr attr{};
    if (const int error = ibv_query_device(device.verbs, &attr)) return error;
    device.max_initiator_depth = static_cast<std::uint8_t>(std::clamp(attr.max_qp_init_rd_atom, 0, 255));
    device.max_responder_resources = static_cast<std::uint8_t>(std::clamp(attr.max_qp_rd_atom, 0, 255));
  }
  device.pd = ibv_alloc_pd(device.verbs);
  return device.pd != nullptr ? 0 : errno;
}

int Registry::xrcd_of(Device& device, ibv_xrcd*& out) {
  const std::lock_guard lock(mutex);
  if (device.xrcd == nullptr) {
    ibv_xrcd_init_attr attr{};
    attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    attr.fd = -1;
    attr.oflags = O_CREAT;
    device.xrcd = ibv_open_xrcd(device.verbs, &attr);
    if (device.xrcd == nullptr) return errno;
  }
  out = device.xrcd;
  return 0;
}

}  // namespace uroce::rdmacm

using namespace uroce::rdmacm;

UROCE_EXPORT ibv_context** rdma_get_devices(int* count) {
  const Verb verb("rdma_get_devices");
  if (count != nullptr) *count = 0;
  return guarded<ibv_context**>(nullptr, [&]() -> ibv_context** {
    std::vector<ibv_context*> opened;
    int refused = 0;
    for (Device* device : Registry::instance().devices(true)) {
      const int error = Registry::instance().open_verbs(*device);
      if (error == 0) opened.push_back(device->verbs);
      if (error != 0) refused = error;
    }
    if (opened.empty()) {
      errno = refused != 0 ? refused : Registry::instance().why_none();
      return nullptr;
    }
    auto** const list = static_cast<ibv_context**>(std::calloc(opened.size() + 1, sizeof(ibv_context*)));
    if (list == nullptr) return nullptr;
    std::ranges::copy(opened, list);
    if (count != nullptr) *count = static_cast<int>(opened.size());
    return list;
  });
}

UROCE_EXPORT void rdma_free_devices(ibv_context** list) { std::free(list); }
