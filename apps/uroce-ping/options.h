// The option string of krping's documents, taken as it is: words and word=value, separated by commas.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace uroce::ping {

enum class Role : std::uint8_t { kServer, kClient };
enum class Test : std::uint8_t { kPing, kReadLatency, kWriteLatency, kBandwidth };
/// How the buffers are registered: one region for all, one for each, or with a key that comes and goes by work
/// requests: of a fast registration (of a type 2 window where the device has none), or of a window in any case.
enum class MemoryMode : std::uint8_t { kDma, kMr, kFastReg, kWindow };

struct Options {
  Role role = Role::kServer;
  Test test = Test::kPing;
  MemoryMode memory = MemoryMode::kDma;
  std::string address;  ///< empty: all addresses (server)
  std::uint16_t port = 9999;
  std::uint64_t count = 0;  ///< 0: until interrupted, or what the test takes by default
  std::uint32_t size = 64;
  std::uint32_t tx_depth = 64;
  bool verbose = false, validate = false, duplex = false, poll = false;
  bool server_invalidates = false, read_invalidates = false;

  bool keys_change() const { return memory == MemoryMode::kFastReg || memory == MemoryMode::kWindow; }
  std::uint64_t rounds() const { return count != 0 || test == Test::kPing ? count : 1000; }
};

/// nullopt: `error` says which word is wrong and what it may be.
std::optional<Options> parse(std::string_view text, std::string& error);

std::string_view test_name(Test test);

}  // namespace uroce::ping
