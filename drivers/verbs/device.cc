// The device list (ibv_get_device_list(3)), and opening devices (ibv_open_device(3)).
#include <endian.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "client/call_log.h"
#include "client/run_dir.h"
#include "device.h"
#include "export.h"
#include "objects.h"

namespace uroce::verbs {
namespace {

[[gnu::constructor]] void start_log() { client::call_log::start("libibverbs", true); }

// "0001:0203:0405:0607", the format of sysfs; 0 for any other text.
__be64 parse_guid(const std::string& text) {
  unsigned part[4];
  if (std::sscanf(text.c_str(), "%4x:%4x:%4x:%4x", &part[0], &part[1], &part[2], &part[3]) != 4) return 0;
  std::uint64_t guid = 0;
  for (const unsigned p : part) guid = guid << 16 | p;
  return htobe64(guid);
}

Device* make_device(const std::string& name, int index) {
  auto* const made = new Device{};
  ibv_device& device = made->device;
  device.node_type = IBV_NODE_CA;
  device.transport_type = IBV_TRANSPORT_IB;
  std::snprintf(device.name, sizeof(device.name), "%s", name.c_str());
  std::snprintf(device.dev_name, sizeof(device.dev_name), "uverbs%d", index);
  const std::string classes = client::run_dir() + "/sys/class/";
  std::snprintf(device.ibdev_path, sizeof(device.ibdev_path), "%sinfiniband/%s", classes.c_str(), name.c_str());
  // The daemon chose the name of the character device that programs look for.
  if (const std::string node = client::device_file(name, "uverbs"); !node.empty()) {
    std::snprintf(device.dev_name, sizeof(device.dev_name), "%s", node.c_str());
  }
  std::snprintf(device.dev_path, sizeof(device.dev_path), "%sinfiniband_verbs/%s", classes.c_str(),
                device.dev_name);
  made->guid = parse_guid(client::device_file(name, "node_guid"));
  made->index = index;
  made->references = 1;
  return made;
}

}  // namespace

void release(Device* device) {
  if (device->references.fetch_sub(1) == 1) delete device;
}

std::string name_of(ibv_context* context) { return context->device->name; }

}  // namespace uroce::verbs

using namespace uroce;
using namespace uroce::verbs;

UROCE_EXPORT ibv_device** get_device_list_1_1(int* num) {
  const Verb verb("ibv_get_device_list");
  if (num != nullptr) *num = 0;
  return guarded<ibv_device**>(nullptr, [&]() -> ibv_device** {
    int error = 0;
    const std::vector<std::string> names = client::list_devices(&error);
    if (error != 0) return null_with(error);
    auto** const list = static_cast<ibv_device**>(std::calloc(names.size() + 1, sizeof(ibv_device*)));
    if (list == nullptr) return null_with(ENOMEM);
    for (std::size_t i = 0; i < names.size(); ++i) list[i] = &make_device(names[i], static_cast<int>(i))->device;
    if (num != nullptr) *num = static_cast<int>(names.size());
    return list;
  });
}
UROCE_DEFAULT_VERSION(get_device_list_1_1, ibv_get_device_list, "IBVERBS_1.1");

UROCE_EXPORT ibv_device** get_device_list_1_0(int* num) {
  if (num != nullptr) *num = 0;
  return static_cast<ibv_device**>(std::calloc(1, sizeof(ibv_device*)));
}
UROCE_COMPAT_VERSION(get_device_list_1_0, ibv_get_device_list, "IBVERBS_1.0");

UROCE_EXPORT void free_device_list(ibv_device** list) {
  if (list == nullptr) return;
  for (ibv_device** at = list; *at != nullptr; ++at) release(reinterpret_cast<Device*>(*at));
  std::free(list);
}
UROCE_VERSIONS_1_0_AND_1_1(free_device_list, ibv_free_device_list);

UROCE_EXPORT const char* get_device_name(ibv_device* device) { return device->name; }
UROCE_VERSIONS_1_0_AND_1_1(get_device_name, ibv_get_device_name);

UROCE_EXPORT __be64 get_device_guid(ibv_device* device) { return reinterpret_cast<Device*>(device)->guid; }
UROCE_VERSIONS_1_0_AND_1_1(get_device_guid, ibv_get_device_guid);

UROCE_EXPORT int ibv_get_device_index(ibv_device* device) { return reinterpret_cast<Device*>(device)->index; }

UROCE_EXPORT ibv_context* open_device(ibv_device* device) {
  const Verb verb("ibv_open_device");
  return guarded<ibv_context*>(nullptr, [&]() -> ibv_context* {
    auto opened = std::make_unique<Context>();
    const int error = client::Session::open(client::socket_path(device->name), opened->session);
    if (error != 0) return null_with(error);
    Context* const made = opened.release();
    ibv_context& context = made->base.context;
    context.device = device;
    context.cmd_fd = made->session->share_fd();  // a program may pass it to another process (import.cc)
    context.async_fd = made->session->event_fd();
    context.num_comp_vectors = static_cast<int>(made->session->workers());
    pthread_mutex_init(&context.mutex, nullptr);
    context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    made->base.sz = sizeof(verbs_context);
    fill_operations(*made);
    reinterpret_cast<Device*>(device)->references.fetch_add(1);
    return &context;
  });
}
UROCE_VERSIONS_1_0_AND_1_1(open_device, ibv_open_device);

UROCE_EXPORT int close_device(ibv_context* context) {
  const Verb verb("ibv_close_device");
  Context* const closed = as_context(context);
  auto* const device = reinterpret_cast<Device*>(context->device);
  pthread_mutex_destroy(&context->mutex);
  delete closed;
  release(device);
  return 0;
}
UROCE_VERSIONS_1_0_AND_1_1(close_device, ibv_close_device);
