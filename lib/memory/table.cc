#include "memory/table.h"

#include <cstdlib>
#include <new>

#include "memory/table_impl.h"

namespace uroce::memory {

void* zeroed(std::size_t bytes) {
  void* const memory = std::calloc(1, bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

bool Span::read_indirect(std::size_t offset, std::byte* to, std::size_t bytes) const {
  if (indirect == nullptr || indirect->read == nullptr) return false;
  return indirect->read(indirect->context, client_address + offset, to, bytes);
}

bool Span::write_indirect(std::size_t offset, const std::byte* from, std::size_t bytes) const {
  if (indirect == nullptr || indirect->write == nullptr) return false;
  return indirect->write(indirect->context, client_address + offset, from, bytes);
}

Table::Table(std::uint32_t capacity, std::uint64_t seed) : impl_(std::make_unique<Impl>(capacity, seed)) {}
Table::~Table() = default;

std::optional<Key> Table::insert(const Region& region) {
  if (region.length != 0 && region.iova + (region.length - 1) < region.iova) return std::nullopt;
  const base::SpinGuard guard(impl_->lock);
  Entry* const entry = impl_->claim(region.pd, region.kind);
  if (entry == nullptr) return std::nullopt;
  entry->access = region.access;
  entry->iova = region.iova;
  entry->length = region.length;
  entry->base = region.base;
  entry->client_address = region.client_address;
  entry->behind = behind(region);
  // Pairs with load_live(): a reader that sees the key sees the fields above.
  std::atomic_ref(entry->live).store(entry->key, std::memory_order_release);
  return Key{entry->key};
}

bool Table::retire(Key key) {
  const base::SpinGuard guard(impl_->lock);
  Entry* entry = impl_->owned(key);
  if (entry == nullptr || entry->use != Use::kInserted || entry->windows != 0) return false;
  entry->use = Use::kRetired;
  --impl_->inserted;
  // No ordering is needed here: every worker passes a quiescent point before release().
  impl_->disable(*entry);
  return true;
}

bool Table::change_access(Key key, std::uint32_t access) {
  const base::SpinGuard guard(impl_->lock);
  Entry* entry = impl_->owned(key);
  if (entry == nullptr || entry->use != Use::kInserted || entry->kind != Kind::kRegistered || entry->windows != 0) {
    return false;
  }
  store(entry->access, access);
  return true;
}

void Table::release(Key key) {
  const base::SpinGuard guard(impl_->lock);
  Entry* entry = impl_->owned(key);
  if (entry == nullptr || entry->use != Use::kRetired) return;
  entry->use = Use::kFree;
  impl_->give_back(impl_->index_of(*entry));
}

namespace {

/// A consistent snapshot of an entry that may be changing: what resolve() compares.
struct View {
  std::uint32_t live, access, qpn;
  std::uint64_t iova, length, client_address;
  std::byte* base;
  const void* behind;
};

View view_of(const Entry& entry) {
  for (;;) {
    // Pairs with Change.
    const std::uint32_t version =
        std::atomic_ref(const_cast<std::uint32_t&>(entry.version)).load(std::memory_order_acquire);
    const View view{load(entry.live),   load(entry.access),         load(entry.qpn),  load(entry.iova),
                    load(entry.length), load(entry.client_address), load(entry.base), load(entry.behind)};
    std::atomic_thread_fence(std::memory_order_acquire);
    if (version % 2 == 0 && load(entry.version) == version) return view;
    base::cpu_relax();
  }
}

Verdict check(const auto& view, std::uint32_t access, std::uint64_t address, std::uint64_t length,
              std::uint32_t need, Span& out) {
  // insert() refuses a region that wraps, so an address below it gives an offset beyond its length.
  const std::uint64_t offset = address - view.iova;
  if (offset > view.length || length > view.length - offset) return Verdict::kOutOfRange;
  if ((access & need) != need) return Verdict::kNoAccess;
  // As a number: a region may be longer than pointer arithmetic within one object allows.
  const auto base = reinterpret_cast<std::uintptr_t>(view.base);
  out.client_address = view.client_address + offset;
  if (base != 0) [[likely]] {
    out.data = reinterpret_cast<std::byte*>(base + offset);
    out.indirect = nullptr;
    out.loss = static_cast<const Loss*>(view.behind);
  } else {
    out.data = nullptr;
    out.indirect = static_cast<const IndirectIo*>(view.behind);
    out.loss = nullptr;
  }
  return Verdict::kOk;
}

}  // namespace

Verdict Table::resolve(Key key, PdId pd, std::uint64_t address, std::uint64_t length, std::uint32_t need, Span& out,
                       Qpn qpn) const {
  Recent none;
  return resolve(none, key, pd, address, length, need, out, qpn);
}

Verdict Table::resolve(Recent& recent, Key key, PdId pd, std::uint64_t address, std::uint64_t length,
                       std::uint32_t need, Span& out, Qpn qpn) const {
  Recent::Place& place = recent.places_[key.value >> 8 & 15];
  if (place.key.value != key.value) {
    const Entry* const found = impl_->slot(key);
    if (found == nullptr) return Verdict::kNoSuchKey;
    place = {key, impl_->index_of(*found)};
  }
  const Entry* const entry = &impl_->entries[place.slot];
  if (load_live(*entry) != key.value || key.value == 0 || entry->pd != pd.value) {
    return Verdict::kNoSuchKey;
  }
  if (entry->kind == Kind::kRegistered) [[likely]]
    return check(*entry, load(entry->access), address, length, need, out);
  const View view = view_of(*entry);
  if (view.live != key.value || (view.qpn != 0 && view.qpn != qpn.value)) return Verdict::kNoSuchKey;
  const bool window = entry->kind != Kind::kFast;
  if (window && (need & kRemoteRights) == 0) return Verdict::kNoSuchKey;  // a window's key is not an L_Key
  return check(view, view.access, address, length, need, out);
}

Verdict Table::permits(Key key, PdId pd, std::uint32_t need, Qpn qpn) const {
  const Entry* const entry = impl_->slot(key);
  if (entry == nullptr || load_live(*entry) != key.value || key.value == 0) return Verdict::kNoSuchKey;
  const View view = view_of(*entry);
  if (view.live != key.value || entry->pd != pd.value) return Verdict::kNoSuchKey;
  if (view.qpn != 0 && view.qpn != qpn.value) return Verdict::kNoSuchKey;
  return (view.access & need) == need ? Verdict::kOk : Verdict::kNoAccess;
}

bool Table::outlasts_work_requests(Key key) const {
  const Entry* const entry = impl_->slot(key);
  return entry != nullptr && load_live(*entry) == key.value && entry->kind == Kind::kRegistered;
}

std::optional<Region> Table::describe(Key key) const {
  const base::SpinGuard guard(impl_->lock);
  const Entry* entry = impl_->owned(key);
  if (entry == nullptr || entry->use != Use::kInserted) return std::nullopt;
  const bool mapped = (entry->kind == Kind::kFast ? entry->limit_base : entry->base) != nullptr;
  return Region{.pd = PdId{entry->pd},
                .access = entry->access,
                .iova = entry->iova,
                .length = entry->length,
                .base = entry->base,
                .client_address = entry->client_address,
                .indirect = mapped ? nullptr : static_cast<const IndirectIo*>(entry->behind),
                .kind = entry->kind,
                .loss = mapped ? static_cast<const Loss*>(entry->behind) : nullptr};
}

std::uint32_t Table::windows(Key mr) const {
  const base::SpinGuard guard(impl_->lock);
  const Entry* entry = impl_->owned(mr);
  return entry == nullptr ? 0 : entry->windows;
}

std::uint32_t Table::size() const {
  const base::SpinGuard guard(impl_->lock);
  return impl_->inserted;
}

std::uint32_t Table::capacity() const { return impl_->capacity; }

}  // namespace uroce::memory
