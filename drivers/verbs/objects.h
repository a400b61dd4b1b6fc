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
#include <vector>

#include "client/completion_queue.h"
#include "client/queue_pair.h"
#include "client/session.h"
#include "client/shared_receive_queue.h"

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace uroce::verbs {

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
struct Srq;
struct Wq;
struct Mr;

struct Context {
  verbs_context base;
  std::unique_ptr<client::Session> session;

  // Events name their objects by cookies, so that what is left in a pipe of a destroyed object names nothing.
  std::mutex objects_mutex;
  std::uint64_t next_cookie = 1;
  std::unordered_map<std::uint64_t, Cq*> cqs;
  std::unordered_map<std::uint64_t, Qp*> qps;
  std::unordered_map<std::uint64_t, Srq*> srqs;
  std::unordered_map<std::uint64_t, Wq*> wqs;
  std::unordered_map<std::uint32_t, Mr*> mrs;  ///< by L_Key
  bool fatal_told = false;
};

struct Td {
  ibv_td td;
  std::atomic<int> users;  ///< parent domains
};

struct Pd {
  ibv_pd pd;
  // Of a parent domain: what it is made of.
  Pd* parent;
  Td* td;
  std::atomic<int> children;
  std::atomic<int> users;  ///< of a parent domain: the daemon knows only its PD
};

/// What `addr` and `length` of a region say.
enum class MrKind : std::uint8_t {
  kNotOwned,  ///< nothing of this process that wants giving back
  kShared,    ///< a range of this process
  kFast,      ///< the same, that work requests give parts of to its key
};

struct Dm;

struct Mr {
  ibv_mr mr;
  MrKind kind;
  bool imported;  ///< another session's to give back
  unsigned access;
  void* addr;          ///< as shared; the public one is null where it is device memory
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
  int fd;                  ///< of the memory: registering it looks for one
  bool imported;           ///< another session's to free
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
  std::vector<std::uint64_t> waiting;  ///< cookies of CQs that were armed over entries
};

struct Cq {
  union {
    ibv_cq cq;
    ibv_cq_ex ex;
  };
  std::uint64_t cookie;
  std::uint32_t comp_delivered, async_delivered;  ///< events handed out; under cq.mutex
  bool flush_told;                                ///< one event after the daemon's death
  bool waiting;                                   ///< in Channel::waiting; under its mutex
  const uroce_cqe* current;                       ///< between start_poll and end_poll
  Pd* domain;                                     ///< parent domain that it was made in; or null
  client::CompletionQueue queue;
};

/// ibv_qp_ex as rdma-core 45 and later know it: one more operation.
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
  bool packets;                             ///< UD, raw packets: each request is one packet, or is cut by its mss
  std::uint8_t flags;                       ///< uroce_send_flag that mean something to this type
  std::uint32_t allowed;                    ///< operations of this type: a bit for each ibv_wr_opcode up to 15
  std::uint32_t max_frame, max_tso_header;  ///< raw packets, bytes
  IndirectionTable* table;                  ///< what frames are spread over; it then has no queues
  Xrcd* xrcd;
  std::uint64_t cookie;
  std::uint32_t async_delivered;  ///< under qp.mutex
  // ibv_wr_*, under queue.sq_lock: the entry being built, and the first error since wr_start.
  uroce_sq_entry* building;
  int build_error;
  struct Bind {
    ibv_mw* mw;
    std::uint32_t key_before;
  };
  std::vector<Bind> binds;  ///< since wr_start, in their order
  client::QueuePair queue;
};

struct Srq {
  ibv_srq srq;
  std::uint64_t cookie;
  std::uint32_t async_delivered;  ///< under srq.mutex
  client::SharedReceiveQueue queue;
};

/// Receives of raw packets; the daemon knows it as a QP.
struct Wq {
  ibv_wq wq;
  std::uint64_t cookie;
  std::uint32_t async_delivered;  ///< under wq.mutex
  std::atomic<int> users;         ///< entries of indirection tables
  client::QueuePair queue;
};

/// The daemon sees it with the QP that it is for.
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
    std::uint64_t before;  ///< what had been counted when it was attached
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

/// What a thread that takes events needs of an object; before it is in one of the context's maps.
template <class Object>
void prepare_events(Object& made) {
  pthread_mutex_init(&made.mutex, nullptr);
  pthread_cond_init(&made.cond, nullptr);
}
/// ibv_qp::state: one thread may post while another modifies or queries.
inline ibv_qp_state state_of(ibv_qp& qp) {
  return std::atomic_ref<ibv_qp_state>(qp.state).load(std::memory_order_relaxed);
}
inline void set_state(ibv_qp& qp, ibv_qp_state state) {
  std::atomic_ref<ibv_qp_state>(qp.state).store(state, std::memory_order_relaxed);
}

/// What a post or a query answers when lost().
inline int lost_error(const client::Session& session) {
  return session.connection_state() == client::ConnectionState::kForked ? ENODEV : EIO;
}

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
int ask_device(ibv_context* context, uroce_device_response& reply);
/// ibv_rx_hash_fields that there are: addresses of IP, ports of TCP and UDP.
constexpr std::uint64_t kHashFields = 0xff;

// completion.cc, completion_ex.cc
ibv_cq* create_cq(ibv_context* context, const uroce_create_cq_request& shape, void* cq_context,
                  ibv_comp_channel* channel);
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr);
int poll_cq(ibv_cq* cq, int count, ibv_wc* wc);
int req_notify_cq(ibv_cq* cq, int solicited_only);
int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr);

// queue_pair.cc
ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr);
uroce_av to_av(const ibv_ah_attr& attr);
int modify_qp_rate_limit(ibv_qp* qp, ibv_qp_rate_limit_attr* attr);
ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attr);

// post.cc, post_ex.cc
int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr);
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);
/// Fills the function pointers of ibv_qp_ex. errno: 0, EOPNOTSUPP when an operation is asked for that this type of
/// QP does not have.
int fill_work_requests(Qp& qp, std::uint64_t operations);
int post_wq_recv(ibv_wq* wq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);
/// Operations that a type of QP has: a bit for each ibv_wr_opcode, drivers' own not among them.
std::uint32_t operations_of(ibv_qp_type type);
/// Qp::packets: whether what the entry sends has a length that goes into a packet, or is cut into some.
bool packets_fit(const Qp& qp, const uroce_sq_entry& entry);
/// The headers of a TSO entry go behind its list. False: no headers for a frame of this QP's.
bool write_tso(const Qp& qp, const void* header, std::uint16_t bytes, std::uint16_t mss, uroce_sq_entry& entry);
/// Bytes of an entry's list.
inline std::size_t list_bytes(const uroce_sq_entry& entry) {
  return entry.num_sge * sizeof(uroce_sge) + entry.inline_length;
}

// shared_receive.cc, xrc.cc
ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr);
int get_srq_num(ibv_srq* srq, std::uint32_t* number);
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);
ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attr);
int close_xrcd(ibv_xrcd* xrcd);

// work_queue.cc
ibv_wq* create_wq(ibv_context* context, ibv_wq_init_attr* attr);
int modify_wq(ibv_wq* wq, ibv_wq_attr* attr);
int destroy_wq(ibv_wq* wq);

// rss.cc
ibv_rwq_ind_table* create_rwq_ind_table(ibv_context* context, ibv_rwq_ind_table_init_attr* attr);
int destroy_rwq_ind_table(ibv_rwq_ind_table* table);
/// A QP whose frames a table's WQs get: `attr` says IBV_QP_INIT_ATTR_IND_TABLE or _RX_HASH.
Qp* create_rss_qp(ibv_context* context, ibv_pd* pd, ibv_qp_init_attr_ex& attr);

// flow.cc, flow_key.cc, counters.cc
ibv_flow* create_flow(ibv_qp* qp, ibv_flow_attr* attr);
int destroy_flow(ibv_flow* flow);
/// What the specs behind `attr` say, in `request` and `counters`. errno: EINVAL, EOPNOTSUPP.
int read_specs(const ibv_flow_attr& attr, uroce_create_flow_request& request, Counters*& counters);
ibv_counters* create_counters(ibv_context* context, ibv_counters_init_attr* attr);
int destroy_counters(ibv_counters* counters);
int attach_counters_point_flow(ibv_counters* counters, ibv_counter_attach_attr* attr, ibv_flow* flow);
int read_counters(ibv_counters* counters, std::uint64_t* values, std::uint32_t count, std::uint32_t flags);

// window.cc
ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type);
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);
int dealloc_mw(ibv_mw* mw);

// memory.cc, memory_kinds.cc
/// EINVAL: unknown bits, or remote writes without local ones.
int check_access(unsigned access);
/// ibv_reg_mr_iova2 without optional access bits.
ibv_mr* register_range(ibv_pd* pd, void* addr, std::size_t length, std::uint64_t iova, unsigned access);
/// Fills in what is public, and lists the region in its context.
ibv_mr* finish_mr(std::unique_ptr<Mr> mr, ibv_pd* pd, void* addr, std::size_t length,
                  const uroce_reg_mr_response& made);
void remember_mr(Mr& mr);
void forget_mr(const Mr& mr);
int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* list, std::uint32_t count);
ibv_mr* alloc_null_mr(ibv_pd* pd);
ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, std::uint64_t offset, std::size_t length, unsigned access);
ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attr);
ibv_dm* import_dm(ibv_context* context, std::uint32_t handle);
int free_dm(ibv_dm* dm);

// domain.cc
ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr);
int dealloc_td(ibv_td* td);
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr);
/// Whether both stand for one domain of the daemon: a parent domain for the one that it was made of.
inline bool same_domain(const ibv_pd* a, const ibv_pd* b) {
  return a != nullptr && b != nullptr && a->context == b->context && a->handle == b->handle;
}
/// Whether the threads that use what is made in this domain take turns.
inline bool unlocked(ibv_pd* pd) { return pd != nullptr && as_pd(pd)->td != nullptr; }

}  // namespace uroce::verbs
