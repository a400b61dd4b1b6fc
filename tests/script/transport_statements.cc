// What each input and check of a transport script does.
#include <cstring>

#include "tests/script/names.h"
#include "tests/script/transport_world.h"
#include "wire/frame_template.h"

namespace uroce::script {
namespace {

using proto::test::End;
using Words = std::vector<std::string>;

constexpr std::uint32_t kFirstQpn = 0x11, kFirstDestQpn = 0x22, kFirstRqPsn = 200;
constexpr std::uint64_t kFastClientAddress = 0x70000;  ///< of the memory that fast MRs name

/// The same key with the next low byte, which is the consumer's.
Key next_key(Key key) { return Key{(key.value & ~0xffu) | ((key.value + 1) & 0xff)}; }

}  // namespace

void TransportWorld::make_qp(const Line& line) {
  line.check(2, Words{"type", "qpn", "dest_qpn", "psn", "rq_psn", "mtu", "state", "timeout", "retry_cnt",
                      "rnr_retry", "min_rnr_timer", "max_rd_atomic", "max_dest_rd_atomic", "access", "qkey",
                      "sq_sig_all", "srq", "read_budget", "quantum"});
  const auto index = static_cast<std::uint32_t>(qps_.size());
  proto::test::Options options;
  const auto take = [&](auto& to, std::string_view name) {
    to = static_cast<std::remove_reference_t<decltype(to)>>(get(line, name, static_cast<std::uint64_t>(to)));
  };
  take(options.type, "type");
  take(options.psn, "psn");
  take(options.mtu, "mtu");
  take(options.timeout, "timeout");
  take(options.retry_cnt, "retry_cnt");
  take(options.rnr_retry, "rnr_retry");
  take(options.min_rnr_timer, "min_rnr_timer");
  take(options.max_rd_atomic, "max_rd_atomic");
  take(options.max_dest_rd_atomic, "max_dest_rd_atomic");
  options.access = static_cast<std::uint32_t>(
      get(line, "access", proto::test::kAllAccess | memory::kMwBind | memory::kFlushGlobal));
  take(options.qkey, "qkey");
  take(options.signal_all, "sq_sig_all");
  take(options.srq, "srq");
  take(options.receive_ring_bytes, "read_budget");
  take(options.quantum, "quantum");
  LocalQp qp;
  qp.name = line.words.size() > 1 ? line.words[1] : "qp" + std::to_string(index + 1);
  const Qpn qpn{static_cast<std::uint32_t>(get(line, "qpn", kFirstQpn + index))};
  qp.end = std::make_unique<End>(options, qpn, kLocalHost, qps_.empty() ? nullptr : qps_.front().end.get());
  qp.remote = {.qpn = Qpn{static_cast<std::uint32_t>(get(line, "dest_qpn", kFirstDestQpn + index))},
               .psn = static_cast<std::uint32_t>(get(line, "rq_psn", kFirstRqPsn)),
               .address = proto::test::address_of(kPeerHost),
               .mac = {2, 0, 0, 0, 0, kPeerHost}};
  const auto state =
      static_cast<proto::QpState>(get(line, "state", static_cast<std::uint64_t>(proto::QpState::kRts)));
  connect(*qp.end, qp.remote, now, state);
  if (qps_.empty()) {
    keys_["mem"] = {qp.end->key, {}, false};
    if (qp.end->srq) keys_["srq_mem"] = {qp.end->srq_key, {}, false};
  }
  qps_.push_back(std::move(qp));
}

void TransportWorld::receive(const Line& line) {
  const std::uint8_t opcode = opcode_of(line.word(1, "an opcode", "SEND_ONLY, ACK, ..."), service_of(line));
  Words allowed = packet_fields(opcode);
  allowed.insert(allowed.end(), {"qp", "icrc", "count"});
  line.check(2, allowed);
  const LocalQp& qp = qp_of(line);
  if (!line.has("psn") && opcode != wire::kCnpOpcode && service_of(line) != wire::Service::kUd) {
    throw SyntaxError("'" + line.words[1] + "' needs psn=");
  }
  wire::PathAddress path = qp.end->path;
  std::swap(path.source, path.dest);
  std::swap(path.source_mac, path.dest_mac);
  std::uint64_t index = 0;
  const ValueOf value_of = [&](const Field& field) { return value(field) + (field.name == "psn" ? index : 0); };
  for (; index < get(line, "count", 1); ++index) {
    const std::vector<std::byte> frame = build_packet(line, opcode, path, qp.end->qpn, value_of);
    wire::RxPacket packet;
    const auto verdict = wire::parse(frame, {.defer_icrc = true}, packet);
    if (verdict == wire::ParseVerdict::kBadIcrc) continue;
    if (!wire::accepted(verdict)) throw SyntaxError("these fields do not make a packet");
    transport().receive(packet, now);
  }
}

proto::test::Work TransportWorld::work_of(const Line& line, std::uint8_t opcode) {
  const LocalQp& qp = qp_of(line);
  proto::test::Work work;
  work.opcode = opcode;
  work.wr_id = get(line, "wr_id");
  work.flags = static_cast<std::uint8_t>(get(line, "flags", UROCE_SEND_SIGNALED));
  work.remote = get(line, "va");
  work.rkey = static_cast<std::uint32_t>(get(line, "rkey"));
  work.imm = proto::test::big_endian(static_cast<std::uint32_t>(get(line, "imm")));
  if (line.has("inv_rkey")) work.imm = static_cast<std::uint32_t>(get(line, "inv_rkey"));
  const bool add = opcode == UROCE_WR_ATOMIC_FETCH_AND_ADD;
  work.compare_add = get(line, add ? "add" : "cmp");
  work.swap = get(line, "swap");
  work.srqn = static_cast<std::uint32_t>(get(line, "srqn", proto::test::kSrq.value));
  const auto length = static_cast<std::uint32_t>(get(line, "len"));
  const std::uint64_t address = get(line, "addr", End::kIova);
  if (opcode == UROCE_WR_FLUSH) {
    work.flush = uroce_wr_flush{static_cast<std::uint32_t>(get(line, "placement", 1)),
                                static_cast<std::uint32_t>(get(line, "level")), length};
  } else if (get(line, "inline") != 0) {
    const std::byte* const from = local(line, length);
    work.inline_data.assign(from, from + length);
  } else if (length != 0) {
    work.sges = {{address, length, static_cast<std::uint32_t>(get(line, "key", qp.end->key.value))}};
  }
  if (qp.end->options.type == proto::QpType::kUd) {
    work.ud = proto::test::Datagram{proto::test::kPeer.value,
                                    static_cast<std::uint32_t>(get(line, "qpn", qp.remote.qpn.value)),
                                    static_cast<std::uint32_t>(get(line, "qkey", qp.end->options.qkey))};
  }
  return work;
}

void TransportWorld::post(const Line& line) {
  const std::string& operation = line.word(1, "an operation", list_of(kOperations));
  line.check(
      2, Words{"qp",  "wr_id", "flags", "addr",   "len", "key",  "va",     "rkey", "imm",    "inv_rkey",  "add",
               "cmp", "swap",  "srqn",  "inline", "qpn", "qkey", "window", "mr",   "access", "placement", "level"});
  const auto opcode = static_cast<std::uint8_t>(named_value({"post", Relation::kEqual, operation}, kOperations));
  proto::test::Work work = work_of(line, opcode);
  if (opcode == UROCE_WR_BIND_MW || opcode == UROCE_WR_REG_MR) {
    const Field* const named = line.find("window");
    if (named == nullptr) throw SyntaxError("'post " + operation + "' needs window=");
    if (!key_named(named->value).window)
      throw SyntaxError("'" + named->value + "' is neither a window nor a fast MR");
    MemoryKey& key = keys_[named->value];
    key.old = key.key;
    key.key = next_key(key.key);
    work.handle = key.old.value;
    work.rkey = key.key.value;
    work.sges.clear();
    work.bind = uroce_wr_bind{static_cast<std::uint32_t>(get(line, "mr")),
                              static_cast<std::uint32_t>(get(line, "access")), get(line, "len")};
  }
  end_of(line).post(work);
}

void TransportWorld::post_recv(const Line& line) {
  line.check(1, Words{"qp", "wr_id", "addr", "len", "key"});
  End& end = end_of(line);
  const Key own = end.srq ? end.srq_key : end.key;
  const auto length = static_cast<std::uint32_t>(get(line, "len"));
  std::vector<uroce_sge> sges;
  if (length != 0) {
    sges = {{get(line, "addr", End::kIova), length, static_cast<std::uint32_t>(get(line, "key", own.value))}};
  }
  end.post_receive(get(line, "wr_id"), sges);
}

void TransportWorld::modify(const Line& line) {
  struct Row {
    const char* name;
    std::uint32_t mask;
    void (*set)(proto::QpAttr&, std::uint64_t);
  };
  using proto::QpAttr;
  static constexpr Row kRows[] = {
      {"state", proto::kAttrState, [](QpAttr& a, std::uint64_t v) { a.state = static_cast<proto::QpState>(v); }},
      {"notify", proto::kAttrSqdNotify, [](QpAttr& a, std::uint64_t v) { a.sqd_notify = v != 0; }},
      {"access", proto::kAttrAccessFlags,
       [](QpAttr& a, std::uint64_t v) { a.access = static_cast<std::uint32_t>(v); }},
      {"timeout", proto::kAttrTimeout,
       [](QpAttr& a, std::uint64_t v) { a.timeout = static_cast<std::uint8_t>(v); }},
      {"retry_cnt", proto::kAttrRetryCnt,
       [](QpAttr& a, std::uint64_t v) { a.retry_cnt = static_cast<std::uint8_t>(v); }},
      {"max_rd_atomic", proto::kAttrMaxRdAtomic,
       [](QpAttr& a, std::uint64_t v) { a.max_rd_atomic = static_cast<std::uint8_t>(v); }},
      {"max_dest_rd_atomic", proto::kAttrMaxDestRdAtomic,
       [](QpAttr& a, std::uint64_t v) { a.max_dest_rd_atomic = static_cast<std::uint8_t>(v); }},
  };
  Words allowed = {"qp", "error"};
  for (const Row& row : kRows) allowed.emplace_back(row.name);
  line.check(1, allowed);
  End& end = end_of(line);
  QpAttr attr;
  std::uint32_t mask = 0;
  for (const Row& row : kRows) {
    if (!line.has(row.name)) continue;
    row.set(attr, get(line, row.name));
    mask |= row.mask;
  }
  const bool resets = mask == proto::kAttrState && attr.state == proto::QpState::kReset;
  const auto verdict = resets ? end.to(attr.state, now) : transport().modify(end.qp, attr, mask, now);
  const auto expected = get(line, "error");
  if (static_cast<std::uint64_t>(verdict.error) == expected) return;
  throw Mismatch("  actual:   error=" + text_of(static_cast<std::uint64_t>(verdict.error), kErrnos) + ", for " +
                 (verdict.error == 0 ? "nothing" : verdict.what));
}

void TransportWorld::register_memory(const Line& line) {
  line.check(2, Words{"va", "len", "access", "pd", "qp"});
  End& end = end_of(line);
  const std::uint64_t address = get(line, "va", End::kIova), length = get(line, "len", End::kMemory);
  if (address < End::kIova || length > End::kMemory || address - End::kIova > End::kMemory - length) {
    throw SyntaxError("the memory is [0x10000, 0x110000)");
  }
  const auto key = end.table.insert({.pd = PdId{static_cast<std::uint32_t>(get(line, "pd", end.pd.value))},
                                     .access = static_cast<std::uint32_t>(get(line, "access", end.options.access)),
                                     .iova = address,
                                     .length = length,
                                     .base = end.at(address - End::kIova)});
  keys_[line.word(1, "a name", "any")] = {*key, {}, false};
}

void TransportWorld::deregister(const Line& line) {
  line.check(2, {});
  const Key key = key_named(line.word(1, "the name of a key", "mem, ...")).key;
  if (!qps_.front().end->table.retire(key)) throw Mismatch("  actual:   refused, for windows are bound to it");
  qps_.front().end->table.release(key);
}

void TransportWorld::make_window(const Line& line) {
  line.check(2, Words{"kind"});
  End& end = *qps_.front().end;
  const auto kind =
      static_cast<memory::Kind>(get(line, "kind", static_cast<std::uint64_t>(memory::Kind::kWindow2)));
  keys_[line.word(1, "a name", "any")] = {*end.table.allocate_window(end.pd, kind), {}, true};
}

void TransportWorld::make_fast_mr(const Line& line) {
  line.check(2, Words{"len"});
  End& end = *qps_.front().end;
  const auto key = end.table.allocate_fast({.pd = end.pd,
                                            .access = end.options.access,
                                            .length = get(line, "len", End::kMemory),
                                            .base = end.at(0),
                                            .client_address = kFastClientAddress});
  keys_[line.word(1, "a name", "any")] = {*key, {}, true};
}

std::byte* TransportWorld::local(const Line& line, std::uint64_t bytes) {
  const std::uint64_t address = get(line, "addr", End::kIova);
  if (address < End::kIova || address - End::kIova > End::kMemory - bytes) {
    throw SyntaxError("the memory is [0x10000, 0x110000)");
  }
  return end_of(line).at(address - End::kIova);
}

void TransportWorld::set_memory(const Line& line) {
  line.check(1, Words{"qp", "addr", "len", "fill", "u64"});
  if (line.has("u64")) {
    const std::uint64_t word = get(line, "u64");
    std::memcpy(local(line, sizeof word), &word, sizeof word);
  } else {
    const std::uint64_t bytes = get(line, "len", End::kMemory);
    std::memset(local(line, bytes), static_cast<int>(get(line, "fill")), bytes);
  }
}

void TransportWorld::check_memory(const Line& line) {
  line.check(1, Words{"qp", "addr", "len", "fill", "u64"});
  if (const Field* const field = line.find("u64")) {
    std::uint64_t word = 0;
    std::memcpy(&word, local(line, sizeof word), sizeof word);
    return compare(*field, value(*field), word);
  }
  const std::uint64_t bytes = get(line, "len", End::kMemory);
  const std::byte* const from = local(line, bytes);
  for (std::uint64_t i = 0; i < bytes; ++i) {
    if (from[i] == static_cast<std::byte>(get(line, "fill"))) continue;
    throw Mismatch("  actual:   byte " + std::to_string(i) + " is " + std::to_string(static_cast<int>(from[i])));
  }
}

void TransportWorld::attach(const Line& line) {
  line.check(1, Words{"qp", "group"});
  auto group = proto::test::address_of(0);
  std::uint64_t v4 = get(line, "group");
  for (std::size_t i = 16; i-- > 12; v4 >>= 8) group.bytes[i] = static_cast<std::uint8_t>(v4);
  if (transport().attach_multicast(end_of(line).qp, group) != 0) throw Mismatch("  actual:   refused");
}

void TransportWorld::destroy(const Line& line) {
  line.check(1, Words{"qp"});
  transport().destroy(end_of(line).qp, now);
}

void TransportWorld::set_link(const Line& line) {
  line.check(1, Words{"frame", "room"});
  room_ = get(line, "room", room_);
  frame_bytes_ = static_cast<std::uint32_t>(get(line, "frame", frame_bytes_));
}

void TransportWorld::set_srq_limit(const Line& line) {
  line.check(1, Words{"qp", "limit"});
  End& end = end_of(line);
  if (!end.srq) throw SyntaxError("the QP has no SRQ; allowed: qp srq=yes");
  end.srq->set_limit(static_cast<std::uint32_t>(get(line, "limit")));
}

void TransportWorld::query(const Line& line) {
  const proto::QpSnapshot snapshot = end_of(line).snapshot();
  const std::pair<const char*, std::uint64_t> values[] = {
      {"state", static_cast<std::uint64_t>(snapshot.state)},
      {"window", snapshot.window_bytes},
      {"in_flight", snapshot.psns_in_flight},
      {"outstanding", snapshot.sq_outstanding},
      {"recv_posted", snapshot.recv_posted},
      {"retries_left", snapshot.retries_left},
      {"rq_psn", snapshot.attr.rq_psn.value()},
      {"sq_psn", snapshot.attr.sq_psn.value()},
  };
  Words allowed = {"qp"};
  for (const auto& [name, _] : values) allowed.emplace_back(name);
  line.check(1, allowed);
  for (const auto& [name, actual] : values) {
    if (const Field* const field = line.find(name)) compare(*field, value(*field), actual, names_of(name));
  }
}

void TransportWorld::counter(const Line& line) {
  const Words names(std::begin(proto::kCounterNames), std::end(proto::kCounterNames));
  line.check(1, names);
  std::uint64_t values[proto::kCounterCount];
  std::memcpy(values, &transport().counters(), sizeof values);
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (const Field* const field = line.find(names[i])) compare(*field, value(*field), values[i]);
  }
}

}  // namespace uroce::script
