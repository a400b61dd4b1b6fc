// Where a recorder's frames go: a pcapng file, or a pipe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "drivers/packet/pcap/pcapng.h"
#include "drivers/packet/pcap/record.h"
#include "drivers/packet/pcap/remarks.h"

namespace uroce::pcap {

/// Used by the recorder's thread. False: nobody takes the frames any more.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual bool packet(const Record& record, std::span<const std::byte> bytes) = 0;
  /// No more frames for the moment.
  virtual bool flush() = 0;
  virtual bool end(std::uint64_t lost) = 0;
};

class FileSink : public Sink {
 public:
  /// Closes the file at the end.
  FileSink(std::FILE* file, const InterfaceText& interface) : file_(file), writer_(file, interface) {}
  ~FileSink() override { std::fclose(file_); }
  FileSink(const FileSink&) = delete;
  FileSink& operator=(const FileSink&) = delete;

  bool packet(const Record& record, std::span<const std::byte> bytes) override;
  bool flush() override;
  bool end(std::uint64_t lost) override;

 private:
  std::FILE* file_;
  PcapngWriter writer_;
  Remarks remarks_;
};

/// Records (record.h) in a pipe. A reader that is slow is waited for; after `stopping` only as long as it reads.
class PipeSink : public Sink {
 public:
  /// Closes the pipe at the end.
  PipeSink(int pipe, const std::atomic<bool>& stopping);
  ~PipeSink() override;
  PipeSink(const PipeSink&) = delete;
  PipeSink& operator=(const PipeSink&) = delete;

  bool packet(const Record& record, std::span<const std::byte> bytes) override;
  bool flush() override;
  bool end(std::uint64_t lost) override;

 private:
  void add(const void* data, std::size_t bytes);

  int pipe_;
  const std::atomic<bool>& stopping_;
  std::vector<char> buffer_;
};

}  // namespace uroce::pcap
