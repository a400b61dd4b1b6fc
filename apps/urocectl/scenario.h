// The files of urocectl play: which faults and link states come when (docs/faults.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace uroce::ctl {

/// One line. It waits for a time, or for a rule.
struct Step {
  enum class Action : std::uint8_t {
    kEnd,       ///< none: it only waits
    kAdd,       ///< a rule for frames
    kRemove,    ///< one of these rules of the scenario by its name, or all of them
    kAddVerbs,  ///< a rule for work requests or calls
    kRemoveVerbs,
    kLinkUp,
    kLinkDown,
  };

  unsigned line = 0;
  std::string text;  ///< after the time, as it was given
  double at_s = 0;
  bool after = false;             ///< at_s counts from the step before, else from the beginning
  std::string rule_device, rule;  ///< not empty: waits until this rule has matched `matches` frames
  std::uint64_t matches = 0;
  Action action = Action::kEnd;
  std::string device;
  std::string name;      ///< of a rule for frames: given, or made here; kRemove: empty is all
  std::string argument;  ///< the rule
};

/// Reads lines "WHEN DEVICE COMMAND" and "WHEN end". Returns an error that names the line, what is allowed and what
/// to do; empty: parsed.
std::string parse_scenario(const std::string& text, std::vector<Step>& steps);

}  // namespace uroce::ctl
