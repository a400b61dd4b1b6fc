// All kinds of memory that a program may register, and changes that it makes to the mapping afterwards.

#include <fcntl.h>
#include <pthread.h>
#include <sys/ipc.h>
#include <sys/shm.h>

#include <array>
#include <cstdlib>
#include <string>
#include <thread>

#include "fixture.h"

namespace uroce::page_sharing {
namespace {

TEST(PageSharingMapping, HolesAndMissingRightsAreFaults) {
  unsigned char* at = map_anonymous(4 * kPage);
  ::munmap(at + kPage, kPage);
  EXPECT_EQ(Shared(at, 2 * kPage).error(), EFAULT);
  EXPECT_EQ(Shared(at + kPage, 1).error(), EFAULT);
  EXPECT_EQ(Shared(reinterpret_cast<void*>(~std::uintptr_t{0} - 100), 4096).error(), EFAULT);
  EXPECT_EQ(Shared(nullptr, 1).error(), EFAULT);
  ::mprotect(at + 2 * kPage, kPage, PROT_READ);
  EXPECT_EQ(Shared(at + 2 * kPage, 2 * kPage, true).error(), EFAULT);
  {
    Shared readable(at + 2 * kPage, 2 * kPage, false);
    ASSERT_TRUE(readable.direct());
    EXPECT_EQ(DaemonView(readable, PROT_READ).at(0), 0);
  }
  ::mprotect(at + 3 * kPage, kPage, PROT_NONE);
  EXPECT_EQ(Shared(at + 3 * kPage, 1, false).error(), EFAULT);
  ::munmap(at, 4 * kPage);
}

/// In this process and in a child, whose mappings fork() has changed.
bool faults_on_write(void* at) {
  int pipe[2];
  EXPECT_EQ(::pipe(pipe), 0);
  EXPECT_EQ(::write(pipe[1], "x", 1), 1);
  const bool here = ::read(pipe[0], at, 1) == -1 && errno == EFAULT;
  const bool in_child = passes_in_child([&] { EXPECT_TRUE(::read(pipe[0], at, 1) == -1 && errno == EFAULT); });
  ::close(pipe[0]);
  ::close(pipe[1]);
  return here && in_child;
}

TEST(PageSharingMapping, ProtectionOfTheProgramIsKept) {
  unsigned char* at = map_anonymous(3 * kPage);
  at[kPage] = 7;
  ::mprotect(at + kPage, kPage, PROT_READ);
  Shared shared(at, 3 * kPage, false);
  ASSERT_TRUE(shared.direct());
  EXPECT_EQ(DaemonView(shared).at(kPage), 7);
  EXPECT_TRUE(faults_on_write(at + kPage));
  ::mprotect(at + kPage, kPage, PROT_READ | PROT_WRITE);
  at[kPage] = 8;
  EXPECT_EQ(DaemonView(shared).at(kPage), 8);
  ::mprotect(at + kPage, kPage, PROT_READ);
  shared.stop();
  EXPECT_EQ(at[kPage], 8);
  EXPECT_TRUE(faults_on_write(at + kPage));
  ::munmap(at, 3 * kPage);
}

TEST(PageSharingMapping, UnmappedAndMappedAgainAtTheSameAddress) {
  unsigned char* at = map_anonymous(4 * kPage);
  std::memset(at, 1, 4 * kPage);
  Shared old(at, 4 * kPage);
  ASSERT_TRUE(old.direct());
  const DaemonView old_view(old);
  ::munmap(at, 4 * kPage);
  ASSERT_EQ(::mmap(at, 4 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), at);
  at[3] = 9;
  Shared fresh(at, 4 * kPage);
  expect_same_memory(fresh, at);
  EXPECT_EQ(DaemonView(fresh).at(3), 9);
  EXPECT_EQ(DaemonView(fresh).at(4), 0);
  EXPECT_EQ(old_view.at(3), 1);  // the old registration keeps the old pages, as with an adapter
  old_view.at(5) = 77;
  EXPECT_EQ(at[5], 0);
  old.stop();
  expect_same_memory(fresh, at);
  fresh.stop();
  EXPECT_TRUE(is_private_anonymous(at));
  EXPECT_EQ(at[3], 9);
  ::munmap(at, 4 * kPage);
}

TEST(PageSharingMapping, PartUnmappedWhileRegistered) {
  unsigned char* at = map_anonymous(4 * kPage);
  std::memset(at, 1, 4 * kPage);
  Shared shared(at, 4 * kPage);
  ASSERT_TRUE(shared.direct());
  ::munmap(at + kPage, kPage);
  shared.stop();
  EXPECT_TRUE(is_private_anonymous(at));
  EXPECT_TRUE(is_private_anonymous(at + 2 * kPage));
  EXPECT_EQ(at[0] + at[2 * kPage] + at[3 * kPage], 3);
  EXPECT_EQ(Shared(at, 4 * kPage).error(), EFAULT);
  ::munmap(at, 4 * kPage);
}

TEST(PageSharingMapping, MovedByTheProgramWhileRegistered) {
  unsigned char* at = map_anonymous(4 * kPage);
  std::memset(at, 1, 4 * kPage);
  Shared shared(at, 4 * kPage);
  ASSERT_TRUE(shared.direct());
  const DaemonView view(shared);
  // Grows when moved, as realloc() of a large block does, across a neighbour that is registered, too.
  unsigned char* beyond = at + 4 * kPage;
  void* blocker =
      ::mmap(beyond, 8 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  auto* neighbour = static_cast<unsigned char*>(blocker == MAP_FAILED ? map_anonymous(8 * kPage) : blocker);
  std::memset(neighbour, 3, 8 * kPage);
  Shared other(neighbour, 8 * kPage);
  auto* moved = static_cast<unsigned char*>(::mremap(at, 4 * kPage, 12 * kPage, MREMAP_MAYMOVE));
  ASSERT_NE(static_cast<void*>(moved), MAP_FAILED);
  for (std::size_t i = 0; i < 4 * kPage; ++i) ASSERT_EQ(moved[i], 1);
  for (std::size_t i = 4 * kPage; i < 12 * kPage; ++i) ASSERT_EQ(moved[i], 0) << i;
  std::memset(moved + 4 * kPage, 2, 8 * kPage);
  for (std::size_t i = 0; i < 8 * kPage; ++i) ASSERT_EQ(neighbour[i], 3) << i;
  view.at(17) = 42;  // the registration follows the pages
  EXPECT_EQ(moved[17], 42);
  Shared at_new_place(moved, 12 * kPage);
  expect_same_memory(at_new_place, moved);
  at_new_place.stop();
  EXPECT_EQ(view.at(17), 42);
  shared.stop();
  for (std::size_t i = 0; i < 12; ++i) EXPECT_TRUE(is_private_anonymous(moved + i * kPage)) << i;
  EXPECT_EQ(moved[17], 42);
  for (std::size_t i = 4 * kPage; i < 12 * kPage; ++i) ASSERT_EQ(moved[i], 2);
  ::munmap(moved, 12 * kPage);
  other.stop();
  ::munmap(neighbour, 8 * kPage);
}

TEST(PageSharingMapping, ReallocOfARegisteredBlock) {
  constexpr std::size_t kBytes = 1 << 20;
  auto* block = static_cast<unsigned char*>(std::malloc(kBytes));
  std::memset(block, 5, kBytes);
  Shared shared(block, kBytes);
  ASSERT_EQ(shared.error(), 0);
  auto* grown = static_cast<unsigned char*>(std::realloc(block, 5 * kBytes));
  for (std::size_t i = 0; i < kBytes; ++i) ASSERT_EQ(grown[i], 5);
  std::memset(grown, 6, 5 * kBytes);
  shared.stop();
  for (std::size_t i = 0; i < 5 * kBytes; ++i) ASSERT_EQ(grown[i], 6);
  Shared again(grown, 5 * kBytes);
  expect_same_memory(again, grown);
  again.stop();
  std::free(grown);
}

TEST(PageSharingMapping, DeregisteredPagesAreOrdinaryAgain) {
  unsigned char* at = map_anonymous(8 * kPage);
  std::memset(at, 1, 8 * kPage);
  Shared(at, 8 * kPage).stop();
  for (std::size_t i = 0; i < 8 * kPage; ++i) ASSERT_EQ(at[i], 1);
  EXPECT_TRUE(passes_in_child([&] {
    at[0] = 2;
    at[5 * kPage] = 2;
  }));
  EXPECT_EQ(at[0], 1);  // copied on write
  EXPECT_EQ(at[5 * kPage], 1);
  ASSERT_EQ(::madvise(at + kPage, 6 * kPage, MADV_DONTNEED), 0);
  for (std::size_t i = kPage; i < 7 * kPage; ++i) ASSERT_EQ(at[i], 0);
  EXPECT_EQ(at[0] + at[7 * kPage], 2);
  std::memset(at, 3, 8 * kPage);
  Shared again(at, 8 * kPage);
  expect_same_memory(again, at);
  ::munmap(at, 8 * kPage);
}

TEST(PageSharingMapping, StacksAreReachedIndirectly) {
  std::array<unsigned char, 64> here = {};
  Shared own(here.data(), here.size());
  EXPECT_TRUE(own.indirect());
  std::array<unsigned char, 20000> large = {};
  EXPECT_TRUE(Shared(large.data(), large.size()).indirect());

  std::thread([] {
    std::array<unsigned char, 64> of_thread = {};
    Shared stack(of_thread.data(), of_thread.size());
    EXPECT_TRUE(stack.indirect());
    std::thread([&] {
      Shared of_other(of_thread.data(), of_thread.size());
      EXPECT_TRUE(of_other.indirect());
    }).join();
  }).join();

  static thread_local unsigned char local[64];
  EXPECT_TRUE(Shared(local, sizeof(local)).indirect());
}

TEST(PageSharingMapping, AStackThatTheProgramMade) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  unsigned char* stack = map_anonymous(kBytes);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  ASSERT_EQ(pthread_attr_setstack(&attributes, stack, kBytes), 0);
  pthread_t thread;
  auto body = [](void* of) -> void* {
    unsigned char local[64] = {};
    EXPECT_TRUE(Shared(local, sizeof(local)).indirect());
    EXPECT_TRUE(Shared(of, kPage).indirect());
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, body, stack), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  ::munmap(stack, kBytes);
}

unsigned char initialised[64] = {1};
unsigned char zeroed[64 * kPage];

TEST(PageSharingMapping, StaticBuffers) {
  Shared data(initialised, sizeof(initialised));  // a private mapping of the program's file
  EXPECT_TRUE(data.indirect());
  unsigned char* inner = zeroed + kPage;
  inner[0] = 3;
  {
    Shared bss(inner, 32 * kPage);
    expect_same_memory(bss, inner);
  }
  EXPECT_EQ(inner[0], 3);
  EXPECT_EQ(Shared(const_cast<char*>("a constant of the program"), 10, true).error(), EFAULT);
  EXPECT_TRUE(Shared(const_cast<char*>("a constant of the program"), 10, false).indirect());
}

struct TemporaryFile {
  explicit TemporaryFile(const char* folder) : path(std::string(folder) + "/uroce-share-XXXXXX") {
    fd = ::mkstemp(path.data());
    EXPECT_GE(fd, 0);
    EXPECT_EQ(::ftruncate(fd, 8 * kPage), 0);
  }
  ~TemporaryFile() {
    ::close(fd);
    ::unlink(path.c_str());
  }
  std::string path;
  int fd;
};

TEST(PageSharingMapping, FilesAreSharedAsTheyAre) {
  for (const char* folder : {"/tmp", "/dev/shm"}) {
    TemporaryFile file(folder);
    auto* at = static_cast<unsigned char*>(
        ::mmap(nullptr, 4 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd, 2 * kPage));
    ASSERT_NE(static_cast<void*>(at), MAP_FAILED);
    at[kPage + 10] = 4;
    {
      Shared shared(at + kPage + 10, 100);
      expect_same_memory(shared, at + kPage + 10);
      EXPECT_EQ(shared.range().pieces[0].offset, 3 * kPage);
      unsigned char byte = 0;
      EXPECT_EQ(::pread(file.fd, &byte, 1, 3 * kPage + 10), 1);
      EXPECT_EQ(byte, 4);
    }
    const int other = ::open(file.path.c_str(), O_RDONLY | O_CLOEXEC);
    void* readable = ::mmap(nullptr, kPage, PROT_READ, MAP_SHARED, other, 0);
    EXPECT_EQ(Shared(readable, 10, true).error(), EFAULT);
    EXPECT_TRUE(Shared(readable, 10, false).direct());
    ::munmap(readable, kPage);
    ::close(other);
    void* copy = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE, file.fd, 0);
    EXPECT_TRUE(Shared(copy, 10, true).indirect());
    ::munmap(copy, kPage);
    ::munmap(at, 4 * kPage);
  }
}

TEST(PageSharingMapping, AFileThatTheProgramHasClosed) {
  TemporaryFile file("/dev/shm");
  auto* at = static_cast<unsigned char*>(::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd, 0));
  ::close(file.fd);
  Shared shared(at, kPage);
  expect_same_memory(shared, at);
  file.fd = ::open(file.path.c_str(), O_RDWR | O_CLOEXEC);
  ::munmap(at, kPage);
}

TEST(PageSharingMapping, DescriptorsAreNotUsedUp) {
  const int memfd = ::memfd_create("of the program", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(memfd, 64 * kPage), 0);
  auto* at = static_cast<unsigned char*>(::mmap(nullptr, 64 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0));
  {
    Shared first(at, kPage);
    const int next = ::dup(memfd);
    ::close(next);
    for (std::size_t i = 0; i < 64; ++i) {
      Shared one(at + i * kPage, kPage);
      ASSERT_TRUE(one.direct());
      EXPECT_EQ(one.range().pieces[0].fd, first.range().pieces[0].fd);
    }
    const int after = ::dup(memfd);
    EXPECT_EQ(after, next);
    ::close(after);
  }
  ::munmap(at, 64 * kPage);
  ::close(memfd);
}

TEST(PageSharingMapping, SharedAnonymousAndSystemVMemory) {
  void* anonymous = ::mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Shared a(anonymous, 2 * kPage);
  EXPECT_EQ(a.error(), 0);
  if (a.direct()) expect_same_memory(a, anonymous);  // needs privileges
  ::munmap(anonymous, 2 * kPage);

  const int id = ::shmget(IPC_PRIVATE, 4 * kPage, 0600);
  if (id < 0) GTEST_SKIP() << "no System V shared memory here";
  void* segment = ::shmat(id, nullptr, 0);
  ::shmctl(id, IPC_RMID, nullptr);
  Shared b(segment, 4 * kPage);
  EXPECT_EQ(b.error(), 0);
  if (b.direct()) expect_same_memory(b, segment);
  b.stop();
  ::shmdt(segment);
}

TEST(PageSharingMapping, HugePages) {
  constexpr std::size_t kHuge = std::size_t{2} << 20;
  const int memfd = ::memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB);
  if (memfd < 0 || ::ftruncate(memfd, kHuge) != 0) GTEST_SKIP() << "no hugetlb here";
  void* shared_at = ::mmap(nullptr, kHuge, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
  if (shared_at == MAP_FAILED) GTEST_SKIP() << "no huge pages reserved (sysctl vm.nr_hugepages=8)";
  auto* at = static_cast<unsigned char*>(shared_at);
  at[5] = 6;
  {
    Shared whole(at, kHuge);
    expect_same_memory(whole, at);
    Shared part(at + 5 * kPage, kPage);
    ASSERT_TRUE(part.direct());
    EXPECT_EQ(part.range().pieces[0].offset, 5 * kPage);
  }
  ::munmap(at, kHuge);
  ::close(memfd);
  void* own = ::mmap(nullptr, kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
  if (own == MAP_FAILED) return;
  Shared private_huge(own, kHuge);
  EXPECT_TRUE(private_huge.indirect());
  ::munmap(own, kHuge);
}

TEST(PageSharingMapping, SeveralMappingsInOneRegion) {
  const int memfd = ::memfd_create("of the program", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(memfd, kPage), 0);
  unsigned char* at = map_anonymous(4 * kPage);
  ASSERT_NE(::mmap(at + kPage, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memfd, 0), MAP_FAILED);
  at[0] = 1;
  at[kPage] = 2;
  at[3 * kPage] = 3;
  {
    Shared shared(at, 4 * kPage);
    ASSERT_TRUE(shared.direct());
    EXPECT_EQ(shared.range().pieces.size(), 3u);
    const DaemonView daemon(shared);
    EXPECT_EQ(daemon.at(0) + daemon.at(kPage) * 10 + daemon.at(3 * kPage) * 100, 321);
  }
  EXPECT_TRUE(is_private_anonymous(at));
  EXPECT_FALSE(is_private_anonymous(at + kPage));
  EXPECT_EQ(at[0] + at[kPage] * 10 + at[3 * kPage] * 100, 321);
  ::munmap(at, 4 * kPage);
  ::close(memfd);
}

TEST(PageSharingMapping, MemoryReachedIndirectlyDoesNotMove) {
  unsigned char* at = map_anonymous(3 * kPage);
  TemporaryFile file("/tmp");
  ASSERT_NE(::mmap(at + kPage, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file.fd, 0), MAP_FAILED);
  Shared mixed(at, 2 * kPage);
  EXPECT_TRUE(mixed.indirect());
  Shared part(at, kPage);
  EXPECT_TRUE(part.indirect());
  mixed.stop();
  part.stop();
  Shared alone(at, kPage);
  EXPECT_TRUE(alone.direct());
  ::munmap(at, 3 * kPage);
}

TEST(PageSharingMapping, AllDescriptorsClosedByTheProgram) {
  EXPECT_TRUE(passes_in_child([] {
    unsigned char* at = map_anonymous(4 * kPage);
    at[0] = 1;
    Shared before(at, kPage);
    ASSERT_TRUE(before.direct());
    for (int fd = 3; fd < 100; ++fd) ::close(fd);
    const int reused = ::memfd_create("of the program", MFD_CLOEXEC);
    ASSERT_GE(reused, 3);
    Shared after(at + kPage, kPage);
    expect_same_memory(after, at + kPage);
    EXPECT_NE(after.range().pieces[0].fd, reused);
    before.stop();
    EXPECT_EQ(at[0], 1);
    EXPECT_EQ(::fcntl(reused, F_GETFD), FD_CLOEXEC);
  }));
}

}  // namespace
}  // namespace uroce::page_sharing
