#include "wire/toeplitz.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace uroce::wire {
namespace {

/// Microsoft's "Verifying the RSS hash calculation": key and expected hashes.
constexpr std::uint8_t kKey[40] = {0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67,
                                   0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
                                   0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
                                   0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};
struct Vector {
  const char* dest;
  std::uint16_t dest_port;
  const char* source;
  std::uint16_t source_port;
  std::uint32_t addresses, with_ports;
};
constexpr Vector kVectors[] = {
    {"161.142.100.80", 1766, "66.9.149.187", 2794, 0x323e8fc2, 0x51ccc178},
    {"65.69.140.83", 4739, "199.92.111.2", 14230, 0xd718262a, 0xc626b0ea},
    {"12.22.207.184", 38024, "24.19.198.95", 12898, 0xd2d0a5de, 0x5c2b394a},
    {"209.142.163.6", 2217, "38.27.205.30", 48228, 0x82989176, 0xafc7327f},
    {"202.188.127.2", 1303, "153.39.163.191", 44251, 0x5d1809c5, 0x10e828a2},
    {"3ffe:2501:200:3::1", 1766, "3ffe:2501:200:1fff::7", 2794, 0x2cc18cd5, 0x40207d3d},
    {"ff02::1", 4739, "3ffe:501:8::260:97ff:fe40:efab", 14230, 0x0f0c461c, 0xdde51bbf},
    {"fe80::200:f8ff:fe21:67cf", 38024, "3ffe:1900:4545:3:200:f8ff:fe21:67cf", 44251, 0x4b61e985, 0x02d1feef},
};

void append_address(std::vector<std::byte>& to, const char* text) {
  std::byte address[16];
  const bool v6 = std::strchr(text, ':') != nullptr;
  ASSERT_EQ(inet_pton(v6 ? AF_INET6 : AF_INET, text, address), 1);
  to.insert(to.end(), address, address + (v6 ? 16 : 4));
}
void append_port(std::vector<std::byte>& to, std::uint16_t port) {
  to.push_back(static_cast<std::byte>(port >> 8));
  to.push_back(static_cast<std::byte>(port & 0xff));
}

TEST(ToeplitzTest, hashes_are_those_of_the_verification_suite) {
  for (const Vector& vector : kVectors) {
    std::vector<std::byte> data;
    append_address(data, vector.source);
    append_address(data, vector.dest);
    EXPECT_EQ(toeplitz(kKey, data), vector.addresses) << vector.dest;
    append_port(data, vector.source_port);
    append_port(data, vector.dest_port);
    EXPECT_EQ(toeplitz(kKey, data), vector.with_ports) << vector.dest;
  }
}

TEST(ToeplitzTest, of_nothing_is_0_and_the_key_repeats) {
  EXPECT_EQ(toeplitz(kKey, {}), 0u);
  std::vector<std::byte> data(41);
  data[40] = std::byte{0x80};
  EXPECT_EQ(toeplitz(kKey, data), 0x6d5a56dau);
}

}  // namespace
}  // namespace uroce::wire
