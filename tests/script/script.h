// A script as text: one statement a line, split into stamp, words and fields. README.md has the grammar.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace uroce::script {

/// What happened differs from what the script expects.
struct Mismatch : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The script itself is wrong: an unknown word, a missing field, a malformed number.
struct SyntaxError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A number that has a name in scripts.
struct Name {
  std::string_view text;
  std::uint64_t value;
};
using Names = std::span<const Name>;

/// "a, b, c": what is allowed, for messages.
std::string list_of(Names names);
std::string list_of(std::span<const std::string> names);

/// A number as scripts write it: decimal, 0x hexadecimal or an IPv4 address. nullopt: none of these.
std::optional<std::uint64_t> number_of(std::string_view text);
/// "640us", "1s". nullopt: not a duration.
std::optional<Nanos> duration_of(std::string_view text);
/// The name of the value, or the number.
std::string text_of(std::uint64_t value, Names names);

enum class Relation : std::uint8_t { kEqual, kBelow, kAbove };

/// name=value, or name<value and name>value where a statement compares.
struct Field {
  std::string name;
  Relation relation = Relation::kEqual;
  std::string value;
};

/// When the statement happens: `+10ms` after the line before it, `10ms` after the script began; none: now.
struct Stamp {
  bool given = false, relative = false;
  Nanos time = 0;
  std::optional<Nanos> tolerance;
};

struct Line {
  std::size_t number = 0;  ///< in the file, from 1
  std::string text;
  Stamp stamp;
  std::vector<std::string> words;  ///< the statement and what it names: "post" "write"
  std::vector<Field> fields;

  const std::string& statement() const { return words.front(); }
  /// The word at `index`; without one a SyntaxError that lists what may stand there.
  const std::string& word(std::size_t index, std::string_view what, std::string_view allowed) const;
  const Field* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }
  /// SyntaxError: a field that is not in `allowed`, or given twice, or more words than `words`.
  void check(std::size_t words, std::span<const std::string> allowed) const;
};

/// `expect-fail ID: what is wrong`: from this line on the script must fail.
struct ExpectedFailure {
  std::size_t line = 0;
  std::string text;
};

struct Script {
  std::string name;  ///< as messages show it
  std::vector<Line> lines;
  std::optional<ExpectedFailure> expected_failure;
  std::size_t last_line = 0;
};

/// Throws SyntaxError with the name and the number of the line.
Script parse(std::string name, std::string_view text);

}  // namespace uroce::script
