#include "tests/script/cm_text.h"

#include "tests/script/names.h"

namespace uroce::script {
namespace {

template <class E>
constexpr std::uint64_t number(E value) {
  return static_cast<std::uint64_t>(value);
}

using cm::Attribute;
using cm::MessageAcked;
using cm::RejReason;
using cm::SidrStatus;

constexpr Name kMessageNames[] = {
    {"REQ", number(Attribute::kReq)},         {"MRA", number(Attribute::kMra)},
    {"REJ", number(Attribute::kRej)},         {"REP", number(Attribute::kRep)},
    {"RTU", number(Attribute::kRtu)},         {"DREQ", number(Attribute::kDreq)},
    {"DREP", number(Attribute::kDrep)},       {"SIDR_REQ", number(Attribute::kSidrReq)},
    {"SIDR_REP", number(Attribute::kSidrRep)}};
constexpr Name kReasonNames[] = {{"no_resources", number(RejReason::kNoResources)},
                                 {"timeout", number(RejReason::kTimeout)},
                                 {"invalid_comm_id", number(RejReason::kInvalidCommId)},
                                 {"invalid_service_id", number(RejReason::kInvalidServiceId)},
                                 {"stale_connection", number(RejReason::kStaleConnection)},
                                 {"consumer_defined", number(RejReason::kConsumerDefined)},
                                 {"invalid_class_version", number(RejReason::kInvalidClassVersion)}};
constexpr Name kAnsweredNames[] = {{"REQ", number(MessageAcked::kReq)},
                                   {"REP", number(MessageAcked::kRep)},
                                   {"other", number(MessageAcked::kOther)}};
constexpr Name kSidrNames[] = {{"success", number(SidrStatus::kSuccess)},
                               {"unsupported", number(SidrStatus::kUnsupported)},
                               {"rejected", number(SidrStatus::kRejected)},
                               {"unsupported_version", number(SidrStatus::kUnsupportedVersion)}};

}  // namespace

const Names kCmMessages = kMessageNames;
const Names kRejReasons = kReasonNames;
const Names kAnswered = kAnsweredNames;
const Names kSidrStatuses = kSidrNames;

std::vector<std::string> message_fields(Attribute attribute) {
  std::vector<std::string> names;
  with_message(attribute, [&](auto message) {
    visit(message, [&](std::string_view name, auto&) { names.emplace_back(name); });
  });
  names.insert(names.end(), {"transaction", "from", "to"});
  return names;
}

cm::Message build_message(const Line& line, Attribute attribute, const cm::Peer& peer, const ValueOf& value) {
  cm::Message out;
  out.attribute = attribute;
  out.peer = peer;
  if (const Field* const field = line.find("transaction")) out.transaction = value(*field);
  if (const Field* const field = line.find("class_version"))
    out.class_version = static_cast<std::uint8_t>(value(*field));
  with_message(attribute, [&](auto message) {
    assign(message, line, value);
    message.emit(out.bytes);
  });
  return out;
}

Output describe(const cm::Message& message) {
  Output out;
  out.name = text_of(number(message.attribute), kCmMessages);
  with_message(message.attribute, [&](auto kind) { append_fields(decltype(kind)::parse(message.bytes), out); });
  out.values.emplace_back("transaction", message.transaction);
  out.text = text_of_values(out.name, out);
  return out;
}

}  // namespace uroce::script
