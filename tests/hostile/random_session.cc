#include "tests/hostile/random_session.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "proto/state/attributes.h"
#include "tests/hostile/descriptor_kinds.h"
#include "tests/hostile/random_commands.h"
#include "tests/hostile/raw_client.h"

namespace uroce::hostile {
namespace {

constexpr std::size_t kMemoryBytes = 4u << 20;

/// A mapping of one of the daemon's descriptors.
struct View {
  std::byte* base;
  std::size_t bytes;
  bool writable;
};

/// One session, and the memory that it shares with the daemon.
class RandomSession {
 public:
  RandomSession(const std::string& path, std::uint64_t seed, Tally& tally)
      : path_(path), random_(seed), tally_(tally), tenant_(path, kMemoryBytes) {
    ++(tenant_.client.greeting().version != 0 ? tally_.sessions : tally_.refused_sessions);
    if (tenant_.memory.data != nullptr) {
      mine_.address = tenant_.memory.address();
      mine_.bytes = tenant_.memory.bytes;
      mine_.keys.push_back(tenant_.memory.made.lkey);
    }
    if (tenant_.pd != 0) mine_.add(Kind::kPd, tenant_.pd);
    if (tenant_.cq.made.handle != 0) mine_.add(Kind::kCq, tenant_.cq.made.handle);
    if (tenant_.qp.made.handle != 0) mine_.add(Kind::kQp, tenant_.qp.made.handle);
    if (tenant_.qp.made.qpn != 0) mine_.qpns.push_back(tenant_.qp.made.qpn);
    if (!tenant_.ok()) return;
    const Answer gid = client().call(UROCE_CMD_QUERY_GID, uroce_gid_request{});
    std::memcpy(mine_.gid, gid.as<uroce_gid_response>().gid, sizeof(mine_.gid));
  }
  ~RandomSession() {
    for (const View& view : views_) ::munmap(view.base, view.bytes);
  }
  RandomSession(const RandomSession&) = delete;
  RandomSession& operator=(const RandomSession&) = delete;

  /// False: the daemon has closed the session.
  bool act() {
    const std::uint32_t kind = random_.below(100);
    if (kind < 45) {
      request();
    } else if (kind < 50) {
      pipeline();
    } else if (kind < 51) {
      raw_bytes();
    } else if (kind < 75) {
      post();
    } else if (kind < 87) {
      scribble();
    } else if (kind < 92) {
      poll();
    } else if (kind < 99) {
      spoil_memory();
    } else if (kind < 98) {
      events();
    } else {
      race();
    }
    if (!client().closed()) return true;
    ++tally_.closed;
    return false;
  }

 private:
  RawClient& client() { return tenant_.client; }
  bool greeted() { return client().greeting().version != 0; }

  bool send(const Request& request) {
    std::vector<int> fds;
    for (const UniqueFd& fd : request.fds) {
      if (fd.valid()) fds.push_back(fd.get());
    }
    ++tally_.requests;
    return client().send(request.command, request.body, fds);
  }

  void take(Answer answer) {
    ++(answer.ok() ? tally_.accepted : answer.status == kNoAnswer ? tally_.unanswered : tally_.refused);
    take_from(answer, mine_);
    for (UniqueFd& fd : answer.fds) {
      struct stat info {};
      if (views_.size() < 64 && ::fstat(fd.get(), &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0) {
        const auto bytes = static_cast<std::size_t>(info.st_size);
        void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
        const bool writable = base != MAP_FAILED;
        if (!writable) base = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
        if (base != MAP_FAILED) views_.push_back({static_cast<std::byte*>(base), bytes, writable});
      }
      if (kept_.size() < 64) kept_.push_back(std::move(fd));
    }
  }

  void request() {
    Request one = random_request(random_, mine_, path_);
    if (!kept_.empty() && random_.percent(5)) one.fds.emplace_back(::dup(random_.of(kept_).get()));
    if (send(one)) take(client().receive(20));
  }

  /// Many requests before the first answer is read, or none is.
  void pipeline() {
    std::uint32_t sent = 0;
    for (std::uint32_t n = random_.below(64); n != 0; --n) sent += send(random_request(random_, mine_, path_));
    if (random_.percent(20)) return;
    for (; sent != 0; --sent) {
      Answer answer = client().receive(100);
      if (answer.status < 0) break;
      take(std::move(answer));
    }
  }

  /// A message that is cut off anywhere, or random bytes.
  void raw_bytes() {
    std::vector<std::byte> message(random_.percent(60) ? random_.below(16) : random_.below(8192));
    for (std::byte& byte : message) byte = static_cast<std::byte>(random_.next());
    const UniqueFd fd = random_descriptor(random_, path_);
    const int number = fd.get();
    ++tally_.requests;
    client().send_bytes(message, {&number, random_.percent(30) && fd.valid() ? 1u : 0u});
    client().receive(20);
  }

  std::uint32_t key() {
    return mine_.keys.empty() || random_.percent(10) ? random_.wild32() : random_.of(mine_.keys);
  }

  void post() {
    if (!tenant_.ok()) return;
    for (std::uint32_t n = 1 + random_.below(16); n != 0; --n) {
      uroce_sq_entry entry{};
      constexpr std::uint8_t kOpcodes[] = {
          UROCE_WR_RDMA_WRITE, UROCE_WR_RDMA_READ,    UROCE_WR_SEND,
          UROCE_WR_LOCAL_INV,  UROCE_WR_BIND_MW,      UROCE_WR_ATOMIC_FETCH_AND_ADD,
          UROCE_WR_REG_MR,     UROCE_WR_ATOMIC_WRITE, UROCE_WR_FLUSH};
      entry.opcode = random_.of(kOpcodes);
      entry.flags = UROCE_SEND_SIGNALED;
      entry.num_sge = 1;
      entry.rkey = entry.mw_handle = key();
      const std::uint32_t bytes = random_.percent(80) ? random_.below(1 << 16) : random_.wild32();
      entry.remote_addr = mine_.address + random_.below(kMemoryBytes);
      uroce_sge element{mine_.address + random_.below(kMemoryBytes), bytes, key()};
      if (random_.percent(20)) random_.damage(std::as_writable_bytes(std::span(&entry, 1)));
      if (random_.percent(10)) random_.damage(std::as_writable_bytes(std::span(&element, 1)));
      if (random_.percent(30)) client().post_recv(tenant_.qp, 1, {&element, 1});
      tally_.posted += client().post_send(tenant_.qp, entry, {&element, 1});
    }
    if (random_.percent(5)) revive();
  }

  /// A QP that is in ERR takes nothing: RESET, and to RTS again.
  void revive() {
    uroce_modify_qp_request reset{};
    reset.handle = tenant_.qp.made.handle;
    reset.mask = proto::kAttrState;
    if (client().call(UROCE_CMD_MODIFY_QP, reset, {}, 500).status == 0) {
      tenant_.qp.sq.reset();
      tenant_.qp.rq.reset();
      client().connect_qp(tenant_.qp, tenant_.qp.made.qpn);
    }
  }

  /// Changes indices, doorbells, entries and client blocks, next to their present values and anywhere.
  void scribble() {
    std::vector<View> all;
    std::copy_if(views_.begin(), views_.end(), std::back_inserter(all), [](const View& v) { return v.writable; });
    if (greeted()) {
      auto* bells = reinterpret_cast<std::byte*>(client().doorbells());
      all.push_back({bells, sizeof(uroce_doorbells), true});
    }
    if (tenant_.ok()) {
      const queue::RingShape& ring = tenant_.qp.sq.ring();
      all.push_back({ring.entries, std::size_t{ring.count} * ring.stride, true});
      all.push_back({reinterpret_cast<std::byte*>(client().at<uroce_qp_client_block>(tenant_.qp.made.client)),
                     sizeof(uroce_qp_client_block), true});
      all.push_back({reinterpret_cast<std::byte*>(client().at<uroce_cq_client_block>(tenant_.cq.made.client)),
                     sizeof(uroce_cq_client_block), true});
    }
    for (std::uint32_t n = 1 + random_.below(32); n != 0 && !all.empty(); --n) {
      const View& view = random_.of(all);
      if (view.bytes < 4096 + 8 || random_.percent(50)) {
        random_.damage({view.base, std::min<std::size_t>(view.bytes, 8192)});
      } else {
        random_.damage({view.base + random_.below(static_cast<std::uint32_t>(view.bytes - 4096)), 4096});
      }
      if (random_.percent(20)) step_index(view);
    }
    if (greeted()) ::eventfd_write(client().hello_fd(0), 1);
  }
  void step_index(const View& view) {
    constexpr std::uint32_t kSteps[] = {1, 2, 127, 128, 129, 0x8000'0000, 0xffff'ffff};
    auto& index = *reinterpret_cast<std::uint32_t*>(view.base);
    std::atomic_ref(index).fetch_add(random_.of(kSteps));
  }

  void poll() {
    if (!tenant_.ok()) return;
    uroce_cqe done{};
    for (int i = 0; i < 64 && client().poll(tenant_.cq, done, i == 0 ? 1 : 0); ++i) ++tally_.completed;
  }

  /// What the daemon has mapped shrinks, gets holes, or goes.
  void spoil_memory() {
    const Memory& memory = tenant_.memory;
    if (memory.data == nullptr) return;
    const auto at = static_cast<off_t>(random_.below(kMemoryBytes / 4096)) * 4096;
    switch (random_.below(8)) {
      case 0: [[fallthrough]];
      case 1: ignore(::ftruncate(memory.file.get(), at)); break;
      case 2: ignore(::ftruncate(memory.file.get(), kMemoryBytes)); break;
      case 3: [[fallthrough]];
      case 4:
        ignore(::fallocate(memory.file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, kMemoryBytes - at));
        break;
      case 5: ::madvise(memory.data, kMemoryBytes, MADV_DONTNEED); break;
      case 6:
        ::mprotect(memory.data, kMemoryBytes, random_.percent(50) ? PROT_NONE : PROT_READ | PROT_WRITE);
        break;
      default:
        if (!random_.percent(10)) break;
        // As munmap(2); but the range stays taken, so that the end of the session unmaps nothing else.
        ::mmap(memory.data, kMemoryBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    }
  }
  static void ignore(int) {}

  void events() {
    if (!greeted()) return;
    const int fd = !kept_.empty() && random_.percent(70) ? random_.of(kept_).get() : client().event_fd();
    const int small = 1;
    std::byte record[1024];
    switch (random_.below(4)) {
      case 0: ::recv(fd, record, sizeof(record), MSG_DONTWAIT); break;
      case 1: ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)); break;
      case 2: ::shutdown(fd, SHUT_RDWR); break;
      default:
        if (tenant_.ok()) client().arm(tenant_.cq);
    }
  }

  /// A thread flips bits of the rings while the worker reads them.
  void race() {
    if (!tenant_.ok()) return;
    const queue::RingShape ring = tenant_.qp.sq.ring();
    const std::uint64_t seed = random_.next();
    std::atomic<bool> over{false};
    std::thread flipping([&] {
      Random own(seed);
      while (!over) {
        own.damage({ring.entries + own.below(ring.count) * ring.stride, ring.stride});
      }
    });
    for (int i = 0; i < 20; ++i) {
      post();
      poll();
    }
    over = true;
    flipping.join();
  }

  const std::string path_;
  Random random_;
  Tally& tally_;
  Tenant tenant_;
  Belongings mine_;
  std::vector<View> views_;
  std::vector<UniqueFd> kept_;  ///< descriptors of answers
};

/// A child that inherits the socket, uses it and keeps it for a while.
void leave_child(const std::string& path, Random& random, Tally& tally) {
  const std::uint64_t seed = random.next();
  if (::fork() != 0) return;
  ::alarm(2);
  RandomSession(path, seed, tally).act();
  ::_exit(0);
}

[[noreturn]] void replace_program() {
  ::alarm(2);  // remains in force
  for (int fd = 3; fd < 64; ++fd) ::fcntl(fd, F_SETFD, 0);
  ::execl("/bin/sleep", "sleep", "1", nullptr);
  ::_exit(1);
}

void run_one(const std::string& path, Random& random, Nanos end, Tally& tally) {
  while (monotonic_now() < end) {
    RandomSession session(path, random.next(), tally);
    for (std::uint32_t n = random.below(2000); n != 0 && monotonic_now() < end && session.act(); --n) {
      if (random.below(1000) != 0) continue;
      switch (random.below(5)) {
        case 0: ::raise(SIGSTOP); break;
        case 1: ::raise(SIGKILL); break;
        case 2: replace_program();
        case 3: leave_child(path, random, tally); break;
        default: ::_exit(0);
      }
    }
  }
}

/// Many sessions of one process at once.
void run_crowd(const std::string& path, Random& random, Nanos end, Tally& tally) {
  std::vector<std::unique_ptr<RandomSession>> crowd;
  for (int i = 0; i < 300 && monotonic_now() < end; ++i) {
    crowd.push_back(std::make_unique<RandomSession>(path, random.next(), tally));
  }
  while (monotonic_now() < end && !crowd.empty()) {
    const std::uint32_t which = random.below(static_cast<std::uint32_t>(crowd.size()));
    if (!crowd[which]->act()) crowd.erase(crowd.begin() + which);
  }
  if (random.percent(50)) ::raise(SIGKILL);
}

/// Thousands of threads, each with a connection.
void run_threads(const std::string& path, Random& random, Nanos end, Tally& tally) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 2000 && monotonic_now() < end; ++i) {
    const std::uint64_t seed = random.next();
    try {
      threads.emplace_back([&, seed] {
        Random own(seed);
        ++tally.threads;
        RawClient client(path);
        if (own.percent(80)) client.hello();
        for (int turn = 0; turn < 4 && client.connected(); ++turn) {
          const Request request = random_request(own, {}, path);
          client.send(request.command, request.body);
          ++tally.requests;
          client.receive(static_cast<int>(own.below(100)));
        }
        while (own.percent(50) && monotonic_now() < end) ::usleep(50'000);
      });
    } catch (const std::system_error&) {
      break;
    }
  }
  if (random.percent(50)) ::raise(SIGKILL);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

void run_random_attack(const std::string& socket_path, std::uint64_t seed, Nanos life, bool threads, Tally& tally) {
  Random random(seed);
  const Nanos end = monotonic_now() + life;
  ++tally.processes;
  if (threads || random.percent(1)) {
    run_threads(socket_path, random, end, tally);
  } else if (random.percent(10)) {
    run_crowd(socket_path, random, end, tally);
  } else {
    run_one(socket_path, random, end, tally);
  }
}

}  // namespace uroce::hostile
