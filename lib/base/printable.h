// Text that a client chose, for terminals and logs.
#pragma once

#include <algorithm>
#include <string>

namespace uroce::base {

/// Printable ASCII with '?' for every other byte: control sequences (C1 among them) and characters that reverse or
/// hide text would act on the reader's terminal.
inline std::string printable(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

}  // namespace uroce::base
