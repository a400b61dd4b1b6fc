// The library's objects. Each begins with its public struct of rdma/rdma_cma.h, so a pointer to one is a pointer to
// the other.
//
// Lock order: CmId::binding_mutex, Registry::mutex, CmId::mutex or Channel::mutex. Commands to the daemon never
// wait for the network: what takes time is reported by an event.
#pragma once

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "abi/cm.h"
#include "client/session.h"

namespace uroce::rdmacm {

/// A running daemon. One that is restarted is another device. Never freed.
struct Device {
  std::string name;
  std::uint32_t index = 0;
  std::unique_ptr<client::Session> session;
  // Set at the first use of verbs; under Registry::mutex.
  ibv_context* verbs = nullptr;
  ibv_pd* pd = nullptr;
  ibv_xrcd* xrcd = nullptr;
  std::uint8_t max_initiator_depth = 0, max_responder_resources = 0;

  bool gone() const { return session->lost(); }
  /// Sends one command and waits for the answer. errno.
  template <class Request, class Reply>
  int call(std::uint32_t command, const Request& request, Reply& reply, client::ReceivedFds* received = nullptr) {
    return session->call(command, request, reply, received);
  }
  template <class Request>
  int call(std::uint32_t command, const Request& request) {
    return session->call(command, std::as_bytes(std::span(&request, 1)), {});
  }
};

struct Channel {
  /// The reading end of a socket pair whose other end a daemon has.
  struct Source {
    int fd = -1;
    Device* device = nullptr;
    bool ended = false;  ///< the daemon has closed its end
  };
  /// fd: an epoll set of `sources`, of the sockets of the daemons, to detect that one is gone, and of `ready`,
  /// which makes it readable for the events in `waiting`
  rdma_event_channel channel;
  int ready = -1;    ///< an eventfd that is always readable
  std::mutex mutex;  ///< of the following three
  std::unordered_map<Device*, std::uint32_t> handles;
  std::vector<Source> sources;
  std::size_t turn = 0;  ///< in `sources`
  /// Events that were taken out of a socket, because those of one id were moved or discarded, and those of this
  /// library. They precede those in `sources`. Under Registry::mutex, as is each receive.
  std::deque<uroce_cm_event> waiting;
};

struct Multicast {
  sockaddr_storage address{};
  socklen_t address_bytes = 0;
  ibv_gid mgid{};
  bool send_only = false, attached = false;
  void* context = nullptr;
  std::uint64_t cookie = 0;
};

/// The part of an id that is on one device. An id that is bound to no address has one on each device.
struct Binding {
  Device* device = nullptr;
  std::uint32_t handle = 0;
};

/// The device index in the records of this library's own events; their handle is CmId::serial.
inline constexpr std::uint32_t kLibrary = UINT32_MAX;

/// Events of rdma-core 60 and later (enum rdma_cm_event_type).
enum LaterEvent : std::uint32_t { kAddrinfoResolved = 16, kAddrinfoError = 17, kUserEvent = 18 };

struct CmId {
  rdma_cm_id id;
  std::uint32_t serial = 0;  ///< of this process; never 0 while the id is known to the registry
  std::vector<Binding> bindings;
  Device* device = nullptr;    ///< the device that the id is bound to; it then has one binding
  bool requested = false;      ///< made for a connection request that was not answered yet
  bool passive = false;        ///< made for a connection request
  bool established = false;    ///< as the client of a connection
  bool migrated = false;       ///< rdma_migrate_id(3) was called
  bool synchronous = false;    ///< the id owns its channel (rdma_create_id(3) without a channel)
  bool gid_addresses = false;  ///< the program uses AF_IB addresses
  bool listening = false;
  bool resolved = false;    ///< has a destination
  std::uint32_t flags = 0;  ///< uroce_cm_id_flags
  std::uint8_t traffic_class = 0, ack_timeout = 0;
  bool connect_failed = false;
  std::uint8_t initiator_depth = 0, responder_resources = 0;
  uroce_cm_path path{};
  bool peer_known = false;  ///< `path` names the peer's QP
  bool removal_delivered = false;
  ibv_ece local_ece{}, remote_ece{};
  std::vector<std::uint8_t> connect_data;             ///< from the rdma_addrinfo that the id was made from
  std::optional<ibv_qp_init_attr> accepted_qp;        ///< for the QP of each connection request (rdma_create_ep(3))
  std::vector<std::unique_ptr<Multicast>> multicast;  ///< under mutex
  std::uint64_t last_group = 0;                       ///< under mutex
  bool resolving = false;  ///< rdma_resolve_addrinfo(3) until rdma_query_addrinfo(3); under Registry::mutex
  rdma_addrinfo* addrinfo = nullptr;  ///< what it has found; under Registry::mutex

  /// Held while the id is being bound, since an event may arrive before that is complete.
  std::mutex binding_mutex;
  std::mutex mutex;
  std::condition_variable acknowledged;
  std::uint32_t events_given = 0, events_acknowledged = 0;
};

struct Event {
  rdma_cm_event event{};
  CmId* owner = nullptr;  ///< its destruction waits until the event is acknowledged
  std::uint8_t private_data[UROCE_CM_MAX_PRIVATE_DATA] = {};
};

inline CmId& as_id(rdma_cm_id* id) { return *reinterpret_cast<CmId*>(id); }
inline Channel& as_channel(rdma_event_channel* channel) { return *reinterpret_cast<Channel*>(channel); }

/// All devices and ids of the process.
class Registry {
 public:
  static Registry& instance();

  std::mutex mutex;

  /// Devices whose daemon is running; searches for new ones if there are none or `look_again`. Locks the mutex.
  std::vector<Device*> devices(bool look_again = false);
  /// Why there is none: ENODEV, or EMFILE and the like if the latest search lacked descriptors.
  int why_none();
  /// Opens the verbs device and allocates a PD. errno.
  int open_verbs(Device& device);
  /// The XRC domain of the device, opened when first needed. errno.
  int xrcd_of(Device& device, ibv_xrcd*& out);

  // The following are called with the mutex held.
  void add(const Binding& binding, CmId& id) { ids_[key(binding)] = &id; }
  void remove(const Binding& binding) { ids_.erase(key(binding)); }
  /// Gives the id a serial number, by which this library's own events find it.
  void add(CmId& id);
  void remove(CmId& id) { by_serial_.erase(id.serial); }
  CmId* find(std::uint32_t device, std::uint32_t handle) const {
    if (device == kLibrary) {
      const auto own = by_serial_.find(handle);
      return own == by_serial_.end() ? nullptr : own->second;
    }
    const auto it = ids_.find(std::uint64_t{device} << 32 | handle);
    return it == ids_.end() ? nullptr : it->second;
  }
  Device* device(std::uint32_t index) const { return index < all_.size() ? all_[index].get() : nullptr; }
  const std::unordered_map<std::uint64_t, CmId*>& ids() const { return ids_; }

 private:
  static std::uint64_t key(const Binding& b) { return std::uint64_t{b.device->index} << 32 | b.handle; }
  void look();

  std::vector<std::unique_ptr<Device>> all_;
  int look_error_ = 0;
  std::unordered_map<std::uint64_t, CmId*> ids_;
  std::unordered_map<std::uint32_t, CmId*> by_serial_;
  std::uint32_t last_serial_ = 0;
};

// addresses.cc
/// Size of an address; 0 for an unknown family.
socklen_t bytes_of(const sockaddr* address);
bool is_any(const sockaddr* address);
bool is_loopback(const sockaddr* address);
/// As to_abi(), and any address of the family for a loopback one: neither belongs to a device.
uroce_cm_address to_bindable(const sockaddr* address);
std::uint16_t port_of(const sockaddr* address);
uroce_cm_address to_abi(const sockaddr* address);
void from_abi(const uroce_cm_address& from, sockaddr_storage& to);
/// Whether the masked part of an AF_IB service ID belongs to this port space. True for other families.
bool in_port_space(const sockaddr* address, rdma_port_space space);
/// Converts to AF_IB: the GID, and the service ID of the RDMA IP CM service (annex A11).
void to_gid_address(const uroce_cm_address& from, rdma_port_space space, sockaddr_storage& to);
/// Converts to the address family that the program uses for this id.
void to_program_address(const CmId& id, const uroce_cm_address& from, sockaddr_storage& to);

// channel.cc
/// Takes the next event. errno; EAGAIN: there is none. Under Registry::mutex.
int take_event(Channel& channel, uroce_cm_event& out);

/// Adds an event of this library. Under Registry::mutex.
void add_event(Channel& channel, const uroce_cm_event& event);
/// As above, one that concerns no device. `argument`: for the parameters of kUserEvent.
void add_own_event(const CmId& id, LaterEvent type, int status, std::uint64_t argument = 0);

/// The daemon's handle of the channel. The first use registers the channel with the daemon. errno.
int handle_of(Channel& channel, Device& device, std::uint32_t& out);
int forward_event(Channel& to, Device& device, const uroce_cm_event& event);

/// Moves the events of the id that wait in `from` to `to`, before all others there. Under Registry::mutex.
void move_events(const CmId& id, Channel& from, Channel& to);

/// Removes the waiting events of an id that was destroyed and had these bindings and this serial number. A
/// connection request among them is rejected.
void discard_events(Channel& channel, std::span<const Binding> bindings, std::uint32_t serial);

/// Removes the waiting event of a multicast group that was left.
void discard_join(Channel& channel, const Binding& binding, std::uint64_t cookie);

// id.cc
CmId* make_id(rdma_event_channel* channel, void* context, rdma_port_space space, ibv_qp_type type);
/// Frees an id without bindings.
void free_id(CmId* id);
/// Adopts the id's only binding, and sets the verbs device, PD and addresses of the id. errno.
int bind_to_device(CmId& id, const Binding& binding, const uroce_cm_address& source, const std::uint8_t* gid,
                   std::uint32_t sgid_index);
/// For synchronous ids: waits for the next event and returns its status. 0, or -1 with errno.
int complete(CmId& id);
int migrate(CmId& id, rdma_event_channel* to);

// queue_pair.cc
int to_ready_to_receive(CmId& id, std::uint8_t responder_resources);
int to_ready_to_send(CmId& id, std::uint8_t initiator_depth);
int to_error(CmId& id);

// connect.cc
/// Completes a connection that the peer has accepted: moves the QP to RTS and sends RTU. 0, or -1 with errno.
int establish(CmId& id);

}  // namespace uroce::rdmacm
