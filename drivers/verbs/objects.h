// What stands behind the structs of infiniband/verbs.h: each begins with the public struct, so that a pointer to
// the one is a pointer to the other.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "client/completion_queue.h"
#include "client/queue_pair.h"
#include "client/session.h"

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace uroce::verbs {

inline constexpr std::uint32_t kVendorId = 0xffffff;

struct Device {
  ibv_device device;
  // libmlx5 and libefa know their devices by the pointer that follows: it must match nothing.
  std::uint64_t behind[16];
  __be64 guid;
  int index;
  std::atomic<int> references;  ///< the list it is in, and each open context
};
static_assert(offsetof(Device, behind) == 664);

struct Cq;
struct Qp;

struct Context {
  verbs_context base;
  std::unique_ptr<client::Session> session;

  // Events name their objects by cookies, so that what is left in a pipe of a destroyed object names nothing.
  std::mutex objects_mutex;
  std::uint64_t next_cookie = 1;
  std::unordered_map<std::uint64_t, Cq*> cqs;
  std::unordered_map<std::uint64_t, Qp*> qps;
  bool fatal_told = false;
};

struct Pd {
  ibv_pd pd;
};

struct Mr {
  ibv_mr mr;
  bool writable;
};

struct Ah {
  ibv_ah ah;
};

struct Channel {
  ibv_comp_channel channel;
  std::uint32_t handle;
};

struct Cq {
  union {
    ibv_cq cq;
    ibv_cq_ex ex;
  };
  std::uint64_t cookie;
  std::uint32_t comp_delivered, async_delivered;  ///< events handed out; under cq.mutex
  bool flush_told;                                ///< one event after the daemon's death
  bool single_threaded;
  const uroce_cqe* current;  ///< between start_poll and end_poll
  client::CompletionQueue queue;
};

struct Qp {
  union {
    ibv_qp qp;
    ibv_qp_ex ex;
  };
  bool extended;  ///< ex is valid
  bool signal_all;
  std::uint64_t cookie;
  std::uint32_t async_delivered;  ///< under qp.mutex
  // ibv_wr_*, under queue.sq_lock: the entry being built, and the first error since wr_start.
  uroce_sq_entry* building;
  int build_error;
  bool build_needs_data;
  client::QueuePair queue;
};

inline Context* as_context(ibv_context* context) {
  return reinterpret_cast<Context*>(reinterpret_cast<std::byte*>(context) - offsetof(verbs_context, context));
}
inline client::Session& session_of(ibv_context* context) { return *as_context(context)->session; }
inline Cq* as_cq(ibv_cq* cq) { return reinterpret_cast<Cq*>(cq); }
inline Qp* as_qp(ibv_qp* qp) { return reinterpret_cast<Qp*>(qp); }

// device.cc
void release(Device* device);
std::string name_of(ibv_context* context);

// operations.cc: the slots of a context
void fill_operations(Context& context);

// query.cc
int query_port_ex(ibv_context* context, std::uint8_t port, ibv_port_attr* attr, std::size_t bytes);
int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attr,
                    std::size_t bytes);
int query_rt_values(ibv_context* context, ibv_values_ex* values);

// completion.cc, completion_ex.cc
ibv_cq* create_cq(ibv_context* context, const uroce_create_cq_request& shape, void* cq_context,
                  ibv_comp_channel* channel);
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr);
int poll_cq(ibv_cq* cq, int count, ibv_wc* wc);
int req_notify_cq(ibv_cq* cq, int solicited_only);

// queue_pair.cc
ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr);
uroce_av to_av(const ibv_ah_attr& attr);

// post.cc, post_ex.cc
int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr);
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);
/// Fills the function pointers of ibv_qp_ex. errno: 0, EOPNOTSUPP when an operation is asked for that this type of
/// QP does not have.
int fill_work_requests(Qp& qp, std::uint64_t operations);

}  // namespace uroce::verbs
