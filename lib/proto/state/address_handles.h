// The daemon's address handles as one worker's UD QPs use them. The conductor fills the table; a page is touched
// only when a handle in it is created.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <new>
#include <type_traits>
#include <vector>

#include "base/types.h"
#include "wire/frame_template.h"

namespace uroce::proto {

struct AddressHandle {
  wire::FrameTemplate path;
  bool derive_port = false;  ///< the UDP source port is derived from the QPNs (annex A17: RoCEv2)
};
static_assert(std::is_trivially_copyable_v<AddressHandle> && std::is_trivially_destructible_v<AddressHandle>);

class AddressHandles {
 public:
  AddressHandles(std::uint32_t capacity, std::pmr::memory_resource* memory)
      : memory_(memory),
        handles_(static_cast<AddressHandle*>(
            memory->allocate(capacity * sizeof(AddressHandle), alignof(AddressHandle)))),
        pds_(capacity, kNoPd, memory) {}
  ~AddressHandles() { memory_->deallocate(handles_, pds_.size() * sizeof(AddressHandle), alignof(AddressHandle)); }
  AddressHandles(const AddressHandles&) = delete;
  AddressHandles& operator=(const AddressHandles&) = delete;

  /// nullptr removes. An id past the end of the table is ignored.
  void set(AhId id, PdId pd, const wire::PathAddress* path) {
    if (id.value >= pds_.size()) return;
    pds_[id.value] = path == nullptr ? kNoPd : pd.value;
    if (path != nullptr) new (&handles_[id.value]) AddressHandle{wire::FrameTemplate(*path), path->flow_label == 0};
  }

  /// nullptr: there is no such handle, or it belongs to another PD.
  const AddressHandle* find(AhId id, PdId pd) const {
    if (id.value >= pds_.size() || pd.value == kNoPd || pds_[id.value] != pd.value) return nullptr;
    return &handles_[id.value];
  }

 private:
  static constexpr std::uint32_t kNoPd = ~std::uint32_t{0};

  std::pmr::memory_resource* memory_;
  AddressHandle* handles_;
  std::pmr::vector<std::uint32_t> pds_;
};

}  // namespace uroce::proto
