// Commands to workers as text, the trace of the last ones, and the check of command tables.
#include "control/state/worker_commands.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "admin/query.h"
#include "all_pages.h"
#include "control/commands/command_table.h"
#include "test_client.h"
#include "test_daemon.h"

namespace uroce::daemon::testing {

using control::find_command;
using worker::WorkerCore;

namespace {

template <class Command>
std::string text_of(Command command) {
  return worker::to_string(worker::WorkerCommandRef(command));
}

TEST(WorkerCommands, PrintTheirNameAndArguments) {
  using namespace control::worker_commands;
  EXPECT_EQ(text_of(Quiesce{}), "quiesce");
  EXPECT_EQ(text_of(SetCq{CqId{3}, nullptr, 7}), "set_cq cq=3 session=7");
  EXPECT_EQ(text_of(SetSrq{SrqId{4}, nullptr}), "set_srq srq=4 removed=yes");
  EXPECT_EQ(text_of(DestroyQp{Qpn{0x1234}, {}}), "destroy_qp qpn=0x1234");
  EXPECT_EQ(text_of(JoinGroup{ipv4(9)}), "join_group group=192.0.2.9");
  EXPECT_EQ(text_of(ResolveNeighbour{ipv4(9), 5}), "resolve_neighbour destination=192.0.2.9 vlan=5");
}

TEST(WorkerCommands, AnArgumentThatDoesNotFitIsLeftOut) {
  worker::ArgumentText text;
  text.add("first", 1).add("long", std::string(200, 'x')).add("last", 2);
  EXPECT_EQ(text.view(), "first=1 last=2");
}

// In virtual time, long before that of any clock: a command that reads a clock sets timers that are far away.
TEST(WorkerCommands, RunAtTheTimeOfTheDutyCycle) {
  MemoryDevice device;
  worker::WorkerShared shared;
  memory::Table memory(16, 1);
  net::LinkStack link({.mac = device.info().mac, .mtu = 1500, .addresses = {{ipv4(1), 24}}});
  WorkerCore core({.transport = {.max_qps = 4, .max_cqs = 4, .max_srqs = 4, .max_ahs = 4}}, shared, memory, &link);
  worker::WorkerLoop<MemoryDevice> loop(core, device);
  constexpr Nanos kTime = kMillisecond;
  control::worker_commands::ResolveNeighbour resolve{ipv4(9)};
  worker::Mailbox::Entry entry{worker::WorkerCommandRef(resolve)};
  core.post(entry);
  loop.step(kTime);
  ASSERT_TRUE(entry.done);
  EXPECT_EQ(resolve.resolution, net::Resolution::kPending);
  EXPECT_EQ(core.now(), kTime);
  EXPECT_LE(core.until_timer(kTime), 2 * uroce::kSecond) << "the request for the neighbour is not repeated";
}

/// Sees how many frames have not been received when it runs.
struct LookAtDevices {
  static constexpr std::string_view kName = "look";
  void describe(worker::ArgumentText&) const {}
  void run(WorkerCore&) { waiting = one.waiting() + other.waiting(); }
  MemoryDevice &one, &other;
  std::size_t waiting = ~std::size_t{0};
};

// A QP's packets may only name their payload; the command may end the QP, or deregister the memory.
TEST(WorkerCommands, RunOnceAllDevicesOfTheThreadHaveReceivedWhatHasArrived) {
  constexpr std::size_t kArrived = 700;  // more than a burst, and than a ring of drivers/packet/switch
  MemoryDevice devices[2];
  worker::WorkerShared shared[2];
  memory::Table memory(16, 1);
  const worker::WorkerConfig config{.transport = {.max_qps = 4, .max_cqs = 4, .max_srqs = 4, .max_ahs = 4}};
  const net::LinkConfig port{.mac = devices[0].info().mac, .mtu = 1500, .addresses = {{ipv4(1), 24}}};
  net::LinkStack links[] = {net::LinkStack(port), net::LinkStack(port)};
  WorkerCore cores[] = {{config, shared[0], memory, &links[0]}, {config, shared[1], memory, &links[1]}};
  worker::WorkerLoop<MemoryDevice> loops[] = {{cores[0], devices[0]}, {cores[1], devices[1]}};
  worker::DutyCycle* const together[] = {&loops[0], &loops[1]};
  for (worker::DutyCycle* const each : together) each->step_together_with(together);
  const std::vector<std::byte> frame(64);
  for (std::size_t i = 0; i < kArrived; ++i) devices[0].inject(frame), devices[1].inject(frame);
  loops[0].step(kMillisecond);
  EXPECT_GE(devices[0].waiting(), kArrived - worker::WorkerLoop<MemoryDevice>::kBurst) << "no command, one burst";
  for (WorkerCore& core : cores) {
    LookAtDevices look{devices[0], devices[1]};
    worker::Mailbox::Entry entry{worker::WorkerCommandRef(look)};
    core.post(entry);
    loops[&core - cores].step(2 * kMillisecond);
    ASSERT_TRUE(entry.done);
    EXPECT_EQ(look.waiting, 0u);
    for (std::size_t i = 0; i < kArrived; ++i) devices[0].inject(frame), devices[1].inject(frame);
  }
}

TEST(WorkerCommands, TheTraceKeepsTheLastOnesOfEachWorker) {
  TestDaemon daemon(test_config(), 2);
  TestClient client(*daemon.conductor);
  client.hello();
  for (std::uint32_t i = 0; i < 100; ++i) daemon.cores[0]->call(control::worker_commands::SetMtu{1500, i});
  EXPECT_EQ(daemon.cores[0]->command_trace().last().size(), worker::CommandTrace::kKept);
  const auto answer = all_pages(*daemon.conductor, client, {{"command", "show"}, {"what", "worker_commands"}});
  std::vector<nlohmann::json> first, second;
  for (const auto& row : answer["worker_commands"]) (row["worker"] == 0 ? first : second).push_back(row);
  ASSERT_EQ(first.size(), worker::CommandTrace::kKept);
  EXPECT_EQ(first.back()["command"], "set_mtu");
  EXPECT_EQ(first.back()["arguments"], "link_mtu=1500 path_mtu=99");
  EXPECT_EQ(first.front()["arguments"], "link_mtu=1500 path_mtu=36");
  ASSERT_FALSE(second.empty());
  EXPECT_EQ(second.back()["command"], "attach_session");
}

constexpr int kFirst = 1, kSecond = 2;
constexpr control::CommandRow<const int*> kInOrder[] = {{7, &kFirst}, {8, &kSecond}};
constexpr control::CommandRow<const int*> kSwapped[] = {{8, &kSecond}, {7, &kFirst}};
static_assert(control::rows_match_opcodes(kInOrder, 7, 8));
static_assert(!control::rows_match_opcodes(kSwapped, 7, 8), "a swapped pair of rows must not pass");
static_assert(!control::rows_match_opcodes(kInOrder, 7, 9), "a missing row must not pass");

TEST(CommandTable, FindsRowsByOpcode) {
  EXPECT_EQ(find_command(kInOrder, 6), nullptr);
  EXPECT_EQ(find_command(kInOrder, 7)->run, &kFirst);
  EXPECT_EQ(find_command(kInOrder, 8)->run, &kSecond);
  EXPECT_EQ(find_command(kInOrder, 9), nullptr);
}

}  // namespace
}  // namespace uroce::daemon::testing
