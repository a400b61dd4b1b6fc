// Whole daemons: threads, sockets, sleep and wake, death of either side.
#include "daemon/daemon.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "admin/latency.h"
#include "apps/urocectl/counters_page.h"
#include "memory_device.h"
#include "test_client.h"
#include "test_daemon.h"

namespace uroce::daemon::testing {
namespace {

using std::chrono::milliseconds;

UniqueFd connect_to(const std::string& path) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) fd.reset();
  return fd;
}

struct Answer {
  int status = -1;
  std::vector<std::byte> body;
  std::vector<UniqueFd> fds;
  bool closed = false;
};

Answer receive_answer(int fd, int timeout_ms = 3000) {
  Answer answer;
  pollfd ready{fd, POLLIN, 0};
  if (::poll(&ready, 1, timeout_ms) != 1) return answer;
  std::vector<std::byte> buffer(UROCE_MAX_MESSAGE);
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * UROCE_MAX_MESSAGE_FDS)];
  iovec part{buffer.data(), buffer.size()};
  msghdr header{};
  header.msg_iov = &part, header.msg_iovlen = 1, header.msg_control = control,
  header.msg_controllen = sizeof(control);
  const ssize_t n = ::recvmsg(fd, &header, MSG_CMSG_CLOEXEC);
  answer.closed = n <= 0;
  if (n < static_cast<ssize_t>(sizeof(uroce_response))) return answer;
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    for (std::size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int passed;
      std::memcpy(&passed, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
      answer.fds.emplace_back(passed);
    }
  }
  uroce_response response;
  std::memcpy(&response, buffer.data(), sizeof(response));
  answer.status = response.status;
  answer.body.assign(buffer.begin() + sizeof(response), buffer.begin() + n);
  return answer;
}

template <class Body>
Answer ask(int fd, std::uint32_t command, const Body& body) {
  struct {
    uroce_request head;
    Body body;
  } message{{command, 1}, body};
  if (::send(fd, &message, sizeof(message.head) + sizeof(Body), MSG_NOSIGNAL) < 0) return {};
  return receive_answer(fd);
}

Answer say_hello(int fd) { return ask(fd, UROCE_CMD_HELLO, uroce_hello_request{UROCE_ABI_VERSION, 1, "socket"}); }

class DaemonTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/uroce-daemon-XXXXXX";
    config.run_dir = ::mkdtemp(name);
  }
  void TearDown() override {
    stop_daemon();
    std::filesystem::remove_all(config.run_dir);
  }
  void start_daemon() {
    thread = std::thread([this] {
      const PortSpec<MemoryDevice> port{config, {&device}};
      status = run_daemon<MemoryDevice>({&port, 1}, {.on_ready = [this] { ready.store(true); }}, stop);
      ready.store(true);
    });
    while (!ready.load()) std::this_thread::sleep_for(milliseconds(1));
  }
  void stop_daemon() {
    stop.store(true);
    if (thread.joinable()) thread.join();
  }
  std::string socket_path() const { return config.run_dir + "/" + config.name + ".sock"; }
  nlohmann::json admin(const std::string& text) {
    const UniqueFd fd = connect_to(socket_path());
    std::vector<std::byte> message(sizeof(uroce_request) + text.size());
    const uroce_request head{UROCE_CMD_ADMIN, 1};
    std::memcpy(message.data(), &head, sizeof(head));
    std::memcpy(message.data() + sizeof(head), text.data(), text.size());
    if (::send(fd.get(), message.data(), message.size(), MSG_NOSIGNAL) < 0) return {};
    const Answer answer = receive_answer(fd.get());
    if (answer.fds.empty()) return {};
    std::string json(1u << 20, ' ');
    const ssize_t n = ::pread(answer.fds[0].get(), json.data(), json.size(), 0);
    json.resize(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    return nlohmann::json::parse(json, nullptr, false);
  }
  std::size_t sessions() { return admin(R"({"command":"show","what":"sessions"})")["sessions"].size(); }
  bool sessions_become(std::size_t count) {
    for (int i = 0; i < 100; ++i) {
      if (sessions() == count) return true;
      std::this_thread::sleep_for(milliseconds(10));
    }
    return false;
  }

  control::DaemonConfig config = test_config();
  MemoryDevice device;
  std::atomic<bool> stop{false}, ready{false};
  std::thread thread;
  absl::Status status;
};

TEST_F(DaemonTest, LeavesNoFilesBehind) {
  start_daemon();
  namespace fs = std::filesystem;
  const fs::path tree = fs::path(config.run_dir) / "sys/class/infiniband" / config.name;
  EXPECT_TRUE(fs::exists(socket_path()));
  EXPECT_TRUE(fs::exists(tree / "ports/1/gid_attrs/types/0"));
  EXPECT_TRUE(fs::is_symlink(fs::path(config.run_dir) / "dev/infiniband" / ("uverbs-" + config.name)));
  stop_daemon();
  EXPECT_TRUE(status.ok());
  EXPECT_FALSE(fs::exists(socket_path()));
  EXPECT_FALSE(fs::exists(tree));
}

TEST_F(DaemonTest, ASecondDaemonOfThatNameIsRefusedWithItsRemedy) {
  start_daemon();
  MemoryDevice other;
  const PortSpec<MemoryDevice> port{config, {&other}};
  const absl::Status second = run_daemon<MemoryDevice>({&port, 1}, {}, stop);
  EXPECT_EQ(second.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_NE(second.message().find("another --name"), absl::string_view::npos);
  EXPECT_TRUE(std::filesystem::exists(socket_path()));
}

TEST_F(DaemonTest, WrongSettingsAreNamed) {
  config.addresses.clear();
  start_daemon();
  EXPECT_NE(status.message().find("--ip"), absl::string_view::npos);
  ready = false;
  stop_daemon();
  stop = false;
  config.addresses = test_config().addresses;
  config.name = "a/b";
  start_daemon();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(DaemonTest, BrokenMessagesCloseOnlyTheirOwnConnection) {
  start_daemon();
  const UniqueFd good = connect_to(socket_path());
  ASSERT_EQ(say_hello(good.get()).status, 0);
  const std::vector<char> big(UROCE_MAX_MESSAGE + 1);
  const UniqueFd too_long = connect_to(socket_path());
  ASSERT_GT(::send(too_long.get(), big.data(), big.size(), MSG_NOSIGNAL), 0);
  EXPECT_TRUE(receive_answer(too_long.get()).closed);
  const UniqueFd too_short = connect_to(socket_path());
  ASSERT_GT(::send(too_short.get(), big.data(), 3, MSG_NOSIGNAL), 0);
  EXPECT_TRUE(receive_answer(too_short.get()).closed);
  EXPECT_EQ(ask(good.get(), UROCE_CMD_QUERY_GID, uroce_gid_request{0, 0}).status, 0);
  const auto rejected = admin(R"({"command":"stat"})")["rejected"];
  EXPECT_EQ(rejected["malformed"], 2);
  EXPECT_EQ(rejected["sessions_closed"], 2);
}

TEST_F(DaemonTest, AClientThatIsKilledIsGoneWithinASecond) {
  start_daemon();
  int to_parent[2];
  ASSERT_EQ(::pipe(to_parent), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    UniqueFd fd = connect_to(socket_path());
    char ok = say_hello(fd.get()).status == 0;
    // A grandchild that keeps the socket open must not keep the session.
    if (::fork() == 0) {
      ::sleep(3);
      ::_exit(0);
    }
    if (::write(to_parent[1], &ok, 1) == 1) ::pause();
    ::_exit(1);
  }
  char ok = 0;
  ASSERT_EQ(::read(to_parent[0], &ok, 1), 1);
  ASSERT_EQ(ok, 1);
  EXPECT_TRUE(sessions_become(1));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(sessions_become(0));
}

TEST_F(DaemonTest, AProcessThatWasGivenTheSocketHasNeitherRightsNorMemoryOfTheOther) {
  start_daemon();
  const UniqueFd fd = connect_to(socket_path());
  ASSERT_EQ(say_hello(fd.get()).status, 0);
  uroce_handle pd{};
  const uroce_request alloc{UROCE_CMD_ALLOC_PD, 1};
  ASSERT_GT(::send(fd.get(), &alloc, sizeof(alloc), MSG_NOSIGNAL), 0);
  const Answer made = receive_answer(fd.get());
  ASSERT_EQ(made.status, 0);
  std::memcpy(&pd, made.body.data(), sizeof(pd));
  static std::array<char, 8192> memory;  // the same address in the child
  uroce_reg_mr_request request{};
  request.pd = pd.handle;
  request.addr = request.iova = reinterpret_cast<std::uint64_t>(memory.data());
  request.length = 4096;
  const int own = ask(fd.get(), UROCE_CMD_REG_MR, request).status;
  const pid_t child = ::fork();
  if (child == 0) {
    const bool refused = ask(fd.get(), UROCE_CMD_REG_MR, request).status == EPERM;
    uroce_create_flow_request flow{};
    const bool no_rights = ask(fd.get(), UROCE_CMD_CREATE_FLOW, flow).status == EPERM;
    ::_exit(refused && no_rights ? 0 : 1);
  }
  int ended = -1;
  ::waitpid(child, &ended, 0);
  EXPECT_EQ(ended, 0);
  EXPECT_EQ(own, 0);
}

TEST_F(DaemonTest, WhenItStopsClientsSeeTheirDeviceDie) {
  start_daemon();
  const UniqueFd fd = connect_to(socket_path());
  Answer hello = say_hello(fd.get());
  ASSERT_EQ(hello.status, 0);
  uroce_hello_response response;
  std::memcpy(&response, hello.body.data(), sizeof(response));
  void* chunk = ::mmap(nullptr, response.chunks.chunk[1].bytes, PROT_READ, MAP_SHARED, hello.fds[1].get(), 0);
  ASSERT_NE(chunk, MAP_FAILED);
  const auto* header =
      reinterpret_cast<uroce_session_header*>(static_cast<std::byte*>(chunk) + response.header.offset);
  EXPECT_EQ(header->dead, 0u);
  stop_daemon();
  EXPECT_EQ(header->dead, 1u);
  uroce_async_event event{};
  ASSERT_EQ(::read(hello.fds.back().get(), &event, sizeof(event)), static_cast<ssize_t>(sizeof(event)));
  EXPECT_EQ(event.type, 8u);
  EXPECT_TRUE(receive_answer(fd.get()).closed);
}

TEST_F(DaemonTest, AnUnreachablePeerHoldsUpOnlyTheOneWhoAsked) {
  start_daemon();
  const UniqueFd slow = connect_to(socket_path()), quick = connect_to(socket_path());
  ASSERT_EQ(say_hello(slow.get()).status, 0);
  ASSERT_EQ(say_hello(quick.get()).status, 0);
  const uroce_request alloc{UROCE_CMD_ALLOC_PD, 2};
  ASSERT_GT(::send(slow.get(), &alloc, sizeof(alloc), 0), 0);
  uroce_handle pd;
  const Answer made = receive_answer(slow.get());
  std::memcpy(&pd, made.body.data(), sizeof(pd));
  struct {
    uroce_request head{UROCE_CMD_CREATE_AH, 3};
    uroce_create_ah_request body{};
  } request;
  request.body.pd = pd.handle;
  request.body.av.is_global = request.body.av.port_num = 1;
  std::memcpy(request.body.av.dgid, ipv4(99).bytes.data(), 16);
  ASSERT_GT(::send(slow.get(), &request, sizeof(request), 0), 0);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(ask(quick.get(), UROCE_CMD_QUERY_GID, uroce_gid_request{0, 0}).status, 0);
  EXPECT_EQ(receive_answer(slow.get(), 0).status, -1);
  EXPECT_EQ(receive_answer(slow.get(), 6000).status, ETIMEDOUT);
}

TEST_F(DaemonTest, AnIdleWorkerSleeps) {
  start_daemon();
  const auto stat = [this] { return admin(R"({"command":"stat"})")["worker"]; };
  std::this_thread::sleep_for(milliseconds(50));
  const auto before = stat();
  std::this_thread::sleep_for(milliseconds(300));
  const auto after = stat();
  // A spinning worker would have run millions of steps; one that dozed would have slept hundreds of times.
  EXPECT_LT(after["steps"].get<std::uint64_t>() - before["steps"].get<std::uint64_t>(), 100'000u);
  EXPECT_LT(after["sleeps"].get<std::uint64_t>() - before["sleeps"].get<std::uint64_t>(), 50u);
  for (const char* name : {"longest_step_us", "stalls", "last_stall_ms_ago"})
    EXPECT_TRUE(after.contains(name)) << name;
}

TEST_F(DaemonTest, ThePageOfCountersHasWhatStatHas) {
  start_daemon();
  for (int i = 0; i < 3; ++i) ask(connect_to(socket_path()).get(), UROCE_CMD_ALLOC_PD, 0);  // refused before hello
  // The worker publishes before it sleeps, the control thread once a second: at first, before these refusals.
  nlohmann::ordered_json stat;
  ctl::CountersPage page;
  for (int i = 0; i < 500 && page.counters["rejected"]["before_hello"] != 3; ++i) {
    std::this_thread::sleep_for(milliseconds(20));
    stat = admin(R"({"command":"stat"})");
    page = ctl::read_counters(config.run_dir, config.name);
    ASSERT_EQ(page.problem, "");
    ASSERT_EQ(page.threads.size(), 2u);
  }
  EXPECT_EQ(page.counters["rejected"]["before_hello"], 3);
  EXPECT_GT(page.counters["worker"]["steps"], 0);
  EXPECT_EQ(stat.erase("controls"), 1u);  // no numbers
  EXPECT_EQ(stat["control"].erase("longest_command"), 1u);
  ASSERT_EQ(stat.size(), page.counters.size());
  for (const auto& [group, values] : page.counters.items()) {
    ASSERT_EQ(stat[group].size(), values.size()) << group;
    for (const auto& [name, value] : values.items()) {
      ASSERT_TRUE(stat[group].contains(name)) << group << "." << name;
      // Those of the worker itself go on.
      if (group == "worker" || group == "control") continue;
      EXPECT_EQ(stat[group][name], value) << group << "." << name;
    }
  }
  stop_daemon();
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::symlink_status(config.run_dir + "/test0.counters")));
}

/// The conductor on the test's thread, workers on their own threads.
class ThreadedTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    daemon.shared.few_cores = GetParam();
    for (std::size_t i = 0; i < daemon.cores.size(); ++i) {
      daemon.cores[i]->set_threaded(true);
      threads.emplace_back([this, i] { worker::WorkerThread({daemon.loops[i].get()}).run(stop); });
    }
  }
  void TearDown() override {
    client.reset();
    stop = true;
    for (auto& core : daemon.cores) core->wake();
    for (std::thread& t : threads) t.join();
    for (auto& core : daemon.cores) core->set_threaded(false);
  }
  TestDaemon daemon{test_config(), 2};
  std::unique_ptr<TestClient> client = std::make_unique<TestClient>(*daemon.conductor);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
};

TEST_P(ThreadedTest, NoWakeIsLost) {
  client->hello();
  const std::uint32_t pd = client->alloc_pd();
  ClientCq cq = client->create_cq(64);
  std::byte* data = nullptr;
  const auto mr = TestClient::value<uroce_reg_mr_response>(client->reg_mr(pd, 0x10000, 65536, 0xf, data));
  ClientQp a = client->create_qp(TestClient::qp_request(pd, cq.made.handle));
  ClientQp b = client->create_qp(TestClient::qp_request(pd, cq.made.handle));
  EXPECT_NE(a.made.worker, b.made.worker);
  ASSERT_EQ(client->connect(a, b.made.qpn, ipv4(1).bytes), 0);
  ASSERT_EQ(client->connect(b, a.made.qpn, ipv4(1).bytes), 0);
  uroce_sq_entry entry{};
  entry.opcode = UROCE_WR_RDMA_WRITE;
  entry.flags = UROCE_SEND_SIGNALED;
  entry.num_sge = 1;
  entry.remote_addr = 0x10000 + 32768;
  entry.rkey = mr.rkey;
  const uroce_sge from{0x10000, 4000, mr.lkey};
  control::ControlState& state = daemon.conductor->state();
  for (int i = 0; i < 300; ++i) {
    // Awake or not, workers and clients learn at once whether latency is measured.
    if (i % 50 == 0) state.measure_latency(i / 50 % 2 == 1);
    data[0] = static_cast<std::byte>(i);
    (i % 2 == 0 ? a : b).post_send(entry, std::span(&from, 1));
    const Nanos end = monotonic_now() + 5 * kSecond;
    while (cq.ring.peek() == nullptr) {
      ASSERT_LT(monotonic_now(), end) << "message " << i;
      std::this_thread::yield();
    }
    ASSERT_EQ(cq.ring.peek()->status, UROCE_WC_SUCCESS);
    cq.ring.pop();
    cq.ring.publish();
    ASSERT_EQ(data[32768], static_cast<std::byte>(i));
    // Pauses close to a worker's idle time, so that posts find it awake, about to sleep and sleeping.
    if (i % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(150 + i));
  }
  const auto writes = static_cast<std::size_t>(abi::OperationKind::kWrite);
  EXPECT_EQ(admin::collect_latency(state).operations[writes].count(), 50u) << "of the last 50";
}

INSTANTIATE_TEST_SUITE_P(Cores, ThreadedTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "few" : "plenty"; });

}  // namespace
}  // namespace uroce::daemon::testing
