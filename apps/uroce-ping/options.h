// The option string of krping, unchanged: words and word=value, separated by commas.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace uroce::ping {

enum class Role : std::uint8_t { kServer, kClient };
enum class Test : std::uint8_t { kPing, kReadLatency, kWriteLatency, kBandwidth };
/// Registration of the buffers: one region for all, one for each, or keys that are renewed by work requests. The
/// latter are fast registrations (type 2 windows if the device has none), or always windows.
enum class MemoryMode : std::uint8_t { kDma, kMr, kFastReg, kWindow };

struct Options {
  Role role = Role::kServer;
  Test test = Test::kPing;
  MemoryMode memory = MemoryMode::kDma;
  std::string address;  ///< empty: all addresses (server)
  std::uint16_t port = 9999;
  std::uint64_t count = 0;  ///< 0: until interrupted, or the default of the test
  std::uint32_t size = 64;
  std::uint32_t tx_depth = 64;
  bool verbose = false, validate = false, duplex = false, poll = false;
  bool server_invalidates = false, read_invalidates = false;

  bool keys_change() const { return memory == MemoryMode::kFastReg || memory == MemoryMode::kWindow; }
  std::uint64_t rounds() const { return count != 0 || test == Test::kPing ? count : 1000; }
};

/// nullopt: `error` names the wrong word and what is allowed.
std::optional<Options> parse(std::string_view text, std::string& error);

std::string_view test_name(Test test);

}  // namespace uroce::ping
