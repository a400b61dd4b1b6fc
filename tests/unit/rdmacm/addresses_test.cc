// Conversion of socket addresses between programs and the daemon.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <infiniband/ib.h>

#include <cstring>

#include "objects.h"

namespace uroce::rdmacm {
namespace {

sockaddr_storage at(const char* text, std::uint16_t port = 0, std::uint32_t scope = 0) {
  sockaddr_storage out{};
  if (auto& v4 = reinterpret_cast<sockaddr_in&>(out); inet_pton(AF_INET, text, &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    return out;
  }
  auto& v6 = reinterpret_cast<sockaddr_in6&>(out);
  EXPECT_EQ(inet_pton(AF_INET6, text, &v6.sin6_addr), 1) << text;
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  v6.sin6_scope_id = scope;
  return out;
}
const sockaddr* generic(const sockaddr_storage& address) { return reinterpret_cast<const sockaddr*>(&address); }

TEST(Addresses, have_the_length_of_their_family) {
  EXPECT_EQ(bytes_of(generic(at("192.0.2.1"))), sizeof(sockaddr_in));
  EXPECT_EQ(bytes_of(generic(at("2001:db8::1"))), sizeof(sockaddr_in6));
  sockaddr_storage other{};
  other.ss_family = AF_UNIX;
  EXPECT_EQ(bytes_of(generic(other)), 0u);
  EXPECT_EQ(bytes_of(nullptr), 0u);
}

TEST(Addresses, any_and_loopback_are_recognized) {
  EXPECT_TRUE(is_any(generic(at("0.0.0.0"))));
  EXPECT_TRUE(is_any(generic(at("::"))));
  EXPECT_FALSE(is_any(generic(at("192.0.2.1"))));
  EXPECT_FALSE(is_any(generic(at("::1"))));
  for (const char* text : {"127.0.0.1", "127.255.0.9", "::1"}) EXPECT_TRUE(is_loopback(generic(at(text)))) << text;
  for (const char* text : {"128.0.0.1", "126.0.0.1", "::", "2001:db8::1"}) {
    EXPECT_FALSE(is_loopback(generic(at(text)))) << text;
  }
}

TEST(Addresses, ports_are_in_host_order_inside_and_in_network_order_for_programs) {
  EXPECT_EQ(port_of(generic(at("192.0.2.1", 7174))), 7174);
  EXPECT_EQ(port_of(generic(at("2001:db8::1", 65535))), 65535);
  sockaddr_storage other{};
  other.ss_family = AF_UNIX;
  EXPECT_EQ(port_of(generic(other)), 0);
  rdma_cm_id id{};
  id.route.addr.src_storage = at("192.0.2.1", 7174);
  id.route.addr.dst_storage = at("192.0.2.2", 18515);
  EXPECT_EQ(rdma_get_src_port(&id), htons(7174));
  EXPECT_EQ(rdma_get_dst_port(&id), htons(18515));
}

TEST(Addresses, ipv4_is_mapped_for_the_daemon) {
  const uroce_cm_address told = to_abi(generic(at("192.0.2.7", 9)));
  const std::uint8_t mapped[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 7};
  EXPECT_EQ(std::memcmp(told.gid, mapped, sizeof(mapped)), 0);
  EXPECT_EQ(told.family, AF_INET);
  EXPECT_EQ(told.port, 9);
}

TEST(Addresses, survive_the_conversion_to_the_daemon_and_back) {
  for (const sockaddr_storage& address :
       {at("192.0.2.7", 7174), at("0.0.0.0", 1), at("2001:db8::7", 7174), at("fe80::7", 5, 3), at("::")}) {
    sockaddr_storage back;
    std::memset(&back, 0xa5, sizeof(back));
    from_abi(to_abi(generic(address)), back);
    EXPECT_EQ(std::memcmp(&back, &address, sizeof(back)), 0);
  }
  sockaddr_storage none;
  std::memset(&none, 0xa5, sizeof(none));
  from_abi(uroce_cm_address{}, none);
  EXPECT_EQ(none.ss_family, AF_UNSPEC);
}

sockaddr_storage gid_of(const char* text, rdma_port_space space, std::uint16_t port) {
  sockaddr_storage out;
  std::memset(&out, 0xa5, sizeof(out));
  to_gid_address(to_abi(generic(at(text, port))), space, out);
  return out;
}

TEST(GidAddresses, are_the_address_that_the_gid_stands_for) {
  for (const char* text : {"192.0.2.7", "2001:db8::7", "::", "0.0.0.0", "::1"}) {
    const sockaddr_storage plain = at(text, 7174), gid = gid_of(text, RDMA_PS_TCP, 7174);
    EXPECT_EQ(gid.ss_family, AF_IB);
    EXPECT_EQ(bytes_of(generic(gid)), sizeof(sockaddr_ib));
    EXPECT_EQ(port_of(generic(gid)), 7174);
    EXPECT_EQ(is_any(generic(gid)), is_any(generic(plain))) << text;
    EXPECT_EQ(is_loopback(generic(gid)), is_loopback(generic(plain))) << text;
    const uroce_cm_address expected = to_abi(generic(plain)), told = to_abi(generic(gid));
    EXPECT_EQ(std::memcmp(&told, &expected, sizeof(told)), 0) << text;
  }
}

TEST(GidAddresses, have_a_service_id_of_their_port_space) {
  sockaddr_storage address = gid_of("2001:db8::7", RDMA_PS_TCP, 7174);
  auto& gid = reinterpret_cast<sockaddr_ib&>(address);
  EXPECT_EQ(be64toh(gid.sib_sid), 0x0106'1c06u);
  EXPECT_TRUE(in_port_space(generic(address), RDMA_PS_TCP));
  EXPECT_FALSE(in_port_space(generic(address), RDMA_PS_UDP));
  gid.sib_sid_mask = htobe64(0xffff);  // the mask excludes the port space
  EXPECT_TRUE(in_port_space(generic(address), RDMA_PS_UDP));
  EXPECT_TRUE(in_port_space(generic(at("192.0.2.7")), RDMA_PS_UDP));
}

TEST(GidAddresses, are_reported_to_a_program_that_uses_them) {
  CmId id{};
  id.id.ps = RDMA_PS_UDP;
  for (const bool speaks : {false, true}) {
    id.gid_addresses = speaks;
    sockaddr_storage told;
    to_program_address(id, to_abi(generic(at("192.0.2.7", 9))), told);
    const sockaddr_storage expected = speaks ? gid_of("192.0.2.7", RDMA_PS_UDP, 9) : at("192.0.2.7", 9);
    EXPECT_EQ(std::memcmp(&told, &expected, sizeof(told)), 0);
  }
}

}  // namespace
}  // namespace uroce::rdmacm
