#include "control/state/worker_commands.h"

#include <bit>

namespace uroce::control::worker_commands {

using worker::WorkerCore;

void RemoveObjects::run(WorkerCore& worker) {
  for (const auto& [handle, srq] : srqs) worker.transport().set_srq(srq->id, nullptr);
  for (const auto& [handle, cq] : cqs) worker.remove_cq(cq->id, cq->cq.get());
  for (const auto& [handle, ah] : ahs) {
    worker.transport().set_address_handle(AhId{handle}, PdId{}, nullptr);
  }
}

void CreateQp::run(WorkerCore& worker) {
  if (port != nullptr && port->qp_of_bit.size() <= bit) {
    port->qp_of_bit.resize(std::bit_ceil(bit + 64), worker::SessionPort::kNoQp);
  }
  error = worker.transport().create(create, index);
  if (error == 0 && port != nullptr) port->qp_of_bit[bit] = index.value;
}

void DestroyQp::run(WorkerCore& worker) {
  if (port != nullptr) port->qp_of_bit[bit] = worker::SessionPort::kNoQp;
  worker.transport().destroy(index, worker.now());
}

// The link stack may have frames to send after each of these.

void ResolveNeighbour::run(WorkerCore& worker) {
  if (worker.link() == nullptr) return;
  resolution = worker.link()->resolve(destination, worker.now(), mac, vlan);
  worker.touch_link();
}

void ResolveNeighbours::run(WorkerCore& worker) {
  for (const NeighbourKey& key : keys) {
    ResolveNeighbour one{key.destination, key.vlan};
    one.run(worker);
    results[key] = {one.resolution, one.mac};
  }
}

void JoinGroup::run(WorkerCore& worker) {
  if (worker.link() == nullptr) return;
  worker.link()->join(group, worker.now());
  worker.touch_link();
}

void LeaveGroup::run(WorkerCore& worker) {
  if (worker.link() == nullptr) return;
  worker.link()->leave(group, worker.now());
  worker.touch_link();
}

void AddAddress::run(WorkerCore& worker) {
  if (worker.link() == nullptr) return;
  worker.link()->add_address(address);
  worker.touch_link();
}

void AnnounceAddresses::run(WorkerCore& worker) {
  if (worker.link() == nullptr) return;
  worker.link()->announce_all();
  worker.touch_link();
}

void RemoveAddress::run(WorkerCore& worker) {
  if (worker.link() == nullptr) return;
  worker.link()->remove_address(address);
  worker.touch_link();
}

void LeaveToKernel::run(WorkerCore& worker) {
  if (worker.link() != nullptr) worker.link()->leave_to_kernel(addresses);
}

void SetGateways::run(WorkerCore& worker) {
  if (worker.link() != nullptr) worker.link()->set_gateways(v4, v6);
}

void SetMtu::run(WorkerCore& worker) {
  worker.transport().set_port_mtu(path_mtu);
  worker.transport().set_max_frame(max_frame_of_link(link_mtu));
  if (worker.link() != nullptr) worker.link()->set_mtu(link_mtu);
}

}  // namespace uroce::control::worker_commands
