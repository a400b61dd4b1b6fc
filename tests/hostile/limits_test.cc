// One user takes all that it can get of one thing: others still get theirs, and the daemon lives.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <vector>

#include "tests/hostile/processes.h"
#include "tests/hostile/raw_client.h"

namespace uroce::hostile {
namespace {

constexpr std::size_t kPage = 4096;

/// What an honest user does first: opens the device, registers memory, makes a QP and a connection's objects.
int use_the_daemon(const std::string& path) {
  RawClient client(path);
  UniqueFd channel;
  if (client.hello() != 0) return 1;
  const std::uint32_t pd = client.alloc_pd();
  if (pd == 0 || client.register_memfd(pd, 64 * kPage).status != 0) return 2;
  if (client.create_channel(channel) == 0) return 3;
  const Cq cq = client.create_cq(64);
  if (client.create_qp(pd, cq).status != 0) return 4;
  return client.closed() ? 5 : 0;
}

using Clients = std::vector<std::unique_ptr<RawClient>>;

/// One more client, which stays; nullptr: the daemon refuses it.
RawClient* add(Clients& clients, const std::string& path) {
  clients.push_back(std::make_unique<RawClient>(path));
  return clients.back()->connected() && clients.back()->hello() == 0 ? clients.back().get() : nullptr;
}

struct Progress {
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> taken{0};
  std::atomic<int> refused{0};  ///< status of the first Answer that is an error
};

class Limits : public ::testing::Test {
 protected:
  Limits() : daemon({"--no-hugepages", "--log-level", "warning"}) {}
  void SetUp() override {
    if (!is_root()) GTEST_SKIP() << "needs root: the attacker and the honest user are two users";
    ASSERT_TRUE(daemon.ready()) << daemon.log();
  }
  /// Runs the attack as another user, which keeps what it has taken, and then an honest user and root.
  void attack(int (*work)(const std::string&, Clients&, Progress&)) {
    Child attacker(kAttacker, [&] {
      Clients clients;
      const int result = work(daemon.socket_path(), clients, *progress);
      progress->done = true;
      ::pause();
      return result;
    });
    for (int i = 0; i < 6000 && !progress->done && attacker.running(); ++i) ::usleep(10'000);
    ASSERT_TRUE(progress->done);
    for (const uid_t user : {kHonest, uid_t{0}}) {
      Child honest(user, [&] { return use_the_daemon(daemon.socket_path()); });
      EXPECT_EQ(honest.wait(), 0) << "user " << user << ", attacker took " << progress->taken;
    }
    EXPECT_TRUE(daemon.running());
    attacker.end();
    EXPECT_EQ(daemon.stop(), 0) << daemon.log();
  }

  DaemonProcess daemon;
  Shared<Progress> progress;
};

int take_connections(const std::string& path, Clients& clients, Progress& progress) {
  for (int i = 0; i < 5000; ++i) {
    clients.push_back(std::make_unique<RawClient>(path));
    progress.taken += clients.back()->connected();
  }
  return 0;
}

TEST_F(Limits, OfConnections) { attack(take_connections); }

int take_sessions(const std::string& path, Clients& clients, Progress& progress) {
  for (int i = 0; i < 5000; ++i) {
    if (add(clients, path) == nullptr) break;
    ++progress.taken;
  }
  return 0;
}

TEST_F(Limits, OfSessions) {
  attack(take_sessions);
  EXPECT_GT(progress->taken, 100u);
}

// Each channel is a descriptor of the daemon. The client closes its end each time.
int take_descriptors(const std::string& path, Clients& clients, Progress& progress) {
  for (int i = 0; i < 80; ++i) {
    RawClient* const client = add(clients, path);
    if (client == nullptr) break;
    for (int j = 0; j < 20'000; ++j) {
      const Answer made = client->call(UROCE_CMD_CM_OPEN_CHANNEL, uroce_cm_channel_request{});
      if (made.status != 0) {
        progress.refused = made.status;
        break;
      }
      ++progress.taken;
    }
    if (progress.refused != 0) break;
  }
  return 0;
}

/// The daemon inherits the limit.
struct FewDescriptors {
  FewDescriptors() { ::getrlimit(RLIMIT_NOFILE, &before), ::setrlimit(RLIMIT_NOFILE, &few); }
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before); }
  rlimit before{}, few{2000, 2000};
};
class LimitsWithFewDescriptors : FewDescriptors, public Limits {};

TEST_F(LimitsWithFewDescriptors, OfDescriptors) {
  attack(take_descriptors);
  EXPECT_EQ(progress->refused, EMFILE) << "after " << progress->taken << " channels; " << daemon.log();
}

// Pages in descending order cannot be merged: each is a mapping of the daemon. Then the file is cut off.
int take_mappings(const std::string& path, Clients& clients, Progress& progress) {
  const UniqueFd file(static_cast<int>(::memfd_create("pages", MFD_CLOEXEC)));
  if (::ftruncate(file.get(), off_t{64} << 26) != 0) return 1;
  RawClient* const made_client = add(clients, path);
  if (made_client == nullptr) return 2;
  RawClient& client = *made_client;
  uroce_reg_mr_request request{};
  request.pd = client.alloc_pd();
  request.access = 1;
  request.addr = request.iova = 0x10'0000'0000;
  for (std::uint32_t i = 0; i < UROCE_MAX_MR_PIECES; ++i) {
    request.piece[i] = {0, 0, (63 - i % 64) * kPage, kPage};
  }
  const int fd = file.get();
  // The last ones one by one. Two pieces are never shared with another region.
  for (const std::uint32_t pieces : {std::uint32_t{UROCE_MAX_MR_PIECES}, 2u}) {
    request.piece_count = pieces;
    request.length = pieces * kPage;
    progress.refused = 0;
    for (int i = 0; i < 2000 && progress.refused == 0; ++i) {
      const Answer made = client.call(UROCE_CMD_REG_MR, request, {&fd, 1});
      progress.refused = made.status;
      progress.taken += made.ok() ? pieces : 0;
    }
  }
  // And those of a whole extent.
  for (std::uint64_t i = 0; i < 64; ++i) {
    client.register_file(request.pd, file.get(), i << 26, kPage, 1, false);
  }
  if (::ftruncate(file.get(), 0) != 0) return 3;
  return 0;
}

TEST_F(Limits, OfMappings) {
  attack(take_mappings);
  EXPECT_EQ(progress->refused, ENOMEM);
}

// A sparse file of any size costs the client nothing; populated, it would be the daemon's memory.
int take_memory(const std::string& path, Clients& clients, Progress& progress) {
  const UniqueFd file(static_cast<int>(::memfd_create("sparse", MFD_CLOEXEC)));
  if (::ftruncate(file.get(), off_t{1} << 40) != 0) return 1;
  RawClient* const made_client = add(clients, path);
  if (made_client == nullptr) return 2;
  RawClient& client = *made_client;
  const std::uint32_t pd = client.alloc_pd();
  for (std::uint64_t i = 0; i < 32; ++i) {
    const Memory made =
        client.register_file(pd, file.get(), i << 35, std::size_t{1} << 35, 7, false, 0x10'0000'0000 + (i << 35));
    progress.refused = made.status;
    progress.taken += made.status == 0;
  }
  return 0;
}

TEST_F(Limits, OfRegisteredMemory) {
  attack(take_memory);
  EXPECT_EQ(progress->refused, ENOMEM);
}

// Objects that tables of the daemon hold.
int take_objects(const std::string& path, Clients& clients, Progress& progress) {
  for (int i = 0; i < 64 && progress.taken < 9000; ++i) {
    RawClient* const made = add(clients, path);
    if (made == nullptr) break;
    RawClient& client = *made;
    const std::uint32_t pd = client.alloc_pd();
    const Cq cq = client.create_cq(16);
    while (client.create_qp(pd, cq).status == 0) ++progress.taken;
    while (client.create_cq(1).status == 0) {
    }
    uroce_create_srq_request srq{};
    srq.pd = pd;
    srq.max_wr = srq.max_sge = 1;
    while (client.call(UROCE_CMD_CREATE_SRQ, srq).ok()) {
    }
  }
  return 0;
}

TEST_F(Limits, OfObjects) { attack(take_objects); }

}  // namespace
}  // namespace uroce::hostile
