// The objects that a session owns: one type for each kind that a client can create. Used by the control thread
// only. Workers hold pointers to the CQs, SRQs and queues in here, so these exist until every worker has run a
// command after their removal.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "abi/control.h"
#include "control/session/id_pool.h"
#include "control/session/quotas.h"
#include "mapping/block_pool.h"
#include "mapping/client_memory.h"
#include "mapping/shared_segment.h"
#include "mapping/untrusted_fd.h"
#include "platform/unique_fd.h"
#include "proto/state/completion_counters.h"
#include "proto/state/faults.h"
#include "proto/state/srq.h"
#include "proto/transport.h"
#include "wire/frame_template.h"
#include "worker/worker.h"

namespace uroce::control {

/// Private memory of the daemon, aligned to 64 bytes, not initialized: unused pages are never allocated.
class PrivateBlock {
 public:
  PrivateBlock() = default;
  /// Empty on lack of memory.
  explicit PrivateBlock(std::size_t bytes);
  std::span<std::byte> span() const { return {data_.get(), bytes_}; }
  bool valid() const { return data_ != nullptr; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t bytes_ = 0;
};

/// The number of a PD, in use until the last session that created or imported the PD has freed it.
class PdNumber {
 public:
  PdNumber(IdPool& pool, std::uint32_t value) : pool_(pool), value_(value) {}
  ~PdNumber() { pool_.release(value_); }
  PdNumber(const PdNumber&) = delete;
  PdNumber& operator=(const PdNumber&) = delete;
  PdId id() const { return {value_}; }

 private:
  IdPool& pool_;
  std::uint32_t value_;
};

struct PdObject {
  Charge charge;
  PdId id;                                 ///< of another session's PD when it was imported
  std::shared_ptr<const PdNumber> number;  ///< keeps `id` in use
  std::uint32_t users = 0;
};

enum class MrKind : std::uint8_t {
  kMemory,
  kFast,  ///< for fast registration
  kNull,
};

struct MrObject {
  Charge charge;
  Charge hold_charge;  ///< of the mapped memory
  MrKind kind = MrKind::kMemory;
  Key key;
  mapping::ClientMemory::Hold hold;
  PdObject* pd = nullptr;
  std::uint64_t addr = 0, length = 0, iova = 0;
  std::uint32_t access = 0;
  bool indirect = false;
  bool writable = false;  ///< whether the daemon's mapping is writable
};

struct MwObject {
  Charge charge;
  Key key;  ///< as allocated; binding changes its low byte
  PdObject* pd = nullptr;
  bool retired = false;  ///< invalidated because the memory that it was bound to is gone
};

/// Device memory: the client's file, kept for other processes that import it.
struct DmObject {
  Charge charge;
  mapping::ForeignFd memory;
  std::uint64_t length = 0;
};

struct ChannelObject {
  Charge charge;
  mapping::ClientSocket writer;
  std::uint32_t users = 0;
};

struct CqObject {
  Charge charge;
  std::unique_ptr<worker::Cq> cq;
  CqId id;
  std::uint32_t entries = 0;
  mapping::SharedBlock ring, client;
  ChannelObject* channel = nullptr;
  std::uint64_t cookie = 0;
  std::uint32_t users = 0;
};

/// A completion counter.
struct CompCntrObject {
  Charge charge;
  mapping::SharedBlock shared;  ///< uroce_comp_cntr
  bool bytes = false;
  std::uint32_t users = 0;  ///< QPs, one for each operation
};

/// A shared receive queue.
struct SrqObject {
  Charge charge;
  std::unique_ptr<proto::Srq> srq;
  SrqId id;
  PdObject* pd = nullptr;
  struct XrcdObject* xrcd = nullptr;  ///< XRC only
  CqObject* cq = nullptr;             ///< XRC only
  std::uint32_t entries = 0, stride = 0, max_sge = 0;
  mapping::SharedBlock client, daemon, ring;
  std::uint64_t cookie = 0;
  std::uint32_t users = 0;
};

/// An XRC domain. The domain of a file is found by the file's inode and shared by sessions.
struct XrcDomain {
  std::uint32_t id = 0;
  mapping::ForeignFd file;  ///< keeps the inode number from being reused; invalid: a private domain
  dev_t device = 0;
  ino_t inode = 0;
  std::unordered_map<std::uint32_t, std::weak_ptr<struct XrcTarget>> targets;  ///< by QPN
};

/// An XRC target QP, shared by all sessions that created or opened it.
struct XrcTarget {
  std::shared_ptr<XrcDomain> domain;
  Qpn qpn;
  std::uint32_t worker = 0;
  proto::QpIndex index;
  mapping::BlockPool::Slot responder_resources;
  uroce_qp_attr attr{};
  std::uint32_t users = 0;  ///< the last one destroys it
};

struct XrcdObject {
  Charge charge;
  std::shared_ptr<XrcDomain> domain;
  std::uint32_t users = 0;
};

struct QpObject {
  struct Group {
    wire::Address address;
    Charge charge;
  };
  /// A destroyed address handle that datagrams before index `end` of the send queue may use.
  struct QueuedAh {
    std::uint32_t handle = 0;
    std::uint32_t end = 0;
  };

  Charge charge;
  proto::QpType type{};
  Qpn qpn;
  std::uint32_t worker = 0, bit = 0;
  proto::QpIndex index;
  PdObject* pd = nullptr;
  CqObject *send_cq = nullptr, *recv_cq = nullptr;
  mapping::SharedBlock client;  ///< producer indices, SQ and RQ
  mapping::SharedBlock daemon;  ///< consumer indices
  PrivateBlock sq_shadow;
  mapping::BlockPool::Slot responder_resources;
  std::uint64_t cookie = 0;
  uroce_qp_attr own_attr{};          ///< as the client last set it
  bool connected = false;            ///< in RTR, RTS or SQD
  std::vector<Group> groups;         ///< multicast groups that it is attached to
  std::vector<QueuedAh> queued_ahs;  ///< in the order of `end`
  SrqObject* srq = nullptr;
  XrcdObject* xrcd = nullptr;
  std::shared_ptr<XrcTarget> target;        ///< of an XRC target: owns the resources that other types own here
  std::uint32_t users = 0;                  ///< flows, and RSS of a WQ
  std::unique_ptr<proto::QpFaults> faults;  ///< rules of `urocectl fault verbs`, which its worker uses
  struct Counters {
    proto::QpCompletionCounters table;  ///< which its worker uses
    std::array<CompCntrObject*, std::tuple_size_v<proto::QpCompletionCounters>> objects{};
  };
  std::unique_ptr<Counters> counters;  ///< nullptr: none

  uroce_qp_attr& attr() { return target ? target->attr : own_attr; }
  const uroce_qp_attr& attr() const { return target ? target->attr : own_attr; }
};

/// A receive hash table: flows spread frames over its WQs.
struct RssObject {
  Charge charge;
  std::shared_ptr<const net::RssTarget> target;
  std::vector<QpObject*> wqs;
  Qpn qpn;
  std::uint32_t users = 0;
};

struct CountersObject {
  Charge charge;
  std::shared_ptr<net::FlowCount> count = std::make_shared<net::FlowCount>();
  std::uint32_t users = 0;
};

struct FlowObject {
  Charge charge;
  std::uint64_t id = 0;  ///< in the link worker's flow table
  uroce_create_flow_request request{};
  QpObject* qp = nullptr;
  RssObject* rss = nullptr;  ///< one of the two
  CountersObject* counters = nullptr;
};

/// Its handle is its AhId.
struct AhObject {
  Charge charge;
  PdObject* pd = nullptr;  ///< nullptr: the client has destroyed the handle, and queued datagrams use it
  uroce_av av{};
  wire::PathAddress path;
  std::uint32_t queued_uses = 0;  ///< QPs that keep it: QpObject::queued_ahs
};

/// Doorbell bits of one session at one worker.
struct DoorbellBits {
  std::vector<std::uint32_t> free;
  std::uint32_t next = 0;

  std::optional<std::uint32_t> allocate() {
    if (!free.empty()) {
      const std::uint32_t bit = free.back();
      free.pop_back();
      return bit;
    }
    if (next >= UROCE_MAX_SESSION_QPS) return std::nullopt;
    return next++;
  }
};

}  // namespace uroce::control
