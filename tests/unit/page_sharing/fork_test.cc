// After fork(2), parent and child have separate memory, whether it is registered or not.

#include <spawn.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "fixture.h"
#include "page_sharing/mapping_info.h"

extern char** environ;

namespace uroce::page_sharing {
namespace {

/// Makes parent and child run alternately.
class Turns {
 public:
  Turns() { EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_), 0); }
  ~Turns() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  void pass(int side) { EXPECT_EQ(::write(ends_[side], "x", 1), 1); }
  void await(int side) {
    char c = 0;
    EXPECT_EQ(::read(ends_[side], &c, 1), 1);
  }

 private:
  int ends_[2] = {-1, -1};
};

void write_by_turns(unsigned char* at, std::size_t bytes, const DaemonView& daemon) {
  Turns turns;
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    turns.await(1);
    for (std::size_t i = 0; i < bytes; ++i) EXPECT_EQ(at[i], 1);  // the parent wrote 2
    std::memset(at, 3, bytes);
    turns.pass(1);
    turns.await(1);
    for (std::size_t i = 0; i < bytes; ++i) EXPECT_EQ(at[i], 3);
    EXPECT_TRUE(is_private_anonymous(at));
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  std::memset(at, 2, bytes);
  turns.pass(0);
  turns.await(0);
  for (std::size_t i = 0; i < bytes; ++i) {
    ASSERT_EQ(at[i], 2);
    ASSERT_EQ(daemon.at(i), 2);
  }
  daemon.at(3) = 4;
  turns.pass(0);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(at[3], 4);
}

TEST(PageSharingFork, ParentAndChildWrite) {
  constexpr std::size_t kBytes = 20 * kPage;
  unsigned char* at = map_anonymous(kBytes);
  std::memset(at, 1, kBytes);
  Shared shared(at, kBytes);
  ASSERT_TRUE(shared.direct());
  const DaemonView daemon(shared);
  write_by_turns(at, kBytes, daemon);
  expect_same_memory(shared, at);
  shared.stop();
  ::munmap(at, kBytes);
}

TEST(PageSharingFork, ParentAndChildWriteWhileOtherThreadsRun) {
  constexpr std::size_t kBytes = 20 * kPage;
  unsigned char* at = map_anonymous(kBytes + kPage);
  std::memset(at, 1, kBytes);
  Shared shared(at, kBytes + kPage);
  ASSERT_TRUE(shared.direct());
  const DaemonView daemon(shared);
  std::atomic<bool> stop = false;
  std::atomic<std::uint64_t> lost = 0;
  std::thread other([&] {
    auto* counter = reinterpret_cast<volatile std::uint64_t*>(at + kBytes);
    for (std::uint64_t expected = 0; !stop;) {
      lost += *counter != expected ? 1 : 0;
      *counter = ++expected;
    }
  });
  for (int round = 0; round < 20; ++round) {
    std::memset(at, 1, kBytes);
    write_by_turns(at, kBytes, daemon);
  }
  stop = true;
  other.join();
  EXPECT_EQ(lost.load(), 0u);
  shared.stop();
  ::munmap(at, kBytes + kPage);
}

TEST(PageSharingFork, AChildRegistersItsOwn) {
  unsigned char* at = map_anonymous(4 * kPage);
  std::memset(at, 1, 4 * kPage);
  Shared shared(at, 4 * kPage);
  ASSERT_TRUE(shared.direct());
  const DaemonView daemon(shared);
  EXPECT_TRUE(passes_in_child([&] {
    PageSharing::instance().unshare(at, 4 * kPage);  // a registration of the parent: no effect
    Shared own(at, 4 * kPage);
    expect_same_memory(own, at);
    at[0] = 5;
    EXPECT_TRUE(passes_in_child([&] {
      EXPECT_EQ(at[0], 5);
      at[0] = 6;
      Shared third(at, 4 * kPage);
      expect_same_memory(third, at);
    }));
    EXPECT_EQ(at[0], 5);
    EXPECT_EQ(DaemonView(own).at(0), 5);
  }));
  EXPECT_EQ(at[0], 1);
  EXPECT_EQ(daemon.at(0), 1);
  shared.stop();
  EXPECT_TRUE(is_private_anonymous(at));
  ::munmap(at, 4 * kPage);
}

#ifndef __SANITIZE_THREAD__  // starts no threads in a child of fork

TEST(PageSharingFork, AForkWhileAThreadBegins) {
  unsigned char* at = map_anonymous(kPage);
  for (int round = 0; round < 200; ++round) {
    Shared shared(at, kPage);
    std::atomic<bool> stop = false;
    std::thread beginning([&] { stop.wait(false); });
    EXPECT_TRUE(passes_in_child([&] { std::thread([&] { EXPECT_TRUE(is_private_anonymous(at)); }).join(); }));
    stop = true;
    stop.notify_one();
    beginning.join();
  }
  ::munmap(at, kPage);
}

#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kAllocatorSurvivesFork = false;  // its locks may be held by a thread that the child does not have
#elif defined(__has_feature)
constexpr bool kAllocatorSurvivesFork = !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer);
#else
constexpr bool kAllocatorSurvivesFork = true;
#endif

TEST(PageSharingFork, TheHeapOfAChildWorks) {
  if (!kAllocatorSurvivesFork) GTEST_SKIP() << "the sanitizers' mallocs don't, among threads";
  std::vector<unsigned char*> blocks;
  std::vector<std::unique_ptr<Shared>> shared;
  for (int i = 0; i < 200; ++i) {
    blocks.push_back(static_cast<unsigned char*>(std::malloc(1000)));
    std::memset(blocks.back(), i, 1000);
    if (i % 2 == 0) shared.push_back(std::make_unique<Shared>(blocks.back(), 1000));
  }
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      std::vector<void*> mine;
      while (!stop) {
        for (std::size_t i = 0; i < 100; ++i) mine.push_back(std::malloc(10 + i * 13));
        Shared one(mine[50], 10);
        for (void* block : mine) std::free(block);
        mine.clear();
      }
    });
  }
  for (int round = 0; round < 50; ++round) {
    ASSERT_TRUE(passes_in_child([&] {
      for (int i = 0; i < 200; ++i) {
        EXPECT_EQ(blocks[static_cast<std::size_t>(i)][999], i);
        std::free(blocks[static_cast<std::size_t>(i)]);
      }
      std::vector<void*> mine;
      for (std::size_t i = 0; i < 2000; ++i) mine.push_back(std::malloc(i));
      for (void* block : mine) std::free(block);
    })) << round;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  shared.clear();
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(blocks[static_cast<std::size_t>(i)][999], i);
    std::free(blocks[static_cast<std::size_t>(i)]);
  }
}

/// The start of the thread's malloc heap that contains `block`; null if malloc is not glibc's.
__attribute__((noinline, no_sanitize("address", "thread"))) unsigned char* heap_of(void* block) {
  MappingReader reader;
  Mapping mapping;
  const auto heap = reinterpret_cast<std::uintptr_t>(block) & ~((std::uintptr_t{64} << 20) - 1);
  if (reader.open() != 0 || reader.at_or_after(heap, mapping) != 0 || mapping.start != heap) return nullptr;
  const std::uintptr_t first = *reinterpret_cast<std::uintptr_t*>(heap);
  return first > heap && first < heap + 256 ? reinterpret_cast<unsigned char*>(heap) : nullptr;
}

TEST(PageSharingFork, ThreadArenasSurviveAFork) {
  // The first blocks of a thread's heap are next to its arena header, which fork() writes to in the child.
  std::atomic<int> stage = 0;
  std::thread owner([&] {
    void* block = std::malloc(64);
    if (unsigned char* heap = heap_of(block); heap != nullptr) {
      Shared beside(heap + 4000, 8);
      EXPECT_TRUE(beside.indirect());
      stage = 1;
      while (stage == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    stage = 2;
    std::free(block);
  });  // at thread exit glibc checks the arena's count of threads
  while (stage == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  for (int i = 0; i < 10 && stage == 1; ++i) EXPECT_TRUE(passes_in_child([] {}));
  stage = 2;
  owner.join();
}

TEST(PageSharingFork, SpawnedProgramsDoNotDisturb) {
  unsigned char* at = map_anonymous(4 * kPage);
  std::memset(at, 1, 4 * kPage);
  Shared shared(at, 4 * kPage);
  const DaemonView daemon(shared);
  EXPECT_EQ(std::system("true"), 0);
  const char* arguments[] = {"true", nullptr};
  pid_t child = -1;
  ASSERT_EQ(::posix_spawnp(&child, "true", nullptr, nullptr, const_cast<char**>(arguments), environ), 0);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(daemon.at(0), 1);
  expect_same_memory(shared, at);
  shared.stop();
  ::munmap(at, 4 * kPage);
}

TEST(PageSharingFork, MemoryMovedByMremapIsCopiedToo) {
  unsigned char* at = map_anonymous(4 * kPage);
  std::memset(at, 1, 4 * kPage);
  Shared shared(at, 4 * kPage);
  ASSERT_TRUE(shared.direct());
  unsigned char* place = map_anonymous(8 * kPage);
  ASSERT_EQ(::mremap(at, 4 * kPage, 4 * kPage, MREMAP_MAYMOVE | MREMAP_FIXED, place), place);
  EXPECT_TRUE(passes_in_child([&] {
    EXPECT_EQ(place[0], 1);
    place[0] = 2;
  }));
  EXPECT_EQ(place[0], 1);
  shared.stop();
  EXPECT_TRUE(is_private_anonymous(place));
  EXPECT_EQ(place[0], 1);
  ::munmap(place, 8 * kPage);
}

}  // namespace
}  // namespace uroce::page_sharing
