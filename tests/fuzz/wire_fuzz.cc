// Arbitrary frames: parse() reads nothing outside of the frame, an accepted frame is consistent, and dump() can
// print it. As mutations break the ICRC, each input is tried as it is and again with a correct ICRC. A trace, which
// looks into frames before they are parsed, filters it and has its remarks on it, twice.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "drivers/packet/pcap/filter.h"
#include "drivers/packet/pcap/remarks.h"
#include "wire/dump.h"
#include "wire/header_prediction.h"
#include "wire/icrc.h"
#include "wire/packet.h"

namespace {

using namespace uroce::wire;

void demand(bool holds) {
  if (!holds) std::abort();
}

ParseVerdict check(std::span<const std::byte> frame, const ParseOptions& options) {
  RxPacket packet;
  const ParseVerdict verdict = parse(frame, options, packet);
  demand(verdict >= ParseVerdict::kOk && verdict < ParseVerdict::kCount);
  if (verdict != ParseVerdict::kOk) return verdict;
  const std::byte* const end = frame.data() + frame.size();
  demand(packet.ip >= frame.data() && packet.ip + packet.ip_bytes + 8 == packet.bth_start);
  demand(packet.payload == packet.bth_start + packet.info->header_bytes);
  demand(packet.payload + packet.payload_bytes + packet.bth.pad + kIcrcBytes <= end);
  demand((packet.payload_bytes + packet.bth.pad) % 4 == 0);
  demand(packet.payload_bytes == 0 || packet.info->has(kHasPayload));
  demand(packet.info == &kOpcodes[packet.bth.opcode] || packet.info == &kInvalidRcRequest);
  demand(packet.multicast == packet.destination().is_multicast() || packet.ip_bytes == 40);
  char text[kDumpBytes];
  const std::string_view line = dump(frame, text);
  demand(!line.empty() && line.size() < sizeof text);
  return verdict;
}

/// Parses the frame twice: the second time its headers are predicted.
void check_prediction(std::span<const std::byte> frame) {
  constexpr ParseOptions kOptions{.check_ip_checksum = false, .defer_icrc = true};
  HeaderPrediction prediction;
  RxPacket first, second;
  const ParseVerdict verdict = prediction.parse(frame, kOptions, first);
  demand(prediction.parse(frame, kOptions, second) == verdict);
  if (!accepted(verdict)) return;
  demand(first.payload == second.payload && first.payload_bytes == second.payload_bytes && first.ip == second.ip);
  demand(words_of(first.bth, first.bth.pad) == words_of(second.bth, second.bth.pad));
  if (verdict != ParseVerdict::kIcrcPending) return;
  std::vector<std::byte> to(second.payload_bytes);
  demand(place_payload(second, to.data(), 0) == verify_icrc(first));
}

void check_trace(std::span<std::byte> bytes) {
  namespace pcap = uroce::pcap;
  pcap::Filter filter;
  demand(pcap::Filter::parse("qp=0x12,peer=192.0.2.7,op=READ|OTHER", filter).empty());
  const uroce::base::Frame frame{.data = bytes.data(), .length = static_cast<std::uint32_t>(bytes.size())};
  pcap::Remarks remarks;
  for (const pcap::Direction direction : {pcap::Direction::kInbound, pcap::Direction::kOutbound}) {
    filter.matches(frame, direction);
    const pcap::Record record{.direction = direction};
    demand(remarks.about(record, bytes).empty());
    demand(remarks.about(record, bytes).size() < 64);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto exact = std::make_unique<std::byte[]>(size);
  if (size != 0) std::memcpy(exact.get(), data, size);
  const std::span<std::byte> frame(exact.get(), size);
  check_trace(frame);
  const ParseVerdict as_is = check(frame, {});
  const ParseVerdict lenient = check(frame, {.check_icrc = false, .check_ip_checksum = false});
  demand(as_is != ParseVerdict::kOk || lenient == ParseVerdict::kOk);
  check_prediction(frame);
  if (lenient != ParseVerdict::kOk) return 0;
  RxPacket packet;
  parse(frame, {.check_icrc = false, .check_ip_checksum = false}, packet);
  const auto covered =
      static_cast<std::size_t>(packet.payload - packet.bth_start) + packet.payload_bytes + packet.bth.pad;
  store_raw(&frame[static_cast<std::size_t>(packet.bth_start - frame.data()) + covered],
            icrc_of(packet.ip, packet.ip_bytes, covered));
  demand(check(frame, {.check_ip_checksum = false}) == ParseVerdict::kOk);
  check_prediction(frame);
  return 0;
}
