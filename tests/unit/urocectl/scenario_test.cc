// The grammar of scenarios.
#include "apps/urocectl/scenario.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace uroce::ctl {
namespace {

std::vector<Step> parsed(const std::string& text) {
  std::vector<Step> steps;
  EXPECT_EQ(parse_scenario(text, steps), "") << text;
  return steps;
}
using Action = Step::Action;
Step command(const std::string& text) { return parsed("0s uroce0 " + text).front(); }

TEST(Scenario, AStepHasATimeADeviceAndACommand) {
  const auto steps = parsed(
      "# a cable\n"
      "\n"
      "  500ms   uroce1 link down  # pulled\r\n"
      "+2s uroce1\tlink up\n"
      "uroce0/cut>=1000 uroce0 fault off cut\n"
      "86400s end");
  ASSERT_EQ(steps.size(), 4u);
  EXPECT_EQ(steps[0].line, 3u);
  EXPECT_EQ(steps[0].at_s, 0.5);
  EXPECT_FALSE(steps[0].after);
  EXPECT_EQ(steps[0].device, "uroce1");
  EXPECT_EQ(steps[0].text, "uroce1 link down");
  EXPECT_EQ(steps[1].at_s, 2);
  EXPECT_TRUE(steps[1].after);
  EXPECT_EQ(steps[1].action, Action::kLinkUp);
  EXPECT_EQ(steps[2].rule_device, "uroce0");
  EXPECT_EQ(steps[2].rule, "cut");
  EXPECT_EQ(steps[2].matches, 1000u);
  EXPECT_EQ(steps[3].at_s, 86400);
  EXPECT_EQ(steps[3].action, Action::kEnd);
}

TEST(Scenario, CommandsAddAndRemove) {
  EXPECT_EQ(command("fault drop=1,name=cut").action, Action::kAdd);
  EXPECT_EQ(command("fault drop=1,name=cut").name, "cut");
  EXPECT_EQ(command("fault drop=1,name=cut").argument, "drop=1,name=cut");
  EXPECT_EQ(command("fault drop=1").name, "line-1") << "so that it can be removed";
  EXPECT_EQ(command("fault drop=1").argument, "name=line-1,drop=1");
  EXPECT_EQ(command("fault off").action, Action::kRemove);
  EXPECT_EQ(command("fault off").name, "");
  EXPECT_EQ(command("fault off cut").name, "cut");
  EXPECT_EQ(command("fault verbs prog=a#b,nth=1,status=TM_ERR  # two").action, Action::kAddVerbs);
  EXPECT_EQ(command("fault verbs prog=a#b,nth=1,status=TM_ERR  # two").argument, "prog=a#b,nth=1,status=TM_ERR");
  EXPECT_EQ(command("fault verbs off").action, Action::kRemoveVerbs);
  EXPECT_EQ(command("link down").action, Action::kLinkDown);
}

TEST(Scenario, AnErrorNamesTheLineTheWordAndWhatIsAllowed) {
  const struct {
    std::string line;
    std::vector<std::string> says;
  } cases[] = {
      {"2x uroce0 link up", {"\"2x\"", "2s"}},
      {"2 uroce0 link up", {"\"2\"", "2s"}},
      {"+ uroce0 link up", {"\"+\"", "2s"}},
      {"-1s uroce0 link up", {"\"-1s\""}},
      {"90000s end", {"\"90000s\""}},
      {"99999999999999999999s end", {"\"99999999999999999999s\""}},
      {"uroce0/cut>1 uroce0 link up", {"\"uroce0/cut>1\"", "uroce0/cut>=1000"}},
      {"uroce0/>=1 uroce0 link up", {"\"uroce0/>=1\""}},
      {"/cut>=1 uroce0 link up", {"\"/cut>=1\""}},
      {"uroce0/cut>=x uroce0 link up", {"\"uroce0/cut>=x\""}},
      {"uroce0/cut>= uroce0 link up", {"\"uroce0/cut>=\""}},
      {"0s", {"\"\"", "link up"}},
      {"0s uroce0", {"\"uroce0\"", "link up"}},
      {"0s uroce0 fault", {"\"uroce0 fault\"", "fault RULE"}},
      {"0s uroce0 fault add drop=1", {"fault add", "fault RULE"}},
      {"0s uroce0 fault drop=1;dup=1", {"drop=1;dup=1"}},
      {"0s uroce0 fault off a b", {"off a b"}},
      {"0s uroce0 fault verbs off 3", {"verbs off 3"}},
      {"0s uroce0 fault verbs", {"\"uroce0 fault verbs\""}},
      {"0s uroce0 link sideways", {"link sideways"}},
      {"0s uroce0 show qps", {"show qps"}},
      {"0s end now", {"\"end now\""}},
  };
  for (const auto& each : cases) {
    std::vector<Step> steps;
    const std::string problem = parse_scenario("0ms end\n" + each.line, steps);
    EXPECT_EQ(problem.find("line 2: "), 0u) << each.line << ": " << problem;
    for (const std::string& part : each.says) EXPECT_NE(problem.find(part), std::string::npos) << problem;
  }
  std::vector<Step> steps;
  EXPECT_NE(parse_scenario("5s end\n2s end", steps).find("line 2"), std::string::npos) << "times go on";
  EXPECT_NE(parse_scenario("0s uroce0 fault verbs prog=\xe4,status=TM_ERR", steps).find("ASCII"),
            std::string::npos);
  EXPECT_NE(parse_scenario("# nothing\n\n", steps), "");
}

}  // namespace
}  // namespace uroce::ctl
