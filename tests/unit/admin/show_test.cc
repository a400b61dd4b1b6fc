// `urocectl show`: pages of bounded size, and what happens to objects between two of them.
#include "admin/show.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "admin/page.h"
#include "apps/urocectl/pages.h"
#include "control/session/privilege.h"
#include "tests/unit/daemon/test_client.h"
#include "tests/unit/daemon/test_daemon.h"

namespace uroce::admin::testing {

using daemon::testing::TestClient;

namespace {

using Json = nlohmann::ordered_json;

constexpr uid_t kUser = 4241, kOther = 4242;

/// With an equal number of QPs and CQs.
struct Owner {
  Owner(daemon::Conductor& conductor, uid_t user, std::size_t count) : client(conductor, user) {
    client.hello();
    const std::uint32_t pd = client.alloc_pd();
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t cq = client.create_cq(8).made.handle;
      qps.push_back(client.create_qp(TestClient::qp_request(pd, cq)).made.handle);
    }
  }
  std::uint64_t id() { return client.session().id; }

  TestClient client;
  std::vector<std::uint32_t> qps;
};

/// All pages of one request, one at a time.
class Pages {
 public:
  Pages(daemon::testing::TestDaemon& daemon, TestClient& by, const char* what)
      : daemon_(daemon), by_(by), request_({{"command", "show"}, {"what", what}, {"pages", true}}) {}

  /// False: there are no more.
  bool read() {
    const std::string text = handle_query(daemon_.conductor->admin(), by_.session(), request_.dump());
    const Json page = Json::parse(text);
    rows = 0;
    for (const auto& [name, value] : page.items()) rows += value.is_array() ? value.size() : 0;
    ++count;
    bytes = text.size();
    request_["from"] = ctl::add_page(all, page);
    return !request_["from"].is_null();
  }
  const Json& read_all() {
    while (read()) {
    }
    return all;
  }
  std::multiset<std::uint64_t> sessions(const char* kind) const {
    std::multiset<std::uint64_t> found;
    for (const Json& row : all.value(kind, Json::array())) found.insert(row["session"].get<std::uint64_t>());
    return found;
  }

  Json all = Json::object();
  std::size_t rows = 0, count = 0, bytes = 0;

 private:
  daemon::testing::TestDaemon& daemon_;
  TestClient& by_;
  Json request_;
};

class ShowTest : public ::testing::Test {
 protected:
  std::size_t distinct(const Json& list, const char* key) {
    std::set<std::string> found;
    for (const Json& row : list) found.insert(row[key].dump());
    return found.size();
  }

  daemon::testing::TestDaemon daemon{daemon::testing::test_config(), 2};
  daemon::Conductor& conductor = *daemon.conductor;
};

TEST_F(ShowTest, APageIsSmallAndAllPagesAreComplete) {
  constexpr std::size_t kMany = 300;
  Owner owner(conductor, kUser, kMany), second(conductor, kUser, 1);
  TestClient other(conductor, kOther);
  other.hello();
  Pages pages(daemon, owner.client, "all");
  while (pages.read()) {
    EXPECT_LE(pages.rows, Page::kRows);
    EXPECT_LT(pages.bytes, 1000 * Page::kRows);
    EXPECT_NE(other.alloc_pd(), 0u) << "another client is served in between";
  }
  EXPECT_GE(pages.count, 2 * kMany / Page::kRows);
  EXPECT_EQ(pages.all["sessions"].size(), 2u);
  EXPECT_EQ(pages.all["qps"].size(), kMany + 1);
  EXPECT_EQ(distinct(pages.all["qps"], "qpn"), kMany + 1);
  EXPECT_EQ(distinct(pages.all["cqs"], "cq"), kMany + 1);
  EXPECT_FALSE(pages.all.contains("next"));
  EXPECT_EQ(pages.all.back(), pages.all["hidden"]);
}

TEST_F(ShowTest, WhoTakesNoPagesIsToldIfThereAreSeveral) {
  Owner owner(conductor, kUser, Page::kRows);
  const auto ask = [&](const char* what) {
    const Json request = {{"command", "show"}, {"what", what}};
    return Json::parse(handle_query(conductor.admin(), owner.client.session(), request.dump()));
  };
  EXPECT_EQ(ask("qps")["qps"].size(), Page::kRows);
  const Json refused = ask("all");
  EXPECT_EQ(refused.size(), 1u);
  EXPECT_NE(refused.value("error", "").find("same build"), std::string::npos) << refused;
}

TEST_F(ShowTest, WhatIsHiddenIsCountedOnceOverAllPages) {
  Owner first(conductor, kOther, 3), owner(conductor, kUser, 2 * Page::kRows), last(conductor, kOther, 4);
  Pages pages(daemon, owner.client, "qps");
  EXPECT_EQ(pages.read_all()["hidden"], 7);
  EXPECT_GE(pages.count, 2u);
}

TEST_F(ShowTest, WhatGoesAwayBetweenPagesIsLeftOut) {
  constexpr std::size_t kMany = 3 * Page::kRows;
  Owner owner(conductor, kUser, kMany);
  Pages pages(daemon, owner.client, "qps");
  ASSERT_TRUE(pages.read());
  ASSERT_EQ(pages.rows, Page::kRows);
  // Of those that were shown, the one with which the next page begins, and later ones.
  for (std::size_t i : {std::size_t{0}, Page::kRows - 1, Page::kRows, Page::kRows + 7, kMany - 1}) {
    ASSERT_EQ(owner.client.destroy(UROCE_CMD_DESTROY_QP, owner.qps[i]), 0);
  }
  EXPECT_EQ(pages.read_all()["qps"].size(), kMany - 3);
  EXPECT_EQ(distinct(pages.all["qps"], "qpn"), kMany - 3);
}

TEST_F(ShowTest, ASessionThatClosesBetweenPagesIsLeftOut) {
  constexpr std::size_t kMany = Page::kRows;
  TestClient asking(conductor, kUser);
  std::vector<std::unique_ptr<Owner>> owners;
  std::vector<std::uint64_t> ids;
  for (int i = 0; i < 4; ++i) {
    owners.push_back(std::make_unique<Owner>(conductor, kUser, kMany + 1));
    ids.push_back(owners.back()->id());
  }
  Pages pages(daemon, asking, "qps");
  ASSERT_TRUE(pages.read());
  ASSERT_TRUE(pages.read());  // the second session has begun
  owners[0].reset();
  owners[1].reset();
  owners[2].reset();
  pages.read_all();
  const auto shown = pages.sessions("qps");
  EXPECT_EQ(shown.count(ids[0]), kMany + 1);
  EXPECT_EQ(shown.count(ids[1]), kMany - 1);
  EXPECT_EQ(shown.count(ids[2]), 0u);
  EXPECT_EQ(shown.count(ids[3]), kMany + 1);
}

TEST_F(ShowTest, SessionsWithoutRowsEndAPageToo) {
  const std::size_t kMany = Page::kSessions + 10;
  TestClient asking(conductor, kUser);
  std::vector<std::unique_ptr<TestClient>> idle;
  // Of many users, as one may not have as many.
  for (std::size_t i = 0; i < kMany; ++i) {
    idle.push_back(std::make_unique<TestClient>(conductor, static_cast<uid_t>(10'000 + i)));
  }
  Owner owner(conductor, kUser, 1);
  Pages pages(daemon, asking, "qps");
  ASSERT_TRUE(pages.read());
  EXPECT_EQ(pages.rows, 0u);
  EXPECT_EQ(pages.read_all()["qps"].size(), 1u);
  EXPECT_EQ(pages.count, 2u);
}

TEST_F(ShowTest, RefusalsComeInPagesAlthoughOlderOnesAreDropped) {
  TestClient client(conductor, kUser);
  client.hello();
  const auto refuse = [&](std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) EXPECT_NE(client.destroy(UROCE_CMD_DESTROY_CQ, 77), 0);
  };
  refuse(control::Rejections::kKept);
  Pages pages(daemon, client, "rejections");
  ASSERT_TRUE(pages.read());
  EXPECT_EQ(pages.rows, Page::kRows);
  refuse(Page::kRows + 5);  // also five that are still to be shown are dropped
  EXPECT_EQ(pages.read_all()["rejections"].size(), control::Rejections::kKept + Page::kRows);
}

TEST_F(ShowTest, UsersAreNotDivided) {
  if (!control::may_administer(TestClient::myself())) GTEST_SKIP() << "takes root, or a user outside containers";
  TestClient administrator(conductor);
  std::vector<std::unique_ptr<TestClient>> clients;
  constexpr std::size_t kUsers = 100;
  for (std::size_t i = 0; i < kUsers; ++i) {
    clients.push_back(std::make_unique<TestClient>(conductor, static_cast<uid_t>(10'000 + i)));
    clients.back()->hello();
  }
  Pages pages(daemon, administrator, "users");
  for (bool more = true; more;) {
    more = pages.read();
    EXPECT_LE(pages.rows, Page::kRows + std::size(control::kResources) + 3);
  }
  std::map<std::uint64_t, std::size_t> rows;
  for (const Json& row : pages.all["users"]) {
    if (row["resource"] == "refusals") ++rows[row["user"].get<std::uint64_t>()];
  }
  EXPECT_EQ(rows.size(), kUsers + 1);
  for (const auto& [user, count] : rows) EXPECT_EQ(count, 1u) << user;
}

TEST_F(ShowTest, ACursorGivesNoRights) {
  Owner owner(conductor, kOther, 2);
  TestClient client(conductor, kUser);
  const auto ask = [&](const Json& from) {
    const Json request = {{"command", "show"}, {"what", "qps"}, {"from", from}};
    return Json::parse(handle_query(conductor.admin(), client.session(), request.dump()));
  };
  EXPECT_EQ(ask({{"kind", "qps"}, {"at", owner.id()}, {"handle", 1}})["qps"].size(), 0u);
  EXPECT_EQ(ask({{"kind", "qps"}, {"at", UINT64_MAX}, {"handle", UINT64_MAX}})["qps"].size(), 0u);
  EXPECT_EQ(ask({{"kind", "qps"}, {"at", owner.id()}, {"handle", UINT64_MAX}})["qps"].size(), 0u);
  for (const char* const wrong :
       {"7", "[]", "null", R"({"kind":"qps"})", R"({"kind":"qps","at":-1,"handle":0})",
        R"({"kind":7,"at":1,"handle":0})", R"({"kind":"mrs","at":1,"handle":0})",
        R"({"kind":"qps","at":1,"handle":1.5})", R"({"kind":"qps","at":"1","handle":0})"}) {
    EXPECT_TRUE(ask(Json::parse(wrong)).contains("error")) << wrong;
  }
}

// Their pages are the daemon's memory.
TEST_F(ShowTest, OfTheAnswersThatAClientKeepsOneHasPages) {
  auto owner = std::make_unique<Owner>(conductor, kUser, 20);
  const std::string request = R"({"command":"show","what":"qps"})";
  std::vector<UniqueFd> kept;
  const auto blocks = [&] {
    std::map<ino_t, blkcnt_t> of_file;
    for (const UniqueFd& file : kept) {
      struct stat info {};
      EXPECT_EQ(::fstat(file.get(), &info), 0);
      of_file[info.st_ino] = info.st_blocks;
    }
    blkcnt_t sum = 0;
    for (const auto& [inode, count] : of_file) sum += count;
    return static_cast<std::size_t>(sum) * 512;
  };
  std::size_t bytes = 0;
  for (int i = 0; i < 10; ++i) {
    control::Reply reply = owner->client.send(UROCE_CMD_ADMIN, std::as_bytes(std::span(request)));
    ASSERT_EQ(reply.status, 0);
    ASSERT_EQ(reply.fds.size(), 1u);
    bytes = TestClient::value<uroce_admin_response>(reply).bytes;
    kept.push_back(std::move(reply.fds[0]));
    std::string text(bytes, ' ');
    ASSERT_EQ(::pread(kept.back().get(), text.data(), bytes, 0), static_cast<ssize_t>(bytes));
    EXPECT_EQ(Json::parse(text)["qps"].size(), 20u);
    // The client does not decide how much there is to drop.
    EXPECT_NE(::ftruncate(kept.back().get(), static_cast<off_t>(bytes) + 1), 0);
  }
  // The closer drops the others.
  const auto fall_to = [&](std::size_t most) {
    const Nanos end = monotonic_now() + 60 * kSecond;
    while (blocks() > most && monotonic_now() < end) std::this_thread::yield();
    return blocks() <= most;
  };
  EXPECT_TRUE(fall_to((bytes + 4095) / 4096 * 4096));
  owner.reset();
  EXPECT_TRUE(fall_to(0));
  EXPECT_TRUE(daemon.nothing_is_held());
}

}  // namespace
}  // namespace uroce::admin::testing
