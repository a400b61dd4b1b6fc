// The operations of verify, and the memory contents that they must produce. Both ends derive the same operations
// from the same seed, so that neither relies on what the other sends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace uroce::verify {

enum class Kind : std::uint8_t { kSend, kSendImm, kWrite, kWriteImm, kRead, kCompareSwap, kFetchAdd };

struct Operation {
  Kind kind = Kind::kWrite;
  std::uint32_t bytes = 0;
  std::uint64_t offset = 0;  ///< in the server's region
  std::uint32_t pieces = 0;  ///< scatter elements; 0 when there are no bytes
  bool fence = false;
  bool signaled = true;
  bool inlined = false;  ///< if the QP can
  std::uint32_t immediate = 0;
  std::uint64_t pattern = 0;  ///< seed of the bytes
  std::uint64_t compare = 0, value = 0;

  bool takes_receive() const { return kind == Kind::kSend || kind == Kind::kSendImm || kind == Kind::kWriteImm; }
  bool is_atomic() const { return kind == Kind::kCompareSwap || kind == Kind::kFetchAdd; }
  bool returns_data() const { return kind == Kind::kRead || is_atomic(); }
};

struct Limits {
  std::uint32_t max_bytes = 1u << 20;
  std::uint32_t region_bytes = 4u << 20;
  std::uint32_t mtu = 1024;
  std::uint32_t batch = 16;  ///< operations at most
  bool fences = true;
  std::string kinds;  ///< a letter of kKindLetters for each kind that may be drawn; empty: all
};
/// SEND, with immediate, WRITE, with immediate, READ, compare and swap, fetch and add: in the order of Kind.
inline constexpr char kKindLetters[] = "sSwWrcf";

/// Fills `to` with bytes that depend on `seed` and their place only.
void fill(std::uint64_t seed, std::byte* to, std::size_t bytes);

class Schedule {
 public:
  Schedule(std::uint64_t seed, const Limits& limits);

  /// Draws the next operations, the last of which is signaled. An operation on bytes that an earlier READ or atomic
  /// of the batch uses is fenced, since their order is not defined otherwise; without fences none does that.
  std::vector<Operation> next_batch();

  /// The expected content of the server's region after all operations so far.
  std::vector<std::byte>& image() { return image_; }
  /// Executes one operation on the image. Returns the data for the client (READ, atomics).
  std::vector<std::byte> execute(const Operation& operation);

 private:
  Kind draw_kind();
  std::uint32_t draw_size();
  std::uint64_t draw_offset(const Operation& op);
  std::uint32_t below(std::uint32_t n) { return n == 0 ? 0 : static_cast<std::uint32_t>(random_() % n); }

  std::mt19937_64 random_;
  Limits limits_;
  std::vector<std::byte> image_;
};

}  // namespace uroce::verify
