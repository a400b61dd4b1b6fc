// Keys to checked spans: the MRs and MWs of every client of the daemon.
//
// Threads: the conductor inserts, retires and releases; workers resolve, and invalidate MWs and fast-registration
// MRs. An entry is published with a release store of its live key (pairs with the acquire in resolve), and its
// memory is unmapped and its slot released only after every worker has passed a quiescent point (the conductor
// sees to that), so a resolved span is valid until the worker's current duty cycle ends. Only the constructor
// allocates, and only it throws (std::bad_alloc). A table takes address space at once and memory as it fills.
//
// A key is permute(nonce | slot) << 8 | tag: the permutation is keyed, nonce and tag are drawn anew with each
// insert, so a client can derive neither the next key nor another client's key from its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <random>

#include "base/spinlock.h"
#include "base/types.h"

namespace uroce::memory {

/// Access rights, numbered as ibv_access_flags.
enum Access : std::uint32_t {
  kLocalRead = 0,  ///< implied by every MR
  kLocalWrite = 1,
  kRemoteWrite = 2,
  kRemoteRead = 4,
  kRemoteAtomic = 8,
  kMwBind = 16,
  kZeroBased = 32,
  kOnDemand = 64,
  kFlushGlobal = 256,
  kFlushPersistent = 512,
  kRemoteRights = kRemoteWrite | kRemoteRead | kRemoteAtomic | kFlushGlobal | kFlushPersistent,
};

/// How the daemon reaches memory that it cannot map (stacks, private file mappings): copies through the kernel.
/// Supplied by lib/mapping; false when the bytes cannot be reached.
struct IndirectIo {
  bool (*read)(void* context, std::uint64_t client_address, std::byte* to, std::size_t bytes) = nullptr;
  bool (*write)(void* context, std::uint64_t client_address, const std::byte* from, std::size_t bytes) = nullptr;
  void* context = nullptr;
  /// Held over an atomic operation, which is a read and then a write.
  mutable base::Spinlock atomics{};
};

/// What becomes of mapped memory while it is registered. A signal handler (lib/mapping) stores to `from` before
/// other pages take the place of those that are gone, so that whoever has accessed these finds it.
struct Loss {
  /// The mapping is gone from this address on: the client has shrunk the file.
  std::atomic<std::uintptr_t> from{~std::uintptr_t{0}};
  /// Of files in memory: a page that goes was taken away by a program that writes to the file.
  bool in_memory = false;
};

/// What a key stands for. Only some kinds can be invalidated by work requests (IBTA vol. 1, 10.6.7.2.3).
enum class Kind : std::uint8_t {
  kRegistered = 0,  ///< ibv_reg_mr: lives until it is deregistered
  kFast,            ///< fast registration
  kWindow1,         ///< memory window, type 1
  kWindow2,         ///< memory window, type 2
};

/// The description of an MR.
struct Region {
  PdId pd;
  std::uint32_t access = 0;          ///< Access bits
  std::uint64_t iova = 0;            ///< first address in work requests and RETHs
  std::uint64_t length = 0;          ///< bytes
  std::byte* base = nullptr;         ///< the daemon's mapping; nullptr: indirect
  std::uint64_t client_address = 0;  ///< first address in the client, for indirect access
  const IndirectIo* indirect = nullptr;
  Kind kind = Kind::kRegistered;
  const Loss* loss = nullptr;  ///< of mapped memory; nullptr: it stays
};

/// A bind work request (IBTA vol. 1, 10.6.7.2).
struct Binding {
  Key window;   ///< the current key; its low byte is ignored
  Key new_key;  ///< its low byte replaces that of the current key
  Key mr;
  PdId pd;
  Qpn qpn;                                ///< a type 2 window serves this QP only
  std::uint64_t address = 0, length = 0;  ///< bytes; 0 unbinds a type 1 window
  std::uint32_t access = 0;               ///< local rights are ignored
};

/// A fast registration work request.
struct FastRegistration {
  Key key;      ///< the current key; its low byte is ignored
  Key new_key;  ///< differs from it in the low byte only
  PdId pd;
  std::uint64_t address = 0;  ///< in the client; with kZeroBased the MR's own addresses begin at 0
  std::uint64_t length = 0;   ///< bytes
  std::uint32_t access = 0;
};

/// A checked range of memory: mapped at `data`, or, when that is nullptr, reached through `indirect`.
struct Span {
  std::byte* data = nullptr;
  std::uint64_t client_address = 0;
  const IndirectIo* indirect = nullptr;
  const Loss* loss = nullptr;

  /// Copies between this span, at `offset`, and private memory. False: unreachable, or no longer the client's.
  bool read(std::size_t offset, std::byte* to, std::size_t bytes) const {
    if (bytes == 0) return true;
    if (data == nullptr) [[unlikely]]
      return read_indirect(offset, to, bytes);
    std::memcpy(to, data + offset, bytes);
    return reached(offset, bytes);
  }
  bool write(std::size_t offset, const std::byte* from, std::size_t bytes) const {
    if (bytes == 0) return true;
    if (data == nullptr) [[unlikely]]
      return write_indirect(offset, from, bytes);
    std::memmove(data + offset, from, bytes);  // payload that a packet names may overlap its destination
    return reached(offset, bytes);
  }
  /// Whether an access to these bytes at `data`, which is over, reached memory of the client.
  bool reached(std::size_t offset, std::size_t bytes) const {
    if (loss == nullptr) return true;
    std::atomic_signal_fence(std::memory_order_seq_cst);  // the access comes first
    return reinterpret_cast<std::uintptr_t>(data) + offset + bytes <= loss->from.load(std::memory_order_relaxed);
  }

 private:
  bool read_indirect(std::size_t offset, std::byte* to, std::size_t bytes) const;
  bool write_indirect(std::size_t offset, const std::byte* from, std::size_t bytes) const;
};

/// Why a key does not resolve. The caller counts it.
enum class Verdict : std::uint8_t {
  kOk = 0,
  kNoSuchKey,   ///< unknown, invalidated, or of another PD
  kOutOfRange,  ///< outside [iova, iova + length)
  kNoAccess,    ///< the MR lacks a right in `need`, or the operation is not permitted on it
};

class Table {
 public:
  /// Room for `capacity` keys (at most 2^20); keys are drawn with `seed` so that they can't be guessed.
  Table(std::uint32_t capacity, std::uint64_t seed);
  ~Table();
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  /// L_Key and R_Key are equal. nullopt: the table is full, or iova + length passes 2^64.
  std::optional<Key> insert(const Region& region);
  /// An unbound window: kWindow1 or kWindow2. The consumer chooses the low byte of its key, so retire(), release()
  /// and describe() accept any key that it ever had.
  std::optional<Key> allocate_window(PdId pd, Kind kind);
  /// An MR for fast registration, invalid until register_fast(). `region` bounds the memory and `region.access` the
  /// rights that a registration may request. The consumer chooses the low byte of its key, as with a window.
  std::optional<Key> allocate_fast(const Region& region);
  /// No resolve succeeds from now on; the slot is reused only after release(). False: no such key, or windows are
  /// bound to it.
  bool retire(Key key);
  /// Replaces the rights of an MR of ibv_reg_mr, whose key stays. False: no such key, or windows are bound to it.
  bool change_access(Key key, std::uint32_t access);
  /// Number of windows bound to this MR.
  std::uint32_t windows(Key mr) const;
  /// After every worker has passed a quiescent point.
  void release(Key key);

  /// Checks key, PD, bounds (without wrap-around) and rights, and yields the bytes [address, address + length).
  /// `need` is an OR of Access; local reads need none. The caller skips length 0 (no key is checked
  /// for zero-length operations, IBTA vol. 1, 9.7.4.1.5). `qpn`: the QP that received the
  /// request; a window resolves for remote rights only.
  Verdict resolve(Key key, PdId pd, std::uint64_t address, std::uint64_t length, std::uint32_t need, Span& out,
                  Qpn qpn = {}) const;

  /// A cache of one thread: the slots of the keys that it resolved last, which saves deciphering them.
  class Recent {
    friend class Table;
    struct Place {
      Key key;
      std::uint32_t slot = 0;
    };
    Place places_[16];
  };
  /// resolve() through that cache.
  Verdict resolve(Recent& recent, Key key, PdId pd, std::uint64_t address, std::uint64_t length, std::uint32_t need,
                  Span& out, Qpn qpn = {}) const;

  /// resolve() without a range: whether the key permits `need` anywhere in its region.
  Verdict permits(Key key, PdId pd, std::uint32_t need, Qpn qpn = {}) const;

  /// Whether this is the key of an MR of ibv_reg_mr, which no work request invalidates.
  bool outlasts_work_requests(Key key) const;

  /// LOCAL_INV, SEND with invalidate: no resolve succeeds from now on, but the slot stays allocated until retire().
  /// kNoSuchKey: unknown, of another PD, or invalid already; kNoAccess: an MR of ibv_reg_mr or a type 1 window,
  /// which can't be invalidated, an MR with windows, or a window of another QP.
  Verdict invalidate(Key key, PdId pd, Qpn qpn = {});

  /// A bind work request, on a worker. kNoSuchKey: window or MR unknown, invalid or of another PD, or a type 1
  /// window that keeps its key; kOutOfRange, also for a type 2 window of length 0; kNoAccess: the MR permits no
  /// binding, or not these rights, or a type 2 window is already bound.
  Verdict bind(const Binding& request);
  /// A fast registration, on a worker. Verdicts as for bind(); kNoAccess: the MR is already valid, or the rights
  /// exceed those of the memory.
  Verdict register_fast(const FastRegistration& request);

  /// The lock for atomics on mapped memory at addresses where the CPU has no atomic operation.
  base::Spinlock& atomics() { return atomics_; }

  /// Copy of an entry's description (control path, urocectl). nullopt: no such key.
  std::optional<Region> describe(Key key) const;

  /// Keys inserted and not retired.
  std::uint32_t size() const;
  std::uint32_t capacity() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  base::Spinlock atomics_;
};

}  // namespace uroce::memory
