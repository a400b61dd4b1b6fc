// Refused requests: their words (EXPLAIN), and the list that `urocectl show rejections` prints.
#include "control/diagnosis/rejections.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "all_pages.h"
#include "cm_party.h"
#include "test_client.h"
#include "test_daemon.h"

namespace uroce::daemon::testing {
namespace {

using Json = nlohmann::json;

class RejectionsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    client.hello();
    pd = client.alloc_pd();
    cq = client.create_cq(8).made.handle;
  }
  Json shown_to(TestClient& by) {
    return all_pages(*daemon.conductor, by, {{"command", "show"}, {"what", "rejections"}});
  }
  Json last() { return shown_to(client)["rejections"].back(); }
  static std::string explain(TestClient& client) {
    const control::Reply reply = client.send(UROCE_CMD_EXPLAIN, std::span<const std::byte>{});
    EXPECT_EQ(reply.status, 0);
    return TestClient::value<uroce_explain_response>(reply).text;
  }

  TestDaemon daemon;
  TestClient client{*daemon.conductor, 4241};
  std::uint32_t pd = 0, cq = 0;
};

TEST_F(RejectionsTest, NamesTheValueAndWhatIsAllowed) {
  auto request = TestClient::qp_request(pd, cq);
  request.max_send_sge = 1000;
  ASSERT_EQ(client.send(UROCE_CMD_CREATE_QP, request).status, EINVAL);
  const std::string words = "max_send_sge is 1000; allowed are 0 to " + std::to_string(proto::kMaxSge);
  EXPECT_EQ(explain(client), words);
  const Json row = last();
  EXPECT_EQ(row["command"], "CREATE_QP");
  EXPECT_EQ(row["errno"], "EINVAL");
  EXPECT_EQ(row["reason"], "bad_value");
  EXPECT_EQ(row["text"], words);
  EXPECT_EQ(row["user"], 4241);
  EXPECT_EQ(row["program"], "test");
  EXPECT_EQ(row["time"].get<std::string>().size(), std::string("2026-01-01T00:00:00.000Z").size());
}

// U+009B begins a control sequence as ESC [ does, and U+202E reverses what follows.
TEST_F(RejectionsTest, WhatAClientNamesIsPrintedAsPrintableCharacters) {
  TestClient other(*daemon.conductor, 4242);
  const uroce_hello_request hello{UROCE_ABI_VERSION, 1,
                                  "a\xc2\x9b"
                                  "2J\xe2\x80\xae"
                                  "b\x1b\x7f\n~"};
  ASSERT_EQ(other.send(UROCE_CMD_HELLO, hello).status, 0);
  const auto ask = [&](const char* text) {
    return Json::parse(admin::handle_query(daemon.conductor->admin(), other.session(), text));
  };
  EXPECT_EQ(ask(R"({"command":"show"})")["sessions"][0]["program"], "a??2J???b???~");
  for (const char* text : {R"({"command":"\u009b\u202e"})", R"({"command":"show","what":"\u009b\u202e"})"}) {
    const auto error = ask(text)["error"].get<std::string>();
    EXPECT_NE(error.find("\"?????\""), std::string::npos) << error;
  }
}

TEST_F(RejectionsTest, TheAnswerNamesTheRequestThatWasRefused) {
  uroce_explain_response none =
      TestClient::value<uroce_explain_response>(client.send(UROCE_CMD_EXPLAIN, std::span<const std::byte>{}));
  EXPECT_EQ(none.command, 0u);
  ASSERT_EQ(client.destroy(UROCE_CMD_DESTROY_CQ, 77), ENOENT);
  const auto said =
      TestClient::value<uroce_explain_response>(client.send(UROCE_CMD_EXPLAIN, std::span<const std::byte>{}));
  EXPECT_EQ(said.command, std::uint32_t{UROCE_CMD_DESTROY_CQ});
  EXPECT_EQ(said.status, ENOENT);
  EXPECT_NE(std::string(said.text).find("no object with handle 77"), std::string::npos) << said.text;
}

TEST_F(RejectionsTest, AMissingAttributeIsNamed) {
  const ClientQp qp = client.create_qp(TestClient::qp_request(pd, cq));
  uroce_modify_qp_request modify{};
  modify.handle = qp.made.handle;
  modify.attr.state = 1;
  modify.mask = proto::kAttrState | proto::kAttrPkeyIndex | proto::kAttrAccessFlags;
  ASSERT_EQ(client.send(UROCE_CMD_MODIFY_QP, modify).status, EINVAL);
  EXPECT_NE(explain(client).find("port_num is required for this transition"), std::string::npos) << explain(client);
  modify.mask |= proto::kAttrPort;
  modify.attr.port = 1;
  modify.attr.pkey_index = 70000;
  ASSERT_EQ(client.send(UROCE_CMD_MODIFY_QP, modify).status, EINVAL);
  EXPECT_NE(explain(client).find("pkey_index is out of range"), std::string::npos) << explain(client);
}

TEST_F(RejectionsTest, ObjectsInUseSayByHowMany) {
  ASSERT_EQ(client.destroy(UROCE_CMD_DEALLOC_PD, pd), 0);
  pd = client.alloc_pd();
  const ClientQp qp = client.create_qp(TestClient::qp_request(pd, cq));
  ASSERT_NE(qp.made.handle, 0u);
  ASSERT_EQ(client.destroy(UROCE_CMD_DEALLOC_PD, pd), EBUSY);
  EXPECT_EQ(explain(client), "the PD is in use by 1 objects; destroy those first");
  EXPECT_EQ(last()["reason"], "in_use");
}

TEST_F(RejectionsTest, EveryRefusalHasWords) {
  std::byte nothing[4] = {};
  for (std::uint32_t command = UROCE_CMD_ALLOC_PD; command < UROCE_CMD_END; ++command) {
    if (command == UROCE_CMD_ADMIN) continue;
    SCOPED_TRACE(control::command_name(command));
    ASSERT_NE(client.send(command, nothing).status, 0);
    EXPECT_FALSE(explain(client).empty());
    EXPECT_EQ(last()["command"], std::string(control::command_name(command)));
  }
  ASSERT_EQ(client.send(63, nothing).status, EOPNOTSUPP);
  EXPECT_EQ(last()["command"], "?");
}

TEST_F(RejectionsTest, IsAnsweredBeforeHello) {
  TestClient other(*daemon.conductor, 4242);
  ASSERT_EQ(other.send(UROCE_CMD_HELLO, uroce_hello_request{UROCE_ABI_VERSION + 1, 1, "old"}).status, EPROTO);
  EXPECT_NE(explain(other).find("install both from the same build"), std::string::npos);
}

TEST_F(RejectionsTest, AUserSeesItsOwnOnly) {
  TestClient other(*daemon.conductor, 4242);
  other.hello();
  ASSERT_EQ(client.destroy(UROCE_CMD_DESTROY_CQ, 77), ENOENT);
  ASSERT_EQ(other.destroy(UROCE_CMD_DESTROY_CQ, 78), ENOENT);
  const Json theirs = shown_to(other);
  ASSERT_EQ(theirs["rejections"].size(), 1u);
  EXPECT_EQ(theirs["rejections"][0]["user"], 4242);
  EXPECT_EQ(theirs["hidden"], 1);
  if (!control::may_administer(TestClient::myself())) GTEST_SKIP() << "takes root, or a user outside containers";
  TestClient administrator(*daemon.conductor);
  EXPECT_EQ(shown_to(administrator)["rejections"].size(), 2u);
}

TEST_F(RejectionsTest, AUserWithManyPushesOutItsOwn) {
  TestClient other(*daemon.conductor, 4242);
  other.hello();
  ASSERT_EQ(other.destroy(UROCE_CMD_DESTROY_CQ, 78), ENOENT);
  for (std::uint32_t i = 0; i < 2 * control::Rejections::kKept; ++i) {
    ASSERT_EQ(client.destroy(UROCE_CMD_DESTROY_CQ, 1000 + i), ENOENT);
  }
  const auto& kept = daemon.conductor->state().rejections().kept();
  ASSERT_EQ(kept.size(), control::Rejections::kKept);
  EXPECT_EQ(shown_to(other)["rejections"].size(), 1u);
  EXPECT_NE(kept.back().text.find(std::to_string(1000 + 2 * control::Rejections::kKept - 1)), std::string::npos);
}

}  // namespace
}  // namespace uroce::daemon::testing
