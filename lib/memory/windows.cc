// Keys that work requests change: memory windows and MRs for fast registration.

#include "memory/table.h"
#include "memory/table_impl.h"

namespace uroce::memory {
namespace {

constexpr std::uint32_t kWindowRights = kRemoteWrite | kRemoteRead | kRemoteAtomic | kZeroBased;
// Without kFlushPersistent: no memory here is persistent.
constexpr std::uint32_t kFastRights = kWindowRights | kLocalWrite | kMwBind | kFlushGlobal;
/// Rights of a region that a window cannot give. A bind ignores them, as adapters do.
constexpr std::uint32_t kHugePages = 128;
constexpr std::uint32_t kLocalRights = kLocalWrite | kMwBind | kOnDemand | kHugePages;
constexpr std::uint32_t kOptionalRights = 0x3ff00000;  // hints, such as relaxed ordering
constexpr std::uint32_t kWritingRights = kRemoteWrite | kRemoteAtomic;

/// The entry's key with the low byte of `tag`. Key 0 cannot be used: it means "not live".
Key with_tag(const Entry& entry, Key tag) { return Key{(entry.key & ~0xffu) | (tag.value & 0xffu)}; }

/// The memory of which a window or fast MR gets a part.
struct Memory {
  std::byte* base;
  std::uint64_t client_address;
};

void enable(Entry& entry, Key key, std::uint64_t iova, std::uint64_t length, std::uint32_t access,
            const Memory& memory, std::uint64_t offset) {
  const auto base = reinterpret_cast<std::uintptr_t>(memory.base);
  store(entry.access, access);
  store(entry.iova, (access & kZeroBased) != 0 ? 0 : iova);
  store(entry.length, length);
  store(entry.base, base == 0 ? nullptr : reinterpret_cast<std::byte*>(base + offset));
  store(entry.client_address, memory.client_address + offset);
  entry.key = key.value;
  std::atomic_ref(entry.live).store(key.value, std::memory_order_release);
}

/// Whether the requested window may be bound to `mr` (IBTA vol. 1, 10.6.7.2.2; C10-73: the MR allows
/// binding; C10-74: a writable window needs local write).
Verdict check_mr(const Entry& mr, const Binding& request) {
  if ((mr.access & kMwBind) == 0 || (mr.access & kZeroBased) != 0) return Verdict::kNoAccess;
  if ((request.access & ~(kWindowRights | kLocalRights | kOptionalRights)) != 0) return Verdict::kNoAccess;
  if ((request.access & kWritingRights) != 0 && (mr.access & kLocalWrite) == 0) return Verdict::kNoAccess;
  const std::uint64_t offset = request.address - mr.iova;
  if (offset > mr.length || request.length > mr.length - offset) return Verdict::kOutOfRange;
  return Verdict::kOk;
}

}  // namespace

std::optional<Key> Table::allocate_window(PdId pd, Kind kind) {
  const base::SpinGuard guard(impl_->lock);
  Entry* const entry = impl_->claim(pd, kind);
  if (entry == nullptr) return std::nullopt;
  return Key{entry->key};
}

std::optional<Key> Table::allocate_fast(const Region& region) {
  if (region.length == 0) return std::nullopt;
  const base::SpinGuard guard(impl_->lock);
  Entry* const entry = impl_->claim(region.pd, Kind::kFast);
  if (entry == nullptr) return std::nullopt;
  const Change change(*entry);
  store(entry->behind, behind(region));
  entry->limit_access = region.access;
  entry->limit_length = region.length;
  entry->limit_base = region.base;
  entry->limit_client_address = region.client_address;
  return Key{entry->key};
}

Verdict Table::bind(const Binding& request) {
  const base::SpinGuard guard(impl_->lock);
  Entry* const window = impl_->changeable(request.window, request.pd);
  if (window == nullptr || window->kind == Kind::kFast) return Verdict::kNoSuchKey;
  const Key new_key = with_tag(*window, request.new_key);
  if (new_key.value == 0) return Verdict::kNoSuchKey;
  if (window->kind == Kind::kWindow2) {
    // A type 2 window is freed by an invalidation only (IBTA vol. 1, o10-37.2.40).
    if (request.length == 0) return Verdict::kOutOfRange;
    if (window->live != 0) return Verdict::kNoAccess;
  } else {
    if (new_key.value == window->key) return Verdict::kNoSuchKey;
    if ((request.access & kZeroBased) != 0) return Verdict::kNoAccess;
  }
  if (request.length == 0) {
    impl_->disable(*window);
    window->key = new_key.value;
    return Verdict::kOk;
  }
  Entry* const mr = impl_->owned(request.mr);
  const bool usable = mr != nullptr && mr->use == Use::kInserted && mr->pd == request.pd.value &&
                      (mr->kind == Kind::kRegistered || mr->kind == Kind::kFast) && mr->live == request.mr.value;
  if (!usable) return Verdict::kNoSuchKey;
  if (const Verdict verdict = check_mr(*mr, request); verdict != Verdict::kOk) return verdict;
  impl_->disable(*window);
  const Change change(*window);
  store(window->qpn, window->kind == Kind::kWindow2 ? request.qpn.value : 0u);
  store(window->behind, mr->behind);
  enable(*window, new_key, request.address, request.length, request.access & ~kLocalRights,
         {mr->base, mr->client_address}, request.address - mr->iova);
  window->parent = impl_->index_of(*mr);
  ++mr->windows;
  return Verdict::kOk;
}

Verdict Table::register_fast(const FastRegistration& request) {
  const base::SpinGuard guard(impl_->lock);
  Entry* const entry = impl_->changeable(request.key, request.pd);
  if (entry == nullptr || request.new_key.value == 0) return Verdict::kNoSuchKey;
  if (request.new_key.value != with_tag(*entry, request.new_key).value) return Verdict::kNoSuchKey;
  if (entry->kind != Kind::kFast || entry->limit_length == 0) return Verdict::kNoSuchKey;
  if (entry->live != 0) return Verdict::kNoAccess;
  // Remote write and atomic need local write (IBTA vol. 1, 10.6.3.1), and no right may exceed the memory's.
  constexpr std::uint32_t kWriting = kLocalWrite | kWritingRights;
  if ((request.access & ~(kFastRights | kOptionalRights)) != 0) return Verdict::kNoAccess;
  if ((request.access & kWriting) != 0 && (request.access & entry->limit_access & kLocalWrite) == 0) {
    return Verdict::kNoAccess;
  }
  const std::uint64_t offset = request.address - entry->limit_client_address;
  if (request.length == 0 || offset > entry->limit_length || request.length > entry->limit_length - offset) {
    return Verdict::kOutOfRange;
  }
  const Change change(*entry);
  enable(*entry, request.new_key, request.address, request.length, request.access,
         {entry->limit_base, entry->limit_client_address}, offset);
  return Verdict::kOk;
}

Verdict Table::invalidate(Key key, PdId pd, Qpn qpn) {
  Entry* const entry = impl_->slot(key);
  if (entry == nullptr || load_live(*entry) != key.value || key.value == 0 || entry->pd != pd.value) {
    return Verdict::kNoSuchKey;
  }
  if (entry->kind != Kind::kFast && entry->kind != Kind::kWindow2) return Verdict::kNoAccess;
  const base::SpinGuard guard(impl_->lock);
  if (load_live(*entry) != key.value) return Verdict::kNoSuchKey;  // another worker or retire() was first
  if (entry->windows != 0 || (entry->qpn != 0 && entry->qpn != qpn.value)) return Verdict::kNoAccess;
  impl_->disable(*entry);
  return Verdict::kOk;
}

}  // namespace uroce::memory
