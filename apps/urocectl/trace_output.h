// Where urocectl writes the frames of a trace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "drivers/packet/pcap/record.h"
#include "options.h"

namespace uroce::ctl {

/// Every function ends the program with status 1 and a message if not all can be written.
class TraceOutput {
 public:
  virtual ~TraceOutput() = default;
  virtual std::string name() const = 0;
  virtual bool is_text() const = 0;
  /// False: the trace ends before this frame, as the last file is complete.
  virtual bool takes(const pcap::Record&) { return true; }
  virtual void packet(const pcap::Record& record, std::span<const std::byte> frame) = 0;
  virtual void flush() = 0;
  virtual void end(std::uint64_t lost) = 0;
};

/// The filter of the daemon, the option --snaplen included.
std::string filter_text(const Options& options);

/// Text on standard output, pcapng on standard output ("-"), one file, or files of a size or of a time. Frames that
/// are unusual get comments with the program of their QP.
std::unique_ptr<TraceOutput> make_output(const Options& options, const std::string& device);

}  // namespace uroce::ctl
