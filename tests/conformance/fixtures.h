// Two ends of a connection in one process, on one device or on two that can reach each other.
#pragma once

#include <fcntl.h>
#include <infiniband/verbs.h>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "harness.h"

namespace conformance {

/// One opened device, and the address that its QPs use.
struct End {
  ibv_context* context = nullptr;
  ibv_device_attr attr{};
  ibv_device_attr_ex extended{};
  ibv_port_attr port{};
  int gid_index = -1;
  ibv_gid gid{};
};

/// A function of a later rdma-core than the one whose header this program has. Throws Skipped if the library lacks
/// it.
void* find_function(const char* name, const char* node);
template <class F>
F* found(const char* name, const char* node) {
  return reinterpret_cast<F*>(find_function(name, node));
}

class Bench {
 public:
  /// Throws Failed if a device does not exist or has no RoCE v2 address.
  Bench(const std::string& left, const std::string& right);
  ~Bench();
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  End left, right;
  /// The smaller value of the two ports.
  ibv_mtu mtu() const {
    return left.port.active_mtu < right.port.active_mtu ? left.port.active_mtu : right.port.active_mtu;
  }
  std::size_t mtu_bytes() const { return std::size_t{128} << mtu(); }
};

/// During its lifetime both ends of the bench use IPv6 addresses. Throws Skipped if there are none.
struct OverIpv6 {
  explicit OverIpv6(Bench& bench);
  ~OverIpv6();
  OverIpv6(const OverIpv6&) = delete;
  OverIpv6& operator=(const OverIpv6&) = delete;
  Bench& bench;
  const End left, right;  ///< the ends before
};

/// A verbs object that is destroyed at the end of its scope. The case fails if that is refused.
template <class T, int (*Destroy)(T*)>
class Owned {
 public:
  Owned() = default;
  explicit Owned(T* object) : object_(object) {}
  Owned(Owned&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Owned() {
    if (object_ != nullptr && Destroy(object_) != 0) note_leak(__PRETTY_FUNCTION__);
  }
  T* get() const { return object_; }
  T* operator->() const { return object_; }
  /// Destroys it now and returns the errno; if that is 0, the object is gone.
  int destroy() {
    const int error = Destroy(object_);
    if (error == 0) object_ = nullptr;
    return error;
  }
  T* release() { return std::exchange(object_, nullptr); }

 private:
  static void note_leak(const char* what);
  T* object_ = nullptr;
};

/// The objects that could not be destroyed since the last call; empty if all were.
std::string take_leaks();
void add_leak(const char* what);

template <class T, int (*Destroy)(T*)>
void Owned<T, Destroy>::note_leak(const char* what) {
  add_leak(what);
}

inline int destroy_mw(ibv_mw* mw) { return ibv_dealloc_mw(mw); }
inline int destroy_td(ibv_td* td) { return ibv_dealloc_td(td); }
inline int destroy_dm(ibv_dm* dm) { return ibv_free_dm(dm); }
inline int destroy_xrcd(ibv_xrcd* xrcd) { return ibv_close_xrcd(xrcd); }

using Pd = Owned<ibv_pd, ibv_dealloc_pd>;
using Mr = Owned<ibv_mr, ibv_dereg_mr>;
using Cq = Owned<ibv_cq, ibv_destroy_cq>;
using QpObject = Owned<ibv_qp, ibv_destroy_qp>;
using Srq = Owned<ibv_srq, ibv_destroy_srq>;
using Ah = Owned<ibv_ah, ibv_destroy_ah>;
using Channel = Owned<ibv_comp_channel, ibv_destroy_comp_channel>;
using Mw = Owned<ibv_mw, destroy_mw>;
using Td = Owned<ibv_td, destroy_td>;
using Dm = Owned<ibv_dm, destroy_dm>;
using Xrcd = Owned<ibv_xrcd, destroy_xrcd>;

constexpr int kLocal = IBV_ACCESS_LOCAL_WRITE;
constexpr int kAll =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
constexpr std::uint32_t kQkey = 0x11111111;

Pd make_pd(const End& end);
Cq make_cq(const End& end, int entries, ibv_comp_channel* channel = nullptr, void* context = nullptr);

/// Memory of the program with one region for all of it.
class Buffer {
 public:
  Buffer(ibv_pd* pd, std::size_t bytes, int access = kAll);
  std::uint8_t* data() { return memory_.data(); }
  std::size_t size() const { return memory_.size(); }
  std::uint64_t address(std::size_t offset = 0) const {
    return reinterpret_cast<std::uintptr_t>(memory_.data()) + offset;
  }
  ibv_mr* mr() const { return mr_.get(); }
  std::uint32_t rkey() const { return mr_->rkey; }
  ibv_sge sge(std::size_t offset, std::size_t length) const {
    return {address(offset), static_cast<std::uint32_t>(length), mr_->lkey};
  }
  void fill(std::uint8_t seed);
  /// Whether [offset, offset + length) contains what fill(seed) writes at [from, ...).
  bool holds(std::uint8_t seed, std::size_t offset, std::size_t length, std::size_t from) const;

 private:
  std::vector<std::uint8_t> memory_;
  Mr mr_;
};

struct QpOptions {
  std::uint32_t send_wr = 16, recv_wr = 16, send_sge = 2, recv_sge = 2, inline_bytes = 0;
  bool signal_all = false;
  ibv_srq* srq = nullptr;
  std::uint64_t operations = 0;    ///< nonzero: use ibv_create_qp_ex
  std::uint32_t create_flags = 0;  ///< nonzero: use ibv_create_qp_ex
  int access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  std::uint8_t reads = 4;  ///< outstanding READs and atomics, both ways
  std::uint8_t retries = 7, rnr_retries = 7, timeout = 14;
  std::uint32_t psn = 0x123456;
};

QpObject make_qp(const End& end, ibv_pd* pd, ibv_cq* send_cq, ibv_cq* recv_cq, ibv_qp_type type,
                 const QpOptions& options = {});
/// RESET to INIT, for a QP of any type.
int to_init(ibv_qp* qp, int access);
int to_rtr(const End& end, ibv_qp* qp, const End& peer, std::uint32_t peer_qpn, ibv_mtu mtu,
           const QpOptions& options = {});
int to_rts(ibv_qp* qp, const QpOptions& options = {});
int to_error(ibv_qp* qp);

/// A signaled work request of one element.
ibv_send_wr request(ibv_wr_opcode opcode, ibv_sge& sge);

/// One end of a connection with its PD, CQs, QP and buffer.
struct Side {
  Side(const End& end, ibv_qp_type type, std::size_t bytes, const QpOptions& options, ibv_pd* domain = nullptr,
       ibv_comp_channel* channel = nullptr);
  const End& end;
  Pd own_pd;
  ibv_pd* pd;
  Cq cq;
  Buffer buffer;
  QpObject qp;

  /// errno of the post.
  int post_recv(std::size_t offset, std::size_t length, std::uint64_t id = 1);
  int post(ibv_send_wr& wr);
  int send(std::size_t offset, std::size_t length, std::uint64_t id = 2, unsigned flags = IBV_SEND_SIGNALED);
  int write(std::size_t offset, std::size_t length, std::uint64_t remote, std::uint32_t rkey, std::uint64_t id = 3,
            unsigned flags = IBV_SEND_SIGNALED);
  int read(std::size_t offset, std::size_t length, std::uint64_t remote, std::uint32_t rkey, std::uint64_t id = 4);

 private:
  int post(ibv_wr_opcode opcode, ibv_sge sge, std::uint64_t id, unsigned flags, std::uint64_t remote,
           std::uint32_t rkey);
};

/// A CQ with more completions than entries, of WRITEs of `qp`: IBV_EVENT_CQ_ERR is reported, or soon will be.
struct OverrunCq {
  explicit OverrunCq(Bench& bench);
  Pd pd;
  Cq cq;
  Buffer buffer;
  QpObject qp;
  Side peer;
};

/// Brings both from RESET to RTS.
void connect(Bench& bench, Side& left, Side& right, const QpOptions& options = {});

/// Two connected sides (RC, UC), or two that are ready (UD).
struct Pair {
  explicit Pair(Bench& bench, ibv_qp_type type = IBV_QPT_RC, std::size_t bytes = 65536,
                const QpOptions& options = {});
  Side left, right;
  Ah ah_to_right;  ///< UD
};

/// An address handle of `pd` for `to`.
Ah make_ah(const End& from, ibv_pd* pd, const End& to);

int post_srq_recv(ibv_srq* srq, const Buffer& buffer, std::size_t offset, std::size_t length, std::uint64_t id);

/// A domain of the file, or of its own.
Xrcd make_xrcd(const End& end, int fd = -1, int flags = O_CREAT);
Srq make_xrc_srq(const End& end, ibv_pd* pd, ibv_xrcd* xrcd, ibv_cq* cq);
QpObject make_target(const End& end, ibv_xrcd* xrcd);
QpObject make_initiator(const End& end, ibv_pd* pd, ibv_cq* cq, std::uint64_t operations = 0);

/// Returns when everything that left has sent to right has arrived: a datagram sent afterwards has.
void let_arrive(Bench& bench);

/// Timeout for a completion or event; 5 s by default.
void set_timeout(std::chrono::seconds time);
/// The next completion; throws Failed after the timeout.
ibv_wc wait(ibv_cq* cq);
/// The next completion, which must be successful and of this opcode.
ibv_wc wait_success(ibv_cq* cq, ibv_wc_opcode opcode);
ibv_wc wait_status(ibv_cq* cq, ibv_wc_status status);
/// The status of a WRITE from left.
int poll_write(Pair& pair, std::uint64_t remote, std::uint32_t rkey, std::size_t bytes = 64);
/// Whether the side refuses a work request, by the post or by an error completion.
bool refused(Side& side, ibv_send_wr& wr);
/// Whether the CQ stays empty for this time.
bool stays_empty(ibv_cq* cq, std::chrono::milliseconds time = std::chrono::milliseconds(50));
/// The next asynchronous event, acknowledged; throws Failed after the timeout.
ibv_async_event wait_event(ibv_context* context);
/// Whether a descriptor becomes readable within this time.
bool readable(int fd, int milliseconds);

}  // namespace conformance
