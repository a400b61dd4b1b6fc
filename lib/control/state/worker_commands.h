// The commands that the control thread sends to workers, grouped by object. Each command is a struct: arguments,
// then results, and run(), which executes on the worker's thread at the time of its duty cycle (WorkerCore::now()).
// WorkerCore::call() returns when it has run, and records it in the worker's trace.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "control/machine/port.h"
#include "control/session/neighbour_waiters.h"
#include "control/session/session.h"
#include "net/link_stack.h"
#include "worker/worker.h"

namespace uroce::control::worker_commands {

/// An empty command: when it returns, the worker holds no reference to anything that it read before.
struct Quiesce {
  static constexpr std::string_view kName = "quiesce";
  void describe(worker::ArgumentText&) const {}
  void run(worker::WorkerCore&) {}
};

// ---------------------------------------------------------------- sessions

struct AttachSession {
  static constexpr std::string_view kName = "attach_session";
  worker::SessionPort& port;
  void describe(worker::ArgumentText& text) const { text.add("session", port.session); }
  void run(worker::WorkerCore& worker) { worker.attach(port); }
};

/// The worker no longer serves doorbells of the session.
struct DetachSession {
  static constexpr std::string_view kName = "detach_session";
  worker::SessionPort& port;
  void describe(worker::ArgumentText& text) const { text.add("session", port.session); }
  void run(worker::WorkerCore& worker) { worker.detach(port); }
};

/// Removes CQs, SRQs and address handles of a session that ends.
struct RemoveObjects {
  static constexpr std::string_view kName = "remove_objects";
  template <class T>
  using Objects = std::span<const std::pair<std::uint32_t, T*>>;  ///< with their handles
  std::uint64_t session;
  Objects<SrqObject> srqs;
  Objects<CqObject> cqs;
  Objects<AhObject> ahs;
  void describe(worker::ArgumentText& text) const {
    text.add("session", session).add("cqs", cqs.size()).add("srqs", srqs.size()).add("ahs", ahs.size());
  }
  void run(worker::WorkerCore& worker);
};

// ---------------------------------------------------------------- completion and shared receive queues

struct SetCq {
  static constexpr std::string_view kName = "set_cq";
  CqId id;
  worker::Cq* cq = nullptr;
  std::uint64_t session = 0;
  void describe(worker::ArgumentText& text) const { text.add("cq", id.value).add("session", session); }
  void run(worker::WorkerCore& worker) { worker.set_cq(id, cq, session); }
};

struct RemoveCq {
  static constexpr std::string_view kName = "remove_cq";
  CqId id;
  worker::Cq* cq = nullptr;
  void describe(worker::ArgumentText& text) const { text.add("cq", id.value); }
  void run(worker::WorkerCore& worker) { worker.remove_cq(id, cq); }
};

struct ResizeCq {
  static constexpr std::string_view kName = "resize_cq";
  CqId id;
  worker::Cq& cq;
  uroce_cqe* ring = nullptr;
  std::uint32_t entries = 0;
  bool resized = false;
  void describe(worker::ArgumentText& text) const { text.add("cq", id.value).add("entries", entries); }
  void run(worker::WorkerCore&) { resized = cq.resize(ring, entries); }
};

/// nullptr removes it.
struct SetSrq {
  static constexpr std::string_view kName = "set_srq";
  SrqId id;
  proto::Srq* srq = nullptr;
  void describe(worker::ArgumentText& text) const { text.add("srq", id.value).add("removed", srq == nullptr); }
  void run(worker::WorkerCore& worker) { worker.transport().set_srq(id, srq); }
};

// ---------------------------------------------------------------- queue pairs

/// `port` is null for QPs without doorbells (XRC targets).
struct CreateQp {
  static constexpr std::string_view kName = "create_qp";
  const proto::QpCreate& create;
  worker::SessionPort* port = nullptr;
  std::uint32_t bit = 0;  ///< the QP's doorbell
  proto::QpIndex index;
  int error = 0;
  void describe(worker::ArgumentText& text) const { text.add("qpn", create.qpn).add("session", create.owner); }
  void run(worker::WorkerCore& worker);
};

struct DestroyQp {
  static constexpr std::string_view kName = "destroy_qp";
  Qpn qpn;
  proto::QpIndex index;
  worker::SessionPort* port = nullptr;
  std::uint32_t bit = 0;
  void describe(worker::ArgumentText& text) const { text.add("qpn", qpn); }
  void run(worker::WorkerCore& worker);
};

/// QPs of a session whose doorbells are detached already.
struct DestroyQps {
  static constexpr std::string_view kName = "destroy_qps";
  std::span<const proto::QpIndex> qps;
  void describe(worker::ArgumentText& text) const { text.add("count", qps.size()); }
  void run(worker::WorkerCore& worker) {
    for (const proto::QpIndex qp : qps) worker.transport().destroy(qp, worker.now());
  }
};

struct ModifyQp {
  static constexpr std::string_view kName = "modify_qp";
  Qpn qpn;
  proto::QpIndex index;
  const proto::QpAttr& attr;
  std::uint32_t mask = 0;
  proto::ModifyVerdict verdict;
  proto::QpSnapshot after;
  void describe(worker::ArgumentText& text) const { text.add("qpn", qpn).add("mask", mask); }
  void run(worker::WorkerCore& worker) {
    verdict = worker.transport().modify(index, attr, mask, worker.now());
    worker.transport().query(index, after);
  }
};

struct QueryQp {
  static constexpr std::string_view kName = "query_qp";
  Qpn qpn;
  proto::QpIndex index;
  bool found = false;
  proto::QpSnapshot snapshot;
  void describe(worker::ArgumentText& text) const { text.add("qpn", qpn); }
  void run(worker::WorkerCore& worker) { found = worker.transport().query(index, snapshot); }
};

/// How many of their posted work requests UD QPs have sent; what is not sent yet is reported later
/// (proto::Transport::report_sent()). Each worker fills the entries of its own QPs.
struct ReportSent {
  static constexpr std::string_view kName = "report_sent";
  struct Entry {
    QpObject* qp = nullptr;
    proto::SendProgress progress;
  };
  std::span<Entry> qps;
  void describe(worker::ArgumentText& text) const {
    text.add("count", qps.size());
    if (!qps.empty()) text.add("first", qps.front().qp->qpn);
  }
  void run(worker::WorkerCore& worker) {
    for (Entry& entry : qps) {
      if (entry.qp->worker != worker.config().index) continue;
      entry.progress = worker.transport().report_sent(entry.qp->index);
    }
  }
};

/// Each worker sets the rules of its own QPs (proto::Transport::set_faults()); nullptr: none.
struct SetFaults {
  static constexpr std::string_view kName = "set_faults";
  struct Entry {
    QpObject* qp = nullptr;
    proto::QpFaults* faults = nullptr;
  };
  std::span<const Entry> qps;
  void describe(worker::ArgumentText& text) const {
    text.add("count", qps.size());
    if (!qps.empty()) text.add("first", qps.front().qp->qpn);
  }
  void run(worker::WorkerCore& worker) {
    for (const Entry& entry : qps) {
      if (entry.qp->worker == worker.config().index) worker.transport().set_faults(entry.qp->index, entry.faults);
    }
  }
};

/// A completion counter of a QP (proto::Transport::attach_counter()).
struct AttachCounter {
  static constexpr std::string_view kName = "attach_counter";
  Qpn qpn;
  proto::QpIndex index;
  proto::QpCompletionCounters& table;
  std::uint32_t operations = 0;  ///< uroce_counted_operation
  proto::CompletionCounter counter;
  int error = 0;
  void describe(worker::ArgumentText& text) const { text.add("qpn", qpn).add("operations", operations); }
  void run(worker::WorkerCore& worker) {
    error = worker.transport().attach_counter(index, table, operations, counter);
  }
};

struct AttachMulticast {
  static constexpr std::string_view kName = "attach_multicast";
  Qpn qpn;
  proto::QpIndex index;
  wire::Address group;
  int error = 0;
  void describe(worker::ArgumentText& text) const { text.add("qpn", qpn).add("group", address_text(group)); }
  void run(worker::WorkerCore& worker) { error = worker.transport().attach_multicast(index, group); }
};

struct DetachMulticast {
  static constexpr std::string_view kName = "detach_multicast";
  Qpn qpn;
  proto::QpIndex index;
  wire::Address group;
  void describe(worker::ArgumentText& text) const { text.add("qpn", qpn).add("group", address_text(group)); }
  void run(worker::WorkerCore& worker) { worker.transport().detach_multicast(index, group); }
};

/// `path` null removes the handle.
struct SetAddressHandle {
  static constexpr std::string_view kName = "set_address_handle";
  AhId id;
  PdId pd;
  const wire::PathAddress* path = nullptr;
  void describe(worker::ArgumentText& text) const { text.add("ah", id.value).add("removed", path == nullptr); }
  void run(worker::WorkerCore& worker) { worker.transport().set_address_handle(id, pd, path); }
};

// ---------------------------------------------------------------- link

struct ResolveNeighbour {
  static constexpr std::string_view kName = "resolve_neighbour";
  wire::Address destination;
  std::uint16_t vlan = 0;
  net::Resolution resolution = net::Resolution::kNoRoute;
  wire::Mac mac{};
  void describe(worker::ArgumentText& text) const {
    text.add("destination", address_text(destination)).add("vlan", vlan);
  }
  void run(worker::WorkerCore& worker);
};

/// All destinations that the control thread waits for.
struct ResolveNeighbours {
  static constexpr std::string_view kName = "resolve_neighbours";
  std::vector<NeighbourKey> keys;
  std::map<NeighbourKey, Neighbour> results;
  void describe(worker::ArgumentText& text) const { text.add("count", keys.size()); }
  void run(worker::WorkerCore& worker);
};

struct JoinGroup {
  static constexpr std::string_view kName = "join_group";
  wire::Address group;
  void describe(worker::ArgumentText& text) const { text.add("group", address_text(group)); }
  void run(worker::WorkerCore& worker);
};

struct LeaveGroup {
  static constexpr std::string_view kName = "leave_group";
  wire::Address group;
  void describe(worker::ArgumentText& text) const { text.add("group", address_text(group)); }
  void run(worker::WorkerCore& worker);
};

struct AddAddress {
  static constexpr std::string_view kName = "add_address";
  net::InterfaceAddress address;
  void describe(worker::ArgumentText& text) const { text.add("address", address_text(address.address)); }
  void run(worker::WorkerCore& worker);
};

struct RemoveAddress {
  static constexpr std::string_view kName = "remove_address";
  wire::Address address;
  void describe(worker::ArgumentText& text) const { text.add("address", address_text(address)); }
  void run(worker::WorkerCore& worker);
};

/// The addresses at which this port accepts packets.
struct SetAddresses {
  static constexpr std::string_view kName = "set_addresses";
  std::span<const net::InterfaceAddress> addresses;
  void describe(worker::ArgumentText& text) const { text.add("count", addresses.size()); }
  void run(worker::WorkerCore& worker) { worker.set_addresses(addresses); }
};

/// Own addresses that the kernel also has: it answers for them.
struct LeaveToKernel {
  static constexpr std::string_view kName = "leave_to_kernel";
  std::span<const wire::Address> addresses;
  void describe(worker::ArgumentText& text) const { text.add("count", addresses.size()); }
  void run(worker::WorkerCore& worker);
};

struct SetGateways {
  static constexpr std::string_view kName = "set_gateways";
  std::optional<wire::Address> v4, v6;
  void describe(worker::ArgumentText& text) const { text.add("v4", v4.has_value()).add("v6", v6.has_value()); }
  void run(worker::WorkerCore& worker);
};

struct SetCpu {
  static constexpr std::string_view kName = "set_cpu";
  int cpu = -1;
  int error = 0;
  void describe(worker::ArgumentText& text) const { text.add("cpu", static_cast<std::uint64_t>(cpu + 1)); }
  void run(worker::WorkerCore& worker) { error = worker.set_cpu(cpu); }
};

struct MeasureLatency {
  static constexpr std::string_view kName = "measure_latency";
  bool on = false;
  void describe(worker::ArgumentText& text) const { text.add("on", on); }
  void run(worker::WorkerCore& worker) { worker.measure_latency(on); }
};

struct RecordEvents {
  static constexpr std::string_view kName = "record_events";
  std::vector<proto::QpEventLog::Entries> memory;  ///< of each worker; none: off
  void describe(worker::ArgumentText& text) const { text.add("on", !memory.empty()); }
  void run(worker::WorkerCore& worker) {
    proto::QpEventLog& log = worker.transport().qp_events();
    memory.empty() ? log.turn_off() : log.turn_on(memory[worker.config().index]);
  }
};

struct SetMtu {
  static constexpr std::string_view kName = "set_mtu";
  std::uint32_t link_mtu = 0, path_mtu = 0;  ///< bytes
  void describe(worker::ArgumentText& text) const { text.add("link_mtu", link_mtu).add("path_mtu", path_mtu); }
  void run(worker::WorkerCore& worker);
};

/// All addresses of the port, which has come up.
struct AnnounceAddresses {
  static constexpr std::string_view kName = "announce_addresses";
  void describe(worker::ArgumentText&) const {}
  void run(worker::WorkerCore& worker);
};

/// Nothing changes on a worker without a device.
struct QueryLinkState {
  static constexpr std::string_view kName = "query_link_state";
  net::LinkState link = net::LinkState::kUp;
  std::uint64_t speed_mbps = 0;                   ///< 0: unknown
  std::vector<net::AddressConflict> conflicts{};  ///< since the last query
  void describe(worker::ArgumentText&) const {}
  void run(worker::WorkerCore& worker) {
    if (worker.link() != nullptr) conflicts = worker.link()->take_conflicts();
    const worker::PortControl* port = worker.port();
    if (port == nullptr) return;
    const net::DeviceInfo info = port->info();
    link = info.link, speed_mbps = info.speed_mbps;
  }
};

// ---------------------------------------------------------------- flows, counters

struct AddFlow {
  static constexpr std::string_view kName = "add_flow";
  std::uint64_t id = 0;
  net::Flow flow;
  bool added = false;
  void describe(worker::ArgumentText& text) const { text.add("flow", id); }
  void run(worker::WorkerCore& worker) { added = worker.add_flow(id, std::move(flow)); }
};

struct RemoveFlows {
  static constexpr std::string_view kName = "remove_flows";
  std::span<const std::uint64_t> ids;
  void describe(worker::ArgumentText& text) const {
    text.add("count", ids.size());
    if (!ids.empty()) text.add("first", ids.front());
  }
  void run(worker::WorkerCore& worker) {
    for (const std::uint64_t id : ids) worker.remove_flow(id);
  }
};

/// Adds the worker's counters of bad keys, as ibv_query_port(3) shows them.
struct CountBadKeys {
  static constexpr std::string_view kName = "count_bad_keys";
  std::uint64_t pkeys = 0, qkeys = 0;
  void describe(worker::ArgumentText&) const {}
  void run(worker::WorkerCore& worker) {
    pkeys += worker.transport().counters().drop_bad_pkey;
    qkeys += worker.transport().counters().drop_bad_qkey;
  }
};

}  // namespace uroce::control::worker_commands
