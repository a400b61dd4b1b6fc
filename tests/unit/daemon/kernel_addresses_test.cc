#include "control/link/kernel_addresses.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "test_daemon.h"
#include "wire/network_headers.h"

namespace uroce::daemon::testing {

using control::KernelAddresses;

namespace {

wire::Address local_host() { return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1}}; }

/// The kernel's answer to a datagram for the RoCE port of 127.0.0.1: ECONNREFUSED stands for "port unreachable".
int answer_to_roce() {
  UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(wire::kRoceUdpPort);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  EXPECT_EQ(::send(fd.get(), "roce", 4, 0), 4);
  char byte;
  return ::recv(fd.get(), &byte, 1, 0) < 0 ? errno : 0;
}

/// Moves the process to a new network namespace, in which no program has bound the port.
class KernelAddressesTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    // Without root, a network namespace takes a user namespace.
    const bool apart = ::unshare(CLONE_NEWNET) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
    ASSERT_TRUE(apart) << std::strerror(errno);
    const UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ifreq loopback{};
    std::strcpy(loopback.ifr_name, "lo");
    loopback.ifr_flags = IFF_UP;
    ASSERT_EQ(::ioctl(fd.get(), SIOCSIFFLAGS, &loopback), 0) << std::strerror(errno);
  }
};

TEST_F(KernelAddressesTest, TheKernelKeepsQuietAboutRoceForAnAddressThatBothHave) {
  ASSERT_EQ(answer_to_roce(), ECONNREFUSED);
  const net::InterfaceAddress ours[] = {{local_host(), 8}, {ipv4(1), 24}};
  KernelAddresses addresses(::if_nametoindex("lo"));
  EXPECT_TRUE(addresses.refresh(ours));
  EXPECT_EQ(addresses.shared(), std::vector{local_host()});
  EXPECT_EQ(answer_to_roce(), EAGAIN);
  EXPECT_FALSE(addresses.refresh(ours));
  EXPECT_TRUE(addresses.refresh({}));
  EXPECT_TRUE(addresses.shared().empty());
  EXPECT_EQ(answer_to_roce(), ECONNREFUSED);
}

TEST_F(KernelAddressesTest, APortOfOurOwnIsNoneOfTheKernels) {
  const net::InterfaceAddress ours[] = {{local_host(), 8}};
  KernelAddresses addresses(0);
  EXPECT_FALSE(addresses.refresh(ours));
  EXPECT_TRUE(addresses.shared().empty());
}

// Any address can be bound to there: the kernel has no table of its own addresses yet.
TEST_F(KernelAddressesTest, ANamespaceWithoutAddressesHasNone) {
  ASSERT_EQ(::unshare(CLONE_NEWNET), 0) << std::strerror(errno);
  const net::InterfaceAddress ours[] = {{ipv4(1), 24}, {{{0x20, 0x01, 0x0d, 0xb8}}, 64}};
  KernelAddresses addresses(1);
  EXPECT_FALSE(addresses.refresh(ours));
  EXPECT_TRUE(addresses.shared().empty());
}

TEST_F(KernelAddressesTest, WhatMayBeBoundToIsNotWhatTheKernelHas) {
  ASSERT_EQ(::unshare(CLONE_NEWNET), 0) << std::strerror(errno);
  std::ofstream("/proc/sys/net/ipv4/ip_nonlocal_bind") << 1;
  std::ofstream("/proc/sys/net/ipv6/ip_nonlocal_bind") << 1;
  const net::InterfaceAddress ours[] = {{ipv4(1), 24}, {{{0x20, 0x01, 0x0d, 0xb8}}, 64}};
  KernelAddresses addresses(1);
  EXPECT_FALSE(addresses.refresh(ours));
}

}  // namespace
}  // namespace uroce::daemon::testing
