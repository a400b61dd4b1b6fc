#include "tests/script/transport_world.h"

#include <algorithm>
#include <array>

#include "proto/state/counters.h"
#include "tests/script/names.h"
#include "wire/extended_headers.h"

namespace uroce::script {
namespace {

using proto::QpType;

constexpr std::string_view kReceived = "recv_completion";
const std::vector<std::string> kCompletionFields = {"wr_id",    "status", "opcode", "len", "imm",
                                                    "inv_rkey", "qp",     "src_qp", "grh"};

bool is_key(std::string_view field) {
  constexpr std::string_view kKeyFields[] = {"rkey", "inv_rkey", "key", "mr", "window"};
  return std::find(std::begin(kKeyFields), std::end(kKeyFields), field) != std::end(kKeyFields);
}

bool is_completion(const Line& line) { return line.statement() == "completion" || line.statement() == kReceived; }

Output describe(const uroce_cqe& cqe, bool received) {
  Output out;
  out.values = {{"wr_id", cqe.wr_id},
                {"status", cqe.status},
                {"opcode", cqe.opcode},
                {"len", cqe.byte_len},
                {"src_qp", cqe.src_qp},
                {"qp", cqe.qpn},
                {"grh", (cqe.wc_flags & UROCE_WC_GRH) != 0}};
  if ((cqe.wc_flags & UROCE_WC_WITH_IMM) != 0) {
    out.values.emplace_back("imm", proto::test::big_endian(cqe.imm_data));
  }
  if ((cqe.wc_flags & UROCE_WC_WITH_INV) != 0) out.values.emplace_back("inv_rkey", cqe.imm_data);
  out.text = text_of_values(received ? std::string(kReceived) : "completion", out);
  return out;
}

}  // namespace

const std::vector<TransportWorld::Row>& TransportWorld::rows() {
  using W = TransportWorld;
  static const std::vector<Row> kRows = {
      {"qp", Role::kInput, &W::make_qp},
      {">", Role::kInput, &W::receive},
      {"post", Role::kInput, &W::post},
      {"post_recv", Role::kInput, &W::post_recv},
      {"modify", Role::kInput, &W::modify},
      {"register", Role::kInput, &W::register_memory},
      {"deregister", Role::kInput, &W::deregister},
      {"window", Role::kInput, &W::make_window},
      {"fast_mr", Role::kInput, &W::make_fast_mr},
      {"set", Role::kInput, &W::set_memory},
      {"attach", Role::kInput, &W::attach},
      {"destroy", Role::kInput, &W::destroy},
      {"link", Role::kInput, &W::set_link},
      {"srq", Role::kInput, &W::set_srq_limit},
      {"<", Role::kExpectation, nullptr},
      {"completion", Role::kExpectation, nullptr},
      {kReceived, Role::kExpectation, nullptr},
      {"event", Role::kExpectation, nullptr},
      {"query", Role::kCheck, &W::query},
      {"counter", Role::kCheck, &W::counter},
      {"memory", Role::kCheck, &W::check_memory},
      {"quiet", Role::kCheck, nullptr},
  };
  return kRows;
}

const TransportWorld::Row& TransportWorld::row_of(const Line& line) {
  std::string known;
  for (const Row& row : rows()) {
    if (row.word == line.statement()) return row;
    known.append(known.empty() ? "" : ", ").append(row.word);
  }
  throw SyntaxError("'" + line.statement() + "' is not a statement; allowed: " + known);
}

Role TransportWorld::role(const Line& line) const { return row_of(line).role; }
void TransportWorld::input(const Line& line) { (this->*row_of(line).execute)(line); }
void TransportWorld::check(const Line& line) { (this->*row_of(line).execute)(line); }

TransportWorld::LocalQp& TransportWorld::qp_of(const Line& line) {
  const Field* const field = line.find("qp");
  if (field == nullptr) return qps_.front();
  std::string known;
  for (LocalQp& qp : qps_) {
    if (qp.name == field->value) return qp;
    known += (known.empty() ? "" : ", ") + qp.name;
  }
  throw SyntaxError("'" + field->value + "' is not a QP; allowed: " + known);
}

wire::Service TransportWorld::service_of(const Line& line) const {
  switch (qp_of(line).end->options.type) {
    case QpType::kUc: return wire::Service::kUc;
    case QpType::kUd: return wire::Service::kUd;
    case QpType::kXrcSend:
    case QpType::kXrcRecv: return wire::Service::kXrc;
    default: return wire::Service::kRc;
  }
}

Channel TransportWorld::channel(const Line& line) const {
  if (line.statement() == "<") {
    const std::uint8_t opcode = opcode_of(line.word(1, "an opcode", "SEND_ONLY, ACK, ..."), service_of(line));
    std::vector<std::string> allowed = packet_fields(opcode);
    allowed.insert(allowed.end(), {"qp", "count", "skip"});
    line.check(2, allowed);
    return Channel::kPacket;
  }
  if (line.statement() == "event") {
    const std::string& name = line.word(1, "a name", list_of(kAsyncEvents));
    (void)named_value({"event", Relation::kEqual, name}, kAsyncEvents);
    line.check(2, std::vector<std::string>{"qp", "object"});
    return Channel::kEvent;
  }
  line.check(1, kCompletionFields);
  return line.statement() == kReceived ? Channel::kReceiveCompletion : Channel::kCompletion;
}

std::vector<Field> TransportWorld::implied(const Line& line) const {
  if (!is_completion(line) || line.has("status")) return {};
  return {{"status", Relation::kEqual, "SUCCESS"}};
}

std::string TransportWorld::name(const Line& line) const { return is_completion(line) ? "" : line.words[1]; }

const TransportWorld::MemoryKey& TransportWorld::key_named(const std::string& name) const {
  const auto found = keys_.find(name);
  if (found != keys_.end()) return found->second;
  std::string known;
  for (const auto& [key, _] : keys_) known += (known.empty() ? "" : ", ") + key;
  throw SyntaxError("'" + name + "' is not a key; allowed: " + known + ", or a number");
}

std::uint64_t TransportWorld::value(const Field& field) const {
  if (const auto number = number_of(field.value)) return *number;
  if (field.value.starts_with('$')) {
    const auto found = variables.find(field.value);
    if (found == variables.end()) throw SyntaxError(field.value + " has no value yet");
    return found->second;
  }
  if (is_key(field.name)) {
    const bool old = field.value.ends_with(".old");
    const MemoryKey& key = key_named(field.value.substr(0, field.value.size() - (old ? 4 : 0)));
    return (old ? key.old : key.key).value;
  }
  if (field.name == "qp") {
    Line line;
    line.fields = {field};
    return qp_of(line).end->qpn.value;
  }
  if (field.name == "syndrome") {
    for (const auto& [prefix, base] : {Name{"rnr:", wire::kRnrNak}, Name{"credits:", 0}}) {
      const auto code =
          field.value.starts_with(prefix) ? number_of(field.value.substr(prefix.size())) : std::nullopt;
      if (code && *code < 32) return base | *code;
    }
    for (const Name& name : kSyndromes) {
      if (name.text == field.value) return name.value;
    }
    throw SyntaxError("'" + field.value + "' is not a syndrome; allowed: " + list_of(kSyndromes) +
                      ", rnr:CODE, credits:CODE");
  }
  return named_value(field, names_of(field.name));
}

std::string TransportWorld::text(const Field& field, std::uint64_t value) const {
  return text_of(value, names_of(field.name));
}

std::uint64_t TransportWorld::get(const Line& line, std::string_view name, std::uint64_t otherwise) const {
  const Field* const field = line.find(name);
  return field == nullptr ? otherwise : value(*field);
}

void TransportWorld::turn() {
  if (qps_.empty()) return;
  take_packets();
  for (LocalQp& qp : qps_) take_completions(qp);
  take_events();
}

void TransportWorld::take_packets() {
  std::vector<std::byte> buffer(kFrames * frame_bytes_);
  std::array<base::Frame, kFrames> frames;
  for (;;) {
    for (std::size_t i = 0; i < kFrames; ++i) {
      frames[i] = {buffer.data() + i * frame_bytes_, 0, frame_bytes_, 0, 0, nullptr};
    }
    proto::TxBurst burst{std::span(frames).first(std::min(kFrames, room_)), 0};
    transport().transmit(burst, now);
    if (burst.count == 0) return;
    room_ -= burst.count;
    for (std::size_t i = 0; i < burst.count; ++i) {
      wire::RxPacket packet;
      const auto verdict = wire::parse({frames[i].data, frames[i].length}, {}, packet);
      if (verdict != wire::ParseVerdict::kOk) throw Mismatch("  actual:   a frame that does not parse");
      Output output = describe(packet);
      for (const LocalQp& qp : qps_) {
        if (qp.remote.qpn == packet.bth.dest_qpn) output.values.emplace_back("qp", qp.end->qpn.value);
      }
      put(Channel::kPacket, std::move(output));
    }
  }
}

void TransportWorld::take_completions(LocalQp& qp) {
  for (const uroce_cqe& cqe : qp.end->poll(false)) put(Channel::kCompletion, describe(cqe, false));
  for (const uroce_cqe& cqe : qp.end->poll(true)) put(Channel::kReceiveCompletion, describe(cqe, true));
}

void TransportWorld::take_events() {
  for (const proto::Event& event : qps_.front().end->events()) {
    Output output;
    output.name = text_of(static_cast<std::uint64_t>(event.type), kAsyncEvents);
    output.values = {{"qp", event.object}, {"object", event.object}};
    output.text = "event " + output.name + " object=" + std::to_string(event.object);
    put(Channel::kEvent, std::move(output));
  }
}

}  // namespace uroce::script
