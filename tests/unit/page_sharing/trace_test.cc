// Memory that was registered and released is as it was before: the same mappings with the same attributes.

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "fixture.h"

#ifndef __SANITIZE_THREAD__  // it maps and unmaps shadow memory meanwhile, and starts no threads in a child of fork

namespace uroce::page_sharing {
namespace {

#ifndef PR_SET_VMA
constexpr int PR_SET_VMA = 0x53564d41, PR_SET_VMA_ANON_NAME = 0;
#endif
constexpr int kMremapDontUnmap = 4;

using Regions = std::vector<std::unique_ptr<Shared>>;

// The address sanitizer maps memory for its allocator while a test runs: there only the contents are compared.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kCountsMappings = false;
#elif defined(__has_feature)
constexpr bool kCountsMappings = !__has_feature(address_sanitizer);
#else
constexpr bool kCountsMappings = true;
#endif

::testing::AssertionResult has_mappings(std::size_t expected) {
  const std::size_t found = count_mappings();
  if (found == expected || !kCountsMappings) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << found << " mappings, not " << expected;
}

::testing::AssertionResult has_at_most(std::size_t expected) {
  const std::size_t found = count_mappings();
  if (found <= expected || !kCountsMappings) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << found << " mappings, more than " << expected;
}

/// With one thread, pages are moved unguarded; with a second one by way of userfaultfd.
class PageSharingTrace : public ::testing::TestWithParam<bool> {
 protected:
  PageSharingTrace() {
    if (GetParam()) other_ = std::thread([this] { stop_.wait(false); });
    // The library's own memory grows with the number of regions, and stays.
    static bool grown = false;
    if (grown) return;
    grown = true;
    unsigned char* at = map_anonymous(4000 * kPage);
    every_second_page(at, 2000).clear();
    ::munmap(at, 4000 * kPage);
  }
  ~PageSharingTrace() override {
    stop_ = true;
    stop_.notify_one();
    if (other_.joinable()) other_.join();
  }

  static Regions every_second_page(unsigned char* at, std::size_t count) {
    Regions regions;
    for (std::size_t i = 0; i < count; ++i) regions.push_back(share(at + 2 * i * kPage, kPage));
    return regions;
  }
  static std::unique_ptr<Shared> share(unsigned char* at, std::size_t bytes, bool writable = true) {
    auto region = std::make_unique<Shared>(at, bytes, writable);
    EXPECT_TRUE(region->direct());
    return region;
  }
  /// Releases them in an order without a pattern.
  static void release(Regions& regions) {
    for (std::size_t i = 0; i < regions.size(); ++i) {
      const std::size_t at = i * 7919 % regions.size();
      if (regions[at] != nullptr) regions[at]->stop();
    }
    regions.clear();
  }
  static void fill(unsigned char* at, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) at[i] = static_cast<unsigned char>(i * 31 + i / kPage);
  }
  static void expect_filled(const unsigned char* at, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) {
      ASSERT_EQ(at[i], static_cast<unsigned char>(i * 31 + i / kPage)) << i;
    }
  }
  /// "VmLck" of /proc/self/status: what counts against RLIMIT_MEMLOCK.
  std::string locked_memory() {
    std::ifstream status("/proc/self/status");
    while (std::getline(status, text_)) {
      if (text_.rfind("VmLck:", 0) == 0) return text_;
    }
    return {};
  }
  /// The attributes of the mapping at an address, "VmFlags" of /proc/self/smaps. Its order of flags is fixed.
  std::string attributes(const void* at) {
    std::ifstream maps("/proc/self/smaps");
    const auto address = reinterpret_cast<std::uintptr_t>(at);
    bool here = false;
    while (std::getline(maps, text_)) {
      unsigned long from = 0, to = 0;
      if (std::sscanf(text_.c_str(), "%lx-%lx ", &from, &to) == 2) here = from <= address && address < to;
      if (here && text_.rfind("VmFlags:", 0) == 0) return text_;
    }
    return {};
  }

 private:
  std::atomic<bool> stop_ = false;
  std::thread other_;
  std::string text_;
};

INSTANTIATE_TEST_SUITE_P(Threads, PageSharingTrace, ::testing::Bool(),
                         [](const auto& threads) { return threads.param ? "Two" : "One"; });

TEST_P(PageSharingTrace, ThousandPagesInTurn) {
  for (const bool touched : {false, true}) {
    unsigned char* at = map_anonymous(2000 * kPage);
    if (touched) fill(at, 2000 * kPage);
    const std::size_t before = count_mappings();
    for (std::size_t i = 0; i < 1000; ++i) share(at + 2 * i * kPage, kPage)->stop();
    EXPECT_TRUE(has_mappings(before)) << touched;
    if (touched) expect_filled(at, 2000 * kPage);
    ::munmap(at, 2000 * kPage);
  }
}

TEST_P(PageSharingTrace, ThousandPagesAtOnce) {
  for (const bool touched : {false, true}) {
    unsigned char* at = map_anonymous(2000 * kPage);
    if (touched) fill(at, 2000 * kPage);
    for (int round = 0; round < 2; ++round) {  // registered again
      const std::size_t before = count_mappings();
      Regions regions = every_second_page(at, 1000);
      fill(at, 2000 * kPage);
      release(regions);
      EXPECT_TRUE(has_mappings(before)) << touched << round;
      expect_filled(at, 2000 * kPage);
    }
    ::munmap(at, 2000 * kPage);
  }
}

TEST_P(PageSharingTrace, AdjacentAndOverlappingRegions) {
  for (const std::size_t stride : {kPage / 4, kPage / 2 + 100, kPage, kPage + 1000, 3 * kPage}) {
    for (const std::size_t bytes : {std::size_t{8}, kPage, 2 * kPage + 5, 7 * kPage}) {
      unsigned char* at = map_anonymous(320 * kPage);
      fill(at, 320 * kPage);
      const std::size_t before = count_mappings();
      Regions regions;
      for (std::size_t i = 0; i < 100; ++i) regions.push_back(share(at + 5 * kPage + i * stride, bytes));
      for (std::size_t i = 0; i < 100; i += 3) regions[i].reset();
      for (std::size_t i = 0; i < 100; i += 3) regions[i] = share(at + 5 * kPage + i * stride + 50, bytes);
      expect_same_memory(*regions[40], at + 5 * kPage + 40 * stride);
      release(regions);
      EXPECT_TRUE(has_mappings(before)) << stride << ' ' << bytes;
      expect_filled(at, 320 * kPage);
      ::munmap(at, 320 * kPage);
    }
  }
}

TEST_P(PageSharingTrace, PartsOfARegionReturnOneAfterTheOther) {
  unsigned char* at = map_anonymous(16 * kPage);
  fill(at, 16 * kPage);
  const std::size_t before = count_mappings();
  auto first = share(at + 6 * kPage, 6 * kPage);
  auto left = share(at + 2 * kPage, 5 * kPage);
  auto right = share(at + 8 * kPage, 3 * kPage);
  first.reset();
  first = share(at + 6 * kPage, 5 * kPage);  // page 7 was moved twice, those around it once
  right.reset();
  left.reset();
  first.reset();
  EXPECT_TRUE(has_mappings(before));
  expect_filled(at, 16 * kPage);
  ::munmap(at, 16 * kPage);
}

TEST_P(PageSharingTrace, OverlappingRegionsAtRandom) {
  constexpr std::size_t kPages = 16;
  for (unsigned seed = 1; seed <= 100; ++seed) {
    std::mt19937 random(seed);
    unsigned char* at = map_anonymous(kPages * kPage);
    fill(at, kPages * kPage);
    const std::size_t before = count_mappings();
    Regions regions(6);
    for (int i = 0; i < 30; ++i) {
      auto& region = regions[random() % regions.size()];
      const std::size_t start = random() % kPages, pages = 1 + random() % (kPages - start);
      region.reset();
      region = share(at + start * kPage, pages * kPage);
    }
    release(regions);
    EXPECT_TRUE(has_mappings(before)) << "seed " << seed;
    expect_filled(at, kPages * kPage);
    ::munmap(at, kPages * kPage);
  }
}

TEST_P(PageSharingTrace, AWholeMappingAndMoreThanOneStep) {
  constexpr std::size_t kBytes = std::size_t{150} << 20;  // two steps of 64 MiB and a part
  unsigned char* at = map_anonymous(kBytes);
  for (std::size_t i = 0; i < kBytes; i += 4 * kPage) at[i] = static_cast<unsigned char>(i >> 14);
  const std::size_t before = count_mappings();
  {
    const auto all = share(at, kBytes);
    EXPECT_TRUE(has_at_most(before + 2));  // the copy, and the memory that the kernel had joined with it
  }
  EXPECT_TRUE(has_mappings(before));
  {
    auto most = share(at + kPage, kBytes - 2 * kPage);
    const auto part = share(at + kBytes / 2, 3 * kPage);
    most.reset();
    for (std::size_t i = 0; i < 3; ++i) EXPECT_FALSE(is_private_anonymous(at + kBytes / 2 + i * kPage));
  }
  EXPECT_TRUE(has_mappings(before));
  for (std::size_t i = 0; i < kBytes; i += 4 * kPage) ASSERT_EQ(at[i], static_cast<unsigned char>(i >> 14)) << i;
  ::munmap(at, kBytes);
}

TEST_P(PageSharingTrace, TheHeap) {
  std::vector<unsigned char*> blocks;
  for (std::size_t i = 0; i < 2000; ++i) {
    blocks.push_back(static_cast<unsigned char*>(std::malloc(3000)));
    fill(blocks[i], 3000);
  }
  Regions regions;
  regions.reserve(2000);
  const std::size_t before = count_mappings();
  for (std::size_t i = 0; i < 2000; ++i) regions.push_back(std::make_unique<Shared>(blocks[i], 3000));
  for (std::size_t i = 0; i < 2000; i += 3) regions[i]->stop();
  for (std::size_t i = 0; i < 2000; i += 3) regions[i] = std::make_unique<Shared>(blocks[i], 2000);
  std::size_t direct = 0;
  for (const auto& region : regions) direct += region->direct() ? 1 : 0;
  EXPECT_GT(direct, 1900u);
  for (std::size_t i = 0; i < 2000; ++i) regions[i * 7919 % 2000]->stop();
  EXPECT_TRUE(has_mappings(before));
  for (unsigned char* block : blocks) {
    expect_filled(block, 3000);
    std::free(block);
  }
}

TEST_P(PageSharingTrace, AttributesComeBack) {
  struct Attribute {
    const char* name;
    int (*set)(unsigned char*, std::size_t);
  };
  const Attribute all[] = {
      {"none", [](unsigned char*, std::size_t) { return 0; }},
      {"hugepage", [](unsigned char* at, std::size_t n) { return ::madvise(at, n, MADV_HUGEPAGE); }},
      {"nohugepage", [](unsigned char* at, std::size_t n) { return ::madvise(at, n, MADV_NOHUGEPAGE); }},
      {"dontfork", [](unsigned char* at, std::size_t n) { return ::madvise(at, n, MADV_DONTFORK); }},
      {"dontdump", [](unsigned char* at, std::size_t n) { return ::madvise(at, n, MADV_DONTDUMP); }},
      {"wipeonfork", [](unsigned char* at, std::size_t n) { return ::madvise(at, n, MADV_WIPEONFORK); }},
      {"random", [](unsigned char* at, std::size_t n) { return ::madvise(at, n, MADV_RANDOM); }},
      {"locked", [](unsigned char* at, std::size_t n) { return ::mlock(at, n); }},
      {"read-only", [](unsigned char* at, std::size_t n) { return ::mprotect(at, n, PROT_READ); }},
      {"name",
       [](unsigned char* at, std::size_t n) {
         return ::prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, at, n, "mine") == 0 ? 0 : errno == EINVAL ? 0 : -1;
       }},
  };
  constexpr std::size_t kBytes = 1000 * kPage;
  for (const Attribute& attribute : all) {
    for (const bool touched : {true, false}) {
      unsigned char* at = map_anonymous(kBytes);
      if (touched) fill(at, kBytes);
      if (attribute.set(at, kBytes) != 0) ADD_FAILURE() << attribute.name << ": " << std::strerror(errno);
      const std::string flags = attributes(at), locked = locked_memory();
      const std::size_t before = count_mappings();
      const bool writable = std::string(attribute.name) != "read-only";
      Regions regions;
      for (std::size_t i = 10; i < 900; i += 20) regions.push_back(share(at + i * kPage, 7 * kPage, writable));
      release(regions);
      EXPECT_TRUE(has_mappings(before)) << attribute.name << touched;
      EXPECT_EQ(attributes(at + 11 * kPage), flags) << attribute.name << touched;
      EXPECT_EQ(attributes(at), flags) << attribute.name << touched;
      EXPECT_EQ(locked_memory(), locked) << attribute.name << touched;
      if (touched) expect_filled(at, kBytes);
      ::munmap(at, kBytes);
    }
  }
}

TEST_P(PageSharingTrace, ThePartsOfAMappingThatDiffer) {
  unsigned char* at = map_anonymous(30 * kPage);
  fill(at, 30 * kPage);
  ::mprotect(at + 10 * kPage, 10 * kPage, PROT_READ);
  ::madvise(at + 15 * kPage, 10 * kPage, MADV_DONTDUMP);
  const std::size_t before = count_mappings();
  auto all = share(at, 30 * kPage, false);
  const auto part = share(at + 12 * kPage, 6 * kPage, false);
  all->stop();
  all = share(at + kPage, 28 * kPage, false);
  all->stop();
  Shared(at + 12 * kPage, kPage, false).stop();
  expect_filled(at, 30 * kPage);
  EXPECT_EQ(attributes(at + 12 * kPage).find(" wr "), std::string::npos);
  part->stop();
  EXPECT_TRUE(has_mappings(before));
  expect_filled(at, 30 * kPage);
  ::munmap(at, 30 * kPage);
}

TEST_P(PageSharingTrace, ProtectionChangedWhileRegistered) {
  // Pages without rights around it: once read-only, it may else be joined with a mapping of the
  // C library next to it, and there is one mapping less.
  unsigned char* around = map_anonymous(32 * kPage, PROT_NONE);
  unsigned char* at = around + kPage;
  ASSERT_EQ(::mprotect(at, 30 * kPage, PROT_READ | PROT_WRITE), 0);
  fill(at, 30 * kPage);
  const std::size_t before = count_mappings();
  const auto region = share(at + 10 * kPage, 10 * kPage);
  ::mprotect(at, 30 * kPage, PROT_READ);
  region->stop();
  EXPECT_TRUE(has_mappings(before));
  expect_filled(at, 30 * kPage);
  ::munmap(around, 32 * kPage);
}

TEST_P(PageSharingTrace, UnmappedOrMovedWhileRegistered) {
  const std::size_t before = count_mappings();
  unsigned char* at = map_anonymous(30 * kPage);
  fill(at, 30 * kPage);
  {
    const auto region = share(at + kPage, 10 * kPage);
    ::munmap(at + 3 * kPage, 2 * kPage);
    ::munmap(at, 30 * kPage);
  }
  EXPECT_TRUE(has_mappings(before));
  at = map_anonymous(30 * kPage);
  fill(at, 30 * kPage);
  auto region = share(at, 30 * kPage);
  void* moved = ::mremap(at, 30 * kPage, 60 * kPage, MREMAP_MAYMOVE);  // may be extended in place
  ASSERT_NE(moved, MAP_FAILED);
  auto* bytes = static_cast<unsigned char*>(moved);
  std::memset(bytes + 30 * kPage, 9, 30 * kPage);
  region.reset();
  EXPECT_TRUE(has_mappings(before + 1));
  expect_filled(bytes, 30 * kPage);
  EXPECT_EQ(bytes[60 * kPage - 1], 9);
  for (std::size_t i = 0; i < 60; ++i) EXPECT_TRUE(is_private_anonymous(bytes + i * kPage)) << i;
  ::munmap(bytes, 60 * kPage);
  EXPECT_TRUE(has_mappings(before));
}

TEST_P(PageSharingTrace, MemoryThatIsNotMovedStaysAsItIs) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(::ftruncate(fileno(file), 20 * kPage), 0);
  void* mapped = ::mmap(nullptr, 20 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE, fileno(file), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  auto* at = static_cast<unsigned char*>(mapped);
  unsigned char stack[3 * kPage];
  std::memset(stack, 1, sizeof(stack));
  const std::size_t before = count_mappings();
  for (std::size_t i = 0; i < 20; ++i) EXPECT_TRUE(Shared(at + i * kPage, kPage).indirect());
  for (std::size_t i = 0; i < 100; ++i) EXPECT_TRUE(Shared(stack + 20 * i, 100).indirect());
  EXPECT_TRUE(has_mappings(before));
  ::munmap(at, 20 * kPage);
  std::fclose(file);
}

TEST_P(PageSharingTrace, AChildInheritsNoCopies) {
  unsigned char* at = map_anonymous(200 * kPage);
  unsigned char* hidden = map_anonymous(200 * kPage);
  fill(at, 200 * kPage);
  ::madvise(hidden, 200 * kPage, MADV_DONTFORK);
  const std::size_t before = count_mappings();
  Regions regions = every_second_page(at, 100);
  const std::size_t with_regions = count_mappings();
  Regions other = every_second_page(hidden, 100);
  EXPECT_TRUE(passes_in_child([&] {
    EXPECT_TRUE(has_at_most(with_regions));  // 100 copies less, 100 pages of `hidden` more
    expect_filled(at, 200 * kPage);
  }));
  release(other);
  release(regions);
  EXPECT_TRUE(has_mappings(before));
  ::munmap(at, 200 * kPage);
  ::munmap(hidden, 200 * kPage);
}

/// mremap(2) fails if its flags are these.
bool refuse_mremap(std::uint32_t flags) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mremap, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[3])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, flags, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program = {6, filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

/// In a child, whose other thread writes to a page all the time.
void with_refused_mremap(std::uint32_t flags, bool other_thread, bool direct) {
  EXPECT_TRUE(passes_in_child([=] {
    unsigned char* at = map_anonymous(20 * kPage);
    std::memset(at, 1, 20 * kPage);
    std::atomic<bool> stop = false;
    std::atomic<std::uint64_t> writes = 0, lost = 0;
    std::thread writer;
    if (other_thread) {
      writer = std::thread([&] {
        auto* counter = reinterpret_cast<volatile std::uint64_t*>(at + 5 * kPage + 64);
        std::uint64_t expected = *counter;
        for (; !stop; ++writes) {
          lost += *counter != expected ? 1 : 0;
          *counter = ++expected;
        }
      });
      while (writes == 0) std::this_thread::yield();
    }
    ASSERT_TRUE(refuse_mremap(flags));
    for (int round = 0; round < 100; ++round) {
      Shared region(at + 5 * kPage, 3 * kPage);
      EXPECT_EQ(region.direct(), direct);
      at[5 * kPage + 1] = static_cast<unsigned char>(round);
      if (direct) {
        EXPECT_EQ(DaemonView(region).at(1), static_cast<unsigned char>(round));
      }
      region.stop();
      EXPECT_EQ(at[5 * kPage + 1], static_cast<unsigned char>(round));
    }
    stop = true;
    if (other_thread) writer.join();
    EXPECT_EQ(lost, 0u);
    for (std::size_t i = 0; i < 20 * kPage; i += 100) EXPECT_EQ(at[i], 1) << i;
  }));
}

TEST_P(PageSharingTrace, AKernelThatKeepsNoCopies) {
  with_refused_mremap(MREMAP_MAYMOVE | kMremapDontUnmap, GetParam(), true);
}

TEST_P(PageSharingTrace, AMoveThatFailsAtItsLastStep) {
  with_refused_mremap(MREMAP_MAYMOVE | MREMAP_FIXED, GetParam(), false);
}

}  // namespace
}  // namespace uroce::page_sharing

#endif
