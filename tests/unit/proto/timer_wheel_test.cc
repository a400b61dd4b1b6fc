#include "base/timer_wheel.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "base/slot_table.h"
#include "proto/state/qpn_table.h"

namespace uroce::base {
namespace {

TEST(TimerWheel, FiresNoneEarlyAndNoneATickLate) {
  constexpr std::uint32_t kTimers = 64;
  std::mt19937_64 random(5);
  TimerWheel wheel(kTimers);
  std::vector<Nanos> deadline(kTimers, kNever);
  Nanos now = 12345;
  for (int round = 0; round < 20000; ++round) {
    const auto index = static_cast<std::uint32_t>(random() % kTimers);
    if (random() % 4 == 0) {
      wheel.cancel(index);
      deadline[index] = kNever;
    } else {
      deadline[index] = now + (random() >> (random() % 44 + 20));
      wheel.set(index, deadline[index]);
    }
    if (random() % 3 != 0) continue;
    now =
        random() % 2 != 0 ? now + random() % 100000 : std::max(now, std::min(wheel.next_timeout(), now + kSecond));
    wheel.advance(now, [&](std::uint32_t fired) {
      ASSERT_LE(deadline[fired], now);
      deadline[fired] = kNever;
    });
    for (std::uint32_t i = 0; i < kTimers; ++i) {
      ASSERT_TRUE(deadline[i] == kNever || deadline[i] + 1024 > now) << i;
      ASSERT_TRUE(deadline[i] == kNever || wheel.next_timeout() <= deadline[i] + 1023) << i;
    }
  }
}

TEST(TimerWheel, FireMaySetAndCancelAnyTimer) {
  TimerWheel wheel(3);
  wheel.set(0, 5000);
  wheel.set(1, 5000);
  std::vector<std::uint32_t> fired;
  wheel.advance(10000, [&](std::uint32_t index) {
    fired.push_back(index);
    if (index == 2) return;
    wheel.cancel(1 - index);
    wheel.set(index, 20000);
    wheel.set(2, 5000);
  });
  ASSERT_EQ(fired.size(), 2u);
  EXPECT_EQ(fired[1], 2u) << "due already, so it fires in the same round";
  EXPECT_FALSE(wheel.is_set(1 - fired[0]));
  EXPECT_EQ(wheel.deadline(fired[0]), 20000u);
}

TEST(TimerWheel, AnEmptyOneNeverFires) {
  TimerWheel wheel(1);
  EXPECT_EQ(wheel.next_timeout(), kNever);
  wheel.set(0, kNever - 5000);
  wheel.advance(1000 * kSecond, [](std::uint32_t) { FAIL(); });
  wheel.cancel(0);
  EXPECT_EQ(wheel.next_timeout(), kNever);
}

TEST(SlotTable, ReusesSlotsAndKnowsWhichAreTaken) {
  SlotTable<int> table(2);
  const std::uint32_t a = table.allocate(), b = table.allocate();
  EXPECT_EQ(table.allocate(), table.kNone);
  table[a] = 7;
  table.release(a);
  EXPECT_FALSE(table.holds(a));
  EXPECT_TRUE(table.holds(b));
  EXPECT_EQ(table.allocate(), a);
  EXPECT_EQ(table[a], 0) << "a fresh object";
}

TEST(QpnTable, FindsWhatIsThereAfterAnyInsertAndErase) {
  std::mt19937 random(3);
  proto::QpnTable table(100);
  std::vector<std::uint32_t> qpns;
  for (int round = 0; round < 20000; ++round) {
    if (qpns.size() < 100 && random() % 2 == 0) {
      const std::uint32_t qpn = random() % 512 << (random() % 2 * 12);
      if (table.find(Qpn{qpn}) != table.kNone) continue;
      table.insert(Qpn{qpn}, qpn ^ 0x55);
      qpns.push_back(qpn);
    } else if (!qpns.empty()) {
      const std::size_t i = random() % qpns.size();
      table.erase(Qpn{qpns[i]});
      ASSERT_EQ(table.find(Qpn{qpns[i]}), table.kNone);
      qpns.erase(qpns.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (round % 50 == 0) {
      for (const std::uint32_t qpn : qpns) ASSERT_EQ(table.find(Qpn{qpn}), qpn ^ 0x55);
    }
  }
}

}  // namespace
}  // namespace uroce::base
