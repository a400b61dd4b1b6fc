#include "mapping/pagemap.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "control/diagnosis/stall_watch.h"

namespace uroce::mapping::testing {
namespace {

constexpr std::size_t kPage = 4096, kPages = 70;

/// A file in memory, mapped and present.
class PagemapTest : public ::testing::Test {
 protected:
  PagemapTest() {
    EXPECT_EQ(::ftruncate(file_.get(), kPages * kPage), 0);
    void* const mapped = ::mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    EXPECT_NE(mapped, MAP_FAILED);
    base_ = static_cast<char*>(mapped);
    ::madvise(base_, kPages * kPage, MADV_NOHUGEPAGE);  // else a punch takes a page's neighbours out of the table
    for (std::size_t i = 0; i < kPages; ++i) base_[i * kPage] = 1;
  }
  ~PagemapTest() override { ::munmap(base_, kPages * kPage); }

  std::uint64_t at(std::size_t offset) const { return reinterpret_cast<std::uintptr_t>(base_) + offset; }
  void punch(std::size_t page) {
    ASSERT_EQ(::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(page * kPage),
                          kPage),
              0);
  }

  UniqueFd file_{::memfd_create("pagemap-test", MFD_CLOEXEC)};
  char* base_ = nullptr;
  const Pagemap& pages_ = Pagemap::own();
};

TEST_F(PagemapTest, FindsEachHole) {
  ASSERT_EQ(pages_.look(at(0), kPages * kPage), Pages::kPresent);
  for (const std::size_t page : {0, 31, 32, 69}) {
    punch(page);
    EXPECT_EQ(pages_.look(at(0), kPages * kPage), Pages::kAbsent) << page;
    base_[page * kPage] = 1;
    EXPECT_EQ(pages_.look(at(0), kPages * kPage), Pages::kPresent) << page;
  }
}

TEST_F(PagemapTest, LooksAtNoOtherPage) {
  punch(2);
  punch(4);
  EXPECT_EQ(pages_.look(at(3 * kPage), 1), Pages::kPresent);
  EXPECT_EQ(pages_.look(at(3 * kPage), kPage), Pages::kPresent);
  EXPECT_EQ(pages_.look(at(3 * kPage + 1), kPage), Pages::kAbsent);
  EXPECT_EQ(pages_.look(at(3 * kPage - 1), 2), Pages::kAbsent);
}

TEST_F(PagemapTest, KnowsNothingOfNoProcess) { EXPECT_EQ(Pagemap().look(at(0), 1), Pages::kUnknown); }

// What a packet names is another user's memory: whoever took a page of it away makes the worker wait.
TEST_F(PagemapTest, TellsTheSenderFromTheReceiver) {
  constexpr std::uint64_t kReceiver = 1, kSender = 2;
  const auto cause = [this](std::uint64_t bytes, const Pagemap& pages) {
    return control::StallWatch::cause({kReceiver, at(kPage), bytes, kSender}, pages);
  };
  EXPECT_EQ(cause(16 * kPage, pages_), kReceiver);
  punch(16);
  EXPECT_EQ(cause(16 * kPage, pages_), kSender);
  EXPECT_EQ(cause(15 * kPage, pages_), kReceiver);
  EXPECT_EQ(cause(0, pages_), kReceiver) << "nothing is named";
  EXPECT_EQ(cause(16 * kPage, Pagemap()), kReceiver) << "nobody knows";
  const std::uint64_t none = 0;
  EXPECT_EQ(control::StallWatch::cause({kReceiver, at(kPage), 16 * kPage, none}, pages_), none)
      << "of another device";
}

}  // namespace
}  // namespace uroce::mapping::testing
