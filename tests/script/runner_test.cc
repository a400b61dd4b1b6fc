// The runner itself: a script that must fail does fail, with a message that names line and cause.
#include "tests/script/runner.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace uroce::script {
namespace {

constexpr std::string_view kWrite =
    "qp type=RC\n"
    "> WRITE_ONLY psn=200 ack_req=1 va=0x10000 rkey=mem len=8 fill=1\n";

/// The script's message; empty: it passed.
std::string failure(const std::string& text) {
  const Result result = run_text("test.script", text);
  EXPECT_EQ(result.passed, result.message.empty()) << result.message;
  return result.passed ? "" : result.message;
}
std::string after_write(const std::string& rest) { return failure(std::string(kWrite) + rest); }

testing::AssertionResult has(const std::string& text, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) {
    if (text.find(part) == text.npos) return testing::AssertionFailure() << "no '" << part << "' in: " << text;
  }
  return testing::AssertionSuccess();
}

TEST(ScriptRunner, PassesWhatHappensAsWritten) { EXPECT_EQ(after_write("< ACK psn=200 msn=1\n"), ""); }

TEST(ScriptRunner, WrongFieldFailsWithLineAndBothValues) {
  EXPECT_TRUE(has(after_write("< ACK psn=201\n"), {"test.script:3: < ACK psn=201", "192.0.2.1 > 192.0.2.2 RC ACK",
                                                   "psn: expected 201, actual 200"}));
}

TEST(ScriptRunner, WrongOpcodeFails) {
  EXPECT_TRUE(has(after_write("< NAK psn=200\n"), {"test.script:3", "it is 'ACK', expected 'NAK'"}));
}

TEST(ScriptRunner, MissingPacketFails) {
  EXPECT_TRUE(has(after_write("< ACK psn=200\n< ACK psn=201\n"), {"test.script:4", "nothing until"}));
}

TEST(ScriptRunner, UnexpectedPacketFailsAtTheNextLineAndAtTheEnd) {
  EXPECT_TRUE(has(after_write("+1ms post_recv wr_id=1 len=8\n"), {"test.script:3", "expected: nothing", "RC ACK"}));
  EXPECT_TRUE(has(after_write("quiet\n"), {"test.script:3", "expected: nothing", "RC ACK"}));
  EXPECT_TRUE(has(after_write(""), {"test.script:2: the end of the script", "RC ACK"}));
}

TEST(ScriptRunner, UnexpectedRetryFails) {
  const std::string text = "qp type=RC timeout=10\npost send wr_id=1 len=8\n< SEND_ONLY psn=100\n+1s quiet\n";
  EXPECT_TRUE(has(failure(text), {"test.script:4", "RC SEND_ONLY", "(at 4.19"}));
}

TEST(ScriptRunner, PacketAtAnotherTimeFails) {
  const std::string text = "qp type=RC timeout=10\npost send wr_id=1 len=8\n< SEND_ONLY psn=100\n";
  EXPECT_TRUE(
      has(failure(text + "+5ms < SEND_ONLY psn=100\n"), {"test.script:4", "time: expected 5.000 ms ~ 0.005 ms"}));
  EXPECT_TRUE(has(failure(text + "+4ms < SEND_ONLY psn=100\n"), {"test.script:4", "nothing until 4.005 ms"}));
  EXPECT_EQ(failure(text + "+4ms~200us < SEND_ONLY psn=100\n"), "");
  EXPECT_EQ(failure(text + "4194304ns < SEND_ONLY psn=100\n"), "");
}

TEST(ScriptRunner, CompletionsAreAllExpected) {
  const std::string sent = "qp type=UC\npost send wr_id=1 len=8\n< SEND_ONLY\n";
  EXPECT_EQ(failure(sent + "completion wr_id=1\n"), "");
  EXPECT_TRUE(has(failure(sent), {"completion wr_id=1 status=SUCCESS"}));
  EXPECT_TRUE(has(failure(sent + "completion wr_id=2\n"), {"wr_id: expected 2, actual 1"}));
  EXPECT_TRUE(has(failure(sent + "completion wr_id=1 status=REM_OP_ERR\n"),
                  {"status: expected REM_OP_ERR, actual SUCCESS"}));
  EXPECT_TRUE(has(failure("qp type=RC\ncompletion wr_id=1\n"), {"test.script:2", "nothing until"}));
}

TEST(ScriptRunner, CompletionWithoutStatusIsASuccess) {
  const std::string text = "qp type=RC\npost send wr_id=1 len=8\n< SEND_ONLY psn=100\nmodify state=ERR\n";
  EXPECT_TRUE(has(failure(text + "completion wr_id=1\n"), {"status: expected SUCCESS, actual WR_FLUSH_ERR"}));
}

TEST(ScriptRunner, EventsAreAllExpected) {
  const std::string text = "qp type=RC\n> WRITE_ONLY psn=200 va=0 rkey=1 len=8\n< NAK psn=200\n";
  EXPECT_TRUE(has(failure(text), {"event QP_ACCESS_ERR"}));
  EXPECT_TRUE(has(failure(text + "event QP_FATAL\n"), {"it is 'QP_ACCESS_ERR', expected 'QP_FATAL'"}));
}

TEST(ScriptRunner, ChecksCompare) {
  const std::string query = "< ACK psn=200\nmemory addr=0x10000 len=8 fill=1\nquery window>131071 state=RTS\n";
  EXPECT_EQ(after_write(query + "query window<131073\n"), "");
  EXPECT_TRUE(has(after_write("< ACK psn=200\nquery window>131072\n"), {"window: expected 131072, actual 131072"}));
  EXPECT_TRUE(
      has(after_write("< ACK psn=200\nmemory addr=0x10000 len=9 fill=1\n"), {"test.script:4", "byte 8 is 0"}));
  EXPECT_TRUE(has(after_write("< ACK psn=200\nquery state=ERR\n"), {"state: expected ERR, actual RTS"}));
  EXPECT_TRUE(has(after_write("< ACK psn=200\ncounter acks_sent=2\n"), {"acks_sent: expected 2, actual 1"}));
}

TEST(ScriptRunner, SkipsAndCountsPackets) {
  const std::string read = "qp type=RC mtu=256\n> READ_REQUEST psn=200 va=0x10000 rkey=mem dma_len=1024\n";
  EXPECT_EQ(failure(read + "< READ_RESP_FIRST\n< READ_RESP_MIDDLE psn=201 count=2\n< READ_RESP_LAST psn=203\n"),
            "");
  EXPECT_TRUE(has(failure(read + "< READ_RESP_FIRST\n< READ_RESP_MIDDLE psn=201 count=3\n"), {"READ_RESP_LAST"}));
  EXPECT_EQ(failure(read + "< READ_RESP_LAST skip=3\n"), "");
  EXPECT_TRUE(has(failure(read + "< READ_RESP_LAST skip=2\n"), {"READ_RESP_MIDDLE"}));
}

TEST(ScriptRunner, MarkedScriptMustFailAtTheMarkOrAfterIt) {
  const std::string mark = "expect-fail X1: the reason\n";
  EXPECT_TRUE(run_text("t", std::string(kWrite) + mark + "< ACK psn=201\n").passed);
  EXPECT_TRUE(run_text("t", std::string(kWrite) + mark).passed) << "an unexpected packet at the end";
  EXPECT_TRUE(
      has(failure(std::string(kWrite) + mark + "< ACK psn=200\n"), {"test.script:3: expect-fail X1", "remove"}));
  EXPECT_TRUE(
      has(failure(std::string(kWrite) + "< ACK psn=201\n" + mark), {"test.script:3: < ACK", "before the mark"}));
}

TEST(ScriptRunner, MarkDoesNotExcuseASyntaxError) {
  EXPECT_TRUE(has(after_write("expect-fail X1: the reason\n< ACK psm=200\n"), {"test.script:4", "no field 'psm'"}));
}

TEST(ScriptRunner, ManagerScriptsFailLikewise) {
  const std::string text = "cm\nconnect id=$a service=tcp:7174 qpn=17\n";
  EXPECT_EQ(failure(text + "< REQ local_id=$a qpn=17\n"), "");
  EXPECT_TRUE(
      has(failure(text + "< REQ qpn=18\n"), {"test.script:3", "REQ local_id=", "qpn: expected 18, actual 17"}));
  EXPECT_TRUE(has(failure(text), {"the end of the script", "REQ local_id="}));
  EXPECT_TRUE(has(failure(text + "< REQ qpn=17\n+1s quiet\n"), {"test.script:4", "(at 100.000 ms)"}));
}

struct Wrong {
  const char* text;
  std::initializer_list<std::string_view> message;
};

TEST(ScriptSyntax, ErrorsNameLineWordAndWhatIsAllowed) {
  const Wrong kWrongs[] = {
      {"qp type=RX\n", {"test.script:1", "'RX' is not a value of type", "RC, UC, UD, XRC_SEND, XRC_RECV"}},
      {"qp colour=1\n", {"test.script:1", "'qp' has no field 'colour'", "type, qpn"}},
      {"start\n", {"test.script:1", "'start' does not begin a script", "qp, cm"}},
      {"qp\nsend\n", {"test.script:2", "'send' is not a statement", "post, post_recv"}},
      {"qp\npost\n", {"test.script:2", "'post' needs an operation", "write, write_imm"}},
      {"qp\npost fly\n", {"test.script:2", "'fly' is not a value of post", "write, write_imm"}},
      {"qp\n> SEND\n", {"test.script:2", "'SEND' is not an opcode of this service", "SEND_FIRST", "READ_REQUEST"}},
      {"qp type=UD\n> READ_REQUEST\n", {"test.script:2", "not an opcode of this service", "SEND_ONLY"}},
      {"qp\n> SEND_ONLY len=8\n", {"test.script:2", "needs psn="}},
      {"qp\n> SEND_ONLY psn=1 rkey=5\n", {"test.script:2", "has no field 'rkey'", "psn", "len"}},
      {"qp\n> SEND_ONLY psn<5\n", {"test.script:2", "'psn<5'", "psn=5"}},
      {"qp\n> SEND_ONLY psn=x\n", {"test.script:2", "'x' is not a value of psn", "a number"}},
      {"qp\n> SEND_ONLY psn=1 psn=2\n", {"test.script:2", "'psn' is given twice"}},
      {"qp\n> WRITE_ONLY psn=1 rkey=w\n", {"test.script:2", "'w' is not a key", "mem"}},
      {"qp\n> NAK psn=1 syndrome=rnr:32\n", {"test.script:2", "not a syndrome", "remote_access", "rnr:CODE"}},
      {"qp\n\n# note\n+1 quiet\n", {"test.script:4", "'+1' is not a time", "ns, us, ms or s"}},
      {"qp\n+1ms~x quiet\n", {"test.script:2", "the tolerance"}},
      {"qp\n5ms quiet\n1ms quiet\n", {"test.script:3", "that time has passed"}},
      {"qp\ncompletion qp=b\n", {"test.script:2", "nothing until"}},
      {"qp\npost send qp=b len=8\n", {"test.script:2", "'b' is not a QP", "qp1"}},
      {"qp\nevent BIG\n", {"test.script:2", "'BIG' is not a value of event", "QP_FATAL"}},
      {"qp\nquery colour=1\n", {"test.script:2", "no field 'colour'", "window"}},
      {"qp\npost send len=8 wr_id\n", {"test.script:2", "'wr_id' is not a field", "name=value"}},
      {"qp\nexpect-fail reason\n", {"test.script:2", "expect-fail ID: what is wrong"}},
      {"cm\n> REQ colour=1\n", {"test.script:2", "no field 'colour'", "local_id"}},
      {"cm\naccept id=$p\n", {"test.script:2", "$p has no value yet"}},
      {"cm\n< HELLO\n", {"test.script:2", "'HELLO' is not a value of message", "REQ, MRA"}},
      {"# nothing\n", {"test.script: no statement"}},
  };
  for (const Wrong& wrong : kWrongs) EXPECT_TRUE(has(failure(wrong.text), wrong.message)) << wrong.text;
}

TEST(Scripts, BeginWithTheirRule) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(UROCE_SCRIPTS)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path());
    std::string first;
    std::getline(in, first);
    EXPECT_TRUE(first.starts_with("# ")) << entry.path();
    EXPECT_EQ(entry.path().extension(), ".script");
  }
}

}  // namespace
}  // namespace uroce::script
