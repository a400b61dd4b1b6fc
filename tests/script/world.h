// What a script runs against: a sans-IO machine in virtual time, seen as statements in and outputs out.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/script/script.h"

namespace uroce::script {

/// Outputs of one kind come in order; what is of different kinds has no order among each other.
enum class Channel : std::uint8_t { kPacket, kCompletion, kReceiveCompletion, kEvent, kCount };

/// What the local side did: a packet that left, a completion, an event.
struct Output {
  Nanos when = 0;
  std::string name;                                           ///< of the opcode, event or message; may be empty
  std::vector<std::pair<std::string, std::uint64_t>> values;  ///< by field name
  std::string text;                                           ///< one line, for messages

  const std::uint64_t* find(std::string_view field) const {
    for (const auto& [name_of_value, value] : values) {
      if (name_of_value == field) return &value;
    }
    return nullptr;
  }
};

/// An input acts on the machine, an expectation claims an output, a check compares state or memory.
enum class Role : std::uint8_t { kInput, kExpectation, kCheck };

class World {
 public:
  virtual ~World() = default;

  /// What the statement is; SyntaxError with the list of statements when there is no such.
  virtual Role role(const Line& line) const = 0;
  /// Executes an input.
  virtual void input(const Line& line) = 0;
  /// Throws Mismatch when what it names is otherwise.
  virtual void check(const Line& line) = 0;
  /// The channel of an expectation, after checking its words and fields.
  virtual Channel channel(const Line& line) const = 0;
  /// Fields that the expectation implies without naming them.
  virtual std::vector<Field> implied(const Line&) const { return {}; }
  /// The name that the output must have; empty: none.
  virtual std::string name(const Line& line) const = 0;
  /// The number that a field's value stands for. SyntaxError lists what is allowed.
  virtual std::uint64_t value(const Field& field) const = 0;

  /// The value as scripts write it.
  virtual std::string text(const Field& field, std::uint64_t value) const = 0;

  /// One turn: everything that the machine wants to put out now goes to its channel.
  virtual void turn() = 0;
  /// Time in: fires the timers that are due at `now`.
  virtual void advance() = 0;
  virtual Nanos next_timeout() const = 0;

  std::deque<Output>& outputs(Channel of) { return outputs_[static_cast<std::size_t>(of)]; }
  const Output* unclaimed() const {
    for (const auto& queue : outputs_) {
      if (!queue.empty()) return &queue.front();
    }
    return nullptr;
  }

  static constexpr Nanos kStart = kSecond;
  Nanos now = kStart;
  std::map<std::string, std::uint64_t> variables;  ///< $name

 protected:
  void put(Channel to, Output output) {
    output.when = now;
    outputs_[static_cast<std::size_t>(to)].push_back(std::move(output));
  }

 private:
  std::deque<Output> outputs_[static_cast<std::size_t>(Channel::kCount)];
};

/// The machine that the script's first statement asks for: `qp` the transport, `cm` the connection manager.
std::unique_ptr<World> make_world(const Line& first);

}  // namespace uroce::script
