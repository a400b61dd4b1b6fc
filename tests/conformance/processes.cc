// Several processes on one device: objects that they share (imported PDs and MRs, XRC domains), and the effects of
// fork(2) and execve(2).
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <functional>
#include <set>
#include <thread>

#include "fixtures.h"

namespace conformance {
namespace {

/// One end of a socket to another process, for numbers and optionally a descriptor.
class Talk {
 public:
  explicit Talk(int fd) : fd_(fd) {}
  ~Talk() {
    if (fd_ >= 0) close(fd_);
  }
  Talk(Talk&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Talk& operator=(Talk&&) = delete;

  void tell(std::uint64_t number, int descriptor = -1) {
    iovec part{&number, sizeof(number)};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (descriptor >= 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof(control);
      cmsghdr* const rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(rights), &descriptor, sizeof(int));
    }
    CHECK_EQ(sendmsg(fd_, &message, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof(number)));
  }
  /// `descriptor` receives the descriptor that came with the number, or -1.
  std::uint64_t hear(int* descriptor = nullptr) {
    if (!readable(fd_, 60'000)) throw Failed{"the other process says nothing for 60 s"};
    std::uint64_t number = 0;
    iovec part{&number, sizeof(number)};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    if (recvmsg(fd_, &message, 0) != sizeof(number)) throw Failed{"the other process has ended"};
    int passed = -1;
    const cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    if (rights != nullptr && rights->cmsg_type == SCM_RIGHTS) std::memcpy(&passed, CMSG_DATA(rights), sizeof(int));
    if (descriptor != nullptr) *descriptor = passed;
    return number;
  }

 private:
  int fd_;
};

struct Sockets {
  Sockets() { CHECK_OK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)); }
  int ends[2];
};

/// A child process that runs `body`. An exception is printed and makes the exit status nonzero.
class Child {
 public:
  explicit Child(const std::function<void(Talk&)>& body) : Child(body, Sockets()) {}
  Child(Child&& other) noexcept : talk(std::move(other.talk)), pid_(std::exchange(other.pid_, -1)) {}
  Child& operator=(Child&&) = delete;
  ~Child() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  void finish() {
    int status = 0;
    const pid_t pid = std::exchange(pid_, -1);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 0);
  }

  Talk talk;

 private:
  Child(const std::function<void(Talk&)>& body, const Sockets& sockets) : talk(sockets.ends[0]), pid_(fork()) {
    CHECK(pid_ >= 0);
    if (pid_ == 0) run(body, sockets);
    close(sockets.ends[1]);
  }
  [[noreturn]] static void run(const std::function<void(Talk&)>& body, const Sockets& sockets) {
    alarm(90);
    close(sockets.ends[0]);
    std::string problem;
    try {
      Talk parent(sockets.ends[1]);
      body(parent);
      problem = take_leaks();
    } catch (const Failed& failed) {
      problem = failed.what;
    } catch (const Skipped& skipped) {
      problem = skipped.why;
    } catch (const std::exception& thrown) {
      problem = thrown.what();
    }
    if (!problem.empty()) std::printf("# in a child: %s\n", problem.c_str());
    std::fflush(stdout);
    _exit(problem.empty() ? 0 : 1);
  }
  pid_t pid_;
};

std::string left_name(const Bench& bench) { return ibv_get_device_name(bench.left.context->device); }
std::string right_name(const Bench& bench) { return ibv_get_device_name(bench.right.context->device); }

void connect(const End& end, ibv_qp* qp, const End& peer, std::uint64_t peer_qpn, ibv_mtu mtu) {
  CHECK_OK(to_init(qp, kAll));
  CHECK_OK(to_rtr(end, qp, peer, static_cast<std::uint32_t>(peer_qpn), mtu));
  CHECK_OK(to_rts(qp));
}

/// Transfers a SEND and a WRITE from left to right and checks all bytes.
void exchange(Pair& pair, std::uint8_t seed) {
  constexpr std::size_t kBytes = 10'000;
  pair.left.buffer.fill(seed);
  CHECK_OK(pair.right.post_recv(0, kBytes));
  CHECK_OK(pair.left.send(0, kBytes));
  CHECK_OK(pair.left.write(0, kBytes, pair.right.buffer.address(20'000), pair.right.buffer.rkey()));
  wait_success(pair.left.cq.get(), IBV_WC_SEND);
  wait_success(pair.left.cq.get(), IBV_WC_RDMA_WRITE);
  wait_success(pair.right.cq.get(), IBV_WC_RECV);
  CHECK(pair.right.buffer.holds(seed, 0, kBytes, 0));
  CHECK(pair.right.buffer.holds(seed, 20'000, kBytes, 0));
}

/// The work of a process that shares nothing with others.
void work_alone(const std::string& left, const std::string& right) {
  Bench bench(left, right);
  Pair pair(bench);
  for (std::uint8_t seed = 1; seed < 4; ++seed) exchange(pair, seed);
}

constexpr std::size_t kShared = 8192, kSecondHalf = 4096;

/// In the child: its own QP on the PD and MR of another process.
void import_and_use(const Bench& bench, Talk& owner) {
  int passed = -1;
  const int inherited = static_cast<int>(owner.hear(&passed));
  End end = bench.right;
  end.context = CHECK_MADE(ibv_import_device(passed >= 0 ? passed : inherited));
  ibv_pd* const pd = CHECK_MADE(ibv_import_pd(end.context, static_cast<std::uint32_t>(owner.hear())));
  ibv_mr* const mr = CHECK_MADE(ibv_import_mr(pd, static_cast<std::uint32_t>(owner.hear())));
  CHECK_EQ(mr->length, kShared);
  const std::uint64_t address = owner.hear();
  {
    const Cq cq = make_cq(end, 16);
    const QpObject qp = make_qp(end, pd, cq.get(), cq.get(), IBV_QPT_RC);
    owner.tell(qp->qp_num);
    connect(end, qp.get(), bench.left, owner.hear(), bench.mtu());
    ibv_sge in{address + kSecondHalf, kSecondHalf, mr->lkey}, out{address, kSecondHalf, mr->lkey};
    ibv_recv_wr receive{1, nullptr, &in, 1}, *bad_receive;
    CHECK_OK(ibv_post_recv(qp.get(), &receive, &bad_receive));
    ibv_send_wr send = request(IBV_WR_SEND, out), *bad_send;
    CHECK_OK(ibv_post_send(qp.get(), &send, &bad_send));
    wait_success(cq.get(), IBV_WC_SEND);
    wait_success(cq.get(), IBV_WC_RECV);
    owner.tell(1);
    owner.hear();
  }
  ibv_unimport_mr(mr);
  ibv_unimport_pd(pd);
  CHECK_EQ(ibv_close_device(end.context), 0);
}

/// In the parent: it owns the PD and MR, and the memory that the child's QP accesses.
void share_with(Bench& bench, Child& child, const Bench& owner, const Pd& pd, Buffer& buffer, bool pass) {
  Side peer(bench.left, IBV_QPT_RC, kShared, {});
  const int fd = owner.right.context->cmd_fd;
  buffer.fill(5);
  peer.buffer.fill(6);
  child.talk.tell(static_cast<std::uint64_t>(fd), pass ? fd : -1);
  for (const std::uint64_t number :
       {std::uint64_t{pd->handle}, std::uint64_t{buffer.mr()->handle}, buffer.address()}) {
    child.talk.tell(number);
  }
  connect(bench.left, peer.qp.get(), bench.right, child.talk.hear(), bench.mtu());
  CHECK_OK(peer.post_recv(0, kSecondHalf));
  child.talk.tell(peer.qp->qp_num);
  wait_success(peer.cq.get(), IBV_WC_RECV);
  CHECK(peer.buffer.holds(5, 0, kSecondHalf, 0));
  CHECK_OK(peer.send(kSecondHalf, kSecondHalf));
  wait_success(peer.cq.get(), IBV_WC_SEND);
  child.talk.hear();
  CHECK(buffer.holds(6, kSecondHalf, kSecondHalf, kSecondHalf));
  CHECK_OK(peer.write(kSecondHalf, 100, buffer.address(), buffer.rkey()));
  wait_success(peer.cq.get(), IBV_WC_RDMA_WRITE);
  CHECK(buffer.holds(6, 0, 100, kSecondHalf));
  child.talk.tell(1);
  child.finish();
}

CONFORMANCE_CASE(import_over_an_inherited_descriptor, "ibv_import_device(3)") {
  const Bench owner(left_name(bench), right_name(bench));
  const Pd pd = make_pd(owner.right);
  Buffer buffer(pd.get(), kShared);
  Child child([&](Talk& talk) { import_and_use(bench, talk); });
  share_with(bench, child, owner, pd, buffer, false);
}

CONFORMANCE_CASE(import_over_a_passed_descriptor, "ibv_import_device(3); unix(7), SCM_RIGHTS") {
  // The child starts before the objects exist, and knows only the numbers that it is sent.
  Child child([&](Talk& talk) { import_and_use(bench, talk); });
  const Bench owner(left_name(bench), right_name(bench));
  const Pd pd = make_pd(owner.right);
  Buffer buffer(pd.get(), kShared);
  share_with(bench, child, owner, pd, buffer, true);
  // After the child has exited, the owner's objects are unchanged.
  Side peer(bench.left, IBV_QPT_RC, kShared, {});
  Side own(owner.right, IBV_QPT_RC, 64, {}, pd.get());
  connect(bench.left, peer.qp.get(), bench.right, own.qp->qp_num, bench.mtu());
  connect(bench.right, own.qp.get(), bench.left, peer.qp->qp_num, bench.mtu());
  peer.buffer.fill(7);
  CHECK_OK(peer.write(0, kShared, buffer.address(), buffer.rkey()));
  wait_success(peer.cq.get(), IBV_WC_RDMA_WRITE);
  CHECK(buffer.holds(7, 0, kShared, 0));
}

/// In the child: device memory of another process, accessed directly and through a region of the child.
void import_device_memory(const Bench& bench, Talk& owner) {
  int fd = -1;
  const std::uint64_t handle = owner.hear(&fd);
  End end = bench.right;
  end.context = CHECK_MADE(ibv_import_device(fd));
  CHECK(ibv_import_dm(end.context, 0xffffff) == nullptr);
  ibv_dm* const dm = CHECK_MADE(ibv_import_dm(end.context, static_cast<std::uint32_t>(handle)));
  std::uint64_t word = 0;
  CHECK_OK(ibv_memcpy_from_dm(&word, dm, 8, sizeof(word)));
  CHECK_EQ(word, 0x1122334455667788u);
  CHECK(ibv_memcpy_from_dm(&word, dm, kShared - 7, sizeof(word)) != 0);
  {
    const Pd pd = make_pd(end);
    const Mr mr(CHECK_MADE(ibv_reg_dm_mr(pd.get(), dm, 0, kShared, kAll | IBV_ACCESS_ZERO_BASED)));
    const Cq cq = make_cq(end, 16);
    const QpObject qp = make_qp(end, pd.get(), cq.get(), cq.get(), IBV_QPT_RC);
    owner.tell(qp->qp_num);
    connect(end, qp.get(), bench.left, owner.hear(), bench.mtu());
    owner.tell(mr->rkey);
    owner.hear();
  }
  ibv_unimport_dm(dm);
  CHECK_EQ(ibv_close_device(end.context), 0);
  owner.tell(1);
  owner.hear();
}

CONFORMANCE_CASE(import_device_memory_of_a_process, "ibv_import_dm(3); ibv_alloc_dm(3)") {
  Child child([&](Talk& talk) { import_device_memory(bench, talk); });
  const Bench owner(left_name(bench), right_name(bench));
  ibv_alloc_dm_attr attr{kShared, 0, 0};
  Dm dm(CHECK_MADE(ibv_alloc_dm(owner.right.context, &attr)));
  std::uint64_t word = 0x1122334455667788;
  CHECK_OK(ibv_memcpy_to_dm(dm.get(), 8, &word, sizeof(word)));
  child.talk.tell(dm->handle, owner.right.context->cmd_fd);
  Side peer(bench.left, IBV_QPT_RC, kShared, {});
  connect(bench.left, peer.qp.get(), bench.right, child.talk.hear(), bench.mtu());
  child.talk.tell(peer.qp->qp_num);
  const auto rkey = static_cast<std::uint32_t>(child.talk.hear());
  peer.buffer.fill(9);
  CHECK_OK(peer.write(0, kShared, 0, rkey));
  wait_success(peer.cq.get(), IBV_WC_RDMA_WRITE);
  std::vector<std::uint8_t> now(kShared);
  CHECK_OK(ibv_memcpy_from_dm(now.data(), dm.get(), 0, kShared));
  CHECK(std::memcmp(now.data(), peer.buffer.data(), kShared) == 0);
  child.talk.tell(1);
  child.talk.hear();
  // After the other process has freed it, the content is unchanged.
  CHECK_OK(ibv_memcpy_from_dm(&word, dm.get(), 8, sizeof(word)));
  CHECK(std::memcmp(&word, peer.buffer.data() + 8, sizeof(word)) == 0);
  child.talk.tell(1);
  child.finish();
  CHECK_OK(dm.destroy());
}

void expect_no_device(int fd) {
  errno = 0;
  CHECK(ibv_import_device(fd) == nullptr);
  CHECK(errno != 0);
}

CONFORMANCE_CASE(import_of_what_is_none, "ibv_import_device(3), ibv_import_pd(3), ibv_import_mr(3)") {
  Child child([&](Talk& talk) {
    const int fd = static_cast<int>(talk.hear());
    expect_no_device(-1);
    const int file = open("/dev/null", O_RDWR | O_CLOEXEC), memory = memfd_create("memory", MFD_CLOEXEC);
    CHECK(file >= 0 && memory >= 0 && ftruncate(memory, 1 << 20) == 0);
    expect_no_device(file);
    expect_no_device(memory);
    ibv_context* const context = CHECK_MADE(ibv_import_device(fd));
    for (const std::uint32_t handle : {0xffffffu, 0xffffffffu}) CHECK(ibv_import_pd(context, handle) == nullptr);
    ibv_pd* const pd = CHECK_MADE(ibv_import_pd(context, static_cast<std::uint32_t>(talk.hear())));
    for (const std::uint32_t handle : {0xffffffu, 0xffffffffu}) CHECK(ibv_import_mr(pd, handle) == nullptr);
    ibv_unimport_pd(pd);
    CHECK_EQ(ibv_close_device(context), 0);
  });
  const Pd pd = make_pd(bench.right);
  child.talk.tell(static_cast<std::uint64_t>(bench.right.context->cmd_fd));
  child.talk.tell(pd->handle);
  child.finish();
}

/// In the child: receives messages for a target QP that another process created.
void open_target(const Bench& parent, int file, Talk& talk) {
  const Bench bench(left_name(parent), right_name(parent));
  const Pd pd = make_pd(bench.right);
  const Cq cq = make_cq(bench.right, 16);
  Buffer buffer(pd.get(), kShared);
  const std::uint64_t qpn = talk.hear();
  const Xrcd xrcd = make_xrcd(bench.right, file, 0);
  const Srq srq = make_xrc_srq(bench.right, pd.get(), xrcd.get(), cq.get());
  ibv_qp_open_attr attr{};
  attr.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  attr.qp_num = static_cast<std::uint32_t>(qpn);
  attr.xrcd = xrcd.get();
  attr.qp_type = IBV_QPT_XRC_RECV;
  const QpObject target(CHECK_MADE(ibv_open_qp(bench.right.context, &attr)));
  CHECK_EQ(target->qp_num, attr.qp_num);
  for (std::uint64_t i = 0; i < 2; ++i) CHECK_OK(post_srq_recv(srq.get(), buffer, i * kSecondHalf, kSecondHalf, i));
  std::uint32_t number = 0;
  CHECK_OK(ibv_get_srq_num(srq.get(), &number));
  talk.tell(number);
  for (std::uint64_t i = 0; i < 2; ++i) {
    CHECK_EQ(wait_success(cq.get(), IBV_WC_RECV).wr_id, i);
    CHECK(buffer.holds(8, i * kSecondHalf, 3000, i * 3000));
    talk.tell(i);
  }
  talk.hear();
}

CONFORMANCE_CASE(xrc_target_of_another_process, "ibv_open_xrcd(3), ibv_open_qp(3)") {
  const int file = memfd_create("domain", 0);
  CHECK(file >= 0);
  Child child([&](Talk& talk) { open_target(bench, file, talk); });
  const Pd pd = make_pd(bench.left);
  const Cq cq = make_cq(bench.left, 16);
  Buffer buffer(pd.get(), kShared);
  buffer.fill(8);
  const Xrcd xrcd = make_xrcd(bench.right, file);
  QpObject target = make_target(bench.right, xrcd.get());
  const QpObject initiator = make_initiator(bench.left, pd.get(), cq.get());
  connect(bench.left, initiator.get(), bench.right, target->qp_num, bench.mtu());
  connect(bench.right, target.get(), bench.left, initiator->qp_num, bench.mtu());
  child.talk.tell(target->qp_num);
  const std::uint64_t srqn = child.talk.hear();
  for (std::uint64_t i = 0; i < 2; ++i) {
    ibv_sge sge = buffer.sge(i * 3000, 3000);
    ibv_send_wr *bad, wr = request(IBV_WR_SEND, sge);
    wr.qp_type.xrc.remote_srqn = static_cast<std::uint32_t>(srqn);
    CHECK_OK(ibv_post_send(initiator.get(), &wr, &bad));
    wait_success(cq.get(), IBV_WC_SEND);
    CHECK_EQ(child.talk.hear(), i);
    if (i == 0) CHECK_OK(target.destroy());  // it exists while the other process has it open
  }
  child.talk.tell(1);
  child.finish();
  close(file);
}

/// A thread that writes and checks every byte until it is stopped.
class Traffic {
 public:
  explicit Traffic(Pair& pair) : thread_([this, &pair] { run(pair); }) {}
  ~Traffic() { end(); }
  /// Waits until it has made progress.
  void await_more() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    const int before = rounds_.load();
    while (rounds_.load() < before + 2 && !over_.load()) {
      if (std::chrono::steady_clock::now() > end) throw Failed{"the traffic does not go on"};
      usleep(100);
    }
  }
  void finish() {
    end();
    if (!problem_.empty()) throw Failed{problem_};
  }

 private:
  void run(Pair& pair) {
    try {
      for (; !stop_.load(); ++rounds_) exchange(pair, static_cast<std::uint8_t>(rounds_.load()));
    } catch (const Failed& failed) {
      problem_ = failed.what;
    }
    over_.store(true);
  }
  void end() {
    stop_.store(true);
    if (thread_.joinable()) thread_.join();
  }
  std::atomic<bool> stop_{false}, over_{false};
  std::string problem_;
  std::atomic<int> rounds_{0};
  std::thread thread_;
};

/// Commands on a context, which may be the parent's.
void send_commands(const End& end, int times) {
  for (int i = 0; i < times; ++i) {
    const Pd pd = make_pd(end);
    ibv_device_attr device{};
    CHECK_OK(ibv_query_device(end.context, &device));
    CHECK_EQ(device.max_qp, end.attr.max_qp);
    ibv_alloc_dm_attr attr{kShared, 0, 0};
    Dm dm(CHECK_MADE(ibv_alloc_dm(end.context, &attr)));
    const std::uint64_t written = static_cast<std::uint64_t>(i) << 32 | 77;
    std::uint64_t read = 0;
    CHECK_OK(ibv_memcpy_to_dm(dm.get(), 64, &written, sizeof(written)));
    CHECK_OK(ibv_memcpy_from_dm(&read, dm.get(), 64, sizeof(read)));
    CHECK_EQ(read, written);
    CHECK_OK(dm.destroy());
  }
}

CONFORMANCE_CASE(fork_shares_the_context, "fork(2): commands of children on the parent's context") {
  constexpr int kTimes = 50;
  const End& end = bench.right;
  ibv_alloc_dm_attr attr{kShared, 0, 0};
  Dm dm(CHECK_MADE(ibv_alloc_dm(end.context, &attr)));
  const std::uint64_t written = 0x1122334455667788;
  CHECK_OK(ibv_memcpy_to_dm(dm.get(), 8, &written, sizeof(written)));
  std::vector<Child> children;
  for (int i = 0; i < 4; ++i) {
    children.emplace_back([&](Talk&) {
      send_commands(end, kTimes);
      CHECK_OK(dm.destroy());  // in this process only
    });
  }
  send_commands(end, kTimes);
  for (Child& child : children) child.finish();
  // The parent's memory is there, and can be registered.
  const Pd pd = make_pd(end);
  Mr mr(CHECK_MADE(ibv_reg_dm_mr(pd.get(), dm.get(), 0, kShared, kAll | IBV_ACCESS_ZERO_BASED)));
  std::uint64_t read = 0;
  CHECK_OK(ibv_memcpy_from_dm(&read, dm.get(), 8, sizeof(read)));
  CHECK_EQ(read, written);
  CHECK_OK(mr.destroy());
  CHECK_OK(dm.destroy());
}

CONFORMANCE_CASE(fork_under_traffic, "ibv_fork_init(3); fork(2)") {
  Pair pair(bench);
  Buffer quiet(pair.right.pd, kShared);
  quiet.fill(9);
  Traffic traffic(pair);
  for (int i = 0; i < 4; ++i) {
    traffic.await_more();
    Child child([&](Talk&) {
      // The child can't use the parent's queues, and trying to does not affect the parent.
      CHECK(ibv_create_cq(bench.right.context, 16, nullptr, nullptr, 0) == nullptr);
      CHECK(pair.left.send(0, 8) != 0);
      CHECK(quiet.holds(9, 0, kShared, 0));
      quiet.fill(1);
      pair.left.buffer.fill(1);
      work_alone(left_name(bench), right_name(bench));
    });
    traffic.await_more();
    child.finish();
    traffic.await_more();
  }
  traffic.finish();
  CHECK(quiet.holds(9, 0, kShared, 0));
  pair.left.buffer.fill(10);
  CHECK_OK(pair.left.write(0, kShared, quiet.address(), quiet.rkey()));
  wait_success(pair.left.cq.get(), IBV_WC_RDMA_WRITE);
  CHECK(quiet.holds(10, 0, kShared, 0));
}

CONFORMANCE_CASE(exec_under_traffic, "fork(2), execve(2)") {
  Pair pair(bench);
  Traffic traffic(pair);
  for (int i = 0; i < 4; ++i) {
    traffic.await_more();
    Child child([&](Talk&) {
      CHECK(freopen("/dev/null", "w", stdout) != nullptr);
      execl("/proc/self/exe", "processes", "--only", "alone", left_name(bench).c_str(), right_name(bench).c_str(),
            nullptr);
      throw Failed{"execl: " + std::string(std::strerror(errno))};
    });
    traffic.await_more();
    child.finish();
    traffic.await_more();
  }
  traffic.finish();
}

CONFORMANCE_CASE(alone, "what exec_under_traffic executes") { work_alone(left_name(bench), right_name(bench)); }

CONFORMANCE_CASE(many_processes_at_once, "libibverbs in each of 64 processes") {
  constexpr int kProcesses = 64;
  std::vector<Child> children;
  for (int i = 0; i < kProcesses; ++i) {
    children.emplace_back([&, seed = static_cast<std::uint8_t>(i)](Talk& talk) {
      set_timeout(std::chrono::seconds(30));
      Bench own(left_name(bench), right_name(bench));
      Pair first(own), second(own);
      exchange(first, seed);
      talk.tell(first.left.qp->qp_num);
      talk.tell(second.left.qp->qp_num);
      talk.hear();  // all have started
      exchange(first, static_cast<std::uint8_t>(seed + 1));
      exchange(second, seed);
    });
  }
  std::set<std::uint64_t> numbers;
  for (Child& child : children) numbers.insert({child.talk.hear(), child.talk.hear()});
  CHECK_EQ(numbers.size(), std::size_t{2 * kProcesses});
  for (Child& child : children) child.talk.tell(1);
  for (Child& child : children) child.finish();
}

}  // namespace
}  // namespace conformance
