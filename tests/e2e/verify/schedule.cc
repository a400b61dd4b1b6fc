#include "schedule.h"

#include <algorithm>
#include <cstring>

namespace uroce::verify {

void fill(std::uint64_t seed, std::byte* to, std::size_t bytes) {
  std::uint64_t state = seed | 1;
  for (std::size_t i = 0; i < bytes; i += 8) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(to + i, &state, std::min<std::size_t>(8, bytes - i));
  }
}

Schedule::Schedule(std::uint64_t seed, const Limits& limits)
    : random_(seed), limits_(limits), image_(limits.region_bytes) {
  fill(seed, image_.data(), image_.size());
}

Kind Schedule::draw_kind() {
  if (limits_.kinds.empty()) return static_cast<Kind>(below(7));
  const char letter = limits_.kinds[below(static_cast<std::uint32_t>(limits_.kinds.size()))];
  return static_cast<Kind>(std::strchr(kKindLetters, letter) - kKindLetters);
}

std::uint32_t Schedule::draw_size() {
  const std::uint32_t mtu = limits_.mtu;
  std::uint32_t bytes = 0;
  switch (below(8)) {
    case 0: bytes = 0; break;
    case 1:
    case 2: bytes = 1 + below(64); break;
    case 3:
    case 4: bytes = 1 + below(2 * mtu); break;
    case 5: bytes = mtu * (1 + below(8)) - 1 + below(3); break;
    case 6: bytes = 1 + below(64 * 1024); break;
    default: bytes = 1 + below(limits_.max_bytes); break;
  }
  return std::min(bytes, limits_.max_bytes);
}

std::uint64_t Schedule::draw_offset(const Operation& op) {
  const std::uint64_t offset = below(limits_.region_bytes - op.bytes);
  return op.is_atomic() ? offset & ~std::uint64_t{7} : offset;
}

std::vector<Operation> Schedule::next_batch() {
  std::vector<Operation> batch(1 + below(limits_.batch));
  for (std::size_t i = 0; i < batch.size(); ++i) {
    Operation& op = batch[i];
    op.kind = draw_kind();
    op.bytes = op.is_atomic() ? 8 : draw_size();
    const auto touches = [&op](const Operation& earlier) {
      return earlier.returns_data() && op.offset < earlier.offset + earlier.bytes &&
             earlier.offset < op.offset + op.bytes;
    };
    const auto conflicts = [&] { return std::any_of(batch.begin(), batch.begin() + i, touches); };
    do {
      op.offset = draw_offset(op);
    } while (!limits_.fences && conflicts());
    op.pieces = op.bytes == 0 ? 0 : op.is_atomic() ? 1 : 1 + below(std::min(op.bytes, 4u));
    op.signaled = i + 1 == batch.size() || below(4) == 0;
    op.inlined = !op.returns_data() && below(2) == 0;
    op.immediate = static_cast<std::uint32_t>(random_());
    op.pattern = random_();
    op.value = random_();
    // Half of the comparisons succeed, unless an earlier operation of the batch changes the value.
    if (below(2) == 0 && op.is_atomic()) std::memcpy(&op.compare, image_.data() + op.offset, 8);
    op.fence = limits_.fences && (below(8) == 0 || conflicts());
  }
  return batch;
}

std::vector<std::byte> Schedule::execute(const Operation& op) {
  std::vector<std::byte> returned;
  std::byte* at = image_.data() + op.offset;
  if (op.kind == Kind::kWrite || op.kind == Kind::kWriteImm) fill(op.pattern, at, op.bytes);
  if (!op.returns_data()) return returned;
  returned.assign(at, at + op.bytes);
  if (!op.is_atomic()) return returned;
  std::uint64_t value = 0;
  std::memcpy(&value, at, 8);
  if (op.kind == Kind::kFetchAdd) value += op.value;
  if (op.kind == Kind::kCompareSwap && value == op.compare) value = op.value;
  std::memcpy(at, &value, 8);
  return returned;
}

}  // namespace uroce::verify
