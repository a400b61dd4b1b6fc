#include "tests/hostile/random_commands.h"

#include <fcntl.h>

#include <cstring>

#include "abi/completion_counters.h"
#include "proto/state/attributes.h"
#include "tests/hostile/descriptor_kinds.h"

namespace uroce::hostile {
namespace {

constexpr std::uint32_t kTypes[] = {2, 2, 2, 3, 4, 8, 9, 10, UROCE_QPT_WQ};  // ibv_qp_type

template <class Body>
void put(Request& request, const Body& body) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&body);
  request.body.assign(bytes, bytes + sizeof(body));
}

uroce_av vector_to(Random& random, const Belongings& mine) {
  uroce_av av{};
  std::memcpy(av.dgid, mine.gid, sizeof(av.dgid));
  if (random.percent(20)) av.dgid[15] = static_cast<std::uint8_t>(random.below(256));
  if (random.percent(10)) std::memset(av.dgid, 0xff, 1);
  av.is_global = av.port_num = 1;
  av.hop_limit = 64;
  av.sgid_index = random.percent(90) ? 0 : static_cast<std::uint8_t>(random.below(256));
  return av;
}

uroce_reg_mr_request region(Random& random, const Belongings& mine, Request& request) {
  uroce_reg_mr_request body{};
  body.pd = mine.handle(Kind::kPd, random);
  body.access = random.percent(80) ? 0xf : random.wild32();
  body.addr = body.iova = random.percent(50) ? mine.address : 0x10'0000'0000;
  if (random.percent(20)) {  // indirect
    body.length = random.percent(80) ? random.below(1 << 20) : random.wild();
    if (random.percent(30)) body.addr = random.wild();
    return body;
  }
  body.piece_count = 1 + (random.percent(20) ? random.below(UROCE_MAX_MR_PIECES) : 0);
  const std::uint64_t pages = 1 + random.below(512);
  for (std::uint32_t i = 0; i < body.piece_count; ++i) {
    body.piece[i] = {0, 0, random.percent(80) ? 0 : std::uint64_t{random.below(1024)} * 4096, pages * 4096};
    body.length += pages * 4096;
  }
  request.fds.push_back(random_memfd(random));
  return body;
}

void set_queue_pair(Random& random, const Belongings& mine, Request& request) {
  uroce_create_qp_request body{};
  body.type = random.of(kTypes);
  body.pd = mine.handle(Kind::kPd, random);
  const bool target = body.type == 10, work_queue = body.type == UROCE_QPT_WQ, initiator = body.type == 9;
  if (target) body.pd = 0;
  if (target || random.percent(3)) body.xrcd = mine.handle(Kind::kXrcd, random);
  if (!target && !work_queue) {
    body.send_cq = mine.handle(Kind::kCq, random);
    body.max_send_wr = 1 + random.below(128), body.max_send_sge = 1 + random.below(4);
  }
  if (!target && !initiator) {
    body.recv_cq = mine.handle(Kind::kCq, random);
    body.max_recv_wr = 1 + random.below(128), body.max_recv_sge = 1 + random.below(4);
    if (!work_queue && random.percent(20)) body.srq = mine.handle(Kind::kSrq, random);
  }
  put(request, body);
}

void set_modify(Random& random, const Belongings& mine, Request& request) {
  using namespace proto;
  constexpr std::uint32_t kMasks[] = {
      kAttrState | kAttrPkeyIndex | kAttrPort | kAttrAccessFlags,
      kAttrState | kAttrPkeyIndex | kAttrPort | kAttrQkey,
      kAttrState | kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn | kAttrMaxDestRdAtomic | kAttrMinRnrTimer,
      kAttrState | kAttrTimeout | kAttrRetryCnt | kAttrRnrRetry | kAttrSqPsn | kAttrMaxRdAtomic,
      kAttrState | kAttrSqPsn,
      kAttrState};
  const std::uint32_t kind = random.below(6);
  constexpr std::uint32_t kStates[] = {1, 1, 2, 3, 3, 0};
  uroce_modify_qp_request body{};
  body.handle = mine.handle(random.percent(90) ? Kind::kQp : Kind::kWq, random);
  body.mask = random.percent(95) ? kMasks[kind] : random.wild32();
  body.attr.state = kind == 5 || random.percent(10) ? random.below(8) : kStates[kind];
  body.attr.port = 1;
  body.attr.access_flags = 0xf;
  body.attr.qkey = 0x1111;
  body.attr.path_mtu = 1 + random.below(5);
  body.attr.dest_qpn = mine.qpns.empty() || random.percent(10) ? random.wild32() & 0xffffff : random.of(mine.qpns);
  body.attr.rq_psn = body.attr.sq_psn = random.percent(80) ? 0 : random.below(1 << 24);
  body.attr.max_rd_atomic = body.attr.max_dest_rd_atomic = 16;
  body.attr.min_rnr_timer = 12;
  body.attr.timeout = random.percent(80) ? 14 : random.below(32);
  body.attr.retry_cnt = body.attr.rnr_retry = random.below(8);
  body.attr.av = vector_to(random, mine);
  put(request, body);
}

uroce_cm_address address_of(Random& random, const Belongings& mine) {
  uroce_cm_address address{};
  std::memcpy(address.gid, mine.gid, sizeof(address.gid));
  address.family = 2;
  address.port = static_cast<std::uint16_t>(7000 + random.below(16));
  if (random.percent(10)) address.gid[12] = 224;
  return address;
}

uroce_cm_parameters parameters_of(Random& random, const Belongings& mine) {
  uroce_cm_parameters parameters{};
  parameters.qpn = mine.qpns.empty() ? 0 : random.of(mine.qpns);
  parameters.qp_type = 2;
  parameters.responder_resources = parameters.initiator_depth = 1;
  parameters.retry_count = parameters.rnr_retry_count = 7;
  parameters.private_data_bytes = static_cast<std::uint8_t>(random.below(UROCE_CM_MAX_PRIVATE_DATA + 1));
  return parameters;
}

/// Commands of abi/cm.h.
void set_cm(Random& random, const Belongings& mine, Request& request) {
  const std::uint32_t id = mine.handle(Kind::kCmId, random), channel = mine.handle(Kind::kCmChannel, random);
  switch (request.command) {
    case UROCE_CMD_CM_OPEN_CHANNEL: put(request, uroce_cm_channel_request{1, 0}); break;
    case UROCE_CMD_CM_CREATE_ID:
      put(request, uroce_cm_create_id_request{channel, 0x106, random.below(4), 2, address_of(random, mine)});
      break;
    case UROCE_CMD_CM_RESOLVE_ADDRESS:
      put(request, uroce_cm_resolve_request{id, random.below(3000), {}, address_of(random, mine)});
      break;
    case UROCE_CMD_CM_LISTEN: put(request, uroce_cm_listen_request{id, random.below(64)}); break;
    case UROCE_CMD_CM_CONNECT:
    case UROCE_CMD_CM_ACCEPT: put(request, uroce_cm_connect_request{id, 0, parameters_of(random, mine)}); break;
    case UROCE_CMD_CM_REJECT: put(request, uroce_cm_reject_request{id, 0, 0, 0, {}}); break;
    case UROCE_CMD_CM_MIGRATE: put(request, uroce_cm_migrate_request{id, channel}); break;
    case UROCE_CMD_CM_JOIN: put(request, uroce_cm_join_request{id, 0, {}, 7, address_of(random, mine)}); break;
    case UROCE_CMD_CM_POST: put(request, uroce_cm_post_request{channel, 0, {}}); break;
    default: put(request, uroce_handle{request.command == UROCE_CMD_CM_CLOSE_CHANNEL ? channel : id, 0});
  }
}

void set_admin(Random& random, Request& request) {
  constexpr const char* kQuestions[] = {
      R"({"command": "show", "what": "all", "pages": true})",
      R"({"command": "show", "from": {"kind": "mrs", "at": 9, "handle": 9}})",
      R"({"command": "stat"})",
      R"({"command": "metrics", "pages": true})",
      R"({"command": "metrics", "from": {"kind": "users", "at": 0, "handle": 0}})",
      R"({"command": "fault", "settings": "drop=1"})",
      R"({"command": "trace", "filter": "qp=0x12,op=ACK"})",
      R"({"command": "link", "action": "down"})",
      R"({"command": {"command": []}})",
      "[[[[[[[[[[[[[[[[[[[["};
  const char* const text = random.of(kQuestions);
  const auto* bytes = reinterpret_cast<const std::byte*>(text);
  request.body.assign(bytes, bytes + std::strlen(text));
}

/// Commands that take or change one object of `kind`, by its handle alone.
Kind kind_of(std::uint32_t command) {
  switch (command) {
    case UROCE_CMD_DEREG_MR: return Kind::kMr;
    case UROCE_CMD_DESTROY_CHANNEL: return Kind::kChannel;
    case UROCE_CMD_DESTROY_CQ: return Kind::kCq;
    case UROCE_CMD_QUERY_QP:
    case UROCE_CMD_DESTROY_QP: return Kind::kQp;
    case UROCE_CMD_DESTROY_AH: return Kind::kAh;
    case UROCE_CMD_QUERY_SRQ:
    case UROCE_CMD_DESTROY_SRQ: return Kind::kSrq;
    case UROCE_CMD_CLOSE_XRCD: return Kind::kXrcd;
    case UROCE_CMD_DEALLOC_MW: return Kind::kMw;
    case UROCE_CMD_FREE_DM:
    case UROCE_CMD_IMPORT_DM: return Kind::kDm;
    case UROCE_CMD_DESTROY_RSS: return Kind::kRss;
    case UROCE_CMD_DESTROY_FLOW: return Kind::kFlow;
    case UROCE_CMD_READ_COUNTERS:
    case UROCE_CMD_DESTROY_COUNTERS: return Kind::kCounters;
    case UROCE_CMD_DESTROY_COMP_CNTR: return Kind::kCompCntr;
    default: return Kind::kPd;  // ALLOC_NULL_MR, DEALLOC_PD, IMPORT_PD
  }
}

void set_objects(Random& random, const Belongings& mine, Request& request) {
  const std::uint32_t pd = mine.handle(Kind::kPd, random), qp = mine.handle(Kind::kQp, random);
  switch (request.command) {
    case UROCE_CMD_CREATE_CQ:
      put(request, uroce_create_cq_request{1 + random.below(512),
                                           random.percent(30) ? mine.handle(Kind::kChannel, random) : 0, 1, 0, 0});
      break;
    case UROCE_CMD_RESIZE_CQ:
      put(request, uroce_resize_cq_request{mine.handle(Kind::kCq, random), 1 + random.below(1024)});
      break;
    case UROCE_CMD_MODIFY_CQ:
      put(request,
          uroce_modify_cq_request{mine.handle(Kind::kCq, random), random.below(99), random.below(9999), 0});
      break;
    case UROCE_CMD_CREATE_SRQ:
      put(request, uroce_create_srq_request{pd, 0, 1 + random.below(256), 1 + random.below(4), 0, 0, 0, 0, 5});
      break;
    case UROCE_CMD_MODIFY_SRQ:
      put(request, uroce_modify_srq_request{mine.handle(Kind::kSrq, random), 1 + random.below(3),
                                            1 + random.below(512), random.below(8)});
      break;
    case UROCE_CMD_OPEN_XRCD:
      put(request, uroce_open_xrcd_request{O_CREAT, 0});
      if (random.percent(50)) request.fds.push_back(random_memfd(random));
      break;
    case UROCE_CMD_OPEN_QP:
      put(request,
          uroce_open_qp_request{mine.handle(Kind::kXrcd, random), mine.qpns.empty() ? 1 : random.of(mine.qpns), 1});
      break;
    case UROCE_CMD_CREATE_AH: put(request, uroce_create_ah_request{pd, 0, vector_to(random, mine)}); break;
    case UROCE_CMD_RESOLVE_NEIGHBOUR: put(request, uroce_resolve_request{vector_to(random, mine)}); break;
    case UROCE_CMD_ATTACH_MCAST:
    case UROCE_CMD_DETACH_MCAST: {
      uroce_mcast_request body{qp, 0, {}};
      body.gid[0] = 0xff, body.gid[1] = 0x0e, body.gid[15] = static_cast<std::uint8_t>(random.below(256));
      put(request, body);
      break;
    }
    case UROCE_CMD_ALLOC_MW: put(request, uroce_alloc_mw_request{pd, 1 + random.below(2)}); break;
    case UROCE_CMD_IMPORT_MR: put(request, uroce_import_mr_request{pd, mine.handle(Kind::kMr, random)}); break;
    case UROCE_CMD_ALLOC_DM: {
      UniqueFd file = random_memfd(random);
      ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK);
      put(request, uroce_alloc_dm_request{random.below(1 << 20)});
      request.fds.push_back(std::move(file));
      break;
    }
    case UROCE_CMD_CREATE_RSS: {
      uroce_create_rss_request body{1u << random.below(8), 0xff, {}, {}};
      for (std::uint32_t& wq : body.wq) wq = mine.handle(Kind::kWq, random);
      put(request, body);
      break;
    }
    case UROCE_CMD_CREATE_FLOW:
      put(request, uroce_create_flow_request{qp, random.below(4), 0, 0, 0, 0, {}, {}});
      break;
    case UROCE_CMD_CREATE_COMP_CNTR: put(request, uroce_create_comp_cntr_request{random.below(3), 0}); break;
    case UROCE_CMD_ATTACH_COMP_CNTR:
      put(request, uroce_attach_comp_cntr_request{qp, mine.handle(Kind::kCompCntr, random), random.below(70), 0});
      break;
    default: put(request, uroce_handle{mine.handle(kind_of(request.command), random), 0});
  }
}

}  // namespace

void Belongings::add(Kind kind, std::uint32_t handle) {
  std::vector<std::uint32_t>& list = handles_[static_cast<std::size_t>(kind)];
  if (list.size() >= 256) list.erase(list.begin());
  list.push_back(handle);
}

std::uint32_t Belongings::handle(Kind kind, Random& random) const {
  const std::vector<std::uint32_t>& list = handles_[static_cast<std::size_t>(kind)];
  return list.empty() || random.percent(5) ? random.wild32() : random.of(list);
}

Request well_formed_request(Random& random, const Belongings& mine) {
  // Commands that make what others need come more often.
  constexpr std::uint32_t kOften[] = {UROCE_CMD_ALLOC_PD,    UROCE_CMD_REG_MR,     UROCE_CMD_CREATE_CQ,
                                      UROCE_CMD_CREATE_QP,   UROCE_CMD_MODIFY_QP,  UROCE_CMD_MODIFY_QP,
                                      UROCE_CMD_DESTROY_QP,  UROCE_CMD_CREATE_SRQ, UROCE_CMD_CM_OPEN_CHANNEL,
                                      UROCE_CMD_CM_CREATE_ID};
  Request request;
  request.command = random.percent(40) ? random.of(kOften)
                    : random.percent(75)
                        ? UROCE_CMD_QUERY_DEVICE + random.below(UROCE_CMD_END - UROCE_CMD_QUERY_DEVICE)
                        : UROCE_CMD_CM_FIRST + random.below(UROCE_CMD_CM_END - UROCE_CMD_CM_FIRST);
  if (request.command >= UROCE_CMD_CM_FIRST) {
    set_cm(random, mine, request);
    return request;
  }
  switch (request.command) {
    case UROCE_CMD_QUERY_DEVICE:
    case UROCE_CMD_QUERY_PORT:
    case UROCE_CMD_ALLOC_PD:
    case UROCE_CMD_CREATE_CHANNEL:
    case UROCE_CMD_CREATE_COUNTERS:
    case UROCE_CMD_EXPLAIN: break;
    case UROCE_CMD_QUERY_GID: put(request, uroce_gid_request{random.below(4), 0}); break;
    case UROCE_CMD_REG_MR:
    case UROCE_CMD_ALLOC_FAST_MR: put(request, region(random, mine, request)); break;
    case UROCE_CMD_REREG_MR:
      put(request, uroce_rereg_mr_request{mine.handle(Kind::kMr, random), 1 + random.below(7),
                                          region(random, mine, request)});
      break;
    case UROCE_CMD_CREATE_QP: set_queue_pair(random, mine, request); break;
    case UROCE_CMD_MODIFY_QP: set_modify(random, mine, request); break;
    case UROCE_CMD_ADMIN: set_admin(random, request); break;
    case UROCE_CMD_IMPORT_DEVICE: request.fds.push_back(random_memfd(random)); break;
    default: set_objects(random, mine, request);
  }
  return request;
}

Request random_request(Random& random, const Belongings& mine, const std::string& socket_path) {
  Request request = well_formed_request(random, mine);
  if (random.percent(45)) return request;
  if (random.percent(60)) random.damage(request.body);
  if (random.percent(15)) {
    for (std::byte& byte : request.body) byte = static_cast<std::byte>(random.next());
  }
  if (random.percent(20)) request.body.resize(random.below(static_cast<std::uint32_t>(request.body.size()) + 1));
  if (random.percent(5)) request.body.resize(random.below(UROCE_MAX_MESSAGE + 64));
  if (random.percent(5)) request.command = random.percent(50) ? random.below(96) : random.wild32();
  if (random.percent(20)) {
    if (random.percent(50)) request.fds.clear();
    for (std::uint32_t n = random.percent(90) ? random.below(4) : random.below(60); n != 0; --n) {
      request.fds.push_back(random_descriptor(random, socket_path));
    }
  }
  return request;
}

void take_from(const Answer& answer, Belongings& mine) {
  if (!answer.ok()) return;
  const std::uint32_t handle = answer.as<uroce_handle>().handle;
  switch (answer.command) {
    case UROCE_CMD_ALLOC_PD:
    case UROCE_CMD_IMPORT_PD: mine.add(Kind::kPd, handle); break;
    case UROCE_CMD_REG_MR:
    case UROCE_CMD_REREG_MR:
    case UROCE_CMD_ALLOC_FAST_MR:
    case UROCE_CMD_ALLOC_NULL_MR:
      mine.add(Kind::kMr, handle);
      mine.keys.push_back(answer.as<uroce_reg_mr_response>().lkey);
      break;
    case UROCE_CMD_CREATE_CHANNEL: mine.add(Kind::kChannel, handle); break;
    case UROCE_CMD_CREATE_CQ: mine.add(Kind::kCq, handle); break;
    case UROCE_CMD_CREATE_QP:
      mine.add(Kind::kQp, handle);
      mine.add(Kind::kWq, handle);
      mine.qpns.push_back(answer.as<uroce_create_qp_response>().qpn);
      break;
    case UROCE_CMD_CREATE_SRQ: mine.add(Kind::kSrq, handle); break;
    case UROCE_CMD_OPEN_XRCD: mine.add(Kind::kXrcd, handle); break;
    case UROCE_CMD_ALLOC_MW:
      mine.add(Kind::kMw, handle);
      mine.keys.push_back(answer.as<uroce_alloc_mw_response>().rkey);
      break;
    case UROCE_CMD_CREATE_AH: mine.add(Kind::kAh, handle); break;
    case UROCE_CMD_ALLOC_DM: mine.add(Kind::kDm, handle); break;
    case UROCE_CMD_CREATE_RSS: mine.add(Kind::kRss, handle); break;
    case UROCE_CMD_CREATE_FLOW: mine.add(Kind::kFlow, handle); break;
    case UROCE_CMD_CREATE_COUNTERS: mine.add(Kind::kCounters, handle); break;
    case UROCE_CMD_CREATE_COMP_CNTR: mine.add(Kind::kCompCntr, handle); break;
    case UROCE_CMD_CM_OPEN_CHANNEL: mine.add(Kind::kCmChannel, handle); break;
    case UROCE_CMD_CM_CREATE_ID: mine.add(Kind::kCmId, handle); break;
    default: break;
  }
}

}  // namespace uroce::hostile
