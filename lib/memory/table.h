// Keys to checked spans: the MRs and MWs of every client of the daemon.
//
// Threads: the conductor inserts, retires and releases; workers resolve, and invalidate MWs and fast-registration
// MRs. An entry is published with a release store of its live key (pairs with the acquire in resolve), and its
// memory is unmapped and its slot released only after every worker has passed a quiescent point (the conductor
// sees to that), so a resolved span is good until the worker's current duty cycle ends. Never allocates after
// construction, never throws. A table costs address space at once and memory only as it fills.
//
// A key is permute(nonce | slot) << 8 | tag: the permutation is keyed, nonce and tag are drawn anew with each
// insert, so neither the next key nor another client's can be told from one's own.
#pragma once

#include <cstddef>
#include <cstdint>
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
/// Supplied by the engine; false when the bytes cannot be reached.
struct IndirectIo {
  bool (*read)(void* context, std::uint64_t client_address, std::byte* to, std::size_t bytes) = nullptr;
  bool (*write)(void* context, std::uint64_t client_address, const std::byte* from, std::size_t bytes) = nullptr;
  void* context = nullptr;
  /// Held over an atomic operation, which is a read and then a write.
  mutable base::Spinlock atomics{};
};

/// What a key stands for. Only some kinds can be invalidated by work requests (IBTA vol. 1, 10.6.7.2.3).
enum class Kind : std::uint8_t {
  kRegistered = 0,  ///< ibv_reg_mr: lives until it is deregistered
  kFast,            ///< fast registration
  kWindow1,         ///< memory window, type 1
  kWindow2,         ///< memory window, type 2
};

/// What an MR is made of.
struct Region {
  PdId pd;
  std::uint32_t access = 0;          ///< Access bits
  std::uint64_t iova = 0;            ///< first address as work requests name it
  std::uint64_t length = 0;          ///< bytes
  std::byte* base = nullptr;         ///< where the daemon has it mapped; nullptr: indirect
  std::uint64_t client_address = 0;  ///< first address in the client, for indirect access
  const IndirectIo* indirect = nullptr;
  Kind kind = Kind::kRegistered;
};

/// What a bind work request asks for (IBTA vol. 1, 10.6.7.2).
struct Binding {
  Key window;   ///< as it is now; its low byte isn't looked at
  Key new_key;  ///< the same but for the low byte
  Key mr;
  PdId pd;
  Qpn qpn;                                ///< a type 2 window serves this QP only
  std::uint64_t address = 0, length = 0;  ///< bytes; 0 unbinds a type 1 window
  std::uint32_t access = 0;
};

/// What a fast registration work request asks for.
struct FastRegistration {
  Key key;      ///< as it is now; its low byte isn't looked at
  Key new_key;  ///< the same but for the low byte
  PdId pd;
  std::uint64_t address = 0;  ///< in the client; with kZeroBased the MR's own addresses begin at 0
  std::uint64_t length = 0;   ///< bytes
  std::uint32_t access = 0;
};

/// A checked piece of memory. `data` is directly usable; when it is nullptr go through `indirect`.
struct Span {
  std::byte* data = nullptr;
  std::uint64_t client_address = 0;
  const IndirectIo* indirect = nullptr;

  /// Copies between this span, at `offset`, and private memory. False: unreachable (indirect memory only).
  bool read(std::size_t offset, std::byte* to, std::size_t bytes) const;
  bool write(std::size_t offset, const std::byte* from, std::size_t bytes) const;
};

/// Why a key does not resolve; who asked counts it.
enum class Verdict : std::uint8_t {
  kOk = 0,
  kNoSuchKey,   ///< unknown, invalidated, or of another PD
  kOutOfRange,  ///< outside [iova, iova + length)
  kNoAccess,    ///< the MR lacks a right that `need` names, or what is asked for may not be done to it
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
  /// A window that is bound to nothing: kWindow1 or kWindow2. Of its key the low byte is the consumer's, so any
  /// key it ever had names it in retire(), release() and describe().
  std::optional<Key> allocate_window(PdId pd, Kind kind);
  /// An MR for fast registration, valid only once register_fast() says of what: `region` is the memory that may be
  /// named, `region.access` what may be done to it. Its key is the consumer's as a window's is.
  std::optional<Key> allocate_fast(const Region& region);
  /// No resolve succeeds from now on; the slot is reused only after release(). False: no such key, or windows are
  /// bound to it.
  bool retire(Key key);
  /// Windows that are bound to this MR.
  std::uint32_t windows(Key mr) const;
  /// After every worker has passed a quiescent point.
  void release(Key key);

  /// Checks key, PD, bounds (without wrap-around) and rights, and yields the bytes [address, address + length).
  /// `need` is an OR of Access; local reads need none. length 0 is for the caller to skip (no key is checked
  /// for zero-length operations, IBTA vol. 1, 9.7.4.1.5). `qpn`: of the QP whose peer asks; a window resolves for
  /// remote rights only.
  Verdict resolve(Key key, PdId pd, std::uint64_t address, std::uint64_t length, std::uint32_t need, Span& out,
                  Qpn qpn = {}) const;

  /// Where the keys that one thread resolved last have their slots: looked up there, a key need not be deciphered.
  class Recent {
    friend class Table;
    struct Place {
      Key key;
      std::uint32_t slot = 0;
    };
    Place places_[16];
  };
  /// The same, by way of `recent`.
  Verdict resolve(Recent& recent, Key key, PdId pd, std::uint64_t address, std::uint64_t length, std::uint32_t need,
                  Span& out, Qpn qpn = {}) const;

  /// LOCAL_INV, SEND with invalidate: no resolve succeeds from now on, while the key stays its owner's until
  /// retire(). kNoSuchKey: unknown, of another PD, or invalid already; kNoAccess: an MR of ibv_reg_mr or a type 1
  /// window, which can't be invalidated, an MR with windows, or a window of another QP.
  Verdict invalidate(Key key, PdId pd, Qpn qpn = {});

  /// Work requests, on workers. kNoSuchKey: window or MR unknown, invalid, of another PD, or a new key that isn't
  /// its own; kOutOfRange; kNoAccess: the MR may not be bound to, or not with these rights, or a type 2 window is
  /// bound already.
  Verdict bind(const Binding& request);
  /// The same for a fast registration; kNoAccess: it is valid already, or rights that the memory hasn't.
  Verdict register_fast(const FastRegistration& request);

  /// The same lock for atomics on mapped memory at a place where the processor has none.
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
