#include "drivers/packet/pcap/pcapng.h"

#include <cstring>
#include <vector>

namespace uroce::pcap {
namespace {

constexpr std::uint32_t kSectionHeader = 0x0a0d0d0a, kInterface = 1, kStatistics = 5, kEnhancedPacket = 6;
constexpr std::uint16_t kComment = 1, kUserApplication = 4;                // of any block, of a section
constexpr std::uint16_t kName = 2, kTimeResolution = 9, kFilterText = 11;  // of an interface
constexpr std::uint16_t kFlags = 2, kDropCount = 4;                        // of a packet
constexpr std::uint16_t kReceived = 4, kDropped = 5;                       // of statistics

}  // namespace

/// One block of the file, assembled in memory.
class PcapngWriter::Block {
 public:
  explicit Block(std::uint32_t type) {
    u32(type);
    u32(0);  // its length, at the end
  }
  Block& u8(std::uint8_t value) { return raw(&value, sizeof(value)); }
  Block& u16(std::uint16_t value) { return raw(&value, sizeof(value)); }
  Block& u32(std::uint32_t value) { return raw(&value, sizeof(value)); }
  Block& u64(std::uint64_t value) { return raw(&value, sizeof(value)); }
  Block& time(std::uint64_t ns) {
    return u32(static_cast<std::uint32_t>(ns >> 32)).u32(static_cast<std::uint32_t>(ns));
  }
  Block& raw(const void* data, std::size_t bytes) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + bytes);
    if (bytes != 0) std::memcpy(&bytes_[at], data, bytes);
    return *this;
  }
  Block& pad() {
    bytes_.resize((bytes_.size() + 3) / 4 * 4);
    return *this;
  }
  Block& option(std::uint16_t code, const void* data, std::size_t bytes) {
    return u16(code).u16(static_cast<std::uint16_t>(bytes)).raw(data, bytes).pad();
  }
  /// None if `text` is empty.
  Block& option(std::uint16_t code, const std::string& text) {
    return text.empty() ? *this : option(code, text.data(), text.size());
  }
  const std::vector<char>& finish() {
    u32(0);  // end of options
    const auto length = static_cast<std::uint32_t>(bytes_.size() + 4);
    u32(length);
    std::memcpy(bytes_.data() + 4, &length, sizeof(length));
    return bytes_;
  }

 private:
  std::vector<char> bytes_;
};

PcapngWriter::PcapngWriter(std::FILE* file, const InterfaceText& interface, std::uint64_t lost_before)
    : file_(file), lost_(lost_before) {
  Block section(kSectionHeader);
  write(section.u32(0x1a2b3c4d).u16(1).u16(0).u64(~std::uint64_t{0}).option(kUserApplication, interface.program));
  Block description(kInterface);
  description.u16(1).u16(0).u32(interface.snaplen);  // Ethernet
  description.option(kName, interface.name);
  const std::uint8_t nanoseconds = 9;
  description.option(kTimeResolution, &nanoseconds, 1);
  // The first octet: 0 for a text.
  if (!interface.filter.empty()) description.option(kFilterText, std::string(1, '\0') + interface.filter);
  write(description);
}

void PcapngWriter::write(Block& block) {
  const std::vector<char>& bytes = block.finish();
  std::fwrite(bytes.data(), 1, bytes.size(), file_);
  bytes_ += bytes.size();
}

void PcapngWriter::packet(const Record& record, std::span<const std::byte> bytes, const std::string& comment) {
  Block block(kEnhancedPacket);
  block.u32(0).time(record.time_ns).u32(record.kept).u32(record.length);
  block.raw(bytes.data(), bytes.size()).pad().option(kFlags, &record.direction, 4);
  if (record.lost > lost_) {
    const std::uint64_t missing = record.lost - lost_;
    block.option(kDropCount, &missing, sizeof missing);
    block.option(kComment, std::to_string(missing) + " frames before this one are missing in the capture");
    lost_ = record.lost;
  }
  write(block.option(kComment, comment));
  ++packets_;
}

void PcapngWriter::end(std::uint64_t lost) {
  const std::uint64_t received = packets_ + lost;
  Block block(kStatistics);
  write(block.u32(0).time(realtime_ns()).option(kReceived, &received, 8).option(kDropped, &lost, 8));
}

}  // namespace uroce::pcap
