#include "options.h"

#include <charconv>
#include <iterator>

namespace uroce::ping {
namespace {

constexpr std::uint32_t kLeastSize = 1, kMostSize = 128u << 20;
constexpr std::uint32_t kMostDepth = 8192;

struct Word {
  std::string_view name, value;
  bool has_value = false;
};

template <typename T>
bool number(const Word& word, std::uint64_t least, std::uint64_t most, T& out, std::string& error) {
  std::uint64_t value = 0;
  const char* end = word.value.data() + word.value.size();
  const auto [stopped, problem] = std::from_chars(word.value.data(), end, value);
  if (problem != std::errc{} || stopped != end || word.value.empty() || value < least || value > most) {
    error = std::string(word.name) + "=" + std::string(word.value) + ": give a number from " +
            std::to_string(least) + " to " + std::to_string(most);
    return false;
  }
  out = static_cast<T>(value);
  return true;
}

bool memory_mode(const Word& word, Options& options, std::string& error) {
  constexpr struct {
    std::string_view name;
    MemoryMode mode;
  } kModes[] = {{"dma", MemoryMode::kDma},
                {"mr", MemoryMode::kMr},
                {"fastreg", MemoryMode::kFastReg},
                {"reg", MemoryMode::kFastReg},  // the name in later versions of krping
                {"window", MemoryMode::kWindow}};
  for (const auto& known : kModes) {
    if (word.value != known.name) continue;
    options.memory = known.mode;
    return true;
  }
  error = "mem_mode=" + std::string(word.value) + ": give dma, mr, fastreg (or reg) or window";
  return false;
}

/// True: the word takes a value and was handled, even if the value is wrong.
bool take_value(const Word& word, Options& options, std::string& error) {
  constexpr std::uint64_t kMost = ~std::uint64_t{0};
  if (word.name == "addr" || word.name == "addr6") {
    options.address = word.value;
  } else if (word.name == "port") {
    number(word, 1, 65535, options.port, error);
  } else if (word.name == "count") {
    number(word, 0, kMost, options.count, error);
  } else if (word.name == "size") {
    number(word, kLeastSize, kMostSize, options.size, error);
  } else if (word.name == "txdepth" || word.name == "tx-depth") {
    number(word, 1, kMostDepth, options.tx_depth, error);
  } else if (word.name == "mem_mode") {
    memory_mode(word, options, error);
  } else {
    return false;
  }
  if (!word.has_value) error = std::string(word.name) + " needs a value: " + std::string(word.name) + "=...";
  return true;
}

struct Flags {
  bool server = false, client = false, bandwidth = false, read = false, write = false;
};

bool take_flag(const Word& word, Options& options, Flags& flags) {
  bool ignored = false;  // options that have no meaning in user space
  const struct {
    std::string_view name;
    bool& flag;
  } known[] = {{"server", flags.server},
               {"client", flags.client},
               {"bw", flags.bandwidth},
               {"rlat", flags.read},
               {"wlat", flags.write},
               {"verbose", options.verbose},
               {"validate", options.validate},
               {"duplex", options.duplex},
               {"poll", options.poll},
               {"server_inv", options.server_invalidates},
               {"read_inv", options.read_invalidates},
               {"local_dma_lkey", ignored}};
  for (const auto& entry : known) {
    if (word.name != entry.name || word.has_value) continue;
    entry.flag = true;
    return true;
  }
  return false;
}

std::string conflict(const Options& options, const Flags& flags) {
  if (flags.server == flags.client) return "give either server or client";
  if (flags.bandwidth + flags.read + flags.write > 1) return "give only one of bw, rlat and wlat";
  if (flags.client && options.address.empty()) return "a client needs the server's address: addr=192.0.2.1";
  if (options.duplex && !flags.bandwidth) return "duplex requires bw";
  if (options.server_invalidates && !options.keys_change()) {
    return "server_inv requires mem_mode=fastreg or window";
  }
  if (options.read_invalidates && options.memory != MemoryMode::kFastReg) {
    return "read_inv requires mem_mode=fastreg: it invalidates the local key of a READ, which windows do not have";
  }
  if (options.keys_change() && flags.bandwidth + flags.read + flags.write != 0) {
    return "mem_mode=fastreg and window are supported by ping only";
  }
  return {};
}

}  // namespace

std::optional<Options> parse(std::string_view text, std::string& error) {
  Options options;
  Flags flags;
  error.clear();
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (part.empty()) continue;
    const std::size_t equals = std::min(part.find('='), part.size());
    const Word word{part.substr(0, equals), part.substr(std::min(equals + 1, part.size())), equals < part.size()};
    if (!take_value(word, options, error) && !take_flag(word, options, flags)) {
      error = "\"" + std::string(part) + "\": no such option; see uroce-ping --help";
    }
    if (!error.empty()) return std::nullopt;
  }
  error = conflict(options, flags);
  if (!error.empty()) return std::nullopt;
  options.role = flags.server ? Role::kServer : Role::kClient;
  if (flags.bandwidth) options.test = Test::kBandwidth;
  if (flags.read) options.test = Test::kReadLatency;
  if (flags.write) options.test = Test::kWriteLatency;
  return options;
}

std::string_view test_name(Test test) {
  constexpr std::string_view kNames[] = {"ping", "rlat", "wlat", "bw"};
  return kNames[static_cast<std::size_t>(test)];
}

}  // namespace uroce::ping
