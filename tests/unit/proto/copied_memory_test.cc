// What a transport says about the memory that it copies, to whoever looks while a copy waits in a page fault.
#include <sys/mman.h>

#include <csignal>
#include <cstdlib>
#include <functional>
#include <utility>
#include <vector>

#include "tests/unit/proto/local_pair.h"

namespace uroce::proto::test {
namespace {

constexpr std::size_t kBytes = 16'000;  // one packet, also of a READ

/// Memory whose first access is a fault, at which the test looks.
class FaultingMemory {
 public:
  explicit FaultingMemory(std::function<void()> at_fault) : at_fault_(std::move(at_fault)) {
    base = static_cast<std::byte*>(::mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base == MAP_FAILED) std::abort();
    instance = this;
    struct sigaction action {};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = [](int, siginfo_t* info, void*) { instance->fault(info->si_addr); };
    ::sigaction(SIGSEGV, &action, &before_);
  }
  ~FaultingMemory() {
    ::sigaction(SIGSEGV, &before_, nullptr);
    instance = nullptr;
    ::munmap(base, kBytes);
  }
  FaultingMemory(const FaultingMemory&) = delete;
  FaultingMemory& operator=(const FaultingMemory&) = delete;

  std::byte* base = nullptr;
  int faults = 0;

 private:
  /// One elsewhere, or a second one, happens again, and ends the program.
  void fault(const void* at) {
    const auto offset = reinterpret_cast<std::uintptr_t>(at) - reinterpret_cast<std::uintptr_t>(base);
    if (offset >= kBytes || ++faults > 1 || ::mprotect(base, kBytes, PROT_READ | PROT_WRITE) != 0) {
      ::sigaction(SIGSEGV, &before_, nullptr);
      return;
    }
    at_fault_();
  }

  static inline FaultingMemory* instance = nullptr;
  std::function<void()> at_fault_;
  struct sigaction before_ {};
};

using Values = std::vector<std::uint64_t>;
Values values(const BusyWith& with) { return {with.mark, with.lender, with.source, with.source_bytes}; }

/// Of one device, and of two. Each end has a protection domain of its own.
class CopiedMemory : public ::testing::TestWithParam<bool> {
 protected:
  ~CopiedMemory() override { LocalPair::apart = false; }

  static Options of_pd(std::uint32_t pd) {
    Options options;
    options.mtu = 4096;
    options.pd = pd;
    return options;
  }
  Key insert(End& owner, std::byte* base, const memory::Loss* loss = nullptr) {
    return *owner.table.insert(
        {.pd = owner.pd, .access = kAllAccess, .iova = End::kIova, .length = kBytes, .base = base, .loss = loss});
  }
  /// A work request of a: all of `local`, from or to all of what `rkey` names.
  void run(std::uint8_t opcode, Key local, std::uint32_t rkey) {
    pair.a.post(
        {.opcode = opcode, .sges = {{End::kIova, kBytes, local.value}}, .remote = End::kIova, .rkey = rkey});
    pair.run();
  }
  void look() {
    at_a = pair.a.transport->busy_with();
    at_b = pair.b.transport->busy_with();
  }
  /// `lender` has sent `key` in a packet, and `other` has copied what it names.
  void expect(const End& lender, const End& other) {
    const std::uint64_t from = reinterpret_cast<std::uintptr_t>(source.data());
    const std::uint64_t mark = mark_of(other.pd), owner = mark_of(lender.pd);
    const Values both{mark, owner, from, kBytes}, at_other{mark, 0, from, kBytes},
        at_lender{0, owner, from, kBytes};
    const bool a_lends = &lender == &pair.a;
    EXPECT_EQ(values(a_lends ? at_b : at_a), GetParam() ? at_other : both);
    EXPECT_EQ(values(a_lends ? at_a : at_b), GetParam() ? at_lender : both);
    expect_nothing();
  }
  void expect_nothing() {
    for (const End* end : {&pair.a, &pair.b}) {
      EXPECT_EQ(end->transport->busy_with().source_bytes, 0u);
      EXPECT_EQ(end->transport->busy_with().lender, 0u);
    }
  }

  const bool apart = LocalPair::apart = GetParam();
  LocalPair pair{of_pd(3), of_pd(7)};
  std::vector<std::byte> source = std::vector<std::byte>(kBytes);
  memory::Loss in_memory = {.in_memory = true};
  BusyWith at_a, at_b;
  FaultingMemory landing{[this] { look(); }};
};

TEST_P(CopiedMemory, OfAWrite) {
  const Key from = insert(pair.a, source.data(), &in_memory), to = insert(pair.b, landing.base);
  run(UROCE_WR_RDMA_WRITE, from, to.value);
  ASSERT_EQ(landing.faults, 1);
  expect(pair.a, pair.b);
}

TEST_P(CopiedMemory, OfARead) {
  const Key from = insert(pair.b, source.data(), &in_memory), to = insert(pair.a, landing.base);
  run(UROCE_WR_RDMA_READ, to, from.value);
  ASSERT_EQ(landing.faults, 1);
  expect(pair.b, pair.a);
}

// Pages of devices and disks are absent without any deed of their owner.
TEST_P(CopiedMemory, IsNotSaidIfItIsNoFileInMemory) {
  const memory::Loss elsewhere;
  const Key from = insert(pair.a, source.data(), &elsewhere), to = insert(pair.b, landing.base);
  run(UROCE_WR_RDMA_WRITE, from, to.value);
  ASSERT_EQ(landing.faults, 1);
  EXPECT_EQ(at_b.mark, mark_of(pair.b.pd));
  EXPECT_EQ(at_b.source_bytes, 0u);
}

TEST_P(CopiedMemory, IsOverWhenThePacketIsRefused) {
  const Key from = insert(pair.a, source.data(), &in_memory);
  run(UROCE_WR_RDMA_WRITE, from, from.value + 1000);
  EXPECT_EQ(pair.by_reference(), 1u);
  expect_nothing();
}

INSTANTIATE_TEST_SUITE_P(Devices, CopiedMemory, ::testing::Bool(),
                         [](const auto& named) { return named.param ? "Two" : "One"; });

}  // namespace
}  // namespace uroce::proto::test
