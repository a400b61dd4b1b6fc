// Releases a session's objects when its client closes the device or dies.
#include <algorithm>
#include <unordered_set>
#include <vector>

#include "control/commands/command.h"
#include "control/worker_commands.h"

namespace uroce::daemon::commands {
namespace {

// QPs for each command: a worker serves other sessions between two commands.
constexpr std::size_t kBatch = 64;

void remove_flows(ControlState& state, const Session& session) {
  std::vector<std::uint64_t> ids;
  for (const auto& [handle, flow] : session.flows) ids.push_back(flow->id);
  for (std::size_t first = 0; first < ids.size(); first += kBatch) {
    const auto batch = std::span(ids).subspan(first, std::min(kBatch, ids.size() - first));
    state.link_worker().call(worker_commands::RemoveFlows{batch});
  }
  for (const auto& [handle, rss] : session.rss) state.qpns(kLinkWorker).release(rss->qpn);
}

void destroy_qps(ControlState& state, EventRouter& events, LinkControl& link, Session& session) {
  for (std::uint32_t w = 0; w < session.ports.size(); ++w) {
    std::vector<proto::QpIndex> mine;
    for (const auto& [handle, qp] : session.qps) {
      if (qp->worker == w && !qp->target) mine.push_back(qp->index);
    }
    state.qps_of_worker(w) -= static_cast<std::uint32_t>(mine.size());
    for (std::size_t first = 0; first < mine.size(); first += kBatch) {
      const auto batch = std::span(mine).subspan(first, std::min(kBatch, mine.size() - first));
      state.worker(w).call(worker_commands::DestroyQps{batch});
    }
  }
  for (const auto& [handle, qp] : session.qps) {
    events.remove_qp(session, *qp);
    for (const QpObject::Group& group : qp->groups) link.leave_group(session.peer.uid, group.address);
    if (qp->target) {
      release_xrc_target(state, *qp->target);
    } else {
      state.release_qpn(qp->worker, qp->qpn);
    }
  }
}

// A session that imported this one's PD may have bound windows to its memory.
void retire_windows(ControlState& state, const std::unordered_set<std::uint32_t>& pds) {
  for (const auto& [id, session] : state.sessions()) {
    for (const auto& [handle, mw] : session->mws) {
      if (!mw->retired && pds.contains(mw->pd->id.value)) mw->retired = state.memory().retire(mw->key);
    }
  }
}

void retire_memory(ControlState& state, Session& session) {
  for (const auto& [handle, mw] : session.mws) {
    if (!mw->retired) mw->retired = state.memory().retire(mw->key);
  }
  // The windows of all sessions are searched once, not for each MR.
  std::unordered_set<std::uint32_t> pds;
  std::vector<Key> bound;
  for (const auto& [handle, mr] : session.mrs) {
    if (state.memory().retire(mr->key)) continue;
    pds.insert(mr->pd->id.value);
    bound.push_back(mr->key);
  }
  if (bound.empty()) return;
  retire_windows(state, pds);
  for (const Key key : bound) state.memory().retire(key);
}

void release_memory(ControlState& state, Session& session) {
  for (const auto& [handle, mw] : session.mws) state.memory().release(mw->key);
  for (const auto& [handle, mr] : session.mrs) {
    state.memory().release(mr->key);
    session.memory.unmap(mr->hold);
  }
}

void release_numbers(ControlState& state, EventRouter& events, const Session& session) {
  for (const auto& [handle, cq] : session.cqs) {
    events.remove_cq(cq->id);
    state.cq_ids().release(cq->id.value);
  }
  for (const auto& [handle, srq] : session.srqs) {
    events.remove_srq(srq->id);
    state.srq_ids().release(srq->id.value);
  }
  for (const auto& [handle, ah] : session.ahs) state.ah_ids().release(handle);
}

}  // namespace

void release_all(ControlState& state, EventRouter& events, LinkControl& link, Session& session) {
  const bool attached = session.hello_done;
  // First detach, so that the workers no longer serve doorbells of this session.
  for (std::uint32_t w = 0; attached && w < session.ports.size(); ++w) {
    state.worker(w).call(worker_commands::DetachSession{*session.ports[w]});
  }
  remove_flows(state, session);
  destroy_qps(state, events, link, session);
  retire_memory(state, session);
  if (attached) {
    // After this command no worker uses the session's memory.
    state.on_all_workers(worker_commands::RemoveObjects{session});
  }
  release_memory(state, session);
  release_numbers(state, events, session);
  if (session.connected_qps != 0) state.note_pollers_changed();
}

}  // namespace uroce::daemon::commands
