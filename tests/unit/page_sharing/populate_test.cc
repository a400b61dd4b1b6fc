// The pages of a registration are allocated by the program: the daemon allocates none.
#include "page_sharing/populate.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <vector>

#include "fixture.h"
#include "page_sharing/raw_syscall.h"

namespace uroce::page_sharing {
namespace {

constexpr std::size_t kPages = 16;

std::uint64_t allocated_pages(int fd) {
  struct stat info {};
  EXPECT_EQ(::fstat(fd, &info), 0);
  return static_cast<std::uint64_t>(info.st_blocks) * 512 / kPage;
}

/// Of the pages of a piece, those that exist.
std::uint64_t allocated_pages_of(const SharedPiece& piece) {
  void* const at = ::mmap(nullptr, piece.bytes, PROT_READ, MAP_SHARED, piece.fd, static_cast<off_t>(piece.offset));
  std::vector<unsigned char> present(piece.bytes / kPage);
  EXPECT_EQ(::mincore(at, piece.bytes, present.data()), 0);
  ::munmap(at, piece.bytes);
  return static_cast<std::uint64_t>(
      std::count_if(present.begin(), present.end(), [](auto page) { return page & 1; }));
}

struct Sparse {
  explicit Sparse(std::size_t pages, int protection = PROT_READ | PROT_WRITE, unsigned flags = MFD_CLOEXEC)
      : fd(::memfd_create("sparse", flags)), bytes(pages * kPage) {
    EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
    at = static_cast<unsigned char*>(::mmap(nullptr, bytes, protection, MAP_SHARED, fd.get(), 0));
  }
  ~Sparse() { ::munmap(at, bytes); }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;

  RawFd fd;
  std::size_t bytes;
  unsigned char* at;
};

TEST(Populate, AllocatesThePagesOfMovedMemoryAndOnlyThose) {
  unsigned char* const at = map_anonymous(3 * kPages * kPage);
  const Shared shared(at + kPages * kPage + 100, kPages * kPage - 200);
  ASSERT_TRUE(shared.direct());
  const SharedPiece& piece = shared.range().pieces[0];
  const std::uint64_t others = allocated_pages(piece.fd) - allocated_pages_of(piece);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(populate(at + kPages * kPage + 100, shared.range()), 0);
    EXPECT_EQ(allocated_pages_of(piece), kPages);
    EXPECT_EQ(allocated_pages(piece.fd), others + kPages);
  }
}

TEST(Populate, AllocatesThePagesOfSparseFilesAlsoWhereTheProgramMayOnlyRead) {
  for (const int protection : {PROT_READ, PROT_READ | PROT_WRITE}) {
    const Sparse file(kPages, protection);
    const Shared shared(file.at + 2 * kPage, 5 * kPage, false);
    ASSERT_TRUE(shared.direct());
    ASSERT_EQ(populate(file.at + 2 * kPage, shared.range()), 0);
    EXPECT_EQ(allocated_pages(file.fd.get()), 5u);
  }
}

TEST(Populate, AllocatesThePagesOfEachPiece) {
  unsigned char* const at = map_anonymous(12 * kPage);
  const Sparse first(4), second(4);
  ASSERT_NE(::mmap(at, 4 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, first.fd.get(), 0), MAP_FAILED);
  ASSERT_NE(::mmap(at + 8 * kPage, 4 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, second.fd.get(), 0),
            MAP_FAILED);
  const Shared shared(at + kPage, 10 * kPage);
  ASSERT_TRUE(shared.direct());
  ASSERT_EQ(shared.range().pieces.size(), 3u);
  ASSERT_EQ(populate(at + kPage, shared.range()), 0);
  EXPECT_EQ(allocated_pages(first.fd.get()), 3u);
  EXPECT_EQ(allocated_pages_of(shared.range().pieces[1]), 4u);
  EXPECT_EQ(allocated_pages(second.fd.get()), 3u);
}

TEST(Populate, FailsPastTheEndOfTheFileWithoutASignal) {
  const Sparse file(4);
  ASSERT_EQ(::ftruncate(file.fd.get(), 2 * kPage), 0);
  const Shared shared(file.at, 4 * kPage);
  ASSERT_TRUE(shared.direct());
  EXPECT_EQ(populate(file.at, shared.range()), EFAULT);
  ASSERT_EQ(populate_file(shared.range().pieces[0]), 0);
  EXPECT_EQ(allocated_pages(file.fd.get()), 2u);
}

TEST(Populate, OfTheFileDoesTheSame) {
  const Sparse file(kPages);
  ASSERT_EQ(populate_file({file.fd.get(), 2 * kPage, 5 * kPage}), 0);
  EXPECT_EQ(allocated_pages(file.fd.get()), 5u);
}

TEST(Populate, AllocatesHugepages) {
  constexpr std::size_t kHuge = 2u << 20;
  for (const bool by_file : {false, true}) {
    const RawFd probe(::memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB | (21u << 26)));
    if (!probe.valid() || ::ftruncate(probe.get(), kHuge) != 0) GTEST_SKIP() << "no hugepages of 2 MiB";
    void* const at = ::mmap(nullptr, kHuge, PROT_READ | PROT_WRITE, MAP_SHARED, probe.get(), 0);
    if (at == MAP_FAILED) GTEST_SKIP() << "no hugepages of 2 MiB are free";
    const Shared shared(static_cast<unsigned char*>(at) + kPage, kPage);
    ASSERT_TRUE(shared.direct());
    const int error = by_file ? populate_file(shared.range().pieces[0])
                              : populate(static_cast<unsigned char*>(at) + kPage, shared.range());
    EXPECT_EQ(error, 0);
    EXPECT_EQ(allocated_pages(probe.get()), kHuge / kPage);
    ::munmap(at, kHuge);
  }
}

// Their pages are a cache, and a page fault of theirs may wait for a server.
TEST(Populate, LeavesFilesOnADiskAlone) {
  char name[] = "populate-XXXXXX";
  const RawFd fd(::mkstemp(name));
  ASSERT_TRUE(fd.valid());
  ::unlink(name);
  if (::fcntl(fd.get(), F_GET_SEALS) >= 0) GTEST_SKIP() << "this folder is in memory";
  ASSERT_EQ(::ftruncate(fd.get(), kPages * kPage), 0);
  void* const at = ::mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  ASSERT_NE(at, MAP_FAILED);
  const Shared shared(at, kPages * kPage);
  ASSERT_TRUE(shared.direct());
  ASSERT_EQ(populate(at, shared.range()), 0);
  unsigned char present[kPages];
  ASSERT_EQ(::mincore(at, kPages * kPage, present), 0);
  for (const unsigned char page : present) EXPECT_EQ(page & 1, 0);
  ::munmap(at, kPages * kPage);
}

}  // namespace
}  // namespace uroce::page_sharing
