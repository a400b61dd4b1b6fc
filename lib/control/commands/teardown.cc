// What happens to a session's objects when its client goes, by whatever way.
#include <algorithm>

#include "control/commands/command.h"
#include "platform/clock.h"

namespace uroce::daemon::commands {
namespace {

// QPs a command: a worker serves other sessions between two of them.
constexpr std::size_t kBatch = 64;

void remove_flows(Conductor& conductor, const Session& session) {
  auto flow = session.flows.begin();
  while (flow != session.flows.end()) {
    conductor.workers().workers[0]->call([&](WorkerCore& worker) {
      for (std::size_t i = 0; i < kBatch && flow != session.flows.end(); ++i, ++flow) {
        worker.remove_flow(flow->second->id);
      }
    });
  }
  for (const auto& [handle, rss] : session.rss) conductor.qpns(0).release(rss->qpn);
}

void destroy_qps(Conductor& conductor, Session& session) {
  for (std::uint32_t w = 0; w < session.ports.size(); ++w) {
    std::vector<const QpObject*> mine;
    for (const auto& [handle, qp] : session.qps) {
      if (qp->worker == w && !qp->target) mine.push_back(qp.get());
    }
    conductor.qps_of_worker(w) -= static_cast<std::uint32_t>(mine.size());
    for (std::size_t first = 0; first < mine.size(); first += kBatch) {
      conductor.workers().workers[w]->call([&](WorkerCore& worker) {
        for (std::size_t i = first; i < std::min(first + kBatch, mine.size()); ++i) {
          worker.transport().destroy(mine[i]->index, monotonic_now());
        }
      });
    }
  }
  for (const auto& [handle, qp] : session.qps) {
    conductor.forget_qp(session, *qp);
    for (const wire::Address& group : qp->groups) conductor.leave_group(group);
    if (qp->target) {
      release_xrc_target(conductor, *qp->target);
    } else {
      conductor.qpns(qp->worker).release(qp->qpn);
    }
  }
}

// Windows of other sessions can be bound to this one's memory, when they have imported its PD.
void retire_windows(Conductor& conductor, PdId pd) {
  for (const auto& [id, session] : conductor.sessions()) {
    for (const auto& [handle, mw] : session->mws) {
      if (mw->pd->id == pd && !mw->retired) mw->retired = conductor.memory().retire(mw->key);
    }
  }
}

void retire_memory(Conductor& conductor, Session& session) {
  for (const auto& [handle, mw] : session.mws) {
    if (!mw->retired) mw->retired = conductor.memory().retire(mw->key);
  }
  for (const auto& [handle, mr] : session.mrs) {
    if (conductor.memory().retire(mr->key)) continue;
    retire_windows(conductor, mr->pd->id);
    conductor.memory().retire(mr->key);
  }
}

void release_memory(Conductor& conductor, Session& session) {
  for (const auto& [handle, mw] : session.mws) conductor.memory().release(mw->key);
  for (const auto& [handle, mr] : session.mrs) {
    conductor.memory().release(mr->key);
    session.memory.unmap(mr->hold);
  }
}

void release_numbers(Conductor& conductor, const Session& session) {
  for (const auto& [handle, cq] : session.cqs) {
    conductor.cq_targets().erase(cq->id.value);
    conductor.cq_ids().release(cq->id.value);
  }
  for (const auto& [handle, srq] : session.srqs) {
    conductor.srq_targets().erase(srq->id.value);
    conductor.srq_ids().release(srq->id.value);
  }
  for (const auto& [handle, ah] : session.ahs) conductor.ah_ids().release(handle);
}

}  // namespace

void release_all(Conductor& conductor, Session& session) {
  const bool attached = session.hello_done;
  // First the doors: no doorbell of this session is served any more.
  for (std::uint32_t w = 0; attached && w < session.ports.size(); ++w) {
    conductor.workers().workers[w]->call([&](WorkerCore& worker) { worker.detach(*session.ports[w]); });
  }
  remove_flows(conductor, session);
  destroy_qps(conductor, session);
  retire_memory(conductor, session);
  if (attached) {
    // This command is also the quiescent point after which no worker uses the memory.
    conductor.on_all_workers([&](WorkerCore& worker) {
      for (const auto& [handle, srq] : session.srqs) worker.transport().set_srq(srq->id, nullptr);
      for (const auto& [handle, cq] : session.cqs) worker.remove_cq(cq->id, cq->cq.get());
      for (const auto& [handle, ah] : session.ahs) {
        worker.transport().set_address_handle(AhId{handle}, PdId{}, nullptr);
      }
    });
  }
  release_memory(conductor, session);
  release_numbers(conductor, session);
  if (session.connected_qps != 0) conductor.heartbeat_now();
  conductor.refund(session, session.usage);
}

}  // namespace uroce::daemon::commands
