// The rules of `urocectl fault verbs`: which work requests and control commands of which programs fail, and how.
// The rules are an administrator's, and end with the daemon.
//
// Call contract. The control thread only. Workers hold pointers to the QpFaults of QPs: apply() to all QPs after a
// change, and QpFaults live as long as their QP (QpObject::faults).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/state/faults.h"
#include "proto/state/types.h"

namespace uroce::control {

class ControlState;
struct QpObject;
struct Session;

/// "RETRY_EXC_ERR" of an ibv_wc_status, "QP_ACCESS_ERR" of an ibv_event_type.
std::string_view status_name(std::uint32_t status);
std::string_view event_name(proto::AsyncEvent event);

/// One rule, as parsed from "prog=nccl*,op=WRITE,nth=100,status=RETRY_EXC_ERR".
struct VerbFault {
  std::string text;
  // Selects programs, and their QPs.
  std::optional<std::string> program;  ///< a pattern, as fnmatch(3) has it
  std::optional<pid_t> pid;
  std::optional<uid_t> user;
  std::optional<Qpn> qpn;
  /// Selects work requests of these, and says what happens to them; of a rule for a control command, only when.
  proto::FaultPlan plan;
  std::uint32_t call = 0;           ///< uroce_command or uroce_cm_command that fails; 0: the rule is for QPs
  std::optional<std::uint32_t> cm;  ///< CmEventType that takes the place of the call, which succeeds
  int error = 0;                    ///< errno of the call, or the status of that event

  /// Returns an error that names the value, what is allowed and what to do; empty: parsed.
  static std::string parse(std::string_view text, VerbFault& out);
  bool selects(const Session& session) const;
};

class VerbFaults {
 public:
  static constexpr std::size_t kMost = 64;  ///< rules

  struct Rule {
    std::uint32_t number = 0;  ///< from 1 on; not used again
    VerbFault what;
    std::shared_ptr<proto::FaultRule> effect;
    std::uint64_t streams = 0;  ///< QPs, or sessions, selected so far
    std::size_t qps = 0;        ///< selected now
  };

  /// Adds a rule, and applies it to the QPs that exist. Returns an error as VerbFault::parse() does.
  std::string add(ControlState& state, std::string_view text);
  /// False: there is no such rule.
  bool remove(ControlState& state, std::uint32_t number);
  void remove_all(ControlState& state);
  std::span<const std::unique_ptr<Rule>> rules() const { return rules_; }

  /// The rules that select a QP of the session; nullptr: none. What `qp` has by now stays unchanged.
  std::unique_ptr<proto::QpFaults> faults_of(const Session& session, const QpObject& qp);
  /// The rule that fires at this command of the session; nullptr: none.
  const Rule* judge(Session& session, std::uint32_t command);

  /// Counts the QPs that each rule selects, for a list.
  void count_qps(const ControlState& state);

 private:
  void apply(ControlState& state);

  std::vector<std::unique_ptr<Rule>> rules_;
  std::uint32_t last_number_ = 0;
};

}  // namespace uroce::control
