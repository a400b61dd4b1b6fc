// One page of `urocectl show` or `urocectl metrics`. The control thread does nothing else while it describes rows,
// so an answer has a bounded number of them, and says where the next one begins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "admin/viewer.h"
#include "control/state/state.h"

namespace uroce::admin {

/// Where a list is continued. What has gone away meanwhile is left out.
struct Cursor {
  std::uint64_t at = 0;      ///< session, user or worker; those before it were shown
  std::uint64_t handle = 0;  ///< of the object in there, or number of the row
};

/// "from" of a request: the list and the place in it; an empty kind: the request has none. False: another form.
inline bool read_start(const nlohmann::ordered_json& request, std::string& kind, Cursor& start) {
  const auto from = request.find("from");
  if (from == request.end()) return true;
  if (!from->is_object()) return false;
  const auto name = from->find("kind"), at = from->find("at"), handle = from->find("handle");
  if (name == from->end() || at == from->end() || handle == from->end()) return false;
  if (!name->is_string() || !at->is_number_unsigned() || !handle->is_number_unsigned()) return false;
  kind = name->get<std::string>();
  start = {at->get<std::uint64_t>(), handle->get<std::uint64_t>()};
  return true;
}

/// Whether the caller asks for further pages. An older urocectl does not, and would take the first one for all.
inline bool takes_pages(const nlohmann::ordered_json& request) {
  return request.contains("pages") || request.contains("from");
}
inline constexpr const char* kTakesNoPages =
    "the answer has several pages (\"pages\"): urocectl and the daemon must be of the same build";

/// "next" of an answer.
inline nlohmann::ordered_json next_page(std::string_view kind, const Cursor& start) {
  return {{"kind", kind}, {"at", start.at}, {"handle", start.handle}};
}

class Page {
 public:
  static constexpr std::size_t kRows = 32;
  static constexpr std::size_t kSessions = 1024;  ///< that are searched for rows

  Page(Viewer& of, const Cursor& from, std::size_t rows = kRows) : viewer(of), from_(from), rows_(rows) {}

  Viewer& viewer;

  /// Where the first list of the page begins; later ones begin at the start.
  Cursor take_start() { return std::exchange(from_, {}); }
  bool full() const { return rows_ == 0; }
  /// False: the page is full, and the next one begins here.
  bool take_row(const Cursor& here) { return take(rows_, here); }
  bool take_session(const Cursor& here) { return take(sessions_, here); }
  /// Rows that belong together and are not divided.
  void take_rows(std::size_t rows) { rows_ -= rows < rows_ ? rows : rows_; }
  bool ended() const { return ended_; }
  const Cursor& next() const { return next_; }

  /// The objects that this page shows, with their sessions. `objects_of(session)`: a HandleTable.
  template <class ObjectsOf>
  auto collect(const control::Sessions& sessions, ObjectsOf&& objects_of) {
    using Object = std::remove_cvref_t<decltype(*objects_of(*sessions.begin()->second).begin()->second)>;
    std::vector<std::pair<const control::Session*, const Object*>> found;
    const Cursor start = take_start();
    for (auto each = sessions.lower_bound(start.at); each != sessions.end(); ++each) {
      const control::Session& session = *each->second;
      const std::uint64_t first = session.id == start.at ? start.handle : 0;
      if (!take_session({session.id, first})) break;
      const auto& objects = objects_of(session);
      if (!viewer.sees(session, objects.size()) || first > UINT32_MAX) continue;
      for (auto it = objects.from(static_cast<std::uint32_t>(first)); it != objects.end(); ++it) {
        if (!take_row({session.id, it->first})) return found;
        found.emplace_back(&session, it->second.get());
      }
    }
    return found;
  }

 private:
  bool take(std::size_t& left, const Cursor& here) {
    if (left != 0) return --left, true;
    ended_ = true;
    next_ = here;
    return false;
  }

  Cursor from_, next_;
  std::size_t rows_, sessions_ = kSessions;
  bool ended_ = false;
};

}  // namespace uroce::admin
