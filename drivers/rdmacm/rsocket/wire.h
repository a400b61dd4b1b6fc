// The protocol of stream rsockets: the private data of REQ and REP, the 32-bit messages in immediate data, and the
// entries that one side writes into the other's memory. Protocol: rdma-core, librdmacm/docs/rsocket and rsocket(7).
#pragma once

#include <endian.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

namespace uroce::rdmacm {

/// A range of the peer's memory that may be written. In memory in the byte order of the host, in private data
/// big-endian.
struct Target {
  std::uint64_t addr = 0;
  std::uint32_t key = 0;
  std::uint32_t length = 0;
};
static_assert(sizeof(Target) == 16);

/// An application buffer that the peer may write by offset (riomap, rsocket(7)).
struct IomapEntry {
  std::uint64_t offset = 0;
  Target target;
};
static_assert(sizeof(IomapEntry) == 24);

inline Target swapped(const Target& t) {
  return {__builtin_bswap64(t.addr), __builtin_bswap32(t.key), __builtin_bswap32(t.length)};
}
inline IomapEntry swapped(const IomapEntry& e) { return {__builtin_bswap64(e.offset), swapped(e.target)}; }

/// Bits 31:29 of a message. Bits 28:0 are its value.
enum class MessageOp : std::uint32_t {
  kData = 0,  ///< value: bytes written into the receive buffer
  /// value: the number (16 bits) of the last message that the peer may send; a Target may have been written
  kCredits = 4,
  kIomap = 6,    ///< value: index of the IomapEntry that was written
  kControl = 7,  ///< value: ControlMessage
};
enum class ControlMessage : std::uint32_t { kDisconnect = 0, kKeepalive = 1, kShutdown = 2 };

inline constexpr std::uint32_t kMessageValueMask = (1u << 29) - 1;

constexpr std::uint32_t message(MessageOp op, std::uint32_t value) {
  return static_cast<std::uint32_t>(op) << 29 | (value & kMessageValueMask);
}
constexpr std::uint32_t message(ControlMessage m) {
  return message(MessageOp::kControl, static_cast<std::uint32_t>(m));
}
constexpr MessageOp op_of(std::uint32_t imm) { return static_cast<MessageOp>(imm >> 29); }
constexpr std::uint32_t value_of(std::uint32_t imm) { return imm & kMessageValueMask; }

/// Encodes the number of iomap entries in eight bits: up to 128 exactly, above in steps of 256.
constexpr std::uint8_t iomap_scale(std::uint32_t count) {
  return static_cast<std::uint8_t>(count <= 128 ? count : 128 | (count >> 8 > 127 ? 127 : count >> 8));
}
constexpr std::uint32_t iomap_count(std::uint8_t scale) { return scale <= 128 ? scale : (scale & 127u) << 8; }

/// Entries of each side's list of targets. The private data contains the first.
inline constexpr std::uint32_t kTargets = 2;

/// Private data of REQ and REP.
struct ConnectPrivateData {
  static constexpr std::uint8_t kVersion = 1;
  static constexpr std::uint8_t kBigEndian = 1, kHasIomap = 2;
  static constexpr std::size_t kBytes = 40;

  std::uint8_t flags = 0;
  std::uint16_t credits = 0;
  std::uint8_t iomap_scale = 0;
  Target list;    ///< the sender's list of targets, followed by its iomap entries; length: number of targets
  Target buffer;  ///< the sender's first receive buffer; length in bytes

  void encode(std::uint8_t (&out)[kBytes]) const {
    out[0] = kVersion;
    out[1] = flags;
    put(out + 2, htobe16(credits));
    out[4] = out[5] = out[6] = 0;
    out[7] = iomap_scale;
    encode_target(out + 8, list);
    encode_target(out + 24, buffer);
  }

  /// nullopt: too short, or another version.
  static std::optional<ConnectPrivateData> decode(const void* data, std::size_t size) {
    const auto* in = static_cast<const std::uint8_t*>(data);
    if (in == nullptr || size < kBytes || in[0] != kVersion) return std::nullopt;
    ConnectPrivateData g;
    g.flags = in[1];
    g.credits = be16toh(get<std::uint16_t>(in + 2));
    g.iomap_scale = in[7];
    g.list = decode_target(in + 8);
    g.buffer = decode_target(in + 24);
    return g;
  }

 private:
  template <class T>
  static void put(std::uint8_t* at, T value) {
    std::memcpy(at, &value, sizeof(value));
  }
  template <class T>
  static T get(const std::uint8_t* at) {
    T value;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  static void encode_target(std::uint8_t* at, const Target& t) {
    put(at, htobe64(t.addr));
    put(at + 8, htobe32(t.key));
    put(at + 12, htobe32(t.length));
  }
  static Target decode_target(const std::uint8_t* at) {
    return {be64toh(get<std::uint64_t>(at)), be32toh(get<std::uint32_t>(at + 8)),
            be32toh(get<std::uint32_t>(at + 12))};
  }
};

}  // namespace uroce::rdmacm
