#include "buffers.h"

#include <endian.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "uroce/dv.h"

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
  const bool keys_change = mode_ == MemoryMode::kFastReg || mode_ == MemoryMode::kWindow;
  const int access = kAccess | (keys_change ? IBV_ACCESS_MW_BIND : 0);
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
  if (keys_change) prepare_keys();
}

void Buffers::prepare_keys() {
  if (mode_ == MemoryMode::kFastReg) {
    fast_ = uroce_dv_reg_fast_mr(connection_.pd(), memory_.data(), 2 * room_, kAccess);
    if (fast_ != nullptr) {
      key_ = fast_->rkey;
      return;
    }
    std::fprintf(stderr,
                 "uroce-ping: %s does not support fast registration: using keys of a type 2 memory window\n",
                 connection_.device().c_str());
  }
  window_ = ibv_alloc_mw(connection_.pd(), IBV_MW_TYPE_2);
  if (window_ == nullptr) fail_errno("ibv_alloc_mw of type 2 (give mem_mode=dma or mr)");
  key_ = window_->rkey;
}

Buffers::~Buffers() {
  if (window_ != nullptr) ibv_dealloc_mw(window_);
  if (fast_ != nullptr) ibv_dereg_mr(fast_);
  for (ibv_mr* region : regions_) {
    if (region != nullptr) ibv_dereg_mr(region);
  }
}

ibv_sge Buffers::part(std::size_t which, std::uint32_t bytes) const {
  const std::size_t begin = which < 2 ? which * room_ : 2 * room_ + (which - 2) * kLine;
  const ibv_mr* region = regions_[regions_.size() == 1 ? 0 : which];
  return {reinterpret_cast<std::uint64_t>(memory_.data() + begin), bytes, region->lkey};
}

ibv_sge Buffers::sink_part() const {
  ibv_sge sink = part(1, size_);
  if (valid_ && fast()) sink.lkey = key_;
  return sink;
}

std::uint32_t Buffers::remote_key(bool sink) const {
  if (window_ != nullptr || fast()) return key_;
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
  if (valid_) unregister_now();
  key_ = ibv_inc_rkey(key_);
  valid_ = true;
  std::byte* const begin = sink ? this->sink() : source();
  if (fast()) {
    if (const int problem =
            uroce_dv_post_reg_mr(connection_.qp(), kBound, IBV_SEND_SIGNALED, fast_, key_, begin, size_, kAccess);
        problem != 0) {
      errno = problem;
      fail_errno("fast registration of " + std::to_string(size_) + " bytes");
    }
    return;
  }
  ibv_send_wr wr{};
  wr.wr_id = kBound;
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.bind_mw.mw = window_;
  wr.bind_mw.rkey = key_;
  wr.bind_mw.bind_info.mr = regions_[0];
  wr.bind_mw.bind_info.addr = reinterpret_cast<std::uint64_t>(begin);
  wr.bind_mw.bind_info.length = size_;
  wr.bind_mw.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  connection_.send(wr);
  window_->rkey = key_;  // ibv_post_send does not update the handle
}

void Buffers::unregister_now(ibv_send_wr* before) {
  if (!valid_) throw Failure("the key to invalidate is not valid");
  valid_ = false;
  ibv_send_wr wr{};
  wr.wr_id = kInvalidated;
  wr.opcode = IBV_WR_LOCAL_INV;
  wr.invalidate_rkey = key_;
  wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;  // after the READs that use the key
  if (before != nullptr) before->next = &wr;
  connection_.send(before != nullptr ? *before : wr);
}

void Buffers::invalidated(std::uint32_t key) {
  if (key != key_) {
    throw Failure("the server invalidated key " + std::to_string(key) + ", ours is " + std::to_string(key_));
  }
  valid_ = false;
}

}  // namespace uroce::ping
