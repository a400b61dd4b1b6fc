// The library's objects. Each begins with its public struct of infiniband/verbs.h, so a pointer to one is a pointer
// to the other.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "client/completion_queue.h"
#include "client/queue_pair.h"
#include "client/session.h"
#include "client/shared_receive_queue.h"
#include "event_socket.h"

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace uroce::verbs {

struct Device {
  ibv_device device;
  // libmlx5 and libefa recognize their devices by the pointer that follows ibv_device in their structs: zero
  // matches none.
  std::uint64_t provider_pointer[16];
  __be64 guid;
  int index;
  std::atomic<int> references;  ///< one for the device list, one for each open context
};
static_assert(offsetof(Device, provider_pointer) == 664);

struct Cq;
struct Qp;
struct Srq;
struct Wq;
struct Mr;

struct Context {
  verbs_context base;
  std::unique_ptr<client::Session> session;

  // Events carry cookies that are never reused, so that an event of a destroyed object matches no other object.
  std::mutex objects_mutex;
  std::uint64_t next_cookie = 1;
  std::unordered_map<std::uint64_t, Cq*> cqs;
  std::unordered_map<std::uint64_t, Qp*> qps;
  std::unordered_map<std::uint64_t, Srq*> srqs;
  std::unordered_map<std::uint64_t, Wq*> wqs;
  std::unordered_map<std::uint32_t, Mr*> mrs;  ///< by L_Key
  bool fatal_delivered = false;

  EventSocket async_events;  ///< ibv_context::async_fd
};

struct Td {
  ibv_td td;
  std::atomic<int> users;  ///< parent domains
};

struct Pd {
  ibv_pd pd;
  // Of a parent domain: its PD and thread domain.
  Pd* parent;
  Td* td;
  std::atomic<int> children;
  std::atomic<int> users;  ///< objects made in a parent domain (for others the daemon counts)
};

/// The owner of the memory that `addr` and `length` of a region describe.
enum class MrKind : std::uint8_t {
  kNotOwned,  ///< no memory of this process was shared
  kShared,    ///< a range of this process, shared by lib/page_sharing
  kFast,      ///< a shared range, of which fast registrations open parts
};

struct Dm;

struct Mr {
  ibv_mr mr;
  MrKind kind;
  bool imported;  ///< owned by another session
  unsigned access;
  void* addr;          ///< as shared; ibv_mr::addr is null for device memory
  std::uint64_t iova;  ///< first address for work requests, unless the access is zero-based
  Dm* dm;
};

struct Mw {
  ibv_mw mw;
};

struct Dm {
  ibv_dm dm;
  void* data;
  std::size_t length, mapped;
  int fd;                  ///< the memfd; registering the memory looks for this descriptor
  bool imported;           ///< freed by another session
  std::atomic<int> users;  ///< regions
};

struct Xrcd {
  ibv_xrcd xrcd;
  std::uint32_t handle;
};

struct Ah {
  ibv_ah ah;
};

struct Channel {
  ibv_comp_channel channel;
  std::uint32_t handle;
  std::mutex waiting_mutex;
  std::vector<std::uint64_t> waiting;  ///< cookies of CQs that had entries when they were armed
  EventSocket events;                  ///< ibv_comp_channel::fd
};

struct Cq {
  union {
    ibv_cq cq;
    ibv_cq_ex ex;
  };
  std::uint64_t cookie;
  std::uint32_t comp_delivered, async_delivered;  ///< events delivered; under cq.mutex
  bool flush_delivered;                           ///< the event for the daemon's death was delivered
  bool waiting;                                   ///< in Channel::waiting; under its mutex
  const uroce_cqe* current;                       ///< between start_poll and end_poll
  Pd* domain;                                     ///< the parent domain that it was created in; or null
  client::CompletionQueue queue;
};

/// ibv_qp_ex of rdma-core 45 and later, with one more operation.
struct QpOperations {
  ibv_qp_ex ex;
  void (*wr_flush)(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t remote_addr, std::size_t length,
                   std::uint8_t type, std::uint8_t level);
};

struct IndirectionTable;

struct Qp {
  union {
    ibv_qp qp;
    ibv_qp_ex ex;
    QpOperations operations;
  };
  bool extended;  ///< ex is valid
  bool signal_all;
  bool packets;        ///< UD, raw packets: each request is one packet, or is segmented by its mss
  std::uint8_t flags;  ///< uroce_send_flag bits that this type supports
  std::uint32_t max_frame, max_tso_header;  ///< raw packets, bytes
  IndirectionTable* table;                  ///< of an RSS QP, which has no queues of its own
  Xrcd* xrcd;
  std::uint64_t cookie;
  std::uint32_t async_delivered;  ///< under qp.mutex
  // For ibv_wr_post(3), under queue.sq_lock: the entry being built, and the first error since ibv_wr_start.
  uroce_sq_entry* building;
  int build_error;
  struct Bind {
    ibv_mw* mw;
    std::uint32_t key_before;
  };
  std::vector<Bind> binds;  ///< since ibv_wr_start, in their order
  client::QueuePair queue;
};

struct Srq {
  ibv_srq srq;
  std::uint64_t cookie;
  std::uint32_t async_delivered;  ///< under srq.mutex
  client::SharedReceiveQueue queue;
};

/// A receive queue for raw packets. To the daemon it is a QP.
struct Wq {
  ibv_wq wq;
  std::uint64_t cookie;
  std::uint32_t async_delivered;  ///< under wq.mutex
  std::atomic<int> users;         ///< entries of indirection tables
  client::QueuePair queue;
};

/// Known to this library only: the daemon receives its contents with the RSS QP (CREATE_RSS).
struct IndirectionTable {
  ibv_rwq_ind_table table;
  std::vector<Wq*> wqs;
  std::atomic<int> users;  ///< QPs
};

struct Counters {
  ibv_counters counters;
  std::uint32_t handle;
  struct Point {
    ibv_counter_description what;
    std::uint32_t index;
    std::uint64_t before;  ///< the count at the time of attachment
  };
  std::mutex mutex;
  std::vector<Point> points;
  int flows = 0;
};

struct Flow {
  ibv_flow flow;
  Counters* counters;
};

inline Context* as_context(ibv_context* context) {
  return reinterpret_cast<Context*>(reinterpret_cast<std::byte*>(context) - offsetof(verbs_context, context));
}
inline client::Session& session_of(ibv_context* context) { return *as_context(context)->session; }
inline Cq* as_cq(ibv_cq* cq) { return reinterpret_cast<Cq*>(cq); }
inline Qp* as_qp(ibv_qp* qp) { return reinterpret_cast<Qp*>(qp); }
inline Srq* as_srq(ibv_srq* srq) { return reinterpret_cast<Srq*>(srq); }
inline Wq* as_wq(ibv_wq* wq) { return reinterpret_cast<Wq*>(wq); }
inline Pd* as_pd(ibv_pd* pd) { return reinterpret_cast<Pd*>(pd); }

/// Initializes the mutex and condition of an object for ibv_ack_*_events. Before the object is in a map of its
/// context.
template <class Object>
void prepare_events(Object& made) {
  pthread_mutex_init(&made.mutex, nullptr);
  pthread_cond_init(&made.cond, nullptr);
}
/// ibv_qp::state, atomically: one thread may post while another modifies or queries the QP.
inline ibv_qp_state state_of(ibv_qp& qp) {
  return std::atomic_ref<ibv_qp_state>(qp.state).load(std::memory_order_relaxed);
}
inline void set_state(ibv_qp& qp, ibv_qp_state state) {
  std::atomic_ref<ibv_qp_state>(qp.state).store(state, std::memory_order_relaxed);
}

/// Whether a QP that is in RTR as far as the library knows has gone to ERR: a request of its peer can do that, and
/// only the daemon knows it.
bool has_failed_in_rtr(Qp& qp);
/// Whether ibv_post_send is legal (IBTA vol. 1, 10.3.1): in ERR its requests are flushed.
inline bool may_send(Qp& qp) { return state_of(qp.qp) >= IBV_QPS_RTS || has_failed_in_rtr(qp); }

/// The errno of posts and queries when session.lost().
inline int lost_error(const client::Session& session) {
  return session.connection_state() == client::ConnectionState::kForked ? ENODEV : EIO;
}

}  // namespace uroce::verbs
