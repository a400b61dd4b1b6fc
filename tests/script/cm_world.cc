#include "tests/script/cm_world.h"

#include <array>

#include "tests/script/cm_text.h"
#include "tests/script/names.h"
#include "tests/unit/proto/pair.h"

namespace uroce::script {
namespace {

using Words = std::vector<std::string>;
using cm::EventType;
using cm::State;

template <class E>
constexpr std::uint64_t number(E value) {
  return static_cast<std::uint64_t>(value);
}

constexpr Name kEventNames[] = {{"REQUEST", number(EventType::kRequest)},
                                {"RESPONSE", number(EventType::kResponse)},
                                {"ESTABLISHED", number(EventType::kEstablished)},
                                {"REJECTED", number(EventType::kRejected)},
                                {"UNREACHABLE", number(EventType::kUnreachable)},
                                {"DISCONNECTED", number(EventType::kDisconnected)},
                                {"CLOSED", number(EventType::kClosed)},
                                {"SIDR_REQUEST", number(EventType::kSidrRequest)},
                                {"SIDR_RESPONSE", number(EventType::kSidrResponse)}};
constexpr Name kStateNames[] = {{"FREE", number(State::kFree)},
                                {"REQ_SENT", number(State::kReqSent)},
                                {"REQ_RCVD", number(State::kReqReceived)},
                                {"REP_SENT", number(State::kRepSent)},
                                {"REP_RCVD", number(State::kRepReceived)},
                                {"ESTABLISHED", number(State::kEstablished)},
                                {"DREQ_SENT", number(State::kDreqSent)},
                                {"TIMEWAIT", number(State::kTimewait)},
                                {"SIDR_SENT", number(State::kSidrSent)},
                                {"SIDR_RCVD", number(State::kSidrReceived)}};

constexpr std::uint8_t kLocalHost = 1, kPeerHost = 2;
constexpr std::uint64_t kService = cm::service_id(cm::PortSpace::kTcp, 7174);

wire::Address address(std::uint64_t v4) {
  if (v4 >> 8 != 0xc00002) throw SyntaxError("not an address of this network; allowed: 192.0.2.0 to 192.0.2.255");
  return proto::test::address_of(static_cast<std::uint8_t>(v4));
}

cm::Peer peer() { return {proto::test::address_of(kLocalHost), proto::test::address_of(kPeerHost)}; }

Names names_of_cm(const std::string& field) {
  if (field == "reason") return kRejReasons;
  if (field == "answered") return kAnswered;
  if (field == "sidr_status") return kSidrStatuses;
  if (field == "state") return kStateNames;
  return {};
}

Nanos duration(const Line& line, std::string_view name, Nanos otherwise) {
  const Field* const field = line.find(name);
  if (field == nullptr) return otherwise;
  const auto time = duration_of(field->value);
  if (!time) throw SyntaxError("'" + field->value + "' is not a duration; allowed: 100ms");
  return *time;
}

void require(bool done) {
  if (!done) throw Mismatch("  actual:   refused in this state");
}

Output describe(const cm::Event& event) {
  Output out;
  out.name = text_of(number(event.type), kEventNames);
  switch (event.type) {
    case EventType::kRequest: append_fields(event.req, out); break;
    case EventType::kResponse: append_fields(event.rep, out); break;
    case EventType::kRejected: append_fields(event.reject, out); break;
    case EventType::kSidrRequest: append_fields(event.sidr_req, out); break;
    case EventType::kSidrResponse: append_fields(event.sidr_rep, out); break;
    default: break;
  }
  out.values.emplace_back("id", event.id.value);
  out.values.emplace_back("cookie", event.cookie);
  out.values.emplace_back("timed_out", event.timed_out);
  out.text = text_of_values("event " + out.name, out);
  return out;
}

}  // namespace

const std::vector<CmWorld::Row>& CmWorld::rows() {
  using W = CmWorld;
  static const std::vector<Row> kRows = {
      {"cm", Role::kInput, &W::make_manager},
      {">", Role::kInput, &W::receive},
      {"listen", Role::kInput, &W::listen},
      {"unlisten", Role::kInput, &W::unlisten},
      {"connect", Role::kInput, &W::connect},
      {"accept", Role::kInput, &W::accept},
      {"reject", Role::kInput, &W::reject},
      {"establish", Role::kInput, &W::establish},
      {"disconnect", Role::kInput, &W::disconnect},
      {"abandon", Role::kInput, &W::abandon},
      {"sidr_request", Role::kInput, &W::sidr_request},
      {"sidr_respond", Role::kInput, &W::sidr_respond},
      {"<", Role::kExpectation, nullptr},
      {"event", Role::kExpectation, nullptr},
      {"query", Role::kCheck, &W::query},
      {"quiet", Role::kCheck, nullptr},
  };
  return kRows;
}

const CmWorld::Row& CmWorld::row_of(const Line& line) {
  std::string known;
  for (const Row& row : rows()) {
    if (row.word == line.statement()) return row;
    known.append(known.empty() ? "" : ", ").append(row.word);
  }
  throw SyntaxError("'" + line.statement() + "' is not a statement; allowed: " + known);
}

Channel CmWorld::channel(const Line& line) const {
  if (line.statement() == "<") {
    const std::string& name = line.word(1, "a message", list_of(kCmMessages));
    const auto attribute =
        static_cast<cm::Attribute>(named_value({"message", Relation::kEqual, name}, kCmMessages));
    line.check(2, message_fields(attribute));
    return Channel::kPacket;
  }
  const std::string& name = line.word(1, "a name", list_of(kEventNames));
  (void)named_value({"event", Relation::kEqual, name}, kEventNames);
  line.check(2, Words{"id", "cookie", "timed_out", "reason", "answered", "local_id", "remote_id", "qpn", "psn",
                      "service", "data", "sidr_status", "qkey", "request_id"});
  return Channel::kEvent;
}

std::uint64_t CmWorld::value(const Field& field) const {
  if (field.value.starts_with('$')) {
    const auto found = variables.find(field.value);
    if (found == variables.end()) throw SyntaxError(field.value + " has no value yet");
    return found->second;
  }
  constexpr std::string_view kTcp = "tcp:";
  if (field.name == "service" && field.value.starts_with(kTcp)) {
    const auto port = number_of(std::string_view(field.value).substr(kTcp.size()));
    if (port && *port <= 0xffff) return cm::service_id(cm::PortSpace::kTcp, static_cast<std::uint16_t>(*port));
  }
  return named_value(field, names_of_cm(field.name));
}

std::string CmWorld::text(const Field& field, std::uint64_t value) const {
  return text_of(value, names_of_cm(field.name));
}

std::uint64_t CmWorld::get(const Line& line, std::string_view name, std::uint64_t otherwise) const {
  const Field* const field = line.find(name);
  return field == nullptr ? otherwise : value(*field);
}

cm::ConnectionId CmWorld::id_of(const Line& line) const {
  const Field* const field = line.find("id");
  if (field == nullptr) throw SyntaxError("'" + line.statement() + "' needs id=");
  return {static_cast<std::uint32_t>(value(*field))};
}

void CmWorld::make_manager(const Line& line) {
  line.check(1, Words{"response_timeout", "timewait", "max_retries", "max_connections"});
  cm::ManagerConfig config;
  config.max_connections = static_cast<std::uint32_t>(get(line, "max_connections", 64));
  config.max_listeners = 4;
  config.max_pending_events = 64;
  config.response_timeout = duration(line, "response_timeout", 100 * kMillisecond);
  config.timewait = duration(line, "timewait", 200 * kMillisecond);
  config.max_retries = static_cast<std::uint8_t>(get(line, "max_retries", 3));
  config.ca_guid = 0x0200'0000'0000'0001;
  manager_ = std::make_unique<cm::Manager>(config);
}

void CmWorld::receive(const Line& line) {
  const std::string& name = line.word(1, "a message", list_of(kCmMessages));
  const auto attribute = static_cast<cm::Attribute>(named_value({"message", Relation::kEqual, name}, kCmMessages));
  Words allowed = message_fields(attribute);
  allowed.emplace_back("class_version");
  line.check(2, allowed);
  const ValueOf value_of = [&](const Field& field) { return value(field); };
  cm::Peer from = peer();
  if (line.has("from")) from.remote = address(get(line, "from"));
  if (line.has("to")) from.local = address(get(line, "to"));
  manager().receive(build_message(line, attribute, from, value_of), now);
}

void CmWorld::listen(const Line& line) {
  line.check(1, Words{"service", "backlog", "cookie"});
  const auto backlog = static_cast<std::uint32_t>(get(line, "backlog", 8));
  require(manager().listen(get(line, "service", kService), backlog, get(line, "cookie"), {}) == 0);
}

void CmWorld::unlisten(const Line& line) {
  line.check(1, Words{"service"});
  manager().unlisten(get(line, "service", kService));
}

void CmWorld::connect(const Line& line) {
  Words allowed = message_fields(cm::Attribute::kReq);
  allowed.insert(allowed.end(), {"id", "cookie"});
  line.check(1, allowed);
  cm::Req req;
  req.service_id = kService;
  assign(req, line, [&](const Field& field) { return value(field); });
  const auto id = manager().connect(peer(), req, get(line, "cookie"), now);
  require(id.has_value());
  if (const Field* const field = line.find("id")) variables[field->value] = id->value;
}

void CmWorld::accept(const Line& line) {
  Words allowed = message_fields(cm::Attribute::kRep);
  allowed.insert(allowed.end(), {"id", "cookie"});
  line.check(1, allowed);
  cm::Rep rep;
  assign(rep, line, [&](const Field& field) { return value(field); });
  require(manager().accept(id_of(line), rep, get(line, "cookie"), now));
}

void CmWorld::reject(const Line& line) {
  line.check(1, Words{"id", "reason", "data"});
  const auto reason = static_cast<cm::RejReason>(get(line, "reason", number(cm::RejReason::kConsumerDefined)));
  const std::array<std::byte, 1> data{static_cast<std::byte>(get(line, "data"))};
  require(manager().reject(id_of(line), reason, data, now));
}

void CmWorld::establish(const Line& line) {
  line.check(1, Words{"id", "data"});
  const std::array<std::byte, 1> data{static_cast<std::byte>(get(line, "data"))};
  require(manager().establish(id_of(line), data, now));
}

void CmWorld::disconnect(const Line& line) {
  line.check(1, Words{"id"});
  require(manager().disconnect(id_of(line), now));
}

void CmWorld::abandon(const Line& line) {
  line.check(1, Words{"id"});
  manager().abandon(id_of(line), now);
}

void CmWorld::sidr_request(const Line& line) {
  line.check(1, Words{"id", "service", "cookie", "data"});
  cm::SidrReq req;
  req.service_id = kService;
  assign(req, line, [&](const Field& field) { return value(field); });
  const auto id = manager().sidr_request(peer(), req, get(line, "cookie"), now);
  require(id.has_value());
  if (const Field* const field = line.find("id")) variables[field->value] = id->value;
}

void CmWorld::sidr_respond(const Line& line) {
  line.check(1, Words{"id", "sidr_status", "qpn", "qkey"});
  cm::SidrRep rep;
  assign(rep, line, [&](const Field& field) { return value(field); });
  require(manager().sidr_respond(id_of(line), rep, now));
}

void CmWorld::query(const Line& line) {
  line.check(1, Words{"id", "state", "connections"});
  if (const Field* const field = line.find("state")) {
    compare(*field, value(*field), number(manager().state(id_of(line))), kStateNames);
  }
  if (const Field* const field = line.find("connections")) {
    compare(*field, value(*field), manager().connections());
  }
}

void CmWorld::turn() {
  if (!manager_) return;
  cm::Message message;
  while (manager().take_message(message)) put(Channel::kPacket, describe(message));
  cm::Event event;
  while (manager().take_event(event)) put(Channel::kEvent, describe(event));
}

}  // namespace uroce::script
