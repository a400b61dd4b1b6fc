#include "drivers/packet/dpdk/ethernet.h"

#include <rte_dev.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <thread>

#include "drivers/packet/dpdk/af_packet.h"
#include "drivers/packet/dpdk/eal.h"
#include "drivers/packet/dpdk/interface_membership.h"
#include "drivers/packet/dpdk/interrupts_held.h"
#include "drivers/packet/dpdk/kernel_link.h"
#include "drivers/packet/dpdk/kernel_share.h"
#include "drivers/packet/dpdk/link_keeper.h"
#include "drivers/packet/dpdk/queue_sockets.h"
#include "drivers/packet/dpdk/wake_channel.h"
#include "drivers/packet/dpdk/xdp_pool.h"

namespace uroce::dpdk {
namespace {

constexpr std::uint32_t kHeaderBytes = 18;  // Ethernet, 802.1Q
constexpr std::uint32_t kJumboMtu = 9000;
constexpr std::uint32_t kLeastRoom = 2048;  // that drivers expect at least, whatever the MTU
constexpr std::uint16_t kDescriptors = 1024;
constexpr unsigned kPoolCache = 256;          // the buffers that stay warm in a core's cache
constexpr std::uint32_t kMemifBuffer = 2048;  // the driver's default bsize
constexpr std::uint32_t kMemifOurBuffer = 9216;

std::uint32_t to_number(const std::string& text, std::uint32_t otherwise) {
  return text.empty() ? otherwise : static_cast<std::uint32_t>(std::strtoul(text.c_str(), nullptr, 10));
}

/// Ports whose largest frame is what their buffers hold, whatever the driver reports.
bool mtu_is_ours(const VdevSpec& spec) {
  for (const char* driver : {"net_memif", "net_af_packet", "net_pcap", "net_null", "net_tap"}) {
    if (spec.is(driver)) return true;
  }
  return false;
}

std::uint32_t memif_mtu(const VdevSpec& spec) {
  const std::uint32_t bytes = to_number(spec.argument("bsize"), kMemifBuffer);
  return bytes > kHeaderBytes ? bytes - kHeaderBytes : 0;
}

/// Fills in what makes a memif carry 4096-byte RoCE packets and an af_packet what its interface does, unless the
/// user said otherwise.
VdevSpec with_defaults(VdevSpec spec, std::uint32_t mtu) {
  if (spec.is("net_memif") && spec.argument("bsize").empty()) {
    spec.arguments.emplace_back("bsize", std::to_string(kMemifOurBuffer));
  }
  if (spec.is("net_af_packet")) add_af_packet_rings(spec, mtu != 0 ? mtu : interface_mtu(spec.argument("iface")));
  return spec;
}

int socket_family(const VdevSpec& spec) {
  if (spec.is("net_af_packet")) return AF_PACKET;
  return spec.is("net_af_xdp") ? AF_XDP : AF_UNSPEC;
}

std::string driver_said(const std::string& otherwise) {
  std::string said = take_error();
  if (said.ends_with('.')) said.pop_back();  // a sentence about what to do may follow
  return said.empty() ? otherwise : said;
}

}  // namespace

VdevSpec VdevSpec::parse(std::string_view text) {
  VdevSpec spec;
  bool first = true;
  while (!text.empty() || first) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (first) {
      spec.name = part;
    } else {
      const std::size_t equals = std::min(part.find('='), part.size());
      spec.arguments.emplace_back(part.substr(0, equals), part.substr(std::min(equals + 1, part.size())));
    }
    first = false;
  }
  return spec;
}

std::string VdevSpec::argument(std::string_view key, std::string_view otherwise) const {
  for (const auto& [name, value] : arguments) {
    if (name == key) return value;
  }
  return std::string(otherwise);
}

std::string VdevSpec::text() const {
  std::string all = name;
  for (const auto& [key, value] : arguments) all += "," + key + (value.empty() ? "" : "=" + value);
  return all;
}

bool VdevSpec::is(std::string_view driver) const {
  if (name.size() < driver.size() || std::string_view(name).substr(0, driver.size()) != driver) return false;
  return std::all_of(name.begin() + static_cast<std::ptrdiff_t>(driver.size()), name.end(),
                     [](char c) { return (c >= '0' && c <= '9') || c == '_'; });
}

std::uint32_t memory_needed(const EthernetOptions& options) {
  const std::uint64_t frame = std::max(options.mtu, kJumboMtu) + kHeaderBytes + RTE_PKTMBUF_HEADROOM + 256;
  return static_cast<std::uint32_t>((frame * options.buffers * options.queues >> 20) + 32);
}

struct Ethernet::Impl {
  EthernetOptions options;
  VdevSpec spec;
  std::uint16_t port = 0;
  bool found = false;          // the driver has made the port
  bool queue_refused = false;  // by the kernel (af_xdp)
  bool memif = false, client = false, af_packet = false;
  bool software_mtu = false;
  rte_eth_dev_info device{};
  rte_eth_conf conf{};
  net::DeviceInfo info;
  std::vector<rte_mempool*> pools;
  std::optional<QueueSockets> sockets;
  std::vector<std::unique_ptr<Waker>> wakers;
  std::shared_ptr<WakeChannel> channel;
  std::unique_ptr<KernelShare> share;
  std::unique_ptr<KernelLink> kernel_link;
  std::atomic<bool> carrier{true};
  std::optional<InterfaceMembership> all_groups;
  DriverGate keeper;
  std::unique_ptr<LinkKeeper> link;

  std::string probe();
  std::string share_interface();
  std::string choose_mtu();
  std::string configure();
  std::uint32_t room() const;  ///< of a buffer, in bytes, headroom included
  std::string make_pool(std::uint16_t queue, std::uint32_t count);
  std::string make_queues();
  std::string start_port();
  void choose_offloads();
  void choose_mac();
  void make_wakers();
  std::unique_ptr<Waker> make_waker(std::uint16_t queue);
};

std::string Ethernet::Impl::probe() {
  spec = with_defaults(VdevSpec::parse(options.port), options.mtu);
  memif = spec.is("net_memif");
  af_packet = spec.is("net_af_packet");
  client = memif && spec.argument("role", "client") != "server";
  if (const std::string why = share_interface(); !why.empty()) return why;
  sockets.emplace(socket_family(spec));
  const std::string said = take_error();  // about a PCI device, which EAL has probed when it started
  if (!is_pci_address(options.port) && rte_dev_probe(spec.text().c_str()) != 0) {
    const std::string why = driver_said("no DPDK driver of that name");
    const bool busy = why.find(std::strerror(EADDRINUSE)) != std::string::npos;
    return "port \"" + options.port + "\" does not start: " + why +
           (busy ? ". Another daemon serves this socket: end it, or give another socket=PATH to both ends"
                 : ". Give a DPDK device such as net_memif0,role=server,socket=PATH, a PCI address, or loopback");
  }
  if (rte_eth_dev_get_port_by_name(spec.name.c_str(), &port) != 0) {
    std::uint16_t only = 0;
    if (!is_pci_address(options.port) || rte_eth_dev_count_avail() != 1) {
      return "port \"" + options.port + "\": no DPDK driver takes it" + (said.empty() ? "" : " (" + said + ")") +
             ". Bind the device to vfio-pci (dpdk-devbind.py), check the address with lspci, and end other "
             "programs that use it";
    }
    RTE_ETH_FOREACH_DEV(only) { port = only; }
  }
  found = true;
  sockets->look();
  if (rte_eth_dev_info_get(port, &device) != 0) return "port \"" + options.port + "\" does not say what it can do";
  // These drivers get copies of what the kernel receives; other drivers take packets from the kernel.
  if (spec.is("net_af_packet") || spec.is("net_pcap") || share != nullptr) info.kernel_interface = device.if_index;
  info.netdev = device.if_index;
  if (device.if_index != 0) kernel_link = std::make_unique<KernelLink>(device.if_index);
  if (options.queues > device.max_rx_queues || options.queues > device.max_tx_queues) {
    return "port \"" + options.port + "\" has " +
           std::to_string(std::min(device.max_rx_queues, device.max_tx_queues)) + " queues, " +
           std::to_string(options.queues) + " workers want one each: lower --workers";
  }
  return {};
}

/// With af_xdp the kernel keeps all frames that are not RoCE, unless the user configures another XDP program.
std::string Ethernet::Impl::share_interface() {
  if (!spec.is("net_af_xdp") || !spec.argument("xdp_prog").empty()) return {};
  std::string why;
  share = KernelShare::open(spec.argument("iface"), why);
  if (share == nullptr) return "port \"" + options.port + "\" does not start: " + why;
  spec.arguments.emplace_back("xdp_prog", share->program());
  return {};
}

std::string Ethernet::Impl::choose_mtu() {
  software_mtu = mtu_is_ours(spec);
  std::uint16_t own = 1500;
  rte_eth_dev_get_mtu(port, &own);
  if (af_packet) own = static_cast<std::uint16_t>(std::min(interface_mtu(spec.argument("iface")), 65535u));
  std::uint32_t most = software_mtu ? 65535u - kHeaderBytes - RTE_PKTMBUF_HEADROOM : device.max_mtu;
  // Drivers that do not know their largest MTU (net_e1000_em) report that number, and their largest frame.
  if (most == UINT16_MAX && device.max_rx_pktlen > kHeaderBytes) most = device.max_rx_pktlen - kHeaderBytes;
  if (memif) most = memif_mtu(spec);
  if (af_packet) most = to_number(spec.argument("framesz"), kAfPacketFrame) - kAfPacketFrameOverhead;
  std::uint32_t mtu = options.mtu;
  if (mtu == 0) mtu = memif ? std::min(most, kJumboMtu) : std::min<std::uint32_t>(own, af_packet ? most : own);
  if (mtu > most) {
    return "MTU " + std::to_string(mtu) + " is more than port \"" + options.port + "\" carries: at most " +
           std::to_string(most) + (memif ? " with this bsize" : "") + ". Lower --mtu" +
           (memif ? " or raise bsize at both ends" : "");
  }
  info.mtu = mtu;
  return {};
}

void Ethernet::Impl::choose_offloads() {
  conf.rxmode.mtu = software_mtu && info.mtu > 1500 ? 1500 : info.mtu;
  conf.rxmode.offloads = device.rx_offload_capa & RTE_ETH_RX_OFFLOAD_IPV4_CKSUM;
  // All buffers of a queue come from one pool and are held once: drivers that can, free them in bulk.
  conf.txmode.offloads =
      device.tx_offload_capa & (RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE);
  if (!mtu_is_ours(spec)) conf.rxmode.offloads |= device.rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER;
  info.checksum_offload = (conf.txmode.offloads & RTE_ETH_TX_OFFLOAD_IPV4_CKSUM) != 0;
  if (options.queues > 1) {
    const std::uint64_t wanted = RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP;
    conf.rx_adv_conf.rss_conf.rss_hf = wanted & device.flow_type_rss_offloads;
    if (conf.rx_adv_conf.rss_conf.rss_hf != 0) conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
  }
}

std::string Ethernet::Impl::configure() {
  choose_offloads();
  const auto queues = static_cast<std::uint16_t>(options.queues);
  conf.intr_conf.rxq = memif || (is_pci_address(options.port) && driven_by_uio(options.port)) ? 0 : 1;
  int result = rte_eth_dev_configure(port, queues, queues, &conf);
  if (result != 0 && conf.intr_conf.rxq != 0) {
    conf.intr_conf.rxq = 0;
    result = rte_eth_dev_configure(port, queues, queues, &conf);
  }
  if (result == 0) return {};
  return "port \"" + options.port + "\" can't be configured: " + driver_said(rte_strerror(-result));
}

std::uint32_t Ethernet::Impl::room() const {
  return std::min<std::uint32_t>(
      std::max({(info.mtu + kHeaderBytes + 63) / 64 * 64, memif ? memif_mtu(spec) + kHeaderBytes : 0, kLeastRoom,
                af_packet ? to_number(spec.argument("framesz"), kAfPacketFrame) : 0}) +
          RTE_PKTMBUF_HEADROOM,
      65535);
}

std::string Ethernet::Impl::make_pool(std::uint16_t queue, std::uint32_t count) {
  const std::string name = "uroce_" + std::to_string(port) + "_" + std::to_string(queue);
  rte_mempool* pool = spec.is("net_af_xdp")
                          ? make_xdp_pool(name, count, kPoolCache, room())
                          : rte_pktmbuf_pool_create(name.c_str(), count, kPoolCache, 0,
                                                    static_cast<std::uint16_t>(room()), SOCKET_ID_ANY);
  if (pool == nullptr) {
    return "no memory for " + std::to_string(count) + " buffers of " + std::to_string(room()) +
           " bytes: free some hugepages (see /proc/meminfo) or lower --mtu or --workers";
  }
  pools.push_back(pool);
  return {};
}

std::string Ethernet::Impl::make_queues() {
  std::uint16_t receive = kDescriptors, send = kDescriptors;
  rte_eth_dev_adjust_nb_rx_tx_desc(port, &receive, &send);
  const std::uint32_t ring = memif ? 1u << std::min(to_number(spec.argument("rsize"), 10), 14u) : 0;
  const std::uint32_t held = memif ? 2 * ring : static_cast<std::uint32_t>(receive) + send;
  const std::uint32_t count = std::max(options.buffers, held + 1024);
  for (std::uint16_t queue = 0; queue < options.queues; ++queue) {
    if (std::string why = make_pool(queue, count); !why.empty()) return why;
    rte_eth_rxconf rx = device.default_rxconf;
    rx.offloads = conf.rxmode.offloads;
    rte_eth_txconf tx = device.default_txconf;
    tx.offloads = conf.txmode.offloads;
    int result = rte_eth_rx_queue_setup(port, queue, receive, SOCKET_ID_ANY, &rx, pools[queue]);
    queue_refused = result != 0 && spec.is("net_af_xdp");
    if (result == 0) result = rte_eth_tx_queue_setup(port, queue, send, SOCKET_ID_ANY, &tx);
    if (result != 0) {
      return "port \"" + options.port + "\" can't set up queue " + std::to_string(queue) + ": " +
             driver_said(rte_strerror(-result)) +
             (queue_refused ? ". If another program uses this queue of the interface (ss --xdp), end it" : "");
    }
    sockets->look();
  }
  return {};
}

std::string Ethernet::Impl::start_port() {
  if (client) return {};  // the server may not be running yet: LinkKeeper starts the port
  if (const int result = rte_eth_dev_start(port); result != 0) {
    return "port \"" + options.port + "\" does not start: " + driver_said(rte_strerror(-result));
  }
  // A shared interface keeps its MTU if that is large enough.
  const bool raise = af_packet ? info.mtu > interface_mtu(spec.argument("iface")) : software_mtu && !memif;
  if (raise) rte_eth_dev_set_mtu(port, static_cast<std::uint16_t>(info.mtu));
  if (rte_eth_allmulticast_enable(port) != 0 && device.if_index != 0) {
    all_groups.emplace(device.if_index, InterfaceMembership::Kind::kAllGroups);
  }
  return {};
}

/// The port's own MAC address unless the user configured another, which the port must then accept or else deliver
/// all frames. Software ports invent theirs, and net_tap has that of the kernel's end.
void Ethernet::Impl::choose_mac() {
  rte_ether_addr own{};
  rte_eth_macaddr_get(port, &own);
  std::memcpy(info.mac.data(), own.addr_bytes, info.mac.size());
  const bool made_up = software_mtu && !spec.is("net_af_packet");
  if (made_up || options.mac) {
    const wire::Mac wanted = options.mac.value_or(options.fallback_mac);
    if (wanted == info.mac) return;
    info.mac = wanted;
    std::memcpy(own.addr_bytes, info.mac.data(), info.mac.size());
    if (made_up || rte_eth_dev_default_mac_addr_set(port, &own) != 0) rte_eth_promiscuous_enable(port);
  }
}

void Ethernet::Impl::make_wakers() {
  if (memif) {
    const std::string base = spec.argument("socket", "/run/memif.sock") + "." + spec.argument("id", "0") + ".wake";
    std::string why;
    channel = WakeChannel::open(base, client ? WakeChannel::Side::kClient : WakeChannel::Side::kServer,
                                options.queues, why);
  }
  for (std::uint16_t queue = 0; queue < options.queues; ++queue) wakers.push_back(make_waker(queue));
}

std::unique_ptr<Waker> Ethernet::Impl::make_waker(std::uint16_t queue) {
  if (channel != nullptr) return std::make_unique<ChannelWaker>(channel, queue);
  if (const int fd = conf.intr_conf.rxq != 0 ? rte_eth_dev_rx_intr_ctl_q_get_fd(port, queue) : -1; fd >= 0) {
    // Not without a descriptor: net_vmxnet3 then has no vector to enable, and writes outside its registers.
    if (rte_eth_dev_rx_intr_enable(port, queue) != 0) return std::make_unique<DescriptorWaker>(fd);
    rte_eth_dev_rx_intr_disable(port, queue);
    return std::make_unique<InterruptWaker>(port, queue, fd);
  }
  const std::span<const int> found = sockets->found();
  if (found.size() >= options.queues) {
    if (share == nullptr || queue != 0) return std::make_unique<DescriptorWaker>(found[queue]);
    return std::make_unique<SocketsWaker>(std::array{found[queue], share->socket()});
  }
  return std::make_unique<TimerWaker>();
}

Ethernet::Ethernet(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

std::unique_ptr<Ethernet> Ethernet::open(const EthernetOptions& options, std::string& error) {
  // The kernel frees a queue of af_xdp when no frame refers to the socket of a daemon that was killed: a moment
  // later. A driver that was refused a queue keeps buffers and descriptors, so each try begins with a new port.
  constexpr auto kPause = std::chrono::milliseconds(50);
  for (int left = 40;; --left) {
    bool queue_refused = false;
    std::unique_ptr<Ethernet> self = open_once(options, error, queue_refused);
    if (self != nullptr || !queue_refused || left == 0) return self;
    std::this_thread::sleep_for(kPause);
  }
}

std::unique_ptr<Ethernet> Ethernet::open_once(const EthernetOptions& options, std::string& error,
                                              bool& queue_refused) {
  std::unique_ptr<Ethernet> self(new Ethernet(std::make_unique<Impl>()));
  Impl& impl = *self->impl_;
  impl.options = options;
  using Step = std::string (Impl::*)();
  for (const Step step :
       {&Impl::probe, &Impl::choose_mtu, &Impl::configure, &Impl::make_queues, &Impl::start_port}) {
    error = (impl.*step)();
    queue_refused = impl.queue_refused;
    if (!error.empty()) return nullptr;
  }
  impl.choose_mac();
  impl.make_wakers();
  take_error();
  return self;
}

QueueConfig Ethernet::queue(std::uint32_t index) {
  return {.port = impl_->port,
          .queue = static_cast<std::uint16_t>(index),
          .pool = impl_->pools[index],
          .info = impl_->info,
          .promiscuous = rte_eth_promiscuous_get(impl_->port) == 1,
          .tx_prepare = impl_->info.checksum_offload,
          .keeper = impl_->memif ? &impl_->keeper : nullptr,
          .share = index == 0 ? impl_->share.get() : nullptr,
          .link = impl_->kernel_link.get(),
          .carrier = &impl_->carrier,
          .waker = impl_->wakers[index].get()};
}

void Ethernet::start(const std::vector<Port*>& ports) {
  if (!impl_->memif) return;
  std::vector<Gate*> gates;
  for (Port* port : ports) gates.push_back(&port->gate());
  impl_->link = std::make_unique<LinkKeeper>(impl_->port, impl_->client, impl_->keeper, std::move(gates),
                                             impl_->options.on_link_change);
}

void Ethernet::stop() { impl_->link.reset(); }

void Ethernet::wait_for_peer(std::chrono::milliseconds limit) const {
  constexpr std::chrono::milliseconds kStep{2};
  rte_eth_link link{};
  for (auto waited = kStep - kStep; waited < limit; waited += kStep) {
    if (impl_->channel == nullptr || !impl_->channel->peer_alive()) return;
    if (rte_eth_link_get_nowait(impl_->port, &link) == 0 && link.link_status == RTE_ETH_LINK_UP) return;
    std::this_thread::sleep_for(kStep);
  }
}

Ethernet::~Ethernet() {
  if (!impl_->found) return;
  stop();
  std::optional<InterruptsHeld> held;
  if (impl_->memif) held.emplace();
  rte_eth_dev_stop(impl_->port);
  rte_eth_dev_close(impl_->port);
  if (!is_pci_address(impl_->options.port)) rte_dev_remove(impl_->device.device);  // so that its name is free again
  if (impl_->queue_refused) impl_->sockets->close_left();
  for (rte_mempool* pool : impl_->pools) rte_mempool_free(pool);
}

const net::DeviceInfo& Ethernet::info() const { return impl_->info; }

std::string Ethernet::waiting_for() const {
  if (!impl_->memif) return {};
  const std::string socket = impl_->spec.argument("socket", "/run/memif.sock");
  return std::string("the memif ") + (impl_->client ? "server" : "client") + " at " + socket;
}

}  // namespace uroce::dpdk
