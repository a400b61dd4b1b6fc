// Counters of flows. The daemon counts packets and bytes; this file maps them to the indices that the program
// chose.
#include <algorithm>
#include <memory>
#include <span>

#include "counters.h"
#include "export.h"
#include "objects.h"

namespace uroce::verbs {
namespace {

Counters& of(ibv_counters* counters) { return *reinterpret_cast<Counters*>(counters); }

int read(Counters& counters, uroce_read_counters_response& out) {
  return session_of(counters.counters.context).call(UROCE_CMD_READ_COUNTERS, uroce_handle{counters.handle, 0}, out);
}

std::uint64_t pick(const uroce_read_counters_response& values, ibv_counter_description what) {
  return what == IBV_COUNTER_PACKETS ? values.packets : values.bytes;
}

}  // namespace

ibv_counters* create_counters(ibv_context* context, ibv_counters_init_attr* attr) {
  const Verb verb("ibv_create_counters");
  return guarded<ibv_counters*>(nullptr, [&]() -> ibv_counters* {
    if (attr->comp_mask != 0) return null_with(EOPNOTSUPP);
    auto counters = std::make_unique<Counters>();
    uroce_handle reply{};
    const int error =
        session_of(context).call(UROCE_CMD_CREATE_COUNTERS, {}, std::as_writable_bytes(std::span(&reply, 1)));
    if (error != 0) return null_with(error);
    counters->counters.context = context;
    counters->handle = reply.handle;
    return &counters.release()->counters;
  });
}

int destroy_counters(ibv_counters* ibv) {
  const Verb verb("ibv_destroy_counters");
  Counters& counters = of(ibv);
  {
    const std::lock_guard lock(counters.mutex);
    if (counters.flows != 0) return noted(EBUSY);
  }
  const int error = session_of(ibv->context).release(UROCE_CMD_DESTROY_COUNTERS, counters.handle);
  if (error != 0) return noted(error);
  delete &counters;
  return 0;
}

// Without a flow: for flows created later; EBUSY when a flow uses the counters. With a flow, which must have been
// created with these counters: counting begins now.
int attach_counters_point_flow(ibv_counters* ibv, ibv_counter_attach_attr* attr, ibv_flow* flow) {
  const Verb verb("ibv_attach_counters_point_flow");
  return guarded_errno([&] {
    Counters& counters = of(ibv);
    if (attr->comp_mask != 0) return noted(EOPNOTSUPP);
    if (attr->counter_desc != IBV_COUNTER_PACKETS && attr->counter_desc != IBV_COUNTER_BYTES)
      return noted(EOPNOTSUPP);
    if (flow != nullptr && reinterpret_cast<Flow*>(flow)->counters != &counters) return noted(EOPNOTSUPP);
    const std::lock_guard lock(counters.mutex);
    if (flow == nullptr && counters.flows != 0) return noted(EBUSY);
    uroce_read_counters_response now{};
    if (flow != nullptr) {
      if (const int error = read(counters, now); error != 0) return noted(error);
    }
    counters.points.push_back({attr->counter_desc, attr->index, pick(now, attr->counter_desc)});
    return 0;
  });
}

int read_counters(ibv_counters* ibv, std::uint64_t* values, std::uint32_t count, std::uint32_t flags) {
  const Verb verb("ibv_read_counters");
  if ((flags & ~std::uint32_t{IBV_READ_COUNTERS_ATTR_PREFER_CACHED}) != 0) return noted(EINVAL);
  Counters& counters = of(ibv);
  const std::lock_guard lock(counters.mutex);
  for (const Counters::Point& point : counters.points) {
    if (point.index >= count) return noted(EINVAL);
  }
  uroce_read_counters_response now{};
  if (const int error = read(counters, now); error != 0) return noted(error);
  std::fill_n(values, count, 0);
  for (const Counters::Point& point : counters.points) values[point.index] += pick(now, point.what) - point.before;
  return 0;
}

}  // namespace uroce::verbs
