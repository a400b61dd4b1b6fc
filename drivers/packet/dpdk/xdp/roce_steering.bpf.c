// XDP program for a port over af_xdp: RoCE goes to the socket of the queue that it came on, all else stays the
// kernel's. roce_steering.inc is this, compiled by build.sh, so that building uroced takes no BPF compiler.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#define SECTION(name) __attribute__((section(name), used))
#define SWAPPED(value) __builtin_bswap16(value)

enum { kRocePort = 4791, kQueues = 64, kFragment = 0x3fff };

// The name that DPDK's driver looks for. It puts the socket of each of its queues there.
struct {
  int (*type)[BPF_MAP_TYPE_XSKMAP];
  int (*key_size)[sizeof(__u32)];
  int (*value_size)[sizeof(__u32)];
  int (*max_entries)[kQueues];
} xsks_map SECTION(".maps");

static long (*const redirect_map)(void* map, __u32 key, __u64 otherwise) = (void*)BPF_FUNC_redirect_map;

SECTION("xdp") int uroce_steering(struct xdp_md* context) {
  const char* at = (const char*)(long)context->data;
  const char* const end = (const char*)(long)context->data_end;
  const char* udp = 0;
  if (at + ETH_HLEN > end) return XDP_PASS;
  __u16 type = ((const struct ethhdr*)at)->h_proto;
  at += ETH_HLEN;
  if (type == SWAPPED(ETH_P_8021Q)) {
    if (at + 4 > end) return XDP_PASS;
    type = *(const __u16*)(at + 2);
    at += 4;
  }
  if (type == SWAPPED(ETH_P_IP)) {
    const struct iphdr* ip = (const struct iphdr*)at;
    if ((const char*)(ip + 1) > end || ip->protocol != IPPROTO_UDP || (ip->frag_off & SWAPPED(kFragment)) != 0) {
      return XDP_PASS;
    }
    udp = at + ip->ihl * 4;
  } else if (type == SWAPPED(ETH_P_IPV6)) {
    const struct ipv6hdr* ip = (const struct ipv6hdr*)at;
    if ((const char*)(ip + 1) > end || ip->nexthdr != IPPROTO_UDP) return XDP_PASS;
    udp = (const char*)(ip + 1);
  } else {
    return XDP_PASS;
  }
  if (udp + sizeof(struct udphdr) > end || ((const struct udphdr*)udp)->dest != SWAPPED(kRocePort)) return XDP_PASS;
  // Without a socket there, as when the daemon was killed, it is the kernel's, too.
  return (int)redirect_map(&xsks_map, context->rx_queue_index, XDP_PASS);
}
