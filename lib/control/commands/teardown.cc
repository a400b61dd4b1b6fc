// Releases a session's objects when its client closes the device or dies: in steps, of which each ends early when a
// slice has taken its time.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "control/commands/command.h"
#include "control/state/worker_commands.h"
#include "platform/clock.h"

namespace uroce::control::commands {
namespace {

// Objects for each command: a worker serves other sessions between two commands.
constexpr std::size_t kBatch = 64;

struct Work {
  ControlState& state;
  EventRouter& events;
  LinkControl& link;
  Session& session;
};

/// Up to kBatch objects of a table, from `handle` on.
template <class T>
std::vector<std::pair<std::uint32_t, T*>> batch_of(const HandleTable<T>& table, std::uint32_t handle = 0) {
  std::vector<std::pair<std::uint32_t, T*>> batch;
  for (auto it = table.from(handle); it != table.end() && batch.size() < kBatch; ++it) {
    batch.emplace_back(it->first, it->second.get());
  }
  return batch;
}

/// Returns whether the table is empty now.
template <class T>
bool erase(HandleTable<T>& table, const std::vector<std::pair<std::uint32_t, T*>>& batch) {
  for (const auto& [handle, object] : batch) table.erase(handle);
  return table.size() == 0;
}
template <class T>
bool erase_batch(HandleTable<T>& table) {
  return erase(table, batch_of(table));
}

// Each step does a bounded amount of work and returns whether it has nothing left to do.

// First, so that the workers no longer serve doorbells of this session, and no request of it goes on.
bool detach(Work& work) {
  Session& session = work.session;
  if (const auto pending = std::exchange(session.pending, std::nullopt)) work.link.cancel(pending->waiter);
  if (!session.hello_done) return true;
  for (std::uint32_t w = 0; w < session.ports.size(); ++w) {
    work.state.worker(w).call(worker_commands::DetachSession{*session.ports[w]});
  }
  return true;
}

bool remove_flows(Work& work) {
  const auto batch = batch_of(work.session.flows);
  std::vector<std::uint64_t> ids;
  for (const auto& [handle, flow] : batch) ids.push_back(flow->id);
  if (!ids.empty()) work.state.link_worker().call(worker_commands::RemoveFlows{ids});
  return erase(work.session.flows, batch);
}

bool release_rss(Work& work) {
  const auto batch = batch_of(work.session.rss);
  for (const auto& [handle, rss] : batch) work.state.qpns(worker::kLinkWorker).release(rss->qpn);
  return erase(work.session.rss, batch);
}

bool destroy_qps(Work& work) {
  ControlState& state = work.state;
  Session& session = work.session;
  const auto batch = batch_of(session.qps);
  for (std::uint32_t w = 0; w < session.ports.size(); ++w) {
    std::vector<proto::QpIndex> mine;
    for (const auto& [handle, qp] : batch) {
      if (qp->worker == w && !qp->target) mine.push_back(qp->index);
    }
    if (mine.empty()) continue;
    state.qps_of_worker(w) -= static_cast<std::uint32_t>(mine.size());
    state.worker(w).call(worker_commands::DestroyQps{mine});
  }
  for (const auto& [handle, qp] : batch) {
    work.events.remove_qp(session, *qp);
    for (const QpObject::Group& group : qp->groups) work.link.leave_group(session.peer.uid, group.address);
    if (qp->target) {
      release_xrc_target(state, *qp->target);
    } else {
      state.release_qpn(qp->worker, qp->qpn);
    }
  }
  return erase(session.qps, batch);
}

bool retire_windows(Work& work) {
  const auto batch = batch_of(work.session.mws, work.session.closing.next_window);
  for (const auto& [handle, mw] : batch) {
    if (!mw->retired) mw->retired = work.state.memory().retire(mw->key);
    work.session.closing.next_window = handle + 1;
  }
  if (batch.size() == kBatch) return false;
  work.session.closing.next_window = 0;
  return true;
}

bool retire_regions(Work& work) {
  Session::Closing& closing = work.session.closing;
  const auto batch = batch_of(work.session.mrs, closing.next_region);
  for (const auto& [handle, mr] : batch) {
    closing.next_region = handle + 1;
    if (work.state.memory().retire(mr->key)) continue;
    closing.bound.push_back(mr->key);
    if (closing.pds.insert(mr->pd->id.value).second) work.state.closing_pds().insert(mr->pd->id.value);
  }
  return batch.size() < kBatch;
}

// A session that imported this one's PD may have bound windows to its memory. It makes no others in that PD
// until this is done. The windows of all sessions are searched once, not for each MR.
bool retire_windows_of_others(Work& work) {
  constexpr std::size_t kLooks = 1024;
  Session::Closing& closing = work.session.closing;
  if (closing.bound.empty()) return true;
  const Sessions& sessions = work.state.sessions();
  std::size_t looks = 0;
  for (auto at = sessions.lower_bound(closing.next_session); at != sessions.end(); ++at) {
    const auto& [id, session] = *at;
    auto mw = session->mws.from(id == closing.next_session ? closing.next_window : 0);
    for (++looks; mw != session->mws.end() && looks < kLooks; ++mw, ++looks) {
      MwObject& window = *mw->second;
      if (!window.retired && closing.pds.contains(window.pd->id.value)) {
        window.retired = work.state.memory().retire(window.key);
      }
    }
    const bool all = mw == session->mws.end();
    closing.next_session = all ? id + 1 : id;
    closing.next_window = all ? 0 : mw->first;
    if (looks >= kLooks) return false;
  }
  return true;
}

bool retire_bound_regions(Work& work) {
  Session::Closing& closing = work.session.closing;
  for (std::size_t i = 0; i < kBatch && !closing.bound.empty(); ++i) {
    work.state.memory().retire(closing.bound.back());
    closing.bound.pop_back();
  }
  if (!closing.bound.empty()) return false;
  for (const std::uint32_t pd : std::exchange(closing.pds, {})) {
    work.state.closing_pds().erase(work.state.closing_pds().find(pd));
  }
  return true;
}

// After the last of these commands no worker uses the session's memory.
bool remove_objects(Work& work) {
  Session& session = work.session;
  if (!session.hello_done) return true;
  const auto srqs = batch_of(session.srqs);
  const auto cqs = batch_of(session.cqs);
  const auto ahs = batch_of(session.ahs);
  work.state.on_all_workers(worker_commands::RemoveObjects{session.id, srqs, cqs, ahs});
  for (const auto& [handle, srq] : srqs) {
    work.events.remove_srq(srq->id);
    work.state.srq_ids().release(srq->id.value);
  }
  for (const auto& [handle, cq] : cqs) {
    work.events.remove_cq(cq->id);
    work.state.cq_ids().release(cq->id.value);
  }
  for (const auto& [handle, ah] : ahs) work.state.ah_ids().release(handle);
  const bool no_srqs = erase(session.srqs, srqs), no_cqs = erase(session.cqs, cqs),
             no_ahs = erase(session.ahs, ahs);
  return no_srqs && no_cqs && no_ahs;
}

bool release_windows(Work& work) {
  const auto batch = batch_of(work.session.mws);
  for (const auto& [handle, mw] : batch) work.state.memory().release(mw->key);
  return erase(work.session.mws, batch);
}

// One at a time, since pages are unmapped.
bool release_region(Work& work) {
  Session& session = work.session;
  if (session.mrs.size() == 0) return true;
  const auto& [handle, mr] = *session.mrs.begin();
  work.state.memory().release(mr->key);
  session.memory.unmap(mr->hold);
  session.mrs.erase(handle);
  return false;
}

bool release_rest(Work& work) {
  Session& session = work.session;
  for (const auto& [handle, pd] : batch_of(session.pds)) {
    work.state.stall_watch().remove(proto::mark_of(pd->id), session.id);
  }
  const bool empty[] = {erase_batch(session.counters), erase_batch(session.comp_cntrs),
                        erase_batch(session.channels), erase_batch(session.xrcds),
                        erase_batch(session.dms),      erase_batch(session.pds)};
  return std::ranges::all_of(empty, [](bool is) { return is; });
}

bool release_queues(Work& work) {
  work.session.header = nullptr;
  return !work.session.arena.release_chunk();
}

constexpr bool (*kSteps[])(Work&) = {
    detach,
    remove_flows,
    release_rss,
    destroy_qps,
    retire_windows,
    retire_regions,
    retire_windows_of_others,
    retire_bound_regions,
    remove_objects,
    release_windows,
    release_region,
    release_rest,
    release_queues,
};

}  // namespace

bool release_some(ControlState& state, EventRouter& events, LinkControl& link, Session& session, Nanos end) {
  Work work{state, events, link, session};
  std::size_t& step = session.closing.step;
  while (step < std::size(kSteps)) {
    if (kSteps[step](work)) ++step;
    if (monotonic_now() >= end) break;
  }
  if (step < std::size(kSteps)) return false;
  if (session.connected_qps != 0) state.note_pollers_changed();
  return true;
}

}  // namespace uroce::control::commands
