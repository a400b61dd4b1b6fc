// Linux namespaces (namespaces(7)) for this process, with or without root.
#pragma once

#include <string>

namespace uroce::run {

/// "`what`: " and the text of errno.
std::string failed(const std::string& what);

/// Writes the text into a file that exists, in one call.
bool write_file(const std::string& path, const std::string& text);

/// unshare(2) with these CLONE_NEW... flags. With CLONE_NEWUSER the user and the group are mapped to themselves:
/// the program sees no difference. Returns empty on success, else what failed and what to do.
std::string enter_namespaces(int flags);

}  // namespace uroce::run
