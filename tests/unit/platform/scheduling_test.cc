#include "platform/scheduling.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "base/types.h"

namespace uroce::platform {
namespace {

/// Slice of this thread in ns, as the kernel reports it; 0 if it has no such attribute.
std::uint64_t slice_of_this_thread() {
  std::uint64_t attr[6] = {};  // struct sched_attr; the runtime is its fourth word
  return ::syscall(SYS_sched_getattr, 0, attr, sizeof(attr), 0) == 0 ? attr[3] : 0;
}

TEST(SchedSlice, IsShortOrAsLongAsOtherPrograms) {
  const std::uint64_t usual = slice_of_this_thread();
  set_sched_slice(SchedSlice::kShort);
  const std::uint64_t shorter = slice_of_this_thread();
  set_sched_slice(SchedSlice::kUsual);
  EXPECT_EQ(slice_of_this_thread(), usual);
  // Linux before 6.12 reports none.
  EXPECT_EQ(shorter, usual != 0 ? 100 * kMicrosecond : 0);
}

TEST(MoveToCore, MovesTheThreadAndKeepsItsAffinity) {
  cpu_set_t before, after;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(before), &before), 0);
  const auto cores = static_cast<std::uint32_t>(CPU_COUNT(&before));
  constexpr std::uint32_t kRounds = 50;
  std::vector<std::uint32_t> visits(CPU_SETSIZE);
  for (std::uint32_t i = 0; i < kRounds * cores; ++i) {
    move_to_core(cores + i);
    ++visits[static_cast<std::size_t>(::sched_getcpu())];
  }
  // The scheduler may move it again at any time, but rarely does so at once.
  EXPECT_EQ(std::ranges::count_if(visits, [](std::uint32_t n) { return n > kRounds / 2; }), cores);
  ASSERT_EQ(::sched_getaffinity(0, sizeof(after), &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(PinToCpu, IsTakenBack) {
  cpu_set_t before, pinned, after;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(before), &before), 0);
  std::thread([&] {
    const auto here = static_cast<std::uint32_t>(::sched_getcpu());
    EXPECT_EQ(pin_to_cpu(here), 0);
    EXPECT_EQ(::sched_getaffinity(0, sizeof(pinned), &pinned), 0);
    EXPECT_EQ(CPU_COUNT(&pinned), 1);
    EXPECT_EQ(unpin(), 0);
    EXPECT_EQ(::sched_getaffinity(0, sizeof(after), &after), 0);
    EXPECT_TRUE(CPU_EQUAL(&before, &after));
    EXPECT_NE(pin_to_cpu(CPU_SETSIZE - 1), 0);
  }).join();
}

}  // namespace
}  // namespace uroce::platform
