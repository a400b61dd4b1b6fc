// What stands behind the structs of rdma/rdma_cma.h: each begins with the public struct, so that a pointer to the
// one is a pointer to the other.
//
// Locks, outer first: Registry::mutex, then CmId::mutex. Neither is held during a call of the daemon that waits for
// the network, for there is none: whatever takes time comes as an event.
#pragma once

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "abi/cm.h"
#include "client/session.h"

namespace uroce::rdmacm {

/// A daemon, as long as it lives: one that is started again is another device. Never freed.
struct Device {
  std::string name;
  std::uint32_t index = 0;
  std::unique_ptr<client::Session> session;
  // From the first use of verbs on; under Registry::mutex.
  ibv_context* verbs = nullptr;
  ibv_pd* pd = nullptr;
  ibv_xrcd* xrcd = nullptr;
  std::uint8_t max_initiator_depth = 0, max_responder_resources = 0;

  bool gone() const { return session->lost(); }
  /// One command with its answer. errno.
  template <class Request, class Reply>
  int call(std::uint32_t command, const Request& request, Reply& reply) {
    return session->call(command, request, reply);
  }
  template <class Request>
  int call(std::uint32_t command, const Request& request) {
    return session->call(command, std::as_bytes(std::span(&request, 1)), {});
  }
};

struct Channel {
  rdma_event_channel channel;  ///< fd: an epoll set of `receiver` and of what tells that a daemon is gone
  int receiver = -1;           ///< one end of a socket pair
  int sender = -1;             ///< the other end, which each daemon has too
  std::mutex mutex;            ///< of handles
  std::unordered_map<Device*, std::uint32_t> handles;
};

struct Multicast {
  sockaddr_storage address{};
  socklen_t address_bytes = 0;
  ibv_gid mgid{};
  bool send_only = false, attached = false;
  void* context = nullptr;
  std::uint64_t cookie = 0;
};

/// An id on one device. One that is bound to no address has several.
struct Binding {
  Device* device = nullptr;
  std::uint32_t handle = 0;
};

struct CmId {
  rdma_cm_id id;
  std::vector<Binding> bindings;
  Device* device = nullptr;    ///< bound to this one; then it has one binding
  bool synchronous = false;    ///< the channel is its own
  bool gid_addresses = false;  ///< the program speaks of addresses as AF_IB
  std::uint32_t flags = 0;     ///< uroce_cm_id_flags
  std::uint8_t traffic_class = 0, ack_timeout = 0;
  bool connect_failed = false;
  std::uint8_t initiator_depth = 0, responder_resources = 0;
  uroce_cm_path path{};
  bool peer_known = false;  ///< path tells of a peer's QP
  bool removal_told = false;
  ibv_ece local_ece{}, remote_ece{};
  std::vector<std::uint8_t> connect_data;             ///< of the address info that it was made from
  std::optional<ibv_qp_init_attr> accepted_qp;        ///< rdma_create_ep: for each request
  std::vector<std::unique_ptr<Multicast>> multicast;  ///< under mutex
  std::uint64_t last_group = 0;                       ///< under mutex

  /// Held while the id is being bound, which an event about it may overtake. Before Registry::mutex.
  std::mutex binding_mutex;
  std::mutex mutex;
  std::condition_variable acknowledged;
  std::uint32_t events_given = 0, events_acknowledged = 0;
};

struct Event {
  rdma_cm_event event{};
  CmId* owner = nullptr;  ///< whose destruction waits for the acknowledge
  std::uint8_t private_data[UROCE_CM_MAX_PRIVATE_DATA] = {};
};

inline CmId& as_id(rdma_cm_id* id) { return *reinterpret_cast<CmId*>(id); }
inline Channel& as_channel(rdma_event_channel* channel) { return *reinterpret_cast<Channel*>(channel); }

/// All devices and ids of the process.
class Registry {
 public:
  static Registry& instance();

  std::mutex mutex;

  /// Devices whose daemon answers; looks for new ones when there is none. The mutex is not held.
  std::vector<Device*> devices(bool look_again = false);
  /// Opens verbs and a PD. errno.
  int open_verbs(Device& device);
  /// ENODEV when it can't be opened.
  int xrcd_of(Device& device, ibv_xrcd*& out);

  // Under the mutex.
  void add(const Binding& binding, CmId& id) { ids_[key(binding)] = &id; }
  void remove(const Binding& binding) { ids_.erase(key(binding)); }
  CmId* find(std::uint32_t device, std::uint32_t handle) const {
    const auto it = ids_.find(std::uint64_t{device} << 32 | handle);
    return it == ids_.end() ? nullptr : it->second;
  }
  Device* device(std::uint32_t index) const { return index < all_.size() ? all_[index].get() : nullptr; }
  const std::unordered_map<std::uint64_t, CmId*>& ids() const { return ids_; }

 private:
  static std::uint64_t key(const Binding& b) { return std::uint64_t{b.device->index} << 32 | b.handle; }
  void look();

  std::vector<std::unique_ptr<Device>> all_;
  std::unordered_map<std::uint64_t, CmId*> ids_;
};

// addresses.cc
/// 0: a family that we don't know.
socklen_t bytes_of(const sockaddr* address);
bool is_any(const sockaddr* address);
bool is_loopback(const sockaddr* address);
std::uint16_t port_of(const sockaddr* address);
uroce_cm_address to_abi(const sockaddr* address);
void from_abi(const uroce_cm_address& from, sockaddr_storage& to);
/// AF_IB: the service ID, as far as its mask says, is of this port space. Others have none to be wrong.
bool in_port_space(const sockaddr* address, rdma_port_space space);
/// As AF_IB: the GID, and the service ID of the RDMA IP CM service.
void to_gid_address(const uroce_cm_address& from, rdma_port_space space, sockaddr_storage& to);
/// In the family that the id's program speaks.
void tell(const CmId& id, const uroce_cm_address& from, sockaddr_storage& to);

// channel.cc
/// The handle of the channel at the device, where it is made known at the first use. errno.
int handle_of(Channel& channel, Device& device, std::uint32_t& out);
int forward_event(Channel& to, Device& device, const uroce_cm_event& event);

/// Events of an id that wait in a channel which nobody reads any more go to the channel that it has now.
void migrate_events(CmId& id, Channel& from);

// id.cc
CmId* make_id(rdma_event_channel* channel, void* context, rdma_port_space space, ibv_qp_type type);
/// Frees an id that no binding leads to any more.
void free_id(CmId* id);
/// Takes a binding into the table, and verbs of its device into the id when it is the only one. errno.
int bind_to_device(CmId& id, const Binding& binding, const uroce_cm_address& source, const std::uint8_t* gid,
                   std::uint32_t sgid_index);
/// Synchronous ids: waits for the next event and makes its status the result. 0 or -1.
int complete(CmId& id);
int migrate(CmId& id, rdma_event_channel* to);

// queue_pair.cc
int to_ready_to_receive(CmId& id, std::uint8_t responder_resources);
int to_ready_to_send(CmId& id, std::uint8_t initiator_depth);
int to_error(CmId& id);

// connect.cc
/// The peer has accepted: QP to RTS, RTU. 0 or -1.
int establish(CmId& id);

}  // namespace uroce::rdmacm
