#include "engine/client_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "engine/sigbus_guard.h"

namespace uroce::engine {
namespace {

constexpr std::size_t kPage = 4096;

UniqueFd make_file(std::size_t bytes) {
  UniqueFd file(::memfd_create("client", MFD_CLOEXEC));
  EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
  return file;
}

void put(const UniqueFd& file, std::size_t offset, const char* text) {
  ASSERT_EQ(::pwrite(file.get(), text, std::strlen(text), static_cast<off_t>(offset)),
            static_cast<ssize_t>(std::strlen(text)));
}

class ClientMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SigbusGuard::instance().install();
    while (SigbusGuard::instance().take_offender() != 0) {
    }
  }
  int map(std::vector<uroce_mr_piece> pieces, std::vector<UniqueFd>& fds, bool writable, ClientMemory::Hold& hold) {
    return memory_.map(pieces, fds, writable, hold);
  }
  ClientMemory memory_{42};
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

TEST_F(ClientMemoryTest, RefusesFilesWhoseFaultsMayTakeForEver) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  std::vector<UniqueFd> fds;
  fds.emplace_back(ends[0]);
  fds.emplace_back(ends[1]);
  ClientMemory::Hold hold;
  EXPECT_EQ(map({{0, 0, 0, kPage}}, fds, false, hold), EOPNOTSUPP);
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

TEST_F(ClientMemoryTest, AFileThatIsCutOffGivesZeroesAndNamesTheSession) {
  std::vector<UniqueFd> fds;
  fds.push_back(make_file(8 * kPage));
  put(fds[0], 4 * kPage, "gone");
  ClientMemory::Hold hold;
  ASSERT_EQ(map({{0, 0, 0, 8 * kPage}}, fds, true, hold), 0);
  ASSERT_EQ(::ftruncate(fds[0].get(), 0), 0);
  auto* at = reinterpret_cast<volatile unsigned char*>(hold.base() + 4 * kPage);
  EXPECT_EQ(unsigned{*at}, 0u);
  *at = 1;
  EXPECT_EQ(unsigned{*at}, 1u);
  EXPECT_EQ(SigbusGuard::instance().take_offender(), 42u);
  EXPECT_EQ(SigbusGuard::instance().take_offender(), 0u);
  memory_.unmap(hold);
}

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
}  // namespace uroce::engine
