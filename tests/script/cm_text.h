// CM messages as scripts write them: each message's fields by name, for reading and writing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "cm/manager.h"
#include "tests/script/packet_text.h"
#include "tests/script/world.h"

namespace uroce::script {

extern const Names kCmMessages;  ///< cm::Attribute: "REQ", "REP"
extern const Names kRejReasons;  ///< cm::RejReason
extern const Names kAnswered;    ///< which message a MRA or REJ answers
extern const Names kSidrStatuses;

// visit(message, f) calls f(name, field) for each field that scripts name.
template <class F>
void visit(cm::Req& m, F&& f) {
  f("local_id", m.local_id);
  f("service", m.service_id);
  f("guid", m.local_ca_guid);
  f("qpn", m.local_qpn.value);
  f("transport", m.transport);
  f("psn", m.starting_psn);
  f("mtu", m.path_mtu);
  f("responder_resources", m.responder_resources);
  f("initiator_depth", m.initiator_depth);
  f("retry_count", m.retry_count);
  f("rnr_retry_count", m.rnr_retry_count);
  f("max_cm_retries", m.max_cm_retries);
  f("local_response_timeout", m.local_response_timeout);
  f("data", m.private_data[0]);
}
template <class F>
void visit(cm::Mra& m, F&& f) {
  f("local_id", m.local_id);
  f("remote_id", m.remote_id);
  f("answered", m.answered);
  f("service_timeout", m.service_timeout);
}
template <class F>
void visit(cm::Rej& m, F&& f) {
  f("local_id", m.local_id);
  f("remote_id", m.remote_id);
  f("answered", m.answered);
  f("reason", m.reason);
  f("guid", m.info);
  f("data", m.private_data[0]);
}
template <class F>
void visit(cm::Rep& m, F&& f) {
  f("local_id", m.local_id);
  f("remote_id", m.remote_id);
  f("qpn", m.local_qpn.value);
  f("psn", m.starting_psn);
  f("guid", m.local_ca_guid);
  f("responder_resources", m.responder_resources);
  f("initiator_depth", m.initiator_depth);
  f("rnr_retry_count", m.rnr_retry_count);
  f("data", m.private_data[0]);
}
template <class F>
void visit(cm::Rtu& m, F&& f) {
  f("local_id", m.local_id);
  f("remote_id", m.remote_id);
  f("data", m.private_data[0]);
}
template <class F>
void visit(cm::Dreq& m, F&& f) {
  f("local_id", m.local_id);
  f("remote_id", m.remote_id);
  f("qpn", m.remote_qpn.value);
}
template <class F>
void visit(cm::Drep& m, F&& f) {
  f("local_id", m.local_id);
  f("remote_id", m.remote_id);
}
template <class F>
void visit(cm::SidrReq& m, F&& f) {
  f("request_id", m.request_id);
  f("service", m.service_id);
  f("data", m.private_data[0]);
}
template <class F>
void visit(cm::SidrRep& m, F&& f) {
  f("request_id", m.request_id);
  f("sidr_status", m.status);
  f("qpn", m.qpn.value);
  f("qkey", m.qkey);
  f("service", m.service_id);
}

/// Calls f with a default message of that kind.
template <class F>
void with_message(cm::Attribute attribute, F&& f) {
  switch (attribute) {
    case cm::Attribute::kReq: return f(cm::Req{});
    case cm::Attribute::kMra: return f(cm::Mra{});
    case cm::Attribute::kRej: return f(cm::Rej{});
    case cm::Attribute::kRep: return f(cm::Rep{});
    case cm::Attribute::kRtu: return f(cm::Rtu{});
    case cm::Attribute::kDreq: return f(cm::Dreq{});
    case cm::Attribute::kDrep: return f(cm::Drep{});
    case cm::Attribute::kSidrReq: return f(cm::SidrReq{});
    case cm::Attribute::kSidrRep: return f(cm::SidrRep{});
  }
}

// A field as a number, and the other way.
template <class T>
std::uint64_t to_number(const T& field) {
  return static_cast<std::uint64_t>(field);
}
inline std::uint64_t to_number(const Psn& field) { return field.value(); }
inline std::uint64_t to_number(const std::array<std::byte, 72>& guid) {
  return wire::load64(guid.data());  // the additional information of a REJ for a timeout
}
template <class T>
void from_number(T& field, std::uint64_t number) {
  field = static_cast<T>(number);
}
inline void from_number(Psn& field, std::uint64_t number) { field = Psn(static_cast<std::uint32_t>(number)); }
inline void from_number(std::array<std::byte, 72>& guid, std::uint64_t number) {
  wire::store64(guid.data(), number);
}

/// The fields of the message, as named in scripts.
std::vector<std::string> message_fields(cm::Attribute attribute);

/// Sets the fields that the line names.
template <class M>
void assign(M& message, const Line& line, const ValueOf& value) {
  visit(message, [&](std::string_view name, auto& field) {
    const Field* const given = line.find(name);
    if (given == nullptr) return;
    from_number(field, value(*given));
    if (to_number(field) != value(*given)) throw SyntaxError(given->name + ": more than the field's bits");
  });
}

/// A message that the line describes, to or from `peer`.
cm::Message build_message(const Line& line, cm::Attribute attribute, const cm::Peer& peer, const ValueOf& value);

/// Appends every field of a message to the output.
template <class M>
void append_fields(M message, Output& out) {
  visit(message,
        [&](std::string_view name, const auto& field) { out.values.emplace_back(name, to_number(field)); });
}
Output describe(const cm::Message& message);

}  // namespace uroce::script
