#include "tests/sim/model.h"

#include <algorithm>
#include <cstring>
#include <sstream>

#include "proto/rc/direct_placement.h"

namespace uroce::sim {

void fail(const std::string& what) { throw Violation(what); }

std::string text(const uroce_cqe& cqe) {
  std::ostringstream out;
  out << "CQE QPN " << cqe.qpn << " wr_id " << std::hex << cqe.wr_id << std::dec << " status " << int{cqe.status}
      << " opcode " << int{cqe.opcode} << " byte_len " << cqe.byte_len << " flags " << int{cqe.wc_flags};
  return out.str();
}

namespace {

std::uint8_t completion_opcode(std::uint8_t opcode) {
  switch (opcode) {
    case UROCE_WR_RDMA_WRITE:
    case UROCE_WR_RDMA_WRITE_WITH_IMM: return UROCE_WC_RDMA_WRITE;
    case UROCE_WR_RDMA_READ: return UROCE_WC_RDMA_READ;
    case UROCE_WR_ATOMIC_CMP_AND_SWP: return UROCE_WC_COMP_SWAP;
    case UROCE_WR_ATOMIC_FETCH_AND_ADD: return UROCE_WC_FETCH_ADD;
    case UROCE_WR_LOCAL_INV: return UROCE_WC_LOCAL_INV;
    case UROCE_WR_BIND_MW: return UROCE_WC_BIND_MW;
    case UROCE_WR_REG_MR: return UROCE_WC_REG_MR;
    case UROCE_WR_ATOMIC_WRITE: return UROCE_WC_ATOMIC_WRITE;
    case UROCE_WR_FLUSH: return UROCE_WC_FLUSH;
    default: return UROCE_WC_SEND;
  }
}

/// Calls visit(arena offset, payload offset, bytes) for the pieces that a payload of `length` fills.
template <class Visit>
void over_pieces(const std::vector<Piece>& pieces, std::size_t length, Visit&& visit) {
  std::size_t done = 0;
  for (const Piece& piece : pieces) {
    const std::size_t bytes = std::min<std::size_t>(piece.length, length - done);
    if (bytes != 0) visit(piece.offset, done, bytes);
    done += bytes;
  }
}

void expect_landed(const std::vector<Piece>& pieces, const std::vector<std::byte>& payload,
                   const std::vector<std::byte>& arena, const std::string& who) {
  over_pieces(pieces, payload.size(), [&](std::size_t at, std::size_t from, std::size_t bytes) {
    if (std::memcmp(&arena[at], &payload[from], bytes) != 0) {
      std::size_t i = 0;
      while (arena[at + i] == payload[from + i]) ++i;
      fail("wrong data at its completion, byte " + std::to_string(from + i) + " of " +
           std::to_string(payload.size()) + ": " + who);
    }
  });
}

void book_success(Flow& flow, const uroce_cqe& cqe, const std::vector<std::byte>& arena) {
  std::size_t index = flow.completed;
  const auto check = [&](const Work& work) {
    if (work.must_fail != 0) fail("success where an error must be: " + describe(work) + ", " + text(cqe));
    if (work.lands) expect_landed(work.local, work.payload, arena, describe(work));
  };
  for (; index < flow.works.size() && !flow.works[index].signaled; ++index) check(flow.works[index]);
  if (index == flow.works.size()) fail("completion of no work: " + text(cqe));
  const Work& work = flow.works[index];
  check(work);
  if (cqe.wr_id != work.entry.wr_id)
    fail("completion out of order or lost: " + text(cqe) + ", due " + describe(work));
  if (cqe.opcode != completion_opcode(work.entry.opcode))
    fail("wrong opcode: " + text(cqe) + ", " + describe(work));
  if (work.lands && cqe.byte_len != work.length) fail("wrong byte_len: " + text(cqe) + ", " + describe(work));
  flow.completed = flow.succeeded = index + 1;
}

void book_failure(Flow& flow, const uroce_cqe& cqe, const Surroundings& around,
                  const std::vector<std::byte>& arena) {
  // Unsignaled successes before it say nothing: the first one that has this wr_id and is reachable.
  std::size_t index = flow.completed;
  while (index < flow.works.size() && flow.works[index].entry.wr_id != cqe.wr_id) {
    const Work& skipped = flow.works[index];
    if (skipped.signaled) fail("error overtakes a signaled work: " + text(cqe) + ", due " + describe(skipped));
    if (skipped.must_fail != 0) fail("a bad work passed: " + describe(skipped) + ", " + text(cqe));
    if (skipped.lands) expect_landed(skipped.local, skipped.payload, arena, describe(skipped));
    ++index;
  }
  if (index == flow.works.size()) fail("error completion of no work: " + text(cqe));
  const Work& work = flow.works[index];
  const std::uint32_t bit = status_bit(cqe.status);
  std::uint32_t allowed = work.must_fail;
  const bool cut_off = around.peer_in_error || around.network_dead;
  if (cut_off && !(around.nak_must_arrive && work.must_fail != 0)) allowed |= status_bit(UROCE_WC_RETRY_EXC_ERR);
  if (around.own_in_error && cqe.status == UROCE_WC_WR_FLUSH_ERR) allowed |= bit;
  if (around.rnr_may_exhaust && work.consumes) allowed |= status_bit(UROCE_WC_RNR_RETRY_EXC_ERR);
  if ((allowed & bit) == 0) fail("unexpected error: " + text(cqe) + ", " + describe(work));
  flow.failed = true;
  flow.succeeded = index;
  flow.completed = index + 1;
}

}  // namespace

std::string describe(const Work& work) {
  std::ostringstream out;
  out << "work " << std::hex << work.entry.wr_id << std::dec << " opcode " << int{work.entry.opcode} << " flags "
      << int{work.entry.flags} << " length " << work.length << " sges " << work.sges.size() << " target "
      << work.target << " must_fail " << std::hex << work.must_fail;
  return out.str();
}

void settle(Flow& flow) {
  while (flow.settled < flow.consuming.size() && flow.settled < flow.receives.size()) {
    Work& work = flow.works[flow.consuming[flow.settled]];
    const Receive& receive = flow.receives[flow.settled++];
    if (work.must_fail != 0 || work.entry.opcode == UROCE_WR_RDMA_WRITE_WITH_IMM) continue;
    if (receive.bad_key && work.length != 0) {
      work.must_fail = status_bit(UROCE_WC_REM_OP_ERR);
      work.must_fail_receiver = status_bit(UROCE_WC_LOC_PROT_ERR);
    } else if (work.length > receive.capacity) {
      work.must_fail = status_bit(UROCE_WC_REM_INV_REQ_ERR);
      work.must_fail_receiver = status_bit(UROCE_WC_LOC_LEN_ERR);
    }
  }
}

void apply(Work& work, std::vector<std::byte>& requester_image, std::vector<std::byte>& responder_image) {
  std::byte* target = responder_image.data() + work.target;
  switch (work.entry.opcode) {
    case UROCE_WR_RDMA_WRITE:
    case UROCE_WR_RDMA_WRITE_WITH_IMM:
    case UROCE_WR_ATOMIC_WRITE:
      if (work.length != 0) std::memcpy(target, work.payload.data(), work.length);
      return;
    case UROCE_WR_RDMA_READ: work.payload.assign(target, target + work.length); break;
    case UROCE_WR_ATOMIC_CMP_AND_SWP:
    case UROCE_WR_ATOMIC_FETCH_AND_ADD: {
      work.payload.assign(target, target + 8);
      std::uint64_t value;
      std::memcpy(&value, target, 8);
      const auto& atomic = work.entry.atomic;
      if (work.entry.opcode == UROCE_WR_ATOMIC_FETCH_AND_ADD) {
        value += atomic.compare_add;
      } else if (value == atomic.compare_add) {
        value = atomic.swap;
      }
      std::memcpy(target, &value, 8);
      break;
    }
    default: return;
  }
  over_pieces(work.local, work.length, [&](std::size_t at, std::size_t from, std::size_t bytes) {
    std::memcpy(&requester_image[at], &work.payload[from], bytes);
  });
}

void on_send_completion(Flow& flow, const uroce_cqe& cqe, const Surroundings& around,
                        const std::vector<std::byte>& arena) {
  if (flow.failed) {
    if (flow.works_done()) fail("completion of no work: " + text(cqe));
    const Work& work = flow.works[flow.completed];
    if (cqe.wr_id != work.entry.wr_id) fail("flush out of order or lost: " + text(cqe) + ", due " + describe(work));
    if (cqe.status != UROCE_WC_WR_FLUSH_ERR) fail("not flushed after an error: " + text(cqe));
    ++flow.completed;
  } else if (cqe.status == UROCE_WC_SUCCESS) {
    book_success(flow, cqe, arena);
  } else {
    book_failure(flow, cqe, around, arena);
  }
}

bool silent_rest(const Flow& flow) {
  return !flow.failed &&
         std::none_of(flow.works.begin() + static_cast<std::ptrdiff_t>(flow.completed), flow.works.end(),
                      [](const Work& work) { return work.signaled || work.must_fail != 0; });
}

void complete_rest(Flow& flow, const std::vector<std::byte>& arena) {
  for (; flow.completed < flow.works.size(); ++flow.completed) {
    const Work& work = flow.works[flow.completed];
    if (work.lands) expect_landed(work.local, work.payload, arena, describe(work));
  }
  if (!flow.failed) flow.succeeded = flow.completed;
}

void on_receive_completion(Flow& flow, const uroce_cqe& cqe, const Surroundings& around,
                           const std::vector<std::byte>& arena, Qpn requester) {
  if (flow.received == flow.receives.size()) fail("receive completion of no receive: " + text(cqe));
  const Receive& receive = flow.receives[flow.received];
  if (cqe.wr_id != receive.wr_id) fail("receive completion out of order or lost: " + text(cqe));
  if (cqe.status == UROCE_WC_WR_FLUSH_ERR) {
    if (!around.own_in_error) fail("receive flushed though its QP is well: " + text(cqe));
    flow.receive_failed = true;
    ++flow.received;
    return;
  }
  if (flow.receive_failed) fail("receive not flushed after an error: " + text(cqe));
  if (flow.received >= flow.consuming.size()) fail("receive completion of no message: " + text(cqe));
  const Work& work = flow.works[flow.consuming[flow.received]];
  ++flow.received;
  if (cqe.status != UROCE_WC_SUCCESS) {
    if ((work.must_fail_receiver & status_bit(cqe.status)) == 0) {
      fail("unexpected receive error: " + text(cqe) + ", " + describe(work));
    }
    flow.receive_failed = true;
    return;
  }
  if (work.must_fail != 0) fail("bad message received: " + text(cqe) + ", " + describe(work));
  flow.received_ok = flow.received;
  const bool write = work.entry.opcode == UROCE_WR_RDMA_WRITE_WITH_IMM;
  const bool invalidate = work.entry.opcode == UROCE_WR_SEND_WITH_INV;
  const bool immediate = write || work.entry.opcode == UROCE_WR_SEND_WITH_IMM;
  if (cqe.opcode != (write ? UROCE_WC_RECV_RDMA_WITH_IMM : UROCE_WC_RECV))
    fail("wrong receive opcode: " + text(cqe));
  if (cqe.byte_len != work.length) fail("wrong receive length: " + text(cqe) + ", " + describe(work));
  const int flags = (immediate ? UROCE_WC_WITH_IMM : 0) | (invalidate ? UROCE_WC_WITH_INV : 0);
  if (cqe.wc_flags != flags) fail("wrong receive flags: " + text(cqe) + ", " + describe(work));
  if (flags != 0 && cqe.imm_data != work.entry.imm_data) fail("wrong immediate: " + text(cqe));
  if (cqe.src_qp != requester.value) fail("wrong source QP: " + text(cqe));
  if (!write) expect_landed(receive.local, work.payload, arena, "receive of " + describe(work));
}

namespace {

/// The image of a zone while the works of a flow are replayed into it, and how far it is from what is there.
class Replay {
 public:
  Replay(const Memory& memory)
      : image_(memory.initial.begin() + static_cast<std::ptrdiff_t>(memory.target.offset),
               memory.initial.begin() + static_cast<std::ptrdiff_t>(memory.target.offset + memory.target.length)),
        actual_(memory.arena->data() + memory.target.offset),
        base_(memory.target.offset) {
    wrong_ = count(0, image_.size());
  }
  bool matches() const { return wrong_ == 0; }
  /// Whether the image matches when these bytes are ignored.
  bool matches_without(std::size_t arena_offset, std::size_t bytes) const {
    return wrong_ == count(arena_offset - base_, bytes);
  }
  void write(std::size_t arena_offset, const std::byte* from, std::size_t bytes) {
    const std::size_t at = arena_offset - base_;
    wrong_ -= count(at, bytes);
    std::memcpy(&image_[at], from, bytes);
    wrong_ += count(at, bytes);
  }
  std::uint64_t word(std::size_t arena_offset) const {
    std::uint64_t value;
    std::memcpy(&value, &image_[arena_offset - base_], 8);
    return value;
  }

 private:
  std::size_t count(std::size_t at, std::size_t bytes) const {
    if (std::memcmp(&image_[at], actual_ + at, bytes) == 0) return 0;
    std::size_t wrong = 0;
    for (std::size_t i = at; i < at + bytes; ++i) wrong += image_[i] != actual_[i];
    return wrong;
  }
  std::vector<std::byte> image_;
  const std::byte* actual_;
  std::size_t base_;
  std::size_t wrong_ = 0;
};

/// How many bytes of a message's packet at `next` may be garbage where it was cut off
/// (proto/rc/direct_placement.h).
std::size_t garbage_bytes(std::size_t length, std::size_t next, std::size_t mtu) {
  if (next == 0 || next >= length) return 0;
  const std::size_t left = length - next;
  if (left > mtu) return mtu;
  return left >= proto::kMinDirectPlacement ? left - proto::kDeferredTail : 0;
}

/// Whether some prefix of the works, at least `least` of them, was executed; packets of the next one may be, too.
bool some_prefix_fits(const Memory& memory, const Flow& in, std::uint32_t mtu) {
  Replay replay(memory);
  const std::size_t least = in.failed ? in.succeeded : in.works.size();
  std::size_t received = 0;
  for (std::size_t e = 0;; ++e) {
    const bool possible = e >= least && received == in.received_ok;
    if (possible && replay.matches()) return true;
    if (e == in.works.size()) return false;
    const Work& work = in.works[e];
    if (work.must_fail != 0) return false;
    if (work.modifies_target) {
      if (work.entry.opcode != UROCE_WR_ATOMIC_CMP_AND_SWP && work.entry.opcode != UROCE_WR_ATOMIC_FETCH_AND_ADD) {
        for (std::size_t done = 0; done < work.length; done += mtu) {
          replay.write(work.target + done, work.payload.data() + done,
                       std::min<std::size_t>(mtu, work.length - done));
          if (possible && replay.matches()) return true;
          const std::size_t next = done + mtu, garbage = garbage_bytes(work.length, next, mtu);
          if (possible && garbage != 0 && replay.matches_without(work.target + next, garbage)) return true;
        }
      } else {
        std::uint64_t value = replay.word(work.target);
        const auto& atomic = work.entry.atomic;
        if (work.entry.opcode == UROCE_WR_ATOMIC_FETCH_AND_ADD)
          value += atomic.compare_add;
        else if (value == atomic.compare_add)
          value = atomic.swap;
        replay.write(work.target, reinterpret_cast<const std::byte*>(&value), 8);
      }
    }
    received += work.consumes;
  }
}

/// Where the packet that comes next would be: after the last that is there whole.
std::size_t next_packet(const Memory& memory, const std::vector<Piece>& pieces,
                        const std::vector<std::byte>& payload, std::size_t mtu) {
  std::size_t equal = 0;
  bool so_far = true;
  over_pieces(pieces, payload.size(), [&](std::size_t at, std::size_t from, std::size_t bytes) {
    for (std::size_t i = 0; so_far && i < bytes; ++i) {
      so_far = (*memory.arena)[at + i] == payload[from + i];
      equal += so_far;
    }
  });
  return equal / mtu * mtu;
}

void expect_equal(const std::vector<std::byte>& arena, const std::vector<std::byte>& image, std::size_t from,
                  std::size_t to) {
  if (std::memcmp(arena.data() + from, image.data() + from, to - from) == 0) return;
  while (arena[from] == image[from]) ++from;
  fail("stray or missing write at byte " + std::to_string(from) + " of the arena");
}

}  // namespace

void check_memory(const Memory& memory, const Flow& out, const Flow& in, std::uint32_t mtu) {
  std::vector<std::byte> image = memory.initial;
  const std::vector<std::byte>& arena = *memory.arena;
  // Where an operation was cut off each byte is as it was, or as it was to become; or what comes next is garbage.
  const auto land = [&](const std::vector<Piece>& pieces, const std::vector<std::byte>& payload, bool whole,
                        bool read = false) {
    const std::size_t next = read && !whole ? next_packet(memory, pieces, payload, mtu) : payload.size();
    const std::size_t end = next + garbage_bytes(payload.size(), next, mtu);
    over_pieces(pieces, payload.size(), [&](std::size_t at, std::size_t from, std::size_t bytes) {
      if (whole) {
        std::memcpy(&image[at], &payload[from], bytes);
        return;
      }
      for (std::size_t i = 0; i < bytes; ++i) {
        const bool garbage = from + i >= next && from + i < end;
        if (arena[at + i] == payload[from + i] || garbage) image[at + i] = arena[at + i];
      }
    });
  };
  const std::size_t succeeded = out.failed ? out.succeeded : out.works.size();
  for (std::size_t i = 0; i < out.works.size(); ++i) {
    const Work& work = out.works[i];
    if (work.lands) land(work.local, work.payload, i < succeeded, true);
    // A refused READ may have gone out in parts, some of which were good: what it leaves is not defined.
    if (work.must_fail != 0 && work.entry.opcode == UROCE_WR_RDMA_READ) {
      over_pieces(work.local, work.length, [&](std::size_t at, std::size_t, std::size_t bytes) {
        std::memcpy(&image[at], &arena[at], bytes);
      });
    }
  }
  for (std::size_t i = 0; i < in.consuming.size() && i < in.receives.size(); ++i) {
    const Work& work = in.works[in.consuming[i]];
    if (work.entry.opcode == UROCE_WR_RDMA_WRITE_WITH_IMM) continue;
    if (i < in.received_ok) land(in.receives[i].local, work.payload, true);
    if (i == in.received_ok) land(in.receives[i].local, work.payload, false);
  }
  const std::size_t zone = memory.target.offset, zone_end = zone + memory.target.length;
  expect_equal(arena, image, 0, zone);
  expect_equal(arena, image, zone_end, arena.size());
  if (!some_prefix_fits(memory, in, mtu)) fail("the target zone holds what no prefix of the requests would leave");
}

}  // namespace uroce::sim
