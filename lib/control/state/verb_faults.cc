#include "control/state/verb_faults.h"

#include <fnmatch.h>

#include <algorithm>
#include <utility>

#include "control/diagnosis/rejections.h"
#include "control/state/state.h"
#include "control/state/worker_commands.h"

namespace uroce::control {
namespace {

/// QPs for each command: a worker does nothing else while it runs one.
constexpr std::size_t kBatch = 256;

/// Programs share XRC targets.
bool can_have_faults(const QpObject& qp) { return qp.target == nullptr; }

/// The stream of the QP under a rule that it has; 0: it has not.
std::uint64_t stream_of(const QpObject& qp, const proto::FaultRule& rule) {
  if (qp.faults == nullptr) return 0;
  for (const proto::QpFaults::Entry& entry : qp.faults->entries) {
    if (entry.rule.get() == &rule) return entry.stream;
  }
  return 0;
}

}  // namespace

bool VerbFault::selects(const Session& session) const {
  if (pid && *pid != session.peer.pid) return false;
  if (user && *user != session.peer.uid) return false;
  return !program || ::fnmatch(program->c_str(), session.program.c_str(), 0) == 0;
}

std::string VerbFaults::add(ControlState& state, std::string_view text) {
  if (rules_.size() >= kMost) {
    return "there are " + std::to_string(kMost) + " rules, and no more are allowed; remove one with " +
           "`urocectl fault verbs off NUMBER`";
  }
  auto rule = std::make_unique<Rule>();
  if (std::string problem = VerbFault::parse(text, rule->what); !problem.empty()) return problem;
  rule->number = ++last_number_;
  rule->effect = std::make_shared<proto::FaultRule>(rule->what.plan);
  const bool for_qps = rule->what.call == 0;
  rules_.push_back(std::move(rule));
  if (for_qps) apply(state);
  return {};
}

bool VerbFaults::remove(ControlState& state, std::uint32_t number) {
  if (std::erase_if(rules_, [number](const auto& rule) { return rule->number == number; }) == 0) return false;
  apply(state);
  return true;
}

void VerbFaults::remove_all(ControlState& state) {
  rules_.clear();
  apply(state);
}

std::unique_ptr<proto::QpFaults> VerbFaults::faults_of(const Session& session, const QpObject& qp) {
  std::unique_ptr<proto::QpFaults> faults;
  if (!can_have_faults(qp)) return faults;
  for (const auto& rule : rules_) {
    const VerbFault& what = rule->what;
    if (what.call != 0 || (what.qpn && *what.qpn != qp.qpn) || !what.selects(session)) continue;
    if (faults == nullptr) faults = std::make_unique<proto::QpFaults>();
    const std::uint64_t stream = stream_of(qp, *rule->effect);
    faults->entries.push_back({rule->effect, stream != 0 ? stream : ++rule->streams});
  }
  return faults;
}

const VerbFaults::Rule* VerbFaults::judge(Session& session, std::uint32_t command) {
  for (const auto& rule : rules_) {
    if (rule->what.call != command || !rule->what.selects(session)) continue;
    auto [seen, first] = session.fault_matches.try_emplace(rule->number);
    if (first) seen->second.stream = ++rule->streams;
    if (rule->effect->take(seen->second.stream, ++seen->second.matches)) return rule.get();
  }
  return nullptr;
}

void VerbFaults::count_qps(const ControlState& state) {
  for (const auto& rule : rules_) rule->qps = 0;
  for (const auto& [id, session] : state.sessions()) {
    for (const auto& [handle, qp] : session->qps) {
      if (qp->faults == nullptr) continue;
      for (const proto::QpFaults::Entry& entry : qp->faults->entries) {
        for (const auto& rule : rules_) rule->qps += rule->effect == entry.rule;
      }
    }
  }
}

void VerbFaults::apply(ControlState& state) {
  std::vector<worker_commands::SetFaults::Entry> changed;
  std::vector<std::unique_ptr<proto::QpFaults>> faults;
  const auto flush = [&] {
    state.on_all_workers(worker_commands::SetFaults{changed});
    // No worker uses the old ones any longer.
    for (std::size_t i = 0; i < changed.size(); ++i) changed[i].qp->faults = std::move(faults[i]);
    changed.clear();
    faults.clear();
  };
  for (const auto& [id, session] : state.sessions()) {
    for (const auto& [handle, qp] : session->qps) {
      auto next = faults_of(*session, *qp);
      if (next == nullptr && qp->faults == nullptr) continue;
      changed.push_back({qp.get(), next.get()});
      faults.push_back(std::move(next));
      if (changed.size() == kBatch) flush();
    }
  }
  if (!changed.empty()) flush();
}

}  // namespace uroce::control
