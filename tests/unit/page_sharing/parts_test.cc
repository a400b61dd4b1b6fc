// The parts of page sharing, one by one.

#include <fcntl.h>

#include <algorithm>
#include <map>
#include <random>

#include "fixture.h"
#include "page_sharing/mapping_info.h"
#include "page_sharing/page_users.h"

namespace uroce::page_sharing {
namespace {

TEST(PageSharingParts, UsersOfPagesAgreeWithCountingEachPage) {
  Arena arena;
  PageUsers users(arena);
  constexpr std::uint64_t kPages = 64;
  std::vector<std::uint32_t> model(kPages, 0);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> live;
  std::mt19937 random(7);
  for (int step = 0; step < 20'000; ++step) {
    if (live.empty() || random() % 2 == 0) {
      const std::uint64_t start = random() % kPages, end = start + 1 + random() % (kPages - start);
      live.emplace_back(start, end);
      ASSERT_TRUE(users.add(start, end));
      for (auto i = start; i < end; ++i) ++model[i];
    } else {
      std::swap(live[random() % live.size()], live.back());
      const auto [start, end] = live.back();
      live.pop_back();
      std::vector<bool> unused(kPages, false), expected(kPages, false);
      for (auto i = start; i < end; ++i) expected[i] = --model[i] == 0;
      ASSERT_TRUE(users.remove(start, end, [&](std::uint64_t from, std::uint64_t to) {
        for (auto i = from; i < to; ++i) unused[i] = true;
      }));
      ASSERT_EQ(unused, expected);
    }
    const std::uint64_t start = random() % kPages, end = start + 1 + random() % (kPages - start);
    const auto first = std::find_if(model.begin() + static_cast<long>(start),
                                    model.begin() + static_cast<long>(end), [](std::uint32_t n) { return n > 0; });
    ASSERT_EQ(users.any(start, end), first != model.begin() + static_cast<long>(end));
    ASSERT_EQ(users.unused_until(start, end), static_cast<std::uint64_t>(first - model.begin()));
    ASSERT_EQ(users.used_until(start) > start, model[start] > 0);
  }
  while (!live.empty()) {
    users.remove(live.back().first, live.back().second, [](std::uint64_t, std::uint64_t) {});
    live.pop_back();
  }
  EXPECT_TRUE(users.empty());
}

TEST(PageSharingParts, TheTextOfMapsAgreesWithProcmapQuery) {
  MappingReader text, asked;
  ASSERT_EQ(text.open(true), 0);
  ASSERT_EQ(asked.open(), 0);
  Mapping a, b;
  std::size_t count = 0;
  for (std::uintptr_t at = 0;; at = a.end, ++count) {
    const int first = text.at_or_after(at, a), second = asked.at_or_after(at, b);
    // Only the text contains the vsyscall page.
    if (first == 0 && a.start > (std::uintptr_t{1} << 63)) break;
    ASSERT_EQ(first, second);
    if (first != 0) break;
    EXPECT_STREQ(text.path(), asked.path());
    EXPECT_EQ(a.start, b.start);
    EXPECT_EQ(a.end, b.end);
    EXPECT_EQ(a.inode, b.inode);
    EXPECT_EQ(a.inode != 0 ? a.offset : 0, a.inode != 0 ? b.offset : 0);
    EXPECT_EQ(a.protection(), b.protection());
    EXPECT_EQ(a.shared, b.shared);
    EXPECT_EQ(a.origin, b.origin);
  }
  EXPECT_GT(count, 10u);
  // In descending order, and inside of mappings.
  int local = 0;
  ASSERT_EQ(text.at_or_after(reinterpret_cast<std::uintptr_t>(&local), a), 0);
  EXPECT_EQ(a.origin, Mapping::Origin::kStack);
  ASSERT_EQ(text.at_or_after(reinterpret_cast<std::uintptr_t>(&count_mappings), a), 0);
  EXPECT_TRUE(a.executable);
}

TEST(PageSharingParts, TheFileCannotShrink) {
  unsigned char* at = map_anonymous(kPage);
  Shared shared(at, kPage);
  ASSERT_TRUE(shared.direct());
  const int fd = shared.range().pieces[0].fd;
  EXPECT_EQ(::ftruncate(fd, 0), -1);
  EXPECT_EQ(::fcntl(fd, F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_SEAL), F_SEAL_SHRINK | F_SEAL_SEAL);
  ::munmap(at, kPage);
}

TEST(PageSharingParts, AnArenaVectorGrows) {
  Arena arena;
  ArenaVector<std::uint64_t> numbers(arena);
  for (std::uint64_t i = 0; i < 100'000; ++i) ASSERT_TRUE(numbers.push(i));
  for (std::uint64_t i = 0; i < 100'000; ++i) ASSERT_EQ(numbers[i], i);
}

}  // namespace
}  // namespace uroce::page_sharing
