// Hostile frames for the kernel's interface of a port: from the wire, which SegmentRun joins, and what the kernel
// hands over, which KernelFrame cuts. The input is a list of frames, each preceded by its length in two bytes
// (big-endian).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "worker/kernel_frame.h"
#include "worker/segment_run.h"

namespace {

using namespace uroce;

void demand(bool holds) {
  if (!holds) std::abort();
}

std::size_t cut(std::vector<std::byte> read) {
  worker::KernelFrame frame;
  if (!frame.assign(read)) return 0;
  std::size_t count = 0;
  for (std::vector<std::byte> to; frame.left() != 0; ++count) {
    to.resize(frame.next_bytes());
    demand(to.size() <= read.size());
    frame.take(to);
  }
  return count;
}

void write(worker::SegmentRun& run) {
  std::vector<std::byte> whole;
  for (const iovec& part : run.parts()) {
    const auto* const from = static_cast<const std::byte*>(part.iov_base);
    whole.insert(whole.end(), from, from + part.iov_len);
  }
  // What was joined is cut into the same number of frames.
  if (run.frames() > 1) demand(cut(whole) == run.frames());
  run.clear();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::vector<std::byte>> frames;
  for (std::size_t at = 0; at + 2 <= size;) {
    const std::size_t bytes = std::min<std::size_t>(data[at] << 8 | data[at + 1], size - at - 2);
    const auto* const from = reinterpret_cast<const std::byte*>(data + at + 2);
    frames.emplace_back(from, from + bytes);
    at += 2 + bytes;
  }
  worker::SegmentRun run;
  for (const auto& frame : frames) {
    cut(frame);
    if (run.add(frame)) continue;
    write(run);
    demand(run.add(frame));
  }
  if (run.frames() != 0) write(run);
  return 0;
}
