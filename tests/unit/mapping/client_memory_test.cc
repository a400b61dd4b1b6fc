#include "mapping/client_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/falloc.h>
#include <linux/magic.h>
#include <linux/memfd.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <initializer_list>

#include "mapping/sigbus_guard.h"
#include "mapping/untrusted_fd.h"

namespace uroce::mapping {
namespace {

constexpr std::size_t kPage = 4096;

UniqueFd make_sparse(std::size_t bytes, unsigned flags = MFD_CLOEXEC) {
  UniqueFd file(::memfd_create("client", flags));
  EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
  return file;
}

/// Reads each page, which allocates it.
void populate(const UniqueFd& file, std::size_t bytes) {
  void* const at = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, file.get(), 0);
  ASSERT_NE(at, MAP_FAILED);
  ::munmap(at, bytes);
}

/// A file whose pages the client has allocated.
UniqueFd make_file(std::size_t bytes) {
  UniqueFd file = make_sparse(bytes);
  if (bytes != 0) populate(file, (bytes + kPage - 1) / kPage * kPage);
  return file;
}

std::uint64_t allocated_bytes(const UniqueFd& file) {
  struct stat info {};
  EXPECT_EQ(::fstat(file.get(), &info), 0);
  return static_cast<std::uint64_t>(info.st_blocks) * 512;
}

void put(const UniqueFd& file, std::size_t offset, const char* text) {
  ASSERT_EQ(::pwrite(file.get(), text, std::strlen(text), static_cast<off_t>(offset)),
            static_cast<ssize_t>(std::strlen(text)));
}

class ClientMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SigbusGuard::instance().install();
    while (SigbusGuard::instance().take_offender() != 0 || SigbusGuard::instance().take_loser() != 0) {
    }
  }
  int map(std::vector<uroce_mr_piece> pieces, std::vector<UniqueFd>& fds, bool writable, ClientMemory::Hold& hold) {
    return memory_.map(pieces, fds, {.writable = writable}, hold);
  }
  ClientMemory memory_{42, std::make_shared<StallBudget>()};
};

TEST_F(ClientMemoryTest, SeesWhatTheClientWritesAndWritesWhatItSees) {
  std::vector<UniqueFd> fds;
  fds.push_back(make_file(16 * kPage));
  put(fds[0], 5 * kPage, "hello");
  ClientMemory::Hold hold;
  ASSERT_EQ(map({{0, 0, 5 * kPage, 2 * kPage}}, fds, true, hold), 0);
  EXPECT_EQ(std::memcmp(hold.base(), "hello", 5), 0);
  std::memcpy(hold.base() + kPage, "world", 5);
  char seen[5];
  ASSERT_EQ(::pread(fds[0].get(), seen, 5, 6 * kPage), 5);
  EXPECT_EQ(std::memcmp(seen, "world", 5), 0);
  memory_.unmap(hold);
  EXPECT_EQ(memory_.mappings(), 0u);
}

TEST_F(ClientMemoryTest, TenThousandRegionsOfOneFileShareAFewMappings) {
  std::vector<UniqueFd> fds;
  fds.push_back(make_file(10'000 * kPage));
  std::vector<ClientMemory::Hold> holds(10'000);
  for (std::size_t i = 0; i < holds.size(); ++i) {
    ASSERT_EQ(map({{0, 0, i * kPage, kPage}}, fds, true, holds[i]), 0);
  }
  EXPECT_LE(memory_.mappings(), 4u);
  for (ClientMemory::Hold& hold : holds) memory_.unmap(hold);
  EXPECT_EQ(memory_.mappings(), 0u);
}

TEST_F(ClientMemoryTest, JoinsPiecesOfSeveralFilesSideBySide) {
  std::vector<UniqueFd> fds;
  fds.push_back(make_file(4 * kPage));
  fds.push_back(make_file(4 * kPage));
  put(fds[0], 3 * kPage, "first");
  put(fds[1], 0, "second");
  ClientMemory::Hold hold;
  ASSERT_EQ(map({{0, 0, 3 * kPage, kPage}, {1, 0, 0, 2 * kPage}}, fds, true, hold), 0);
  EXPECT_EQ(std::memcmp(hold.base(), "first", 5), 0);
  EXPECT_EQ(std::memcmp(hold.base() + kPage, "second", 6), 0);
  memory_.unmap(hold);
  EXPECT_EQ(memory_.mappings(), 0u);
}

TEST_F(ClientMemoryTest, RefusesPiecesThatMakeNoSense) {
  std::vector<UniqueFd> fds;
  fds.push_back(make_file(4 * kPage));
  ClientMemory::Hold hold;
  EXPECT_EQ(map({}, fds, true, hold), EINVAL);
  EXPECT_EQ(map({{1, 0, 0, kPage}}, fds, true, hold), EINVAL);
  EXPECT_EQ(map({{0, 0, 1, kPage}}, fds, true, hold), EINVAL);
  EXPECT_EQ(map({{0, 0, 0, 0}}, fds, true, hold), EINVAL);
  EXPECT_EQ(map({{0, 0, 0, 100}}, fds, true, hold), EINVAL);
  EXPECT_EQ(map({{0, 0, ~std::uint64_t{0} - kPage + 1, 2 * kPage}}, fds, true, hold), EINVAL);
  EXPECT_EQ(map({{0, 0, 0, kPage}, {0, 0, kPage, ~std::uint64_t{0} - kPage + 1}}, fds, true, hold), EINVAL);
  EXPECT_EQ(memory_.mappings(), 0u);
}

TEST_F(ClientMemoryTest, WhatIsPastTheEndOfTheFileIsRefusedAsPinningIt) {
  std::vector<UniqueFd> fds;
  fds.push_back(make_file(kPage));          // one page
  fds.push_back(make_file(2 * kPage + 1));  // the third page is a partial one
  fds.push_back(make_file(0));
  struct {
    std::uint32_t fd;
    std::uint64_t first, pages;
    int error;
  } const cases[] = {{0, 0, 1, 0},      {0, 0, 8, EFAULT}, {0, 1, 1, EFAULT}, {0, 1ull << 40, 1, EFAULT},
                     {1, 0, 3, 0},      {1, 2, 1, 0},      {1, 2, 2, EFAULT}, {1, 3, 1, EFAULT},
                     {1, 0, 4, EFAULT}, {2, 0, 1, EFAULT}};
  for (const auto& [fd, first, pages, error] : cases) {
    SCOPED_TRACE("file " + std::to_string(fd) + ", " + std::to_string(pages) + " from " + std::to_string(first));
    ClientMemory::Hold hold, joined;
    EXPECT_EQ(map({{fd, 0, first * kPage, pages * kPage}}, fds, true, hold), error);
    EXPECT_EQ(map({{0, 0, 0, kPage}, {fd, 0, first * kPage, pages * kPage}}, fds, true, joined), error);
    memory_.unmap(hold);
    memory_.unmap(joined);
  }
  EXPECT_EQ(memory_.mappings(), 0u);
}

TEST_F(ClientMemoryTest, ASharedMappingThatGoesFurtherThanTheFileGivesNoMoreOfIt) {
  std::vector<UniqueFd> fds;
  fds.push_back(make_file(kPage));
  ClientMemory::Hold first, second;
  ASSERT_EQ(map({{0, 0, 0, kPage}}, fds, true, first), 0);
  EXPECT_EQ(map({{0, 0, kPage, kPage}}, fds, true, second), EFAULT);
  ASSERT_EQ(::ftruncate(fds[0].get(), 2 * kPage), 0);
  EXPECT_EQ(map({{0, 0, kPage, kPage}}, fds, true, second), 0);
  memory_.unmap(second);
  memory_.unmap(first);
}

TEST_F(ClientMemoryTest, TheFileOfAnOnDemandRegionMayGrowLater) {
  std::vector<UniqueFd> fds;
  fds.push_back(make_file(kPage));
  const uroce_mr_piece piece{0, 0, 0, 2 * kPage};
  ClientMemory::Hold hold;
  ASSERT_EQ(memory_.map({&piece, 1}, fds, {.writable = true, .on_demand = true}, hold), 0);
  ASSERT_EQ(::ftruncate(fds[0].get(), 2 * kPage), 0);
  put(fds[0], kPage, "later");
  EXPECT_EQ(std::memcmp(hold.base() + kPage, "later", 5), 0);
  memory_.unmap(hold);
}

TEST_F(ClientMemoryTest, AFileOfHugepagesIsNotLengthened) {
  constexpr std::size_t kHuge = 2u << 20;
  std::vector<UniqueFd> fds;
  fds.emplace_back(::memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB | (21u << MFD_HUGE_SHIFT)));
  if (!fds[0].valid()) GTEST_SKIP() << "no hugepages of 2 MiB";
  ASSERT_EQ(::ftruncate(fds[0].get(), kHuge), 0);
  const uroce_mr_piece within{0, 0, kHuge - kPage, kPage}, past{0, 0, kHuge, kPage};
  for (const bool on_demand : {false, true}) {
    ClientMemory::Hold hold;
    EXPECT_EQ(memory_.map({&past, 1}, fds, {.writable = true, .on_demand = on_demand}, hold), EFAULT);
  }
  struct stat info {};
  ASSERT_EQ(::fstat(fds[0].get(), &info), 0);
  EXPECT_EQ(info.st_size, off_t{kHuge});
  ClientMemory::Hold hold;
  EXPECT_EQ(memory_.map({&within, 1}, fds, {.writable = true}, hold), 0);
  memory_.unmap(hold);
}

TEST_F(ClientMemoryTest, RefusesFilesWhoseFaultsMayTakeForEver) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  std::vector<UniqueFd> fds;
  fds.emplace_back(ends[0]);
  fds.emplace_back(ends[1]);
  ClientMemory::Hold hold;
  EXPECT_EQ(map({{0, 0, 0, kPage}}, fds, false, hold), EOPNOTSUPP);
}

FileFacts file_of(std::uint32_t magic, std::uint64_t block_bytes = kPage) {
  return {.magic = magic, .block_bytes = block_bytes, .regular = true};
}

TEST(FileKindTest, DevicesAreNotFilesOfTheirFileSystem) {
  for (const auto magic :
       {std::uint32_t{TMPFS_MAGIC}, std::uint32_t{HUGETLBFS_MAGIC}, std::uint32_t{EXT4_SUPER_MAGIC}}) {
    EXPECT_EQ(kind_of_file({.magic = magic, .block_bytes = kPage}).faults, FileKind::Faults::kRefused)
        << std::hex << magic;
  }
}

TEST_F(ClientMemoryTest, RefusesDevices) {
  std::vector<UniqueFd> fds;
  for (const char* path : {"/dev/zero", "/dev/null", "/dev/mem", "/dev/kvm"}) {
    fds.emplace_back(::open(path, O_RDWR | O_CLOEXEC));
    if (!fds.back().valid()) fds.pop_back();
  }
  ASSERT_FALSE(fds.empty());
  for (std::uint32_t fd = 0; fd < fds.size(); ++fd) {
    ClientMemory::Hold hold;
    EXPECT_EQ(map({{fd, 0, 0, kPage}}, fds, true, hold), EOPNOTSUPP);
    EXPECT_EQ(map({{fd, 0, 0, kPage}, {fd, 0, kPage, kPage}}, fds, true, hold), EOPNOTSUPP);
    EXPECT_EQ(memory_.map(std::vector<uroce_mr_piece>{{fd, 0, 0, kPage}}, fds, {true, true}, hold), EOPNOTSUPP);
  }
  EXPECT_EQ(memory_.mappings(), 0u);
}

TEST(FileKindTest, ADmaBufIsMappedNoFurtherThanThePiece) {
  const FileKind dma_buf = kind_of_file({.magic = DMA_BUF_MAGIC, .block_bytes = kPage});
  EXPECT_EQ(dma_buf.faults, FileKind::Faults::kFromMemory);
  const FileRange range = range_to_map(dma_buf, {0, 0, 3 * kPage, 2 * kPage});
  EXPECT_EQ(range.begin, 3 * kPage);
  EXPECT_EQ(range.end, 5 * kPage);
  // The mapping of a file is shared with regions next to it; a hugepage is mapped whole.
  const FileRange shared = range_to_map(kind_of_file(file_of(TMPFS_MAGIC)), {0, 0, 3 * kPage, 2 * kPage});
  EXPECT_EQ(shared.begin, 0u);
  EXPECT_EQ(shared.end, 64u << 20);
  const FileRange huge = range_to_map(kind_of_file(file_of(HUGETLBFS_MAGIC, 2u << 20)), {0, 0, 3u << 20, kPage});
  EXPECT_EQ(huge.begin, 2u << 20);
  EXPECT_EQ(huge.end, 4u << 20);
}

TEST(FileKindTest, SaysWhatServesThePageFaults) {
  constexpr std::uint32_t kZfs = 0x2fc12fc1, kBcachefs = 0xca451a4e, kCeph = 0x00c36400, kUnknownOverlay = 0;
  const auto expect = [](FileKind::Faults faults, std::initializer_list<std::uint32_t> magics) {
    for (const std::uint32_t magic : magics)
      EXPECT_EQ(kind_of_file(file_of(magic)).faults, faults) << std::hex << magic;
  };
  expect(FileKind::Faults::kFromMemory, {TMPFS_MAGIC, HUGETLBFS_MAGIC});
  expect(FileKind::Faults::kWaitForDisk, {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC, MSDOS_SUPER_MAGIC,
                                          OVERLAYFS_SUPER_MAGIC, kZfs, kBcachefs});
  expect(FileKind::Faults::kMayNotEnd,
         {NFS_SUPER_MAGIC, FUSE_SUPER_MAGIC, CIFS_SUPER_MAGIC, V9FS_MAGIC, kCeph, kUnknownOverlay});
  expect(FileKind::Faults::kRefused, {RAMFS_MAGIC});
}

TEST_F(ClientMemoryTest, MapsAFileOnADiskOnlyForWhoMayMakeItWait) {
  char name[] = "client-memory-XXXXXX";
  std::vector<UniqueFd> fds;
  fds.emplace_back(::mkstemp(name));
  ASSERT_TRUE(fds[0].valid());
  ::unlink(name);
  if (is_memory_file(fds[0].get())) GTEST_SKIP() << "this folder is in memory";
  ASSERT_EQ(::ftruncate(fds[0].get(), 4 * kPage), 0);
  fds.push_back(make_file(kPage));
  const std::vector<std::vector<uroce_mr_piece>> regions{
      {{0, 0, 0, kPage}}, {{0, 0, 0, kPage}, {0, 0, 2 * kPage, kPage}}, {{1, 0, 0, kPage}, {0, 0, 0, kPage}}};
  for (const auto& pieces : regions) {
    ClientMemory::Hold hold;
    EXPECT_EQ(memory_.map(pieces, fds, {.writable = true}, hold), ClientMemory::kWouldWait);
    EXPECT_EQ(memory_.mappings(), 0u);
    ASSERT_EQ(memory_.map(pieces, fds, {.writable = true, .may_wait = true}, hold), 0);
    hold.base()[0] = std::byte{1};
    memory_.unmap(hold);
  }
}

TEST_F(ClientMemoryTest, RegionsOfADmaBufAreItsPages) {
  // Without /dev/udmabuf the memfd itself is used in place of the dma-buf.
  const UniqueFd maker(::open("/dev/udmabuf", O_RDWR | O_CLOEXEC));
  const UniqueFd memory(::memfd_create("client", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(memory.get(), 4 * kPage), 0);
  ASSERT_EQ(::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  udmabuf_create create{};
  create.memfd = static_cast<std::uint32_t>(memory.get());
  create.flags = UDMABUF_FLAGS_CLOEXEC;
  create.size = 4 * kPage;
  std::vector<UniqueFd> fds;
  fds.emplace_back(maker.valid() ? ::ioctl(maker.get(), UDMABUF_CREATE, &create) : ::dup(memory.get()));
  ASSERT_TRUE(fds[0].valid());
  put(memory, 3 * kPage, "last");
  ClientMemory::Hold hold;
  ASSERT_EQ(map({{0, 0, 2 * kPage, 2 * kPage}}, fds, true, hold), 0);
  EXPECT_EQ(std::memcmp(hold.base() + kPage, "last", 4), 0);
  memory_.unmap(hold);
}

TEST_F(ClientMemoryTest, ReadOnlyFilesServeReadersAndRefuseWriters) {
  UniqueFd file = make_file(kPage);
  put(file, 0, "text");
  const std::string path = "/proc/self/fd/" + std::to_string(file.get());
  std::vector<UniqueFd> fds;
  fds.emplace_back(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(fds[0].valid());
  ClientMemory::Hold hold;
  EXPECT_EQ(map({{0, 0, 0, kPage}}, fds, true, hold), EACCES);
  ASSERT_EQ(map({{0, 0, 0, kPage}}, fds, false, hold), 0);
  EXPECT_EQ(std::memcmp(hold.base(), "text", 4), 0);
  memory_.unmap(hold);
}

std::size_t left_of(const ClientMemory::Hold& hold) {
  return hold.loss()->from.load() - reinterpret_cast<std::uintptr_t>(hold.base());
}

// Regions of one piece, and of two that are joined.
std::vector<std::vector<uroce_mr_piece>> shapes(std::uint64_t pages) {
  return {{{0, 0, 0, pages * kPage}}, {{0, 0, kPage, (pages - 1) * kPage}, {0, 0, 0, kPage}}};
}

TEST_F(ClientMemoryTest, ARegionOfASparseFileAllocatesNoneOfItsPages) {
  for (const bool writable : {true, false}) {
    for (const auto& pieces : shapes(1024)) {
      std::vector<UniqueFd> fds;
      fds.push_back(make_sparse(1024 * kPage));
      for (const bool on_demand : {false, true}) {
        ClientMemory::Hold hold;
        ASSERT_EQ(memory_.map(pieces, fds, {writable, on_demand}, hold), 0);
        EXPECT_EQ(allocated_bytes(fds[0]), 0u) << "writable " << writable << ", pieces " << pieces.size();
        memory_.unmap(hold);
      }
    }
  }
}

TEST_F(ClientMemoryTest, AHoleIsLostWhenItIsUsedAndAllocatesNothing) {
  if (!SigbusGuard::instance().guards_holes()) GTEST_SKIP() << "userfaultfd(2) is not allowed";
  for (const bool writable : {true, false}) {
    for (const auto& pieces : shapes(8)) {
      SCOPED_TRACE("writable " + std::to_string(writable) + ", pieces " + std::to_string(pieces.size()));
      std::vector<UniqueFd> fds;
      fds.push_back(make_file(8 * kPage));
      ClientMemory::Hold hold;
      ASSERT_EQ(map(pieces, fds, writable, hold), 0);
      ASSERT_EQ(::fallocate(fds[0].get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 3 * kPage, 2 * kPage), 0);
      const std::size_t at = (pieces.size() == 1 ? 3 : 2) * kPage;
      auto* const byte = reinterpret_cast<volatile unsigned char*>(hold.base() + at);
      EXPECT_EQ(unsigned{*(byte - 1)}, 0u);
      EXPECT_GT(left_of(hold), 8 * kPage);
      if (writable) {
        *byte = 1;
      } else {
        EXPECT_EQ(unsigned{*byte}, 0u);
      }
      EXPECT_EQ(left_of(hold), at);
      EXPECT_EQ(allocated_bytes(fds[0]), 6 * kPage);
      EXPECT_EQ(SigbusGuard::instance().take_loser(), 42u);
      EXPECT_EQ(SigbusGuard::instance().take_offender(), 0u);
      memory_.unmap(hold);
    }
  }
  EXPECT_EQ(memory_.mappings(), 0u);
}

// A file that is open for reading only is mapped privately.
TEST_F(ClientMemoryTest, AHoleOfAReadOnlyFileIsLostAndItsPagesAreTheFiles) {
  if (!SigbusGuard::instance().guards_holes()) GTEST_SKIP() << "userfaultfd(2) is not allowed";
  const UniqueFd file = make_file(4 * kPage);
  const std::string path = "/proc/self/fd/" + std::to_string(file.get());
  std::vector<UniqueFd> fds;
  fds.emplace_back(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ClientMemory::Hold hold;
  ASSERT_EQ(map({{0, 0, 0, 4 * kPage}}, fds, false, hold), 0);
  for (const char* text : {"first", "again"}) {
    put(file, kPage, text);
    EXPECT_EQ(std::memcmp(hold.base() + kPage, text, 5), 0);
  }
  ASSERT_EQ(::fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 2 * kPage), 0);
  put(file, kPage, "other");
  EXPECT_EQ(std::memcmp(hold.base() + kPage, "other", 5), 0);
  EXPECT_EQ(unsigned{*reinterpret_cast<volatile unsigned char*>(hold.base())}, 0u);
  EXPECT_EQ(left_of(hold), 0u);
  EXPECT_EQ(allocated_bytes(file), 3 * kPage);
  memory_.unmap(hold);
}

TEST_F(ClientMemoryTest, AHoleBetweenHugepagesAllocatesNone) {
  constexpr std::size_t kHuge = 2u << 20;
  std::vector<UniqueFd> fds;
  fds.emplace_back(::memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB | (21u << MFD_HUGE_SHIFT)));
  if (!fds[0].valid() || ::ftruncate(fds[0].get(), kHuge) != 0) GTEST_SKIP() << "no hugepages of 2 MiB";
  for (const bool writable : {true, false}) {
    ClientMemory::Hold hold;
    ASSERT_EQ(map({{0, 0, 0, kHuge}}, fds, writable, hold), 0);
    EXPECT_EQ(allocated_bytes(fds[0]), 0u);
    if (SigbusGuard::instance().guards_holes()) {
      EXPECT_EQ(unsigned{*reinterpret_cast<volatile unsigned char*>(hold.base() + kPage)}, 0u);
      EXPECT_EQ(left_of(hold), 0u);
      EXPECT_EQ(allocated_bytes(fds[0]), 0u);
    }
    memory_.unmap(hold);
  }
}

TEST_F(ClientMemoryTest, OfAFileThatIsCutOffWhatIsUsedIsLostAndTheRestStays) {
  std::vector<UniqueFd> fds;
  fds.push_back(make_file(8 * kPage));
  put(fds[0], 4 * kPage, "gone");
  ClientMemory::Hold hold, again;
  ASSERT_EQ(map({{0, 0, 0, 8 * kPage}}, fds, true, hold), 0);
  ASSERT_EQ(::ftruncate(fds[0].get(), kPage), 0);
  auto* at = reinterpret_cast<volatile unsigned char*>(hold.base() + 4 * kPage);
  EXPECT_EQ(unsigned{*at}, 0u);
  *at = 1;
  EXPECT_EQ(unsigned{*at}, 1u);
  EXPECT_EQ(left_of(hold), 4 * kPage);
  EXPECT_EQ(SigbusGuard::instance().take_loser(), 42u);
  at = reinterpret_cast<volatile unsigned char*>(hold.base() + kPage);
  EXPECT_EQ(unsigned{*at}, 0u);
  EXPECT_EQ(left_of(hold), kPage);
  EXPECT_EQ(SigbusGuard::instance().take_loser(), 42u);
  std::memcpy(hold.base(), "left", 4);
  char seen[4];
  ASSERT_EQ(::pread(fds[0].get(), seen, 4, 0), 4);
  EXPECT_EQ(std::memcmp(seen, "left", 4), 0);
  // A region that is made when the file has grown again does not share the mapping.
  ASSERT_EQ(::ftruncate(fds[0].get(), 8 * kPage), 0);
  ASSERT_EQ(map({{0, 0, 0, 8 * kPage}}, fds, true, again), 0);
  put(fds[0], 4 * kPage, "back");
  EXPECT_EQ(std::memcmp(again.base() + 4 * kPage, "back", 4), 0);
  EXPECT_GT(left_of(again), 8 * kPage);
  EXPECT_EQ(SigbusGuard::instance().take_offender(), 0u);
  EXPECT_EQ(SigbusGuard::instance().take_loser(), 0u);
  memory_.unmap(again);
  memory_.unmap(hold);
  EXPECT_EQ(memory_.mappings(), 0u);
}

TEST_F(ClientMemoryTest, ARevokedSessionHasLostAllOfIt) {
  std::vector<UniqueFd> fds;
  fds.push_back(make_file(kPage));
  ClientMemory::Hold hold;
  ASSERT_EQ(map({{0, 0, 0, kPage}}, fds, true, hold), 0);
  SigbusGuard::instance().revoke(42);
  EXPECT_EQ(left_of(hold), 0u);
  memory_.unmap(hold);
}

#ifndef __SANITIZE_THREAD__  // it needs mappings for its shadow memory, and ends without them
// Maps single pages until the kernel allows no more (vm.max_map_count).
class NoMappingLeft {
 public:
  NoMappingLeft() {
    base_ = static_cast<std::byte*>(
        ::mmap(nullptr, kPages * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    for (std::size_t i = 1; i < kPages && ::mprotect(base_ + i * kPage, kPage, PROT_READ) == 0; i += 2) {
    }
    full_ = errno == ENOMEM;
  }
  ~NoMappingLeft() { ::munmap(base_, kPages * kPage); }
  bool full() const { return full_; }
  static constexpr std::size_t kPages = std::size_t{1} << 22;

 private:
  std::byte* base_;
  bool full_;
};

TEST_F(ClientMemoryTest, AFileThatIsCutOffKillsNobodyWhenNoMappingIsLeft) {
  std::size_t allowed = 0;
  ASSERT_TRUE(std::ifstream("/proc/sys/vm/max_map_count") >> allowed);
  if (allowed >= NoMappingLeft::kPages) GTEST_SKIP() << "vm.max_map_count is " << allowed << ": too many to use up";
  std::vector<UniqueFd> fds;
  fds.push_back(make_file(64 * kPage));
  ClientMemory::Hold one, joined;
  ASSERT_EQ(map({{0, 0, 0, 8 * kPage}}, fds, true, one), 0);
  ASSERT_EQ(map({{0, 0, 32 * kPage, kPage}, {0, 0, 16 * kPage, kPage}}, fds, true, joined), 0);
  ASSERT_EQ(::ftruncate(fds[0].get(), 0), 0);
  bool zero = true;
  int error;
  {
    const NoMappingLeft full;
    ASSERT_TRUE(full.full());
    errno = 0;
    for (const volatile std::byte* lost : {one.base() + kPage, joined.base() + kPage})
      zero &= *lost == std::byte{0};
    std::atomic_signal_fence(std::memory_order_seq_cst);  // as a signal handler may have left it
    error = errno;
  }
  EXPECT_TRUE(zero);
  EXPECT_EQ(error, 0);
  EXPECT_LE(left_of(one), kPage);
  EXPECT_LE(left_of(joined), kPage);
  EXPECT_EQ(SigbusGuard::instance().take_loser(), 42u);
}
#endif

TEST_F(ClientMemoryTest, AFaultElsewhereStillKills) {
  EXPECT_DEATH(
      {
        UniqueFd file = make_file(kPage);
        auto* p = static_cast<volatile char*>(::mmap(nullptr, kPage, PROT_READ, MAP_SHARED, file.get(), 0));
        if (::ftruncate(file.get(), 0) == 0) static_cast<void>(*p);
      },
      "");
}

}  // namespace
}  // namespace uroce::mapping
