// The key table's entries and the rules for changing them. Private to lib/memory.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <type_traits>

#include "base/chacha20.h"
#include "base/spinlock.h"
#include "memory/key_cipher.h"
#include "memory/table.h"

namespace uroce::memory {

inline constexpr std::uint32_t kNone = ~std::uint32_t{0};
inline constexpr std::uint32_t kMaxCapacity = 1u << 20;
inline constexpr std::uint32_t kSpread = 4096;  // slots used once before any is reused: 512 KiB

/// Zeroed memory whose pages are allocated on first use. Freed with std::free().
void* zeroed(std::size_t bytes);

/// The life of a slot. Read and written under the table's lock only.
enum class Use : std::uint8_t { kFree = 0, kInserted, kRetired };

/// One slot: a cache line that resolve() reads, and one that it does not read. All zero: free, never used.
struct alignas(64) Entry {
  // `live` is the published key, 0 when nothing may resolve. An MR's other fields are written before `live` is
  // stored with release, and again only after release(), when no worker reads them. Windows and fast MRs change
  // while workers read them: pd and kind stay, the rest is protected by `version`, a sequence lock (odd: being
  // written).
  std::uint32_t live;
  std::uint32_t pd;
  std::uint32_t access;
  Kind kind;
  std::uint8_t reserved[3];
  std::uint64_t iova;
  std::uint64_t length;
  std::byte* base;
  std::uint64_t client_address;
  const void* behind;  // of mapped memory its Loss, of other memory its IndirectIo
  std::uint32_t qpn;   // a type 2 window: the only QP that may use it; else 0
  std::uint32_t version;

  // Under the lock.
  std::uint32_t key;      // as allocated, or as changed by the last bind, until release()
  std::uint32_t next;     // in the list of free slots
  std::uint32_t parent;   // a bound window: the slot of its MR; else kNone
  std::uint32_t windows;  // bound to this MR
  Use use;
  // Of a fast MR: the memory and rights that a registration may request.
  std::uint32_t limit_access;
  std::uint64_t limit_length;
  std::byte* limit_base;
  std::uint64_t limit_client_address;
};
static_assert(sizeof(Entry) == 128 && offsetof(Entry, key) == 64);
static_assert(std::is_trivially_default_constructible_v<Entry>);

/// Entry::behind of the region.
inline const void* behind(const Region& region) {
  return region.base != nullptr ? static_cast<const void*>(region.loss) : region.indirect;
}

inline std::uint32_t load_live(const Entry& entry) {
  // Pairs with the release store in insert().
  return std::atomic_ref(const_cast<std::uint32_t&>(entry.live)).load(std::memory_order_acquire);
}

/// Access to a field that other threads may read or write at the same time.
template <class T>
void store(T& field, T value) {
  std::atomic_ref(field).store(value, std::memory_order_relaxed);
}
template <class T>
T load(const T& field) {
  return std::atomic_ref(const_cast<T&>(field)).load(std::memory_order_relaxed);
}

/// The writer's side of an entry's sequence lock: readers retry while it exists. Pairs with view_of(). Under the
/// lock.
class Change {
 public:
  explicit Change(Entry& entry) : entry_(entry) {
    store(entry_.version, entry_.version + 1);
    std::atomic_thread_fence(std::memory_order_release);
  }
  ~Change() { std::atomic_ref(entry_.version).store(entry_.version + 1, std::memory_order_release); }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;

 private:
  Entry& entry_;
};

struct Table::Impl {
  Impl(std::uint32_t slots, std::uint64_t seed)
      : capacity(std::clamp(slots, 1u, kMaxCapacity)),
        index_mask(std::bit_ceil(capacity) - 1),
        random(seed),
        cipher(random) {
    const std::size_t bytes = std::size_t{capacity} * sizeof(Entry);
    allocation = zeroed(bytes + alignof(Entry));
    const auto address = reinterpret_cast<std::uintptr_t>(allocation);
    const std::uintptr_t aligned = (address + alignof(Entry) - 1) & ~std::uintptr_t{alignof(Entry) - 1};
    entries = reinterpret_cast<Entry*>(aligned);
  }
  ~Impl() { std::free(allocation); }

  /// The slot that a key decodes to, whether or not the key is live there; nullptr: outside the table.
  Entry* slot(Key key) const {
    const std::uint32_t index = cipher.decrypt(key.value >> 8) & index_mask;
    return index < capacity ? &entries[index] : nullptr;
  }

  /// The slot in which this key was inserted and not released. Under the lock.
  Entry* owned(Key key) const {
    Entry* entry = slot(key);
    if (entry == nullptr || entry->use == Use::kFree) return nullptr;
    const std::uint32_t differs = entry->key ^ key.value;
    return (entry->kind == Kind::kRegistered ? differs : differs >> 8) == 0 ? entry : nullptr;
  }

  /// A window or fast MR that a work request may change. Under the lock.
  Entry* changeable(Key key, PdId pd) const {
    Entry* entry = slot(key);
    if (entry == nullptr || entry->use != Use::kInserted || entry->kind == Kind::kRegistered) return nullptr;
    return (entry->key ^ key.value) >> 8 == 0 && entry->pd == pd.value ? entry : nullptr;
  }

  std::uint32_t index_of(const Entry& entry) const { return static_cast<std::uint32_t>(&entry - entries); }

  /// A slot with a key that is not live yet; nullptr: the table is full. Under the lock.
  Entry* claim(PdId pd, Kind kind) {
    const std::uint32_t index = take();
    if (index == kNone) return nullptr;
    Entry& entry = entries[index];
    entry.key = draw_key(index);
    entry.pd = pd.value;
    entry.kind = kind;
    entry.use = Use::kInserted;
    entry.parent = kNone;
    entry.windows = entry.qpn = 0;
    entry.limit_length = 0;
    ++inserted;
    return &entry;
  }

  /// Makes the key not resolve, and unbinds a window from its MR. Under the lock.
  void disable(Entry& entry) {
    const Change change(entry);
    store(entry.live, 0u);
    if (entry.parent == kNone) return;
    --entries[entry.parent].windows;
    entry.parent = kNone;
  }

  /// A slot never used before, up to kSpread of them, then the slot that has been free longest. Under the lock.
  std::uint32_t take() {
    if (fresh < capacity && (fresh < kSpread || free_head == kNone)) return fresh++;
    if (free_head == kNone) return kNone;
    const std::uint32_t index = free_head;
    free_head = entries[index].next;
    if (free_head == kNone) free_tail = kNone;
    return index;
  }

  void give_back(std::uint32_t index) {
    entries[index].next = kNone;
    (free_tail == kNone ? free_head : entries[free_tail].next) = index;
    free_tail = index;
  }

  /// Never 0, which means "not live", and never the slot's last key.
  std::uint32_t draw_key(std::uint32_t index) {
    for (;;) {
      const std::uint64_t bits = random();
      const std::uint32_t nonce = static_cast<std::uint32_t>(bits >> 8) & 0xffffff & ~index_mask;
      const std::uint32_t key = cipher.encrypt(nonce | index) << 8 | static_cast<std::uint32_t>(bits & 0xff);
      if (key != 0 && key != entries[index].key) return key;
    }
  }

  const std::uint32_t capacity;
  const std::uint32_t index_mask;
  base::ChaCha20 random;  // clients see keys: these must not predict others
  const KeyCipher cipher;
  void* allocation = nullptr;
  Entry* entries = nullptr;

  // Workers take the lock only to bind, register and invalidate.
  mutable base::Spinlock lock;
  std::uint32_t fresh = 0;  // slots below were used at least once
  std::uint32_t free_head = kNone, free_tail = kNone;
  std::uint32_t inserted = 0;
};

}  // namespace uroce::memory
