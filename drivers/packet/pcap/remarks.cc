#include "drivers/packet/pcap/remarks.h"

#include <bit>
#include <cstdio>

#include "drivers/packet/fault/marks.h"

namespace uroce::pcap {
namespace {

struct MarkText {
  std::uint32_t mark;
  const char* text;
};
constexpr MarkText kMarkTexts[] = {{fault::kMarkDropped, "dropped by urocectl fault"},
                                   {fault::kMarkDuplicated, "sent twice by urocectl fault"},
                                   {fault::kMarkCorrupted, "one bit changed by urocectl fault"},
                                   {fault::kMarkHeld, "held back by urocectl fault"},
                                   {fault::kMarkRefused, "acknowledge made a NAK by urocectl fault"}};

/// Acknowledges may be repeated for good reasons: a duplicate request asks for one.
bool has_psn_of_its_own(const wire::OpcodeInfo& info) {
  const bool reliable = info.service == wire::Service::kRc || info.service == wire::Service::kXrc;
  return reliable && (info.has(wire::kRequest) || info.has(wire::kRead | wire::kAtomic));
}

/// The same READ from a later packet on: as many PSNs later as packets of a path MTU fit in between.
bool continues(const wire::Reth& read, Psn read_psn, const wire::Reth& rest, Psn psn) {
  if (rest.rkey != read.rkey || rest.address + rest.length != read.address + read.length) return false;
  const std::int32_t packets = psn - read_psn;
  const std::uint64_t bytes = rest.address - read.address;
  if (packets <= 0 || bytes > read.length) return false;
  const std::uint64_t mtu = bytes / static_cast<std::uint64_t>(packets);
  return mtu * static_cast<std::uint64_t>(packets) == bytes && std::has_single_bit(mtu) && mtu >= 256 &&
         mtu <= 4096;
}

}  // namespace

bool Remarks::repeated(const Headers& headers, Direction direction) {
  const wire::OpcodeInfo& info = headers.info();
  if (!has_psn_of_its_own(info)) return false;
  if (flows_.size() >= kFlows) flows_.clear();
  const Psn psn = headers.bth->psn;
  const auto [entry, first] = flows_.try_emplace(
      {headers.source, headers.destination, headers.bth->dest_qpn.value, info.has(wire::kResponse), direction});
  Seen& seen = entry->second;
  bool again = false;
  if (first || psn.after(seen.highest) || seen.highest - psn > kRepeatWindow) {
    seen.highest = psn;
  } else {
    again = true;
  }
  if (!info.has(wire::kRead) || !info.has(wire::kRequest)) return again;
  const std::size_t at = info.reth - wire::kBthBytes;
  if (headers.after_bth.size() < at + wire::Reth::kBytes) return again;
  const wire::Reth read = wire::Reth::parse(headers.after_bth.data() + at);
  again |= continues(seen.read, seen.read_psn, read, psn);
  seen.read = read;
  seen.read_psn = psn;
  return again;
}

std::string Remarks::about(const Record& record, std::span<const std::byte> bytes) {
  const std::optional<Headers> headers = headers_of(bytes);
  std::string text;
  const auto add = [&text](const char* part) { text += (text.empty() ? "" : ", ") + std::string(part); };
  const bool sent = record.direction == Direction::kOutbound;
  const bool again = headers && headers->bth && repeated(*headers, record.direction);
  if (again && sent) add("retransmitted");
  if (again && !sent && (record.marks & fault::kMarkDuplicated) == 0) add("repeated");
  for (const MarkText& each : kMarkTexts) {
    if ((record.marks & each.mark) != 0) add(each.text);
  }
  if (text.empty() || !headers || !headers->bth) return text;
  const std::uint32_t qpn = sent ? record.qpn : headers->bth->dest_qpn.value;
  char number[32];
  std::snprintf(number, sizeof number, "; QP 0x%06x", static_cast<unsigned>(qpn));
  text += number;
  const std::string owner = owner_ ? owner_(qpn) : std::string();
  return owner.empty() ? text : text + " of " + owner;
}

}  // namespace uroce::pcap
