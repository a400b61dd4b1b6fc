#include "buffers.h"

#include <endian.h>

#include <cstring>

namespace uroce::ping {
namespace {

constexpr std::size_t kLine = 64;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

}  // namespace

Buffers::Buffers(Connection& connection, const Options& options)
    : connection_(connection),
      mode_(options.memory),
      size_(options.size),
      room_((options.size + kLine - 1) / kLine * kLine),
      memory_(2 * room_ + 2 * kLine) {
  register_memory();
}

void Buffers::register_memory() {
  const bool windows = mode_ == MemoryMode::kFastReg;
  const int access = kAccess | (windows ? IBV_ACCESS_MW_BIND : 0);
  const struct {
    std::size_t begin, bytes;
  } pieces[] = {{0, room_}, {room_, room_}, {2 * room_, kLine}, {2 * room_ + kLine, kLine}};
  if (mode_ != MemoryMode::kMr) {
    regions_.push_back(ibv_reg_mr(connection_.pd(), memory_.data(), memory_.size(), access));
  } else {
    for (const auto& piece : pieces) {
      regions_.push_back(ibv_reg_mr(connection_.pd(), memory_.data() + piece.begin, piece.bytes, access));
    }
  }
  for (const ibv_mr* region : regions_) {
    if (region == nullptr) fail_errno("ibv_reg_mr of " + std::to_string(size_) + " bytes");
  }
  if (!windows) return;
  window_ = ibv_alloc_mw(connection_.pd(), IBV_MW_TYPE_2);
  if (window_ == nullptr) fail_errno("mem_mode=fastreg: ibv_alloc_mw of type 2 (give mem_mode=dma or mr)");
  window_key_ = window_->rkey;
}

Buffers::~Buffers() {
  if (window_ != nullptr) ibv_dealloc_mw(window_);
  for (ibv_mr* region : regions_) {
    if (region != nullptr) ibv_dereg_mr(region);
  }
}

ibv_sge Buffers::part(std::size_t which, std::uint32_t bytes) const {
  const std::size_t begin = which < 2 ? which * room_ : 2 * room_ + (which - 2) * kLine;
  const ibv_mr* region = regions_[regions_.size() == 1 ? 0 : which];
  return {reinterpret_cast<std::uint64_t>(memory_.data() + begin), bytes, region->lkey};
}

std::uint32_t Buffers::remote_key(bool sink) const {
  if (window_ != nullptr) return window_key_;
  return regions_[regions_.size() == 1 || !sink ? 0 : 1]->rkey;
}

void Buffers::post_receive() { connection_.receive(kReceive, part(3, kAdvertBytes)); }

Advert Buffers::received(const ibv_wc& wc) const {
  if (wc.byte_len != kAdvertBytes) {
    throw Failure("a message of " + std::to_string(wc.byte_len) + " bytes, expected " +
                  std::to_string(kAdvertBytes));
  }
  Advert advert;
  const std::byte* from = memory_.data() + 2 * room_ + kLine;
  std::memcpy(&advert.address, from, 8);
  std::memcpy(&advert.key, from + 8, 4);
  std::memcpy(&advert.bytes, from + 12, 4);
  advert.address = be64toh(advert.address);
  advert.key = be32toh(advert.key);
  advert.bytes = be32toh(advert.bytes);
  return advert;
}

void Buffers::advertise(bool sink, ibv_send_wr* before, ibv_send_wr* before_last) {
  const std::uint64_t address = htobe64(reinterpret_cast<std::uint64_t>(sink ? this->sink() : source()));
  const std::uint32_t key = htobe32(remote_key(sink)), bytes = htobe32(size_);
  std::byte* to = memory_.data() + 2 * room_;
  std::memcpy(to, &address, 8);
  std::memcpy(to + 8, &key, 4);
  std::memcpy(to + 12, &bytes, 4);
  ibv_sge message = part(2, kAdvertBytes);
  ibv_send_wr wr{};
  wr.wr_id = kAdvertSent;
  wr.sg_list = &message;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  if (before == nullptr) return connection_.send(wr);
  before_last->next = &wr;
  connection_.send(*before);
}

void Buffers::go_ahead(std::uint32_t key) {
  std::memset(memory_.data() + 2 * room_, 0, kAdvertBytes);
  ibv_sge message = part(2, kAdvertBytes);
  ibv_send_wr wr{};
  wr.wr_id = kGoAhead;
  wr.sg_list = &message;
  wr.num_sge = 1;
  wr.opcode = key != 0 ? IBV_WR_SEND_WITH_INV : IBV_WR_SEND;
  wr.invalidate_rkey = key;
  wr.send_flags = IBV_SEND_SIGNALED;
  connection_.send(wr);
}

void Buffers::register_now(bool sink) {
  if (bound_) unregister_now();
  window_key_ = ibv_inc_rkey(window_key_);
  ibv_send_wr wr{};
  wr.wr_id = kBound;
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.bind_mw.mw = window_;
  wr.bind_mw.rkey = window_key_;
  wr.bind_mw.bind_info.mr = regions_[0];
  wr.bind_mw.bind_info.addr = reinterpret_cast<std::uint64_t>(sink ? this->sink() : source());
  wr.bind_mw.bind_info.length = size_;
  wr.bind_mw.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  connection_.send(wr);
  window_->rkey = window_key_;  // nobody else keeps the handle up to date
  bound_ = true;
}

void Buffers::unregister_now() {
  if (!bound_) return;
  bound_ = false;
  ibv_send_wr wr{};
  wr.wr_id = kInvalidated;
  wr.opcode = IBV_WR_LOCAL_INV;
  wr.invalidate_rkey = window_key_;
  wr.send_flags = IBV_SEND_SIGNALED;
  connection_.send(wr);
}

void Buffers::invalidated(std::uint32_t key) {
  if (key != window_key_) {
    throw Failure("the server invalidated key " + std::to_string(key) + ", ours is " + std::to_string(window_key_));
  }
  bound_ = false;
}

}  // namespace uroce::ping
