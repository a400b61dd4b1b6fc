// A pcapng file (draft-ietf-opsawg-pcapng) of one Ethernet interface. Frames get comments (Remarks), the file gets
// the number of frames that are missing, and where.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>

#include "drivers/packet/pcap/record.h"

namespace uroce::pcap {

struct InterfaceText {
  std::string name;
  std::string program;  ///< that wrote the file
  std::string filter;
  std::uint32_t snaplen = 0;  ///< 0: no limit
};

class PcapngWriter {
 public:
  /// Begins a section in `file`, which stays the caller's, errors of writing included (ferror(3)). `lost_before`:
  /// frames that were missing before it.
  PcapngWriter(std::FILE* file, const InterfaceText& interface, std::uint64_t lost_before = 0);

  void packet(const Record& record, std::span<const std::byte> bytes, const std::string& comment);
  /// The statistics block, which ends the section: all frames of the interface, and the missing ones.
  void end(std::uint64_t lost);

  std::uint64_t packets() const { return packets_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  class Block;
  void write(Block& block);

  std::FILE* file_;
  std::uint64_t packets_ = 0, bytes_ = 0, lost_ = 0;
};

}  // namespace uroce::pcap
