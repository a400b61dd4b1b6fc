#include "rsocket/endpoint.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <new>

namespace uroce::rdmacm {
namespace {

constexpr std::uint32_t kLeastQueue = 16;

std::size_t whole_pages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

int last_error() { return errno != 0 ? -errno : -EIO; }

std::uint64_t address_of(const void* at) { return reinterpret_cast<std::uint64_t>(at); }

}  // namespace

int Endpoint::create(rdma_cm_id* id, EndpointConfig config) {
  config_ = config;
  id_ = id;
  ibv_device_attr device{};
  if (ibv_query_device(id->verbs, &device) != 0) return last_error();
  const auto most = static_cast<std::uint32_t>(std::min(device.max_qp_wr, 0xfffe));
  config_.sq_size = std::clamp(config_.sq_size, kLeastQueue, most);
  config_.rq_size = std::clamp(config_.rq_size, kLeastQueue, most - StreamFlow::kSpareReceives);
  config_.receive_buffer = std::max(config_.receive_buffer & ~1u, 2u);
  config_.send_buffer = std::max(config_.send_buffer, 1u);
  if (const int failed = create_queues(id)) return failed;
  if (const int failed = create_memory()) return failed;
  return post_receives(config_.rq_size + StreamFlow::kSpareReceives);
}

int Endpoint::create_queues(rdma_cm_id* id) {
  pd_ = ibv_alloc_pd(id->verbs);
  if (pd_ == nullptr) return last_error();
  channel_ = ibv_create_comp_channel(id->verbs);
  if (channel_ == nullptr) return last_error();
  // Several threads may poll the same event: the late ones must not block.
  if (fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK) != 0) return last_error();
  const std::uint32_t receives = config_.rq_size + StreamFlow::kSpareReceives;
  cq_ = ibv_create_cq(id->verbs, static_cast<int>(config_.sq_size + receives), nullptr, channel_, 0);
  if (cq_ == nullptr) return last_error();
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = cq_;
  attr.qp_type = IBV_QPT_RC;
  attr.sq_sig_all = 1;
  attr.cap.max_send_wr = config_.sq_size;
  attr.cap.max_recv_wr = receives;
  attr.cap.max_send_sge = 2;
  attr.cap.max_recv_sge = 1;
  attr.cap.max_inline_data = config_.inline_size;
  if (rdma_create_qp(id, pd_, &attr) != 0) return last_error();
  qp_ = id->qp;
  config_.inline_size = attr.cap.max_inline_data;
  return 0;
}

int Endpoint::create_memory() {
  const std::size_t list = kTargets * sizeof(Target) + config_.iomap_entries * sizeof(IomapEntry);
  const std::size_t send = config_.send_buffer + StreamFlow::kControlSlots * sizeof(Target);
  receive_at_ = whole_pages(list);
  send_at_ = receive_at_ + whole_pages(config_.receive_buffer);
  memory_size_ = send_at_ + whole_pages(send);
  void* area = mmap(nullptr, memory_size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (area == MAP_FAILED) return last_error();
  memory_ = static_cast<std::byte*>(area);
  constexpr int kRemote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  list_mr_ = ibv_reg_mr(pd_, memory_, list, kRemote);
  if (list_mr_ == nullptr) return last_error();
  receive_mr_ = ibv_reg_mr(pd_, receive_buffer(), config_.receive_buffer, kRemote);
  if (receive_mr_ == nullptr) return last_error();
  send_mr_ = ibv_reg_mr(pd_, send_buffer(), send, 0);
  return send_mr_ != nullptr ? 0 : last_error();
}

void Endpoint::destroy() {
  if (qp_ != nullptr) rdma_destroy_qp(id_);
  qp_ = nullptr;
  for (ibv_mr** mr : {&list_mr_, &receive_mr_, &send_mr_}) {
    if (*mr != nullptr) ibv_dereg_mr(*mr);
    *mr = nullptr;
  }
  if (memory_ != nullptr) munmap(memory_, memory_size_);
  memory_ = nullptr;
  if (cq_ != nullptr) ibv_destroy_cq(cq_);
  cq_ = nullptr;
  if (channel_ != nullptr) ibv_destroy_comp_channel(channel_);
  channel_ = nullptr;
  if (pd_ != nullptr) ibv_dealloc_pd(pd_);
  pd_ = nullptr;
}

ConnectPrivateData Endpoint::private_data() const {
  ConnectPrivateData g;
  g.flags = ConnectPrivateData::kHasIomap |
            (std::endian::native == std::endian::big ? ConnectPrivateData::kBigEndian : 0);
  g.credits = static_cast<std::uint16_t>(config_.rq_size);
  g.iomap_scale = iomap_scale(config_.iomap_entries);
  g.list = {address_of(memory_), list_mr_->rkey, kTargets};
  g.buffer = {address_of(receive_buffer()), receive_mr_->rkey, config_.receive_buffer / 2};
  return g;
}

int Endpoint::post_receives(std::uint32_t count) {
  std::array<ibv_recv_wr, 32> wrs;
  while (count > 0) {
    const auto now = std::min<std::uint32_t>(count, wrs.size());
    for (std::uint32_t i = 0; i < now; ++i) {
      wrs[i] = {};
      wrs[i].wr_id = kReceiveWrId;
      wrs[i].next = i + 1 < now ? &wrs[i + 1] : nullptr;
    }
    ibv_recv_wr* bad = nullptr;
    if (const int failed = ibv_post_recv(qp_, wrs.data(), &bad)) return -failed;
    count -= now;
  }
  return 0;
}

int Endpoint::post_write(std::uint64_t wr_id, ibv_sge* sges, int count, std::uint64_t addr, std::uint32_t key,
                         const std::uint32_t* imm, bool inline_data) {
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = wr_id;
  wr.sg_list = sges;
  wr.num_sge = count;
  wr.opcode = imm != nullptr ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
  if (imm != nullptr) wr.imm_data = htobe32(*imm);
  wr.send_flags = inline_data ? IBV_SEND_INLINE : 0;
  wr.wr.rdma.remote_addr = addr;
  wr.wr.rdma.rkey = key;
  return -ibv_post_send(qp_, &wr, &bad);
}

int Endpoint::post(const StreamFlow::Write& w, bool with_imm) {
  ibv_sge sges[2];
  sges[0] = {address_of(send_buffer() + w.source.offset), w.source.first, send_mr_->lkey};
  sges[1] = {address_of(send_buffer()), w.source.second, send_mr_->lkey};
  return post_write(w.wr_id, sges, w.source.second > 0 ? 2 : 1, w.remote_addr, w.key, with_imm ? &w.imm : nullptr,
                    false);
}

int Endpoint::post_inline(const StreamFlow::Write& w, const void* data, std::uint32_t length, bool with_imm) {
  ibv_sge sge{address_of(data), length, 0};
  return post_write(w.wr_id, &sge, 1, w.remote_addr, w.key, with_imm ? &w.imm : nullptr, true);
}

int Endpoint::post_update(const StreamFlow::Update& u, const Target& list, bool swap) {
  if (!u.has_target) return post_control(u.wr_id, &u.imm);
  Target target{address_of(receive_buffer() + u.buffer_offset), receive_mr_->rkey, u.buffer_length};
  if (swap) target = swapped(target);
  const std::uint64_t to = list.addr + u.target_index * sizeof(Target);
  ibv_sge sge{address_of(&target), sizeof(target), 0};
  const bool inline_data = config_.inline_size >= sizeof(target);
  if (!inline_data) {
    std::byte* slot = send_buffer() + config_.send_buffer + u.control_slot * sizeof(Target);
    std::memcpy(slot, &target, sizeof(target));
    sge = {address_of(slot), sizeof(target), send_mr_->lkey};
  }
  return post_write(u.wr_id, &sge, 1, to, list.key, &u.imm, inline_data);
}

int Endpoint::post_control(std::uint64_t wr_id, const std::uint32_t* imm) {
  return post_write(wr_id, nullptr, 0, 0, 0, imm, false);
}

}  // namespace uroce::rdmacm
