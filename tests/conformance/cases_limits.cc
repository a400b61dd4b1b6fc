// The advertised limits can be reached.
#include <cstring>
#include <fstream>

#include "fixtures.h"

namespace conformance {
namespace {

constexpr std::size_t kStep = 4096;

/// Both buffers, one of them registered twice while its pages move.
void need_memory(std::uint64_t message_bytes) {
  std::ifstream info("/proc/meminfo");
  std::string word;
  std::uint64_t kib = 0;
  while (info >> word && word != "MemAvailable:") {
  }
  info >> kib;
  const bool enough = kib / 1024 >= 4 * (message_bytes >> 20);
  if (!enough) throw Skipped{"needs four times as much memory as the longest message"};
}

void stamp(Buffer& buffer, std::uint64_t seed) {
  for (std::size_t at = 0; at + 8 <= buffer.size(); at += kStep) {
    const std::uint64_t value = at * 0x9e3779b97f4a7c15u + seed;
    std::memcpy(buffer.data() + at, &value, 8);
  }
  buffer.data()[buffer.size() - 1] = static_cast<std::uint8_t>(seed | 1);
}

bool same(Buffer& a, Buffer& b) { return std::memcmp(a.data(), b.data(), a.size()) == 0; }

CONFORMANCE_CASE(messages_of_max_msg_sz, "ibv_query_port(3), IBTA vol. 1, 9.7.7") {
  const std::size_t bytes = bench.right.port.max_msg_sz;
  need_memory(bytes);
  Pair pair(bench, IBV_QPT_RC, bytes);
  Buffer &ours = pair.left.buffer, &theirs = pair.right.buffer;
  stamp(ours, 1);
  CHECK_OK(pair.left.write(0, bytes, theirs.address(), theirs.rkey()));
  wait_success(pair.left.cq.get(), IBV_WC_RDMA_WRITE);
  CHECK(same(ours, theirs));
  stamp(ours, 2);
  CHECK_OK(pair.right.post_recv(0, bytes));
  CHECK_OK(pair.left.send(0, bytes));
  CHECK_EQ(wait_success(pair.right.cq.get(), IBV_WC_RECV).byte_len, bytes);
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
  CHECK(same(ours, theirs));
  stamp(theirs, 3);
  CHECK_OK(pair.left.read(0, bytes, theirs.address(), theirs.rkey()));
  CHECK_EQ(wait_success(pair.left.cq.get(), IBV_WC_RDMA_READ).byte_len, bytes);
  CHECK(same(ours, theirs));
}

CONFORMANCE_CASE(messages_longer_than_max_msg_sz, "ibv_query_port(3)") {
  const std::uint64_t most = bench.right.port.max_msg_sz;
  Pair pair(bench);
  // One scatter element can't cover more memory than exists: the length is refused before the key is checked.
  ibv_sge sge = pair.left.buffer.sge(0, 0);
  CHECK(most < 0xffffffffu);
  sge.length = static_cast<std::uint32_t>(most + 1);
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, sge);
  wr.wr.rdma = {pair.right.buffer.address(), pair.right.buffer.rkey()};
  if (pair.left.post(wr) != 0) return;  // refused by the post, which is allowed, too
  const ibv_wc wc = wait(pair.left.cq.get());
  if (wc.status != IBV_WC_LOC_LEN_ERR && wc.status != IBV_WC_LOC_PROT_ERR) {
    throw Failed{std::string("completed with ") + ibv_wc_status_str(wc.status)};
  }
}

}  // namespace
}  // namespace conformance
