// The conformance suite over a real DPDK link: two memif ports of one process, without hugepages or privileges. And
// what is special to it: waking the peer, a peer that goes away and comes back. Ports on interfaces of the kernel:
// what wakes their workers, and that each of their buffers can be used.
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>

#include "drivers/packet/dpdk/af_packet.h"
#include "drivers/packet/dpdk/eal.h"
#include "drivers/packet/dpdk/ethernet.h"
#include "tests/unit/packet/conformance.h"
#include "tests/unit/packet/roce_frames.h"

// DPDK's af_xdp driver frees neither the program that it has loaded nor its memory area (22.11).
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libbpf.so\nleak:libxdp.so\n"; }

namespace uroce::packet_test {
namespace {

const std::string& start_eal() {
  static dpdk::Eal eal;
  static const std::string error = [] {
    dpdk::EalOptions options;
    options.hugepages = false;
    options.memory_mib = 256;
    return eal.start(options);
  }();
  return error;
}

/// One end of a memif link.
struct End {
  End(const std::string& socket, bool server) {
    dpdk::EthernetOptions options;
    static int made = 0;  // a name serves once: 22.11 leaves the listener of a closed memif behind
    options.port = "net_memif" + std::to_string(made++) + ",role=" + (server ? "server" : "client") +
                   ",socket=" + socket + ",rsize=8";
    options.fallback_mac = {2, 0, 0, 0, 0, static_cast<std::uint8_t>(server ? 1 : 2)};
    options.buffers = 2048;
    options.on_link_change = [this](bool is_up) { up = is_up; };
    ethernet = dpdk::Ethernet::open(options, error);
    if (ethernet == nullptr) return;
    port = std::make_unique<dpdk::Port>(ethernet->queue(0));
    ethernet->start({port.get()});
  }
  ~End() {
    if (ethernet != nullptr) ethernet->stop();
    port.reset();
  }

  bool wait_for(bool state) const {
    for (int i = 0; i < 3000 && up != state; ++i) ::usleep(1000);
    ::usleep(20'000);  // the gate opens a moment after the link is up
    return up == state;
  }

  std::atomic<bool> up{false};
  std::string error;
  std::unique_ptr<dpdk::Ethernet> ethernet;
  std::unique_ptr<dpdk::Port> port;
};

struct MemifRig {
  MemifRig() {
    why_ = start_eal();
    if (!why_.empty()) return;
    folder_ = ::testing::TempDir() + "uroce_memif_" + std::to_string(::getpid());
    std::filesystem::create_directories(folder_);
    static int rigs = 0;
    link = folder_ + "/link" + std::to_string(rigs++);
    server = std::make_unique<End>(link, true);
    client = std::make_unique<End>(link, false);
    if (!server->error.empty() || !client->error.empty()) {
      why_ = server->error + client->error;
    } else if (!server->wait_for(true) || !client->wait_for(true)) {
      why_ = "the link does not come up";
    }
  }
  ~MemifRig() {
    client.reset();
    server.reset();
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }
  bool ready() const { return why_.empty(); }
  std::string why() const { return why_; }
  void settle() {}
  dpdk::Port& sender() { return *client->port; }
  dpdk::Port& receiver() { return *server->port; }
  wire::Mac to() { return server->port->info().mac; }

  std::string why_, folder_, link;
  std::unique_ptr<End> server, client;
};

using Rigs = ::testing::Types<MemifRig>;
INSTANTIATE_TYPED_TEST_SUITE_P(Dpdk, Conformance, Rigs);

bool send_one(dpdk::Port& port, const wire::Mac& to) {
  base::Frame frame;
  if (port.allocate(std::span(&frame, 1)) != 1) return false;
  fill(frame, to, 100, 1);
  if (port.transmit(std::span(&frame, 1)) == 1) return true;
  port.discard(std::span(&frame, 1));
  return false;
}

bool readable(int fd, int milliseconds) {
  pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&entry, 1, milliseconds) == 1;
}

// The gate closes ten times a second for a moment, whatever the link does.
TEST(Memif, a_sender_loses_nothing_while_the_link_stays_up) {
  MemifRig rig;
  ASSERT_TRUE(rig.ready()) << rig.why();
  std::uint64_t sent = 0, arrived = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(700);
  while (std::chrono::steady_clock::now() < end || arrived < sent) {
    ASSERT_LT(std::chrono::steady_clock::now(), end + std::chrono::seconds(5)) << arrived << " of " << sent;
    if (std::chrono::steady_clock::now() < end && sent - arrived < 32) sent += send_one(rig.sender(), rig.to());
    base::Frame in[32];
    const std::size_t got = rig.receiver().receive(in);
    arrived += got;
    rig.receiver().release(std::span(in).first(got));
  }
  EXPECT_GT(sent, 100u);
  EXPECT_EQ(rig.sender().counters().tx_dropped, 0u);
}

TEST(Memif, a_sender_wakes_its_sleeping_peer_once) {
  MemifRig rig;
  ASSERT_TRUE(rig.ready()) << rig.why();
  for (int round = 0; round < 100; ++round) {
    while (!rig.receiver().arm_wake()) rig.receiver().disarm_wake();  // the gate may be closed just now
    ASSERT_FALSE(readable(rig.receiver().wake_fd(), 0));
    while (!send_one(rig.sender(), rig.to())) ::usleep(100);
    ASSERT_TRUE(readable(rig.receiver().wake_fd(), 1000));
    rig.receiver().disarm_wake();
    EXPECT_FALSE(readable(rig.receiver().wake_fd(), 0));
    while (!send_one(rig.sender(), rig.to())) ::usleep(100);  // awake: nobody rings
    EXPECT_FALSE(readable(rig.receiver().wake_fd(), 0));
    base::Frame in[8];
    const std::size_t got = rig.receiver().receive(in);
    EXPECT_EQ(got, 2u);
    rig.receiver().release(std::span(in).first(got));
  }
}

TEST(Memif, a_peer_that_goes_away_under_traffic_and_comes_back_is_met_again) {
  MemifRig rig;
  ASSERT_TRUE(rig.ready()) << rig.why();
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> arrived{0};
  std::thread worker([&] {
    while (!stop) {
      send_one(rig.receiver(), {2, 0, 0, 0, 0, 2});
      base::Frame in[32];
      const std::size_t got = rig.receiver().receive(in);
      arrived += got;
      rig.receiver().release(std::span(in).first(got));
    }
  });
  for (int round = 0; round < 3; ++round) {
    const std::uint64_t before = arrived;
    for (int i = 0; i < 2000 && arrived == before; ++i) send_one(rig.sender(), rig.to()), ::usleep(100);
    EXPECT_GT(arrived, before) << "round " << round;
    rig.client.reset();
    EXPECT_TRUE(rig.server->wait_for(false));
    rig.client = std::make_unique<End>(rig.link, false);
    ASSERT_EQ(rig.client->error, "");
    EXPECT_TRUE(rig.client->wait_for(true));
    EXPECT_TRUE(rig.server->wait_for(true));
  }
  stop = true;
  worker.join();
}

TEST(Memif, errors_say_what_to_do) {
  ASSERT_EQ(start_eal(), "");
  const std::pair<const char*, const char*> wrong[] = {{"net_memif5,role=emperor", "emperor"},
                                                       {"net_nonesuch0", "net_nonesuch0"}};
  for (const auto& [port, word] : wrong) {
    dpdk::EthernetOptions options;
    options.port = port;
    std::string error;
    EXPECT_EQ(dpdk::Ethernet::open(options, error), nullptr);
    EXPECT_NE(error.find(word), std::string::npos) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

TEST(AfPacket, rings_take_what_the_interface_carries_unless_told_otherwise) {
  const auto with = [](const char* text, std::uint32_t mtu) {
    dpdk::VdevSpec spec = dpdk::VdevSpec::parse(text);
    dpdk::add_af_packet_rings(spec, mtu);
    return spec.text();
  };
  EXPECT_EQ(with("net_af_packet0,iface=eth0", 1500),
            "net_af_packet0,iface=eth0,framesz=2048,blocksz=65536,framecnt=1024");
  EXPECT_EQ(with("net_af_packet0,iface=eth0", 4200),
            "net_af_packet0,iface=eth0,framesz=8192,blocksz=65536,framecnt=1024");
  EXPECT_EQ(with("net_af_packet0,iface=eth0,framecnt=64", 65521),
            "net_af_packet0,iface=eth0,framecnt=64,framesz=131072,blocksz=131072");
  EXPECT_EQ(with("net_af_packet0,iface=eth0,framesz=4096,blocksz=4096", 9000),
            "net_af_packet0,iface=eth0,framesz=4096,blocksz=4096");
  EXPECT_GE(dpdk::interface_mtu("lo"), 1280u);
  EXPECT_EQ(dpdk::interface_mtu("no such one"), 0u);
}

constexpr std::size_t kVethBuffers = 4096;

/// A veth pair in a network namespace of the calling thread, with a port on each end.
struct VethRig {
  VethRig(const std::string& driver, std::uint32_t queues) {
    why_ = start_eal();
    if (!why_.empty()) return;
    if (::unshare(CLONE_NEWNET) != 0 ||
        std::system("ip link add end0 type veth peer name end1 && ip link set end0 addrgenmode none up && "
                    "ip link set end1 addrgenmode none up") != 0) {
      why_ = "no veth pair";
      return;
    }
    sender = open("net_af_packet" + std::to_string(made_++) + ",iface=end0", 1);
    if (why_.empty()) receiver = open(driver + std::to_string(made_++) + ",iface=end1", queues);
  }
  std::unique_ptr<dpdk::Ethernet> open(const std::string& port, std::uint32_t queues) {
    dpdk::EthernetOptions options;
    options.port = port + (queues > 1 ? ",qpairs=" + std::to_string(queues) : "");
    options.queues = queues;
    options.buffers = kVethBuffers;
    return dpdk::Ethernet::open(options, why_);
  }

  std::string why_;
  std::unique_ptr<dpdk::Ethernet> sender, receiver;

 private:
  static inline int made_ = 0;
};

void send_flow(dpdk::Port& port, const wire::Mac& to, std::uint16_t source_port) {
  base::Frame frame;
  ASSERT_EQ(port.allocate(std::span(&frame, 1)), 1u);
  wire::PathAddress path{.dest_mac = to, .source = v4_address(192, 0, 2, 1), .dest = v4_address(192, 0, 2, 2)};
  path.source_port = source_port;
  fill_roce(frame, path, 100, source_port);
  ASSERT_EQ(port.transmit(std::span(&frame, 1)), 1u);
}

/// Frames wake the worker of the queue that they reach, at once, and no other one.
void each_frame_wakes_its_queue(const std::string& driver, std::uint32_t queues) {
  VethRig rig(driver, queues);
  ASSERT_EQ(rig.why_, "");
  dpdk::Port from(rig.sender->queue(0));
  std::vector<std::unique_ptr<dpdk::Port>> ports;
  for (std::uint32_t i = 0; i < queues; ++i) ports.push_back(std::make_unique<dpdk::Port>(rig.receiver->queue(i)));
  ::usleep(50'000);  // what the kernel says when a link comes up
  std::vector<std::uint32_t> woken(queues);
  for (std::uint16_t flow = 0; flow < 64; ++flow) {
    for (auto& port : ports) {
      while (!port->arm_wake()) {
        port->disarm_wake();
        base::Frame old[8];
        port->release(std::span(old).first(port->receive(old)));
      }
    }
    std::vector<pollfd> fds;
    for (auto& port : ports) fds.push_back({.fd = port->wake_fd(), .events = POLLIN, .revents = 0});
    ASSERT_EQ(::poll(fds.data(), fds.size(), 2), 0) << "a timer, or a frame of another queue";
    send_flow(from, rig.receiver->info().mac, static_cast<std::uint16_t>(0xc000 + flow));
    ASSERT_EQ(::poll(fds.data(), fds.size(), 1000), 1) << "flow " << flow;
    std::uint32_t frames = 0;
    for (std::uint32_t i = 0; i < queues; ++i) {
      const bool awake = fds[i].revents != 0;
      ports[i]->disarm_wake();
      base::Frame in[8];
      const std::size_t got = ports[i]->receive(in);
      ports[i]->release(std::span(in).first(got));
      EXPECT_EQ(awake, got != 0) << "queue " << i;
      EXPECT_FALSE(readable(ports[i]->wake_fd(), 0)) << "nothing waits";
      frames += static_cast<std::uint32_t>(got);
      woken[i] += awake;
    }
    ASSERT_EQ(frames, 1u);
  }
  for (const std::uint32_t times : woken) EXPECT_GT(times, 0u);
}

/// An ARP request, which the kernel receives, wakes the worker too: it answers for addresses of its own.
void a_frame_of_the_kernel_wakes() {
  VethRig rig("net_af_xdp", 1);
  ASSERT_EQ(rig.why_, "");
  dpdk::Port from(rig.sender->queue(0)), port(rig.receiver->queue(0));
  ::usleep(50'000);
  for (int i = 0; i < 8; ++i) {
    while (!port.arm_wake()) {
      port.disarm_wake();
      base::Frame old[8];
      port.release(std::span(old).first(port.receive(old)));
    }
    ASSERT_FALSE(readable(port.wake_fd(), 2)) << "a timer";
    base::Frame frame;
    ASSERT_EQ(from.allocate(std::span(&frame, 1)), 1u);
    fill(frame, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 60, 1);
    wire::store16(frame.data + 12, wire::kEtherTypeArp);
    ASSERT_EQ(from.transmit(std::span(&frame, 1)), 1u);
    ASSERT_TRUE(readable(port.wake_fd(), 1000));
    EXPECT_FALSE(port.arm_wake()) << "it looks for the kernel's frames before a sleep";
    port.disarm_wake();
    base::Frame in[8];
    const std::size_t got = port.receive(in);
    EXPECT_EQ(got, 1u);
    port.release(std::span(in).first(got));
  }
}

/// Frames that arrive within a second, at most `wanted`; they are kept.
std::vector<base::Frame> arrivals(dpdk::Port& port, std::size_t wanted) {
  std::vector<base::Frame> frames(wanted);
  std::size_t got = 0;
  for (int i = 0; i < 10'000 && got < wanted; ++i) {
    const std::size_t more = port.receive(std::span(frames).subspan(got));
    got += more;
    if (more == 0) ::usleep(100);
  }
  frames.resize(got);
  return frames;
}

void send_burst(dpdk::Port& port, const wire::Mac& to, std::span<base::Frame> frames) {
  const wire::PathAddress path{
      .dest_mac = to, .source = v4_address(192, 0, 2, 1), .dest = v4_address(192, 0, 2, 2), .source_port = 0xc000};
  for (base::Frame& frame : frames) fill_roce(frame, path, 1000, 7);
  ASSERT_EQ(port.transmit(frames), frames.size());
}

/// Whichever of its buffers a queue takes, the kernel sends and fills it.
void every_buffer_carries_frames(const std::string& driver) {
  constexpr std::size_t kBurst = 32;
  VethRig rig(driver, 1);
  ASSERT_EQ(rig.why_, "");
  dpdk::Port peer(rig.sender->queue(0)), port(rig.receiver->queue(0));
  std::vector<base::Frame> all(kVethBuffers);
  std::size_t count = 0;
  while (const std::size_t more = port.allocate(std::span(all).subspan(count, kBurst))) count += more;
  EXPECT_GT(count, kVethBuffers / 4);
  for (std::size_t sent = 0; sent < count; sent += kBurst) {
    const std::size_t burst = std::min(kBurst, count - sent);
    send_burst(port, rig.sender->info().mac, std::span(all).subspan(sent, burst));
    std::vector<base::Frame> in = arrivals(peer, burst);
    peer.release(in);
    ASSERT_EQ(in.size(), burst) << "after " << sent << " buffers";
  }
  std::vector<base::Frame> kept;
  for (std::size_t sent = 0; sent < kVethBuffers; sent += kBurst) {
    base::Frame out[kBurst];
    ASSERT_EQ(peer.allocate(out), kBurst);
    send_burst(peer, rig.receiver->info().mac, out);
    std::vector<base::Frame> in = arrivals(port, kBurst);
    ASSERT_EQ(in.size(), kBurst) << "after " << sent << " frames";
    kept.insert(kept.end(), in.begin(), in.end());
    if (kept.size() > kVethBuffers / 4) {
      port.release(kept);
      kept.clear();
    }
  }
  port.release(kept);
}

void in_a_namespace(auto check, auto... arguments) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root for packet sockets; tests/e2e has them, too";
  std::thread(check, arguments...).join();
}

TEST(Sockets, a_frame_wakes_the_worker_of_an_af_packet_port) {
  in_a_namespace(each_frame_wakes_its_queue, "net_af_packet", 1);
}
TEST(Sockets, a_frame_wakes_the_worker_of_its_queue) {
  in_a_namespace(each_frame_wakes_its_queue, "net_af_packet", 3);
}
TEST(Sockets, a_frame_wakes_the_worker_of_an_af_xdp_port) {
  in_a_namespace(each_frame_wakes_its_queue, "net_af_xdp", 1);
}
TEST(Sockets, a_frame_of_the_kernel_wakes_the_worker_of_an_af_xdp_port) {
  in_a_namespace(a_frame_of_the_kernel_wakes);
}
TEST(Buffers, each_of_an_af_packet_port_carries_frames) {
  in_a_namespace(every_buffer_carries_frames, "net_af_packet");
}
TEST(Buffers, each_of_an_af_xdp_port_carries_frames) { in_a_namespace(every_buffer_carries_frames, "net_af_xdp"); }

TEST(Vdev, a_spec_is_taken_apart_and_put_together) {
  const dpdk::VdevSpec spec = dpdk::VdevSpec::parse("net_memif0,role=server,bsize=9216");
  EXPECT_EQ(spec.argument("role"), "server");
  EXPECT_EQ(spec.argument("id", "0"), "0");
  EXPECT_TRUE(spec.is("net_memif"));
  EXPECT_FALSE(spec.is("net_mem"));
  EXPECT_EQ(spec.text(), "net_memif0,role=server,bsize=9216");
  EXPECT_TRUE(dpdk::is_pci_address("0000:03:00.0"));
  EXPECT_TRUE(dpdk::is_pci_address("03:00.1"));
  EXPECT_FALSE(dpdk::is_pci_address("net_memif0"));
}

}  // namespace
}  // namespace uroce::packet_test
