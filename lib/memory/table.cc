#include "memory/table.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "base/spinlock.h"
#include "memory/key_cipher.h"

namespace uroce::memory {
namespace {

constexpr std::uint32_t kNone = ~std::uint32_t{0};
constexpr std::uint32_t kMaxCapacity = 1u << 20;
constexpr std::uint32_t kSpread = 4096;  // slots that are used once before any is used again: 256 KiB

/// Who may touch a slot. Read and written under the table's lock only.
enum class Use : std::uint8_t { kFree = 0, kInserted, kRetired };

/// One slot, one cache line. All zero: free, never used.
struct alignas(64) Entry {
  // What resolve() compares and checks. `live` is the published key, 0 when nothing may resolve; the plain fields
  // are written before it is stored with release, and again only after release(), when no worker looks any more.
  std::uint32_t live;
  std::uint32_t pd;
  std::uint32_t access;
  Kind kind;
  Use use;
  std::uint16_t reserved;
  std::uint64_t iova;
  std::uint64_t length;
  std::byte* base;
  std::uint64_t client_address;
  const IndirectIo* indirect;
  std::uint32_t key;   // as given out, until release()
  std::uint32_t next;  // in the list of free slots
};
static_assert(sizeof(Entry) == 64);
static_assert(std::is_trivially_default_constructible_v<Entry>);

std::uint32_t load_live(const Entry& entry) {
  // Pairs with the release store in insert().
  return std::atomic_ref(const_cast<std::uint32_t&>(entry.live)).load(std::memory_order_acquire);
}

}  // namespace

bool Span::read(std::size_t offset, std::byte* to, std::size_t bytes) const {
  if (bytes == 0) return true;
  if (data != nullptr) {
    std::memcpy(to, data + offset, bytes);
    return true;
  }
  if (indirect == nullptr || indirect->read == nullptr) return false;
  return indirect->read(indirect->context, client_address + offset, to, bytes);
}

bool Span::write(std::size_t offset, const std::byte* from, std::size_t bytes) const {
  if (bytes == 0) return true;
  if (data != nullptr) {
    std::memcpy(data + offset, from, bytes);
    return true;
  }
  if (indirect == nullptr || indirect->write == nullptr) return false;
  return indirect->write(indirect->context, client_address + offset, from, bytes);
}

struct Table::Impl {
  Impl(std::uint32_t slots, std::uint64_t seed)
      : capacity(std::clamp(slots, 1u, kMaxCapacity)),
        index_mask(std::bit_ceil(capacity) - 1),
        random(seed),
        cipher(random) {
    // calloc, and not a vector: zero pages appear only when touched, and all zero is a free entry.
    const std::size_t bytes = std::size_t{capacity} * sizeof(Entry);
    allocation = std::calloc(1, bytes + alignof(Entry));
    if (allocation == nullptr) throw std::bad_alloc();
    const auto address = reinterpret_cast<std::uintptr_t>(allocation);
    const std::uintptr_t aligned = (address + alignof(Entry) - 1) & ~std::uintptr_t{alignof(Entry) - 1};
    entries = reinterpret_cast<Entry*>(aligned);
  }
  ~Impl() { std::free(allocation); }

  /// The slot that a key names, whether or not the key is live there; nullptr: outside the table.
  Entry* slot(Key key) const {
    const std::uint32_t index = cipher.decrypt(key.value >> 8) & index_mask;
    return index < capacity ? &entries[index] : nullptr;
  }

  /// The slot in which this key was inserted and not released. Under the lock.
  Entry* owned(Key key) const {
    Entry* entry = slot(key);
    return entry != nullptr && entry->use != Use::kFree && entry->key == key.value ? entry : nullptr;
  }

  /// A fresh slot while that is cheap, then the one that has been free longest. Under the lock.
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
  std::mt19937_64 random;
  const KeyCipher cipher;
  void* allocation = nullptr;
  Entry* entries = nullptr;

  // The control side; workers never take the lock.
  mutable base::Spinlock lock;
  std::uint32_t fresh = 0;  // slots below were used at least once
  std::uint32_t free_head = kNone, free_tail = kNone;
  std::uint32_t inserted = 0;
};

Table::Table(std::uint32_t capacity, std::uint64_t seed) : impl_(std::make_unique<Impl>(capacity, seed)) {}
Table::~Table() = default;

std::optional<Key> Table::insert(const Region& region) {
  if (region.length != 0 && region.iova + (region.length - 1) < region.iova) return std::nullopt;
  const std::lock_guard guard(impl_->lock);
  const std::uint32_t index = impl_->take();
  if (index == kNone) return std::nullopt;
  Entry& entry = impl_->entries[index];
  const std::uint32_t key = impl_->draw_key(index);
  entry.pd = region.pd.value;
  entry.access = region.access;
  entry.kind = region.kind;
  entry.use = Use::kInserted;
  entry.iova = region.iova;
  entry.length = region.length;
  entry.base = region.base;
  entry.client_address = region.client_address;
  entry.indirect = region.indirect;
  entry.key = key;
  ++impl_->inserted;
  // Pairs with load_live(): whoever sees the key sees the fields above.
  std::atomic_ref(entry.live).store(key, std::memory_order_release);
  return Key{key};
}

bool Table::retire(Key key) {
  const std::lock_guard guard(impl_->lock);
  Entry* entry = impl_->owned(key);
  if (entry == nullptr || entry->use != Use::kInserted) return false;
  entry->use = Use::kRetired;
  --impl_->inserted;
  // Relaxed: the quiescent point that must come before release() orders what follows.
  std::atomic_ref(entry->live).store(0, std::memory_order_relaxed);
  return true;
}

void Table::release(Key key) {
  const std::lock_guard guard(impl_->lock);
  Entry* entry = impl_->owned(key);
  if (entry == nullptr || entry->use != Use::kRetired) return;
  entry->use = Use::kFree;
  impl_->give_back(static_cast<std::uint32_t>(entry - impl_->entries));
}

Verdict Table::resolve(Key key, PdId pd, std::uint64_t address, std::uint64_t length, std::uint32_t need,
                       Span& out) const {
  const Entry* entry = impl_->slot(key);
  if (entry == nullptr || load_live(*entry) != key.value || key.value == 0 || entry->pd != pd.value) {
    return Verdict::kNoSuchKey;
  }
  // insert() saw to it that the region does not wrap, so an address below it gives an offset beyond its length.
  const std::uint64_t offset = address - entry->iova;
  if (offset > entry->length || length > entry->length - offset) return Verdict::kOutOfRange;
  if ((entry->access & need) != need) return Verdict::kNoAccess;
  // As a number: a region may claim to reach beyond what a pointer into one object can.
  const auto base = reinterpret_cast<std::uintptr_t>(entry->base);
  out.data = base == 0 ? nullptr : reinterpret_cast<std::byte*>(base + offset);
  out.client_address = entry->client_address + offset;
  out.indirect = entry->indirect;
  return Verdict::kOk;
}

Verdict Table::invalidate(Key key, PdId pd) {
  Entry* entry = impl_->slot(key);
  if (entry == nullptr || load_live(*entry) != key.value || key.value == 0 || entry->pd != pd.value) {
    return Verdict::kNoSuchKey;
  }
  if (entry->kind != Kind::kFast && entry->kind != Kind::kWindow2) return Verdict::kNoAccess;
  // Workers may race for it, and with retire(): one of them wins. Nothing is published, hence relaxed.
  std::uint32_t expected = key.value;
  const bool won = std::atomic_ref(entry->live)
                       .compare_exchange_strong(expected, 0, std::memory_order_relaxed);
  return won ? Verdict::kOk : Verdict::kNoSuchKey;
}

std::optional<Region> Table::describe(Key key) const {
  const std::lock_guard guard(impl_->lock);
  const Entry* entry = impl_->owned(key);
  if (entry == nullptr || entry->use != Use::kInserted) return std::nullopt;
  return Region{.pd = PdId{entry->pd},
                .access = entry->access,
                .iova = entry->iova,
                .length = entry->length,
                .base = entry->base,
                .client_address = entry->client_address,
                .indirect = entry->indirect,
                .kind = entry->kind};
}

std::uint32_t Table::size() const {
  const std::lock_guard guard(impl_->lock);
  return impl_->inserted;
}

std::uint32_t Table::capacity() const { return impl_->capacity; }

}  // namespace uroce::memory
