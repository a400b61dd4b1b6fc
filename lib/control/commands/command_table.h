// Tables of control commands, keyed by opcode. A table whose rows are out of order or incomplete does not compile.
#pragma once

#include <cstddef>
#include <cstdint>

namespace uroce::control {

template <class Function>
struct CommandRow {
  std::uint32_t opcode = 0;
  Function run{};
  bool before_hello = false;      ///< allowed before HELLO
  std::uint32_t descriptors = 0;  ///< that a request may carry, at most
};

/// Whether row i is the command with opcode `first` + i, and the last row is `last`. For static_assert.
template <class Function, std::size_t kRows>
consteval bool rows_match_opcodes(const CommandRow<Function> (&rows)[kRows], std::uint32_t first,
                                  std::uint32_t last) {
  for (std::size_t i = 0; i < kRows; ++i) {
    if (rows[i].opcode != first + i || rows[i].run == nullptr) return false;
  }
  return kRows != 0 && rows[kRows - 1].opcode == last;
}

/// nullptr: no such command.
template <class Function, std::size_t kRows>
constexpr const CommandRow<Function>* find_command(const CommandRow<Function> (&rows)[kRows],
                                                   std::uint32_t opcode) {
  const std::uint32_t index = opcode - rows[0].opcode;
  return index < kRows ? &rows[index] : nullptr;
}

}  // namespace uroce::control
