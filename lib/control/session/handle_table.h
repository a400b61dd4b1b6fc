// The objects of one kind that a session has, in the order of their handles, so that a list of them can be
// continued after others were removed. A session never uses a handle twice, so a stale handle is not found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

namespace uroce::control {

/// Lookups of handles that do not exist.
struct UnknownHandles {
  std::uint64_t count = 0;
  std::uint32_t last = 0;
};

template <class T>
class HandleTable {
 public:
  /// `unknown` counts lookups of handles that do not exist.
  explicit HandleTable(UnknownHandles& unknown) : unknown_(unknown) {}

  std::uint32_t add(std::unique_ptr<T> object) {
    const std::uint32_t handle = ++last_;
    objects_.emplace_hint(objects_.end(), handle, std::move(object));
    return handle;
  }
  /// Adds it under a handle that the caller chose and that is free. A table uses either add() or add_as().
  void add_as(std::uint32_t handle, std::unique_ptr<T> object) { objects_.emplace(handle, std::move(object)); }
  /// nullptr: no such handle.
  T* find(std::uint32_t handle) const {
    const auto it = objects_.find(handle);
    if (it != objects_.end()) return it->second.get();
    if (handle != 0) unknown_.last = handle, ++unknown_.count;  // 0 stands for "none"
    return nullptr;
  }
  bool contains(std::uint32_t handle) const { return objects_.contains(handle); }
  void erase(std::uint32_t handle) { objects_.erase(handle); }
  void clear() { objects_.clear(); }
  std::size_t size() const { return objects_.size(); }
  auto begin() const { return objects_.begin(); }
  /// The first object with at least this handle.
  auto from(std::uint32_t handle) const { return objects_.lower_bound(handle); }
  auto end() const { return objects_.end(); }

 private:
  std::map<std::uint32_t, std::unique_ptr<T>> objects_;
  UnknownHandles& unknown_;
  std::uint32_t last_ = 0;  // a wrap takes days and harms only this session
};

}  // namespace uroce::control
