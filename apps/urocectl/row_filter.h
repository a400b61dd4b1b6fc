// Which rows of `show` and `top` are printed: "pid=4711", "state=RTS,program=ib_*", "peer=192.0.2.7".
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon_client.h"

namespace uroce::ctl {

class RowFilter {
 public:
  /// KEY=PATTERN, several separated by commas; empty: all rows. KEY is a column, `user` (uid) or `peer` (dest,
  /// dest_qpn, destination); PATTERN is that of fnmatch(3), or a number in any base. Ends the program with status 2
  /// if the text has another form.
  explicit RowFilter(std::string_view text);

  bool all() const { return conditions_.empty(); }
  /// Whether the sessions of a device must be known: rows of other kinds name pid and uid through their session.
  bool needs_sessions() const;

  /// Removes the rows that do not match from each list of `answer`. `sessions`: the answer about sessions, if
  /// needs_sessions(). Ends the program with status 2 if no list has a column of that name.
  void apply(Json& answer, const Json& sessions) const;

 private:
  struct Condition {
    std::string key, pattern;
    bool matches(const Json& row) const;
    std::vector<std::string> columns() const;
  };
  bool matches(const Json& row) const;
  void check_columns(const Json& answer) const;

  std::vector<Condition> conditions_;
};

/// Adds pid, uid and program to rows that name a session, from the answer about sessions.
void add_session_columns(Json& answer, const Json& sessions);

}  // namespace uroce::ctl
