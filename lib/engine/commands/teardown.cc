// What happens to a session's objects when its client goes, by whatever way.
#include <algorithm>

#include "engine/commands/commands.h"

namespace uroce::engine::commands {
namespace {

// QPs a command: a worker serves other sessions between two of them.
constexpr std::size_t kBatch = 64;

void destroy_qps(Conductor& conductor, Session& session) {
  for (std::uint32_t w = 0; w < session.ports.size(); ++w) {
    std::vector<const QpObject*> mine;
    for (const auto& [handle, qp] : session.qps) {
      if (qp->worker == w) mine.push_back(qp.get());
    }
    conductor.qps_of_worker(w) -= static_cast<std::uint32_t>(mine.size());
    for (std::size_t first = 0; first < mine.size(); first += kBatch) {
      conductor.workers().workers[w]->call([&](WorkerCore& worker) {
        for (std::size_t i = first; i < std::min(first + kBatch, mine.size()); ++i) {
          worker.transport().destroy(mine[i]->index);
        }
      });
    }
  }
  for (const auto& [handle, qp] : session.qps) {
    conductor.qp_targets().erase(qp->qpn.value);
    conductor.qpns(qp->worker).release(qp->qpn);
  }
}

}  // namespace

void release_all(Conductor& conductor, Session& session) {
  const bool attached = session.greeted;
  // First the doors: no doorbell of this session is served any more.
  for (std::uint32_t w = 0; attached && w < session.ports.size(); ++w) {
    conductor.workers().workers[w]->call([&](WorkerCore& worker) { worker.detach(*session.ports[w]); });
  }
  destroy_qps(conductor, session);
  for (const auto& [handle, mr] : session.mrs) conductor.memory().retire(mr->key);
  if (attached) {
    // This command is also the quiescent point after which no worker uses the memory.
    conductor.on_all_workers([&](WorkerCore& worker) {
      for (const auto& [handle, cq] : session.cqs) worker.remove_cq(cq->id, cq->cq.get());
    });
  }
  for (const auto& [handle, mr] : session.mrs) {
    conductor.memory().release(mr->key);
    session.memory.unmap(mr->hold);
  }
  for (const auto& [handle, cq] : session.cqs) {
    conductor.cq_targets().erase(cq->id.value);
    conductor.release_cq_id(cq->id);
  }
  if (session.connected_qps != 0) conductor.hurry_heartbeat();
  conductor.refund(session, session.usage);
}

}  // namespace uroce::engine::commands
