#include "tests/script/runner.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "tests/script/world.h"

namespace uroce::script {
namespace {

constexpr Nanos kTolerance = 5 * kMicrosecond;  // timers have ticks of about 1 us

std::string time_text(Nanos time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f ms", static_cast<double>(time) / kMillisecond);
  return text;
}

std::string text_of(const Output& output) {
  return output.text + " (at " + time_text(output.when - World::kStart) + ")";
}

class Runner {
 public:
  explicit Runner(const Script& script) : world_(make_world(script.lines.front())) {}

  void execute(const Line& line) {
    const Role role = world_->role(line);
    for (const Field& field : line.fields) {
      if (role == Role::kCheck || field.relation == Relation::kEqual) continue;
      const char* const sign = field.relation == Relation::kBelow ? "<" : ">";
      throw SyntaxError("'" + field.name + sign + field.value + "'; allowed here: " + field.name + "=" +
                        field.value);
    }
    switch (role) {
      case Role::kInput: return input(line);
      case Role::kExpectation: return expect(line);
      case Role::kCheck: return check(line);
    }
  }
  void finish() {
    world_->turn();
    require_silence();
  }

 private:
  Nanos time_of(const Line& line) const {
    if (!line.stamp.given) return world_->now;
    const Nanos time = line.stamp.time + (line.stamp.relative ? world_->now : World::kStart);
    if (time < world_->now)
      throw SyntaxError("that time has passed; it is " + time_text(world_->now - World::kStart));
    return time;
  }

  void require_silence() const {
    const Output* const output = world_->unclaimed();
    if (output != nullptr) throw Mismatch("  expected: nothing\n  actual:   " + text_of(*output));
  }

  void step(Nanos to) {
    world_->now = std::max(world_->now, to);
    world_->advance();
    world_->turn();
  }

  /// Nothing may happen on the way.
  void pass_until(Nanos time) {
    while (world_->now < time) {
      step(std::min(time, world_->next_timeout()));
      require_silence();
    }
  }

  /// Inputs without a stamp belong to the turn of the input before them.
  void input(const Line& line) {
    if (line.stamp.given || !in_burst_) {
      world_->turn();
      require_silence();
      pass_until(time_of(line));
    }
    world_->input(line);
    in_burst_ = true;
  }

  void check(const Line& line) {
    in_burst_ = false;
    world_->turn();
    if (line.stamp.given) {
      require_silence();
      pass_until(time_of(line));
    }
    if (line.statement() == "quiet") {
      line.check(1, {});
      return require_silence();
    }
    world_->check(line);
  }

  void expect(const Line& line) {
    in_burst_ = false;
    const Channel channel = world_->channel(line);
    const Nanos time = time_of(line);
    const Nanos tolerance = line.stamp.given ? line.stamp.tolerance.value_or(kTolerance) : 0;
    const std::uint64_t count = number(line, "count", 1);
    std::uint64_t skip = number(line, "skip", 0);
    world_->turn();
    for (std::uint64_t i = 0; i < count; ++i) {
      for (;;) {
        const Output output = wait_for(channel, time + tolerance);
        const std::string difference = compare(line, output, i);
        if (difference.empty()) {
          check_time(output, time, tolerance);
          break;
        }
        if (skip-- == 0) throw Mismatch("  actual:   " + text_of(output) + "\n  " + difference);
      }
    }
  }

  std::uint64_t number(const Line& line, std::string_view name, std::uint64_t otherwise) const {
    const Field* const field = line.find(name);
    if (field == nullptr) return otherwise;
    const auto value = number_of(field->value);
    if (!value) throw SyntaxError("'" + field->name + "=" + field->value + "' is not a number");
    return *value;
  }

  Output wait_for(Channel channel, Nanos until) {
    auto& queue = world_->outputs(channel);
    for (world_->turn(); queue.empty(); world_->turn()) {
      const Nanos next = world_->next_timeout();
      if (next > until) {
        const Output* const other = world_->unclaimed();
        throw Mismatch("  actual:   " +
                       (other != nullptr ? text_of(*other) : "nothing until " + time_text(until - World::kStart)));
      }
      step(next);
    }
    Output output = std::move(queue.front());
    queue.pop_front();
    return output;
  }

  static void check_time(const Output& output, Nanos time, Nanos tolerance) {
    if (output.when + tolerance >= time && output.when <= time + tolerance) return;
    throw Mismatch("  actual:   " + text_of(output) + "\n  time: expected " + time_text(time - World::kStart) +
                   " ~ " + time_text(tolerance));
  }

  /// What differs; empty: nothing. `index`: of the packets that `count` stands for, each has the next PSN.
  std::string compare(const Line& line, const Output& output, std::uint64_t index) {
    if (const std::string name = world_->name(line); name != output.name) {
      return "it is '" + output.name + "', expected '" + name + "'";
    }
    std::vector<Field> fields = world_->implied(line);
    fields.insert(fields.end(), line.fields.begin(), line.fields.end());
    for (const Field& field : fields) {
      if (field.name == "count" || field.name == "skip") continue;
      const std::uint64_t* const actual = output.find(field.name);
      if (actual == nullptr) return field.name + ": expected " + field.value + ", it has no such field";
      if (std::string difference = compare(field, *actual, index); !difference.empty()) return difference;
    }
    return {};
  }

  std::string compare(const Field& field, std::uint64_t actual, std::uint64_t index) {
    if (field.value.starts_with('$') && !world_->variables.contains(field.value)) {
      world_->variables[field.value] = actual;
      return {};
    }
    std::uint64_t expected = world_->value(field);
    if (field.name == "psn") expected = Psn(static_cast<std::uint32_t>(expected + index)).value();
    if (expected == actual) return {};
    return field.name + ": expected " + field.value + ", actual " + world_->text(field, actual);
  }

  std::unique_ptr<World> world_;
  bool in_burst_ = false;
};

/// The line at which the script failed, and how; line 0: it did not.
struct Failure {
  std::size_t line = 0;
  std::string message;
  bool syntax = false;
};

Failure failure_of(const Script& script) {
  std::size_t number = script.lines.front().number;
  std::string text = script.lines.front().text;
  try {
    Runner runner(script);
    for (const Line& line : script.lines) {
      number = line.number;
      text = line.text;
      runner.execute(line);
    }
    number = script.last_line;
    text = "the end of the script";
    runner.finish();
  } catch (const Mismatch& mismatch) {
    return {number, script.name + ":" + std::to_string(number) + ": " + text + "\n" + mismatch.what(), false};
  } catch (const SyntaxError& error) {
    return {number, script.name + ":" + std::to_string(number) + ": " + error.what(), true};
  }
  return {};
}

}  // namespace

Result run(const Script& script) {
  const Failure failure = failure_of(script);
  if (!script.expected_failure || failure.syntax) return {failure.line == 0, failure.message};
  const ExpectedFailure& mark = *script.expected_failure;
  const std::string where = script.name + ":" + std::to_string(mark.line) + ": " + mark.text;
  if (failure.line == 0) return {false, where + "\n  it passes: remove the mark"};
  if (failure.line < mark.line)
    return {false, failure.message + "\n  that is before the mark of line " + std::to_string(mark.line)};
  return {true, failure.message};
}

Result run_text(const std::string& name, std::string_view text) {
  try {
    return run(parse(name, text));
  } catch (const SyntaxError& error) {
    return {false, error.what()};
  }
}

Result run_file(const std::string& path) {
  std::ifstream in(path);
  if (!in) return {false, path + ": can't be read"};
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  const std::size_t folder = path.find_last_of('/', path.find_last_of('/') - 1);
  return run_text(path.substr(folder + 1), text);
}

}  // namespace uroce::script
