#include "admin/show_flows.h"

#include <cstdio>
#include <nlohmann/json.hpp>

namespace uroce::admin {
namespace {

using Json = nlohmann::ordered_json;

struct Field {
  const char* name;
  std::size_t at, bytes;
};
#define UROCE_KEY_FIELD(name) \
  { #name, offsetof(uroce_frame_key, name), sizeof(uroce_frame_key::name) }
constexpr Field kFields[] = {
    UROCE_KEY_FIELD(dst_mac),       UROCE_KEY_FIELD(src_mac),   UROCE_KEY_FIELD(ether_type),
    UROCE_KEY_FIELD(vlan_tag),      UROCE_KEY_FIELD(dst_ip),    UROCE_KEY_FIELD(src_ip),
    UROCE_KEY_FIELD(dst_port),      UROCE_KEY_FIELD(src_port),  UROCE_KEY_FIELD(protocol),
    UROCE_KEY_FIELD(traffic_class), UROCE_KEY_FIELD(hop_limit), UROCE_KEY_FIELD(fragment),
    UROCE_KEY_FIELD(flow_label),    UROCE_KEY_FIELD(layers),
};
#undef UROCE_KEY_FIELD

std::string hex_bytes(const unsigned char* from, std::size_t bytes) {
  std::string text;
  char byte[3];
  for (std::size_t i = 0; i < bytes; ++i) {
    std::snprintf(byte, sizeof(byte), "%02x", from[i]);
    text += byte;
  }
  return text;
}

/// "ether_type=0800 dst_ip=c0000201.../ffffffff...", in hexadecimal as on the wire; a mask of ones is left out.
std::string match_text(const uroce_frame_key& value, const uroce_frame_key& mask) {
  const auto* const values = reinterpret_cast<const unsigned char*>(&value);
  const auto* const masks = reinterpret_cast<const unsigned char*>(&mask);
  std::string text;
  for (const Field& field : kFields) {
    const std::string bits = hex_bytes(masks + field.at, field.bytes);
    if (bits.find_first_not_of('0') == std::string::npos) continue;
    if (!text.empty()) text += ' ';
    text += std::string(field.name) + "=" + hex_bytes(values + field.at, field.bytes);
    if (bits.find_first_not_of('f') != std::string::npos) text += "/" + bits;
  }
  return text;
}

std::string flags_text(std::uint32_t flags) {
  std::string text;
  if ((flags & UROCE_FLOW_DONT_TRAP) != 0) text += "dont_trap ";
  if ((flags & UROCE_FLOW_DROP) != 0) text += "drop ";
  if ((flags & UROCE_FLOW_TAG) != 0) text += "tag ";
  if (!text.empty()) text.pop_back();
  return text;
}

std::string receiver_text(const control::FlowObject& flow) {
  char text[24];
  std::snprintf(text, sizeof(text), flow.rss != nullptr ? "RSS 0x%x" : "QP 0x%x",
                flow.rss != nullptr ? flow.rss->qpn.value : flow.qp->qpn.value);
  return text;
}

Json describe(const control::Session& session, const control::FlowObject& flow) {
  constexpr const char* kTypes[] = {"NORMAL", "ALL_DEFAULT", "MC_DEFAULT", "SNIFFER"};
  Json row = {{"flow", flow.id},
              {"session", session.id},
              {"program", session.program},
              {"to", receiver_text(flow)},
              {"type", kTypes[flow.request.type]},
              {"priority", flow.request.priority},
              {"flags", flags_text(flow.request.flags)},
              {"match", match_text(flow.request.value, flow.request.mask)}};
  if (flow.counters != nullptr) {
    row["packets"] = flow.counters->count->packets.load(std::memory_order_relaxed);
    row["bytes"] = flow.counters->count->bytes.load(std::memory_order_relaxed);
  }
  return row;
}

}  // namespace

Json list_flows(const control::ControlState& state, Page& page) {
  Json list = Json::array();
  for (const auto& [session, flow] : page.collect(
           state.sessions(), [](const control::Session& s) -> auto& { return s.flows; })) {
    list.push_back(describe(*session, *flow));
  }
  return list;
}

}  // namespace uroce::admin
