// `urocectl fault verbs`: the grammar, which programs and QPs a rule selects, and the rights that it takes.
#include "control/state/verb_faults.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "admin/query.h"
#include "control/diagnosis/rejections.h"
#include "control/session/cm_event_types.h"
#include "control/session/privilege.h"
#include "test_client.h"
#include "test_daemon.h"

namespace uroce::daemon::testing {

using control::VerbFault;
using enum control::CmEventType;

namespace {

using Json = nlohmann::json;

constexpr std::uint32_t kRights = 0xf;
constexpr std::uint64_t kArea = 0x7000000;

VerbFault parsed(const std::string& text) {
  VerbFault fault;
  EXPECT_EQ(VerbFault::parse(text, fault), "") << text;
  return fault;
}

TEST(VerbFaultText, EachKeyIsRead) {
  const VerbFault fault = parsed(
      "prog=nccl*,pid=7,user=0,qpn=0x12,peer=0x34,op=SEND|recv,every=5,count=3,probability=0.5,seed=9,status=retry_"
      "exc_err,"
      "event=IBV_EVENT_QP_FATAL");
  EXPECT_EQ(fault.program, "nccl*");
  EXPECT_EQ(fault.pid, 7);
  EXPECT_EQ(fault.user, 0u);
  EXPECT_EQ(fault.qpn, Qpn{0x12});
  EXPECT_EQ(fault.plan.peer, Qpn{0x34});
  EXPECT_EQ(fault.plan.operations, proto::FaultPlan::kReceives | std::uint64_t{1} << UROCE_WR_SEND |
                                       std::uint64_t{1} << UROCE_WR_SEND_WITH_IMM |
                                       std::uint64_t{1} << UROCE_WR_SEND_WITH_INV);
  EXPECT_EQ(fault.plan.every, 5u);
  EXPECT_EQ(fault.plan.most, 3u);
  EXPECT_EQ(fault.plan.probability, 0.5);
  EXPECT_EQ(fault.plan.seed, 9u);
  EXPECT_EQ(fault.plan.failure, proto::injected_failure(UROCE_WC_RETRY_EXC_ERR));
  EXPECT_EQ(fault.plan.event, proto::AsyncEvent::kQpFatal);
  EXPECT_EQ(parsed("peer=192.0.2.1,event=CQ_ERR").plan.peer_address, ipv4(1));
  EXPECT_EQ(parsed("peer=2001:db8::1,event=CQ_ERR").plan.peer_address->bytes[15], 1);
}

TEST(VerbFaultText, WithoutOperationsARuleIsForAllThatAreSent) {
  EXPECT_EQ(parsed("status=FATAL_ERR").plan.operations, ~proto::FaultPlan::kReceives);
  EXPECT_EQ(parsed("status=FATAL_ERR").plan.every, 1u);
  EXPECT_EQ(parsed("status=FATAL_ERR").plan.most, ~std::uint64_t{0});
}

TEST(VerbFaultText, NthFiresOnceUnlessCountSaysMore) {
  EXPECT_EQ(parsed("nth=4,status=FATAL_ERR").plan.most, 1u);
  EXPECT_EQ(parsed("nth=4,count=9,status=FATAL_ERR").plan.most, 9u);
}

TEST(VerbFaultText, AQpErrorFlushesUnlessAStatusIsGiven) {
  EXPECT_TRUE(parsed("qp=error").plan.fatal);
  EXPECT_EQ(parsed("qp=error").plan.failure, proto::injected_failure(UROCE_WC_WR_FLUSH_ERR));
  EXPECT_EQ(parsed("qp=error,status=FATAL_ERR").plan.failure, proto::injected_failure(UROCE_WC_FATAL_ERR));
}

TEST(VerbFaultText, EachStatusHasItsName) {
  // The order of ibv_wc_status.
  const std::vector<std::string> names = {
      "LOC_LEN_ERR",   "LOC_QP_OP_ERR", "LOC_EEC_OP_ERR",     "LOC_PROT_ERR",     "WR_FLUSH_ERR",
      "MW_BIND_ERR",   "BAD_RESP_ERR",  "LOC_ACCESS_ERR",     "REM_INV_REQ_ERR",  "REM_ACCESS_ERR",
      "REM_OP_ERR",    "RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR",  "LOC_RDD_VIOL_ERR", "REM_INV_RD_REQ_ERR",
      "REM_ABORT_ERR", "INV_EECN_ERR",  "INV_EEC_STATE_ERR",  "FATAL_ERR",        "RESP_TIMEOUT_ERR",
      "GENERAL_ERR",   "TM_ERR",        "TM_RNDV_INCOMPLETE",
  };
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(proto::vendor_err_of(parsed("status=" + names[i]).plan.failure) >> 4, i + 1) << names[i];
    EXPECT_EQ(parsed("status=IBV_WC_" + names[i]).plan.failure, parsed("status=" + names[i]).plan.failure);
  }
}

TEST(VerbFaultText, EachEventHasItsName) {
  const std::vector<std::string> names = {"CQ_ERR",
                                          "QP_FATAL",
                                          "QP_REQ_ERR",
                                          "QP_ACCESS_ERR",
                                          "COMM_EST",
                                          "SQ_DRAINED",
                                          "PATH_MIG",
                                          "PATH_MIG_ERR",
                                          "DEVICE_FATAL",
                                          "PORT_ACTIVE",
                                          "PORT_ERR",
                                          "LID_CHANGE",
                                          "PKEY_CHANGE",
                                          "SM_CHANGE",
                                          "SRQ_ERR",
                                          "SRQ_LIMIT_REACHED",
                                          "QP_LAST_WQE_REACHED",
                                          "CLIENT_REREGISTER",
                                          "GID_CHANGE",
                                          "WQ_FATAL"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(static_cast<std::size_t>(*parsed("event=" + names[i]).plan.event), i) << names[i];
  }
}

TEST(VerbFaultText, ACallHasItsErrno) {
  EXPECT_EQ(parsed("call=create_qp,errno=ENOMEM").call, std::uint32_t{UROCE_CMD_CREATE_QP});
  EXPECT_EQ(parsed("call=CM_CONNECT,errno=EINVAL,nth=2").error, EINVAL);
  EXPECT_EQ(parsed("call=create_qp,errno=133").error, 133);
}

TEST(VerbFaultText, EachCommandOfAProgramHasAName) {
  const auto expect_names = [](std::uint32_t first, std::uint32_t end) {
    for (std::uint32_t command = first; command < end; ++command) {
      if (command == UROCE_CMD_ADMIN || command == UROCE_CMD_EXPLAIN) continue;
      EXPECT_EQ(parsed("call=" + std::string(control::command_name(command)) + ",errno=EPERM").call, command);
    }
  };
  expect_names(UROCE_CMD_HELLO + 1, UROCE_CMD_END);
  expect_names(UROCE_CMD_CM_FIRST, UROCE_CMD_CM_END);
}

TEST(VerbFaultText, ACompletionIsLateLostOrSwapped) {
  using Kind = proto::CompletionFault::Kind;
  EXPECT_EQ(parsed("completion=late:50ms").plan.completion.kind, Kind::kLate);
  EXPECT_EQ(parsed("completion=late:50ms").plan.completion.delay, 50 * kMillisecond);
  EXPECT_EQ(parsed("op=RECV,completion=lost,event=CQ_ERR").plan.completion.kind, Kind::kLost);
  EXPECT_EQ(parsed("completion=swapped").plan.completion.kind, Kind::kSwapped);
  EXPECT_TRUE(parsed("op=RECV,answer=rnr_nak").plan.hides);
}

TEST(VerbFaultText, ACallMayHaveAnEventInItsPlace) {
  const struct {
    std::string text;
    std::uint32_t event;
    int status;
  } cases[] = {
      {"call=cm_resolve_address,cm=ADDR_ERROR", kAddrError, -ETIMEDOUT},
      {"call=cm_resolve_route,cm=RDMA_CM_EVENT_ROUTE_ERROR", kRouteError, -ETIMEDOUT},
      {"call=cm_connect,cm=unreachable", kUnreachable, -ETIMEDOUT},
      {"call=cm_connect,cm=REJECTED", kRejected, 28},
      {"call=cm_connect,cm=REJECTED,cm_status=8", kRejected, 8},
      {"call=cm_accept,cm=CONNECT_ERROR,cm_status=-104", kConnectError, -104},
      {"call=cm_join,cm=MULTICAST_ERROR", kMulticastError, -ENETUNREACH},
      {"call=cm_accept,cm=DEVICE_REMOVAL", kDeviceRemoval, 0},
      {"call=cm_join,cm=ADDR_CHANGE", kAddrChange, 0},
  };
  for (const auto& each : cases) {
    const VerbFault fault = parsed(each.text);
    EXPECT_EQ(fault.cm, each.event) << each.text;
    EXPECT_EQ(fault.error, each.status) << each.text;
  }
}

struct RefusedRule {
  std::string text;
  std::vector<std::string> says;
};

void expect_refused_rules(std::span<const RefusedRule> cases) {
  for (const RefusedRule& each : cases) {
    VerbFault fault;
    const std::string problem = VerbFault::parse(each.text, fault);
    EXPECT_NE(problem, "") << each.text;
    EXPECT_NE(problem.find("prog=nccl*"), std::string::npos) << "an example: " << problem;
    for (const std::string& part : each.says) EXPECT_NE(problem.find(part), std::string::npos) << problem;
  }
}

TEST(VerbFaultText, AnErrorNamesTheValueWhatIsAllowedAndWhatToDo) {
  const RefusedRule cases[] = {
      {"", {"no rule"}},
      {"status=BROKEN", {"status=BROKEN", "RETRY_EXC_ERR"}},
      {"status=SUCCESS", {"status=SUCCESS"}},
      {"event=NOISE", {"event=NOISE", "QP_FATAL"}},
      {"op=PUT,status=FATAL_ERR", {"op=PUT", "WRITE"}},
      {"op=SEND|,status=FATAL_ERR", {"op=SEND|"}},
      {"op=,status=FATAL_ERR", {"op="}},
      {"dorp=1", {"dorp=1", "prog"}},
      {"status", {"\"status\"", "RETRY_EXC_ERR"}},
      {"nth=0,status=FATAL_ERR", {"nth=0", "from 1"}},
      {"every=0,status=FATAL_ERR", {"every=0"}},
      {"every=x,status=FATAL_ERR", {"every=x"}},
      {"nth=1,every=2,status=FATAL_ERR", {"nth", "every"}},
      {"count=0,status=FATAL_ERR", {"count=0"}},
      {"probability=2,status=FATAL_ERR", {"probability=2", "at most 1"}},
      {"probability=nan,status=FATAL_ERR", {"probability=nan"}},
      {"probability=0,status=FATAL_ERR", {"probability=0"}},
      {"seed=1,status=FATAL_ERR", {"seed", "probability"}},
      {"pid=-1,status=FATAL_ERR", {"pid=-1"}},
      {"user=root,status=FATAL_ERR", {"user=root", "id -u"}},
      {"qpn=0x1000000,status=FATAL_ERR", {"qpn=0x1000000", "0xffffff"}},
      {"peer=here,status=FATAL_ERR", {"peer=here", "192.0.2.1"}},
      {"qp=ready", {"qp=ready", "error"}},
      {"prog=,status=FATAL_ERR", {"prog="}},
      {"prog=a", {"effect"}},
      {"status=FATAL_ERR,status=FATAL_ERR", {"once"}},
      {"completion=never", {"completion=never", "late:50ms"}},
      {"completion=late", {"completion=late", "late:50ms"}},
      {"completion=late:", {"completion=late:", "late:50ms"}},
      {"completion=late:0ms", {"completion=late:0ms", "late:50ms"}},
      {"completion=late:11s", {"completion=late:11s", "10s"}},
      {"completion=lost,status=FATAL_ERR", {"one way"}},
      {"completion=lost,qp=error", {"one way"}},
      {"op=RECV,answer=RNR_NAK,completion=lost", {"one way"}},
      {"op=RECV,answer=ACK", {"answer=ACK", "RNR_NAK"}},
      {"answer=RNR_NAK", {"op=RECV"}},
      {"op=SEND|RECV,answer=RNR_NAK", {"op=RECV"}},
  };
  expect_refused_rules(cases);
  VerbFault fault;
  EXPECT_NE(VerbFault::parse("prog=" + std::string(1000, 'x') + ",status=FATAL_ERR", fault), "");
}

TEST(VerbFaultText, AnErrorInARuleForCallsDoesSoToo) {
  const RefusedRule cases[] = {
      {"call=create_qp", {"errno"}},
      {"errno=ENOMEM", {"call"}},
      {"call=admin,errno=ENOMEM", {"call=admin"}},
      {"call=explain,errno=ENOMEM", {"call=explain"}},
      {"call=hello,errno=ENOMEM", {"call=hello"}},
      {"call=create_qp,errno=EWHAT", {"errno=EWHAT", "ENOMEM"}},
      {"call=create_qp,errno=0", {"errno=0", "ENOMEM"}},
      {"call=create_qp,errno=4096", {"errno=4096", "ENOMEM"}},
      {"call=create_qp,errno=ENOMEM,op=SEND", {"op="}},
      {"call=cm_connect,cm=REJECTED,answer=RNR_NAK", {"answer="}},
      {"cm=REJECTED", {"call"}},
      {"cm_status=8,status=FATAL_ERR", {"cm_status=", "call"}},
      {"call=cm_connect,cm=ESTABLISHED", {"cm=ESTABLISHED", "UNREACHABLE"}},
      {"call=cm_connect,cm=ADDR_ERROR", {"cm_resolve_address"}},
      {"call=create_qp,cm=REJECTED", {"cm_connect"}},
      {"call=cm_connect,cm=REJECTED,errno=EINVAL", {"errno=", "cm="}},
      {"call=cm_connect,cm=REJECTED,cm_status=x", {"cm_status=x", "-110"}},
      {"call=cm_connect,cm=REJECTED,cm_status=70000", {"cm_status=70000"}},
      {"call=cm_connect,errno=EINVAL,cm_status=8", {"cm="}},
  };
  expect_refused_rules(cases);
}

/// Two connected QPs of one client.
struct Programme {
  explicit Programme(TestDaemon& of) : daemon(of) {
    client.hello();
    pd = client.alloc_pd();
    cq = client.create_cq(64);
    const control::Reply mr = client.reg_mr(pd, kArea, 4096, kRights, data);
    key = TestClient::value<uroce_reg_mr_response>(mr).lkey;
    a = connected(b);
  }
  ClientQp connected(ClientQp& peer) {
    ClientQp qp = client.create_qp(TestClient::qp_request(pd, cq.made.handle));
    peer = client.create_qp(TestClient::qp_request(pd, cq.made.handle));
    EXPECT_EQ(client.connect(qp, peer.made.qpn, ipv4(1).bytes), 0);
    EXPECT_EQ(client.connect(peer, qp.made.qpn, ipv4(1).bytes), 0);
    return qp;
  }
  /// The status of a WRITE.
  int write(ClientQp& qp) {
    uroce_sq_entry entry{};
    entry.opcode = UROCE_WR_RDMA_WRITE;
    entry.flags = UROCE_SEND_SIGNALED;
    entry.num_sge = 1;
    entry.remote_addr = kArea + 2048;
    entry.rkey = key;
    const uroce_sge from{kArea, 8, key};
    qp.post_send(entry, std::span(&from, 1));
    if (!daemon.run_until([this] { return cq.ring.peek() != nullptr; })) return -1;
    const int status = cq.ring.peek()->status;
    cq.ring.pop();
    cq.ring.publish();
    return status;
  }

  TestDaemon& daemon;
  TestClient client{*daemon.conductor};
  std::uint32_t pd = 0, key = 0;
  ClientCq cq;
  ClientQp a, b;
  std::byte* data = nullptr;
};

class VerbFaultsTest : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  void SetUp() override {
    if (!control::may_administer(TestClient::myself())) GTEST_SKIP() << "takes root, or a user outside containers";
  }
  Json ask(TestClient& by, const Json& verbs) {
    return Json::parse(admin::handle_query(daemon.conductor->admin(), by.session(),
                                           Json{{"command", "fault"}, {"verbs", verbs}}.dump()));
  }
  Json add(const std::string& rule) { return ask(administrator, {{"add", rule}}); }

  TestDaemon daemon{test_config(), GetParam()};
  TestClient administrator{*daemon.conductor};
};

TEST_P(VerbFaultsTest, ARuleIsForQpsThatExistAndForLaterOnes) {
  Programme one(daemon);
  EXPECT_EQ(one.write(one.a), UROCE_WC_SUCCESS);
  const Json answer = add("prog=te*,op=WRITE,nth=2,count=2,status=RESP_TIMEOUT_ERR");
  ASSERT_FALSE(answer.contains("error")) << answer;
  EXPECT_EQ(one.write(one.a), UROCE_WC_SUCCESS) << "its first since the rule exists";
  EXPECT_EQ(one.write(one.a), UROCE_WC_RESP_TIMEOUT_ERR);
  ClientQp peer, later = one.connected(peer);
  EXPECT_EQ(one.write(later), UROCE_WC_SUCCESS);
  EXPECT_EQ(one.write(later), UROCE_WC_RESP_TIMEOUT_ERR);
  const Json rules = ask(administrator, Json::object())["rules"];
  ASSERT_EQ(rules.size(), 1u);
  EXPECT_EQ(rules[0]["number"], 1);
  EXPECT_EQ(rules[0]["rule"], "prog=te*,op=WRITE,nth=2,count=2,status=RESP_TIMEOUT_ERR");
  EXPECT_EQ(rules[0]["qps"], 4);
  EXPECT_EQ(rules[0]["matched"], 4);
  EXPECT_EQ(rules[0]["fired"], 2);
}

TEST_P(VerbFaultsTest, ARuleThatSelectsAnotherProgramOrQpChangesNothing) {
  Programme one(daemon);
  char qpn[16];
  std::snprintf(qpn, sizeof(qpn), "qpn=0x%x", one.b.made.qpn);
  for (const std::string& selector : {std::string("prog=other"), std::string("pid=1"), std::string("user=12345"),
                                      std::string(qpn), std::string("peer=0x1"), std::string("op=READ")}) {
    ASSERT_FALSE(add(selector + ",status=FATAL_ERR").contains("error")) << selector;
  }
  EXPECT_EQ(one.write(one.a), UROCE_WC_SUCCESS);
  EXPECT_EQ(one.write(one.b), UROCE_WC_FATAL_ERR) << "that of qpn=";
}

TEST_P(VerbFaultsTest, ARemovedRuleIsGone) {
  Programme one(daemon);
  ClientQp peer, other = one.connected(peer);
  for (const char* status : {"FATAL_ERR", "GENERAL_ERR", "TM_ERR"}) add(std::string("status=") + status);
  EXPECT_EQ(ask(administrator, {{"remove", 1}})["rules"].size(), 2u);
  EXPECT_TRUE(ask(administrator, {{"remove", 1}}).contains("error")) << "numbers are not used again";
  EXPECT_EQ(one.write(one.b), UROCE_WC_GENERAL_ERR);
  EXPECT_EQ(ask(administrator, {{"remove", "all"}})["rules"].size(), 0u);
  EXPECT_EQ(one.write(other), UROCE_WC_SUCCESS);
  ClientQp later = one.connected(peer);
  EXPECT_EQ(one.write(later), UROCE_WC_SUCCESS);
}

TEST_P(VerbFaultsTest, OnlyAdministratorsSetAndSeeRules) {
  TestClient stranger(*daemon.conductor, 4242);
  stranger.hello();
  for (const Json& change : {Json::object(), Json{{"add", "status=FATAL_ERR"}}, Json{{"remove", "all"}}}) {
    const Json answer = ask(stranger, change);
    ASSERT_TRUE(answer.contains("error"));
    EXPECT_NE(answer["error"].get<std::string>().find("only root"), std::string::npos);
  }
  EXPECT_EQ(ask(administrator, Json::object())["rules"].size(), 0u);
}

TEST_P(VerbFaultsTest, RulesAreBounded) {
  for (std::size_t i = 0; i < control::VerbFaults::kMost; ++i)
    ASSERT_FALSE(add("status=FATAL_ERR").contains("error"));
  const Json answer = add("status=FATAL_ERR");
  ASSERT_TRUE(answer.contains("error"));
  EXPECT_NE(answer["error"].get<std::string>().find("64"), std::string::npos);
  EXPECT_TRUE(add("status=NONSENSE").contains("error"));
}

TEST_P(VerbFaultsTest, AControlCommandFailsWithTheErrnoOfTheRule) {
  TestClient client(*daemon.conductor);
  client.hello();
  ASSERT_FALSE(add("prog=test,call=alloc_pd,nth=2,errno=ENOSPC").contains("error"));
  const auto alloc = [&] { return client.send(UROCE_CMD_ALLOC_PD, std::span<const std::byte>{}); };
  EXPECT_EQ(alloc().status, 0);
  EXPECT_EQ(alloc().status, ENOSPC);
  EXPECT_EQ(alloc().status, 0);
  EXPECT_NE(client.session().explained.text.find("rule 1"), std::string::npos);
  EXPECT_EQ(ask(administrator, Json::object())["rules"][0]["matched"], 3);
}

TEST_P(VerbFaultsTest, AnEventReachesTheProgram) {
  Programme one(daemon);
  add("op=WRITE,nth=1,event=PORT_ERR");
  add("op=WRITE,nth=1,event=PATH_MIG");
  EXPECT_EQ(one.write(one.a), UROCE_WC_SUCCESS);
  daemon.settle();
  daemon.conductor->take_worker_events();
  const int channel = one.client.hello_fd(GetParam());
  ::fcntl(channel, F_SETFL, O_NONBLOCK);
  std::array<uroce_async_event, 3> events{};
  std::size_t count = 0;
  while (count < events.size() && ::read(channel, &events[count], sizeof(events[count])) == sizeof(events[count]))
    ++count;
  ASSERT_EQ(count, 2u);
  EXPECT_EQ(events[0].type, 10u);
  EXPECT_EQ(events[0].object, 1u) << "the port";
  EXPECT_EQ(events[1].type, 6u);
  EXPECT_EQ(events[1].object, 0u);
}

INSTANTIATE_TEST_SUITE_P(Workers, VerbFaultsTest, ::testing::Values(1, 2));

}  // namespace
}  // namespace uroce::daemon::testing
