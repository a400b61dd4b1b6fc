// uroce/dv.h: operations that infiniband/verbs.h lacks. Skipped on other devices, which refuse them.
#include <cstring>

#include "fixtures.h"
#include "uroce/dv.h"

namespace conformance {
namespace {

constexpr std::uint64_t kFlushGlobal = std::uint64_t{1} << 38, kAtomicWrite = std::uint64_t{1} << 40;

void need(const Bench& bench, std::uint64_t flag) {
  if ((bench.left.extended.device_cap_flags_ex & flag) == 0) throw Skipped{"device_cap_flags_ex does not say so"};
}

struct Fast {
  explicit Fast(Bench& bench) : pair(bench), memory(8192) {
    ibv_mr* const made = uroce_dv_reg_fast_mr(pair.right.pd, memory.data(), memory.size(), kAll);
    if (made == nullptr && errno == EINVAL) throw Skipped{"no fast registration"};
    mr = Mr(CHECK_MADE(made));
  }
  std::uint64_t address(std::size_t offset) const {
    return reinterpret_cast<std::uintptr_t>(memory.data()) + offset;
  }
  std::uint32_t open(std::size_t offset, std::size_t length, unsigned access = kAll) {
    const std::uint32_t key = ibv_inc_rkey(mr->rkey);
    CHECK_OK(uroce_dv_post_reg_mr(pair.right.qp.get(), 1, IBV_SEND_SIGNALED, mr.get(), key, memory.data() + offset,
                                  length, access));
    CHECK_EQ(static_cast<int>(wait(pair.right.cq.get()).status), int{IBV_WC_SUCCESS});
    return key;
  }
  int write(std::size_t offset, std::uint32_t key) {
    CHECK_OK(pair.left.write(0, 64, address(offset), key));
    return wait(pair.left.cq.get()).status;
  }
  Pair pair;
  std::vector<std::uint8_t> memory;
  Mr mr;
};

CONFORMANCE_CASE(dv_fast_registration, "uroce/dv.h; IBTA vol. 1, 10.6.3.2") {
  Fast fast(bench);
  fast.pair.left.buffer.fill(3);
  const std::uint32_t key = fast.open(1000, 2000);
  CHECK_EQ(fast.write(1000, key), int{IBV_WC_SUCCESS});
  CHECK(std::memcmp(fast.memory.data() + 1000, fast.pair.left.buffer.data(), 64) == 0);
  CHECK_EQ(fast.write(2937, key), int{IBV_WC_REM_ACCESS_ERR});  // one byte past the range
}

CONFORMANCE_CASE(dv_key_before_registration, "uroce/dv.h") {
  Fast fast(bench);
  CHECK_EQ(fast.write(0, fast.mr->rkey), int{IBV_WC_REM_ACCESS_ERR});
}

CONFORMANCE_CASE(dv_registered_again_after_invalidation, "uroce/dv.h; IBV_WR_LOCAL_INV") {
  Fast fast(bench);
  const std::uint32_t first = fast.open(0, 100);
  ibv_send_wr invalidate{};
  invalidate.opcode = IBV_WR_LOCAL_INV;
  invalidate.send_flags = IBV_SEND_SIGNALED;
  invalidate.invalidate_rkey = first;
  CHECK_OK(fast.pair.right.post(invalidate));
  wait_success(fast.pair.right.cq.get(), IBV_WC_LOCAL_INV);
  const std::uint32_t second = fast.open(4096, 100);
  CHECK_EQ(fast.write(4096, second), int{IBV_WC_SUCCESS});
  CHECK_EQ(fast.write(0, first), int{IBV_WC_REM_ACCESS_ERR});
}

CONFORMANCE_CASE(dv_atomic_write, "uroce/dv.h; IBTA vol. 1, annex A19") {
  need(bench, kAtomicWrite);
  Pair pair(bench);
  const std::uint64_t value = 0x0123456789abcdef;
  CHECK_OK(uroce_dv_post_atomic_write(pair.left.qp.get(), 5, IBV_SEND_SIGNALED, &value,
                                      pair.right.buffer.address(8), pair.right.buffer.rkey()));
  CHECK_EQ(wait_success(pair.left.cq.get(), IBV_WC_ATOMIC_WRITE).wr_id, 5u);
  CHECK(std::memcmp(pair.right.buffer.data() + 8, &value, 8) == 0);
}

CONFORMANCE_CASE(dv_flush, "uroce/dv.h; IBTA vol. 1, annex A19") {
  need(bench, kFlushGlobal);
  QpOptions options;
  options.access |= UROCE_DV_ACCESS_FLUSH_GLOBAL;
  Pair pair(bench, IBV_QPT_RC, 65536, options);
  Buffer buffer(pair.right.pd, 4096, kAll | UROCE_DV_ACCESS_FLUSH_GLOBAL);
  pair.left.buffer.fill(5);
  CHECK_OK(pair.left.write(0, 64, buffer.address(), buffer.rkey(), 1, 0));
  CHECK_OK(uroce_dv_post_flush(pair.left.qp.get(), 2, IBV_SEND_SIGNALED, buffer.address(), buffer.rkey(), 64,
                               UROCE_DV_FLUSH_GLOBAL, UROCE_DV_FLUSH_RANGE));
  const ibv_wc wc = wait_status(pair.left.cq.get(), IBV_WC_SUCCESS);
  CHECK_EQ(wc.wr_id, 2u);
  CHECK(buffer.holds(5, 0, 64, 0));
}

CONFORMANCE_CASE(dv_flush_without_the_right, "uroce/dv.h; IBTA vol. 1, annex A19") {
  need(bench, kFlushGlobal);
  Pair pair(bench);
  CHECK_OK(uroce_dv_post_flush(pair.left.qp.get(), 2, IBV_SEND_SIGNALED, pair.right.buffer.address(),
                               pair.right.buffer.rkey(), 64, UROCE_DV_FLUSH_GLOBAL, UROCE_DV_FLUSH_RANGE));
  const ibv_wc_status status = wait(pair.left.cq.get()).status;
  CHECK(status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_INV_REQ_ERR);
}

}  // namespace
}  // namespace conformance
