#include "tests/hostile/raw_client.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cerrno>
#include <string>
#include <string_view>

#include "proto/state/attributes.h"

namespace uroce::hostile {
namespace {

constexpr std::uint32_t kRc = 2;

// Blocks of at least this size follow the response header; no answer is longer.
constexpr std::size_t kLongestAnswer = UROCE_MAX_MESSAGE;

void take_descriptors(msghdr& message, std::vector<UniqueFd>& out) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
      out.emplace_back(fd);
    }
  }
}

}  // namespace

RawClient::RawClient(const std::string& socket_path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket_path.c_str(), sizeof(address.sun_path) - 1);
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return;
  const timeval limit{answer_timeout_ms / 1000, 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return;
  socket_ = std::move(socket);
}

RawClient::~RawClient() {
  for (const Mapping& mapping : chunks_) ::munmap(mapping.base, mapping.bytes);
  for (const Mapping& mapping : mappings_) ::munmap(mapping.base, mapping.bytes);
}

bool RawClient::closed() const {
  pollfd peer{socket_.get(), POLLRDHUP, 0};
  return !socket_.valid() || (::poll(&peer, 1, 0) > 0 && (peer.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0);
}

bool RawClient::send_bytes(std::span<const std::byte> message, std::span<const int> fds) {
  iovec part{const_cast<std::byte*>(message.data()), message.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  std::vector<std::byte> control(CMSG_SPACE(fds.size_bytes()));
  if (!fds.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
  }
  return ::sendmsg(socket_.get(), &header, MSG_NOSIGNAL) >= 0;
}

bool RawClient::send(std::uint32_t command, std::span<const std::byte> body, std::span<const int> fds) {
  std::vector<std::byte> message(sizeof(uroce_request) + body.size());
  const uroce_request request{command, ++sequence_};
  std::memcpy(message.data(), &request, sizeof(request));
  if (!body.empty()) std::memcpy(message.data() + sizeof(request), body.data(), body.size());
  return send_bytes(message, fds);
}

Answer RawClient::receive(int timeout_ms) {
  Answer answer;
  pollfd readable{socket_.get(), POLLIN, 0};
  if (::poll(&readable, 1, timeout_ms) <= 0) return answer;
  uroce_response head{};
  answer.body.resize(kLongestAnswer);
  iovec parts[2] = {{&head, sizeof(head)}, {answer.body.data(), answer.body.size()}};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * UROCE_MAX_MESSAGE_FDS)];
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t got = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
  const bool whole = got >= static_cast<ssize_t>(sizeof(head));
  answer.status = whole ? head.status : kClosed;
  answer.command = head.command;
  answer.body.resize(whole ? static_cast<std::size_t>(got) - sizeof(head) : 0);
  if (whole) take_descriptors(message, answer.fds);
  return answer;
}

Answer RawClient::call(std::uint32_t command, std::span<const std::byte> body, std::span<const int> fds,
                       int timeout_ms) {
  if (!send(command, body, fds)) {
    Answer answer;
    if (errno != EAGAIN) answer.status = kClosed;
    return answer;
  }
  return receive(timeout_ms);
}

std::string RawClient::admin_page(const std::string& json) {
  const Answer answer = call(UROCE_CMD_ADMIN, std::as_bytes(std::span(json)));
  if (!answer.ok() || answer.fds.size() != 1) return {};
  std::string text(answer.as<uroce_admin_response>().bytes, '\0');
  const ssize_t got = ::pread(answer.fds[0].get(), text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

std::string RawClient::admin(const std::string& json) {
  constexpr std::string_view kNext = "\"next\":";
  const auto with = [&](const std::string& member) {
    const std::size_t end = json.rfind('}');
    return end == std::string::npos ? json : json.substr(0, end) + "," + member + "}";
  };
  std::string all, request = with("\"pages\":true");
  for (;;) {
    const std::string page = admin_page(request);
    if (page.empty()) return {};
    all += page;
    const std::size_t at = page.find(std::string(kNext) + "{");
    if (at == std::string::npos) return all;
    const std::size_t from = at + kNext.size(), end = page.find('}', at) + 1;
    request = with("\"from\":" + page.substr(from, end - from));
  }
}

// ---------------------------------------------------------------- objects

void RawClient::map(const uroce_new_chunks& news, const Answer& answer) {
  for (std::uint32_t i = 0; i < news.count && i < answer.fds.size(); ++i) {
    const int protection = news.chunk[i].client_writes != 0 ? PROT_READ | PROT_WRITE : PROT_READ;
    void* base = ::mmap(nullptr, news.chunk[i].bytes, protection, MAP_SHARED, answer.fds[i].get(), 0);
    chunks_.push_back({static_cast<std::byte*>(base), news.chunk[i].bytes});
  }
}

int RawClient::hello() {
  Answer answer = call(UROCE_CMD_HELLO, uroce_hello_request{UROCE_ABI_VERSION, 1, "hostile"});
  if (!answer.ok()) return answer.status;
  hello_ = answer.as<uroce_hello_response>();
  map(hello_.chunks, answer);
  hello_fds_ = std::move(answer.fds);
  return 0;
}

std::uint32_t RawClient::alloc_pd() { return call(UROCE_CMD_ALLOC_PD).as<uroce_handle>().handle; }

Memory RawClient::register_memfd(std::uint32_t pd, std::size_t bytes, std::uint32_t access) {
  UniqueFd file(::memfd_create("hostile", MFD_CLOEXEC));
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return {};
  Memory memory = register_file(pd, file.get(), 0, bytes, access, true);
  memory.file = std::move(file);
  return memory;
}

Memory RawClient::register_file(std::uint32_t pd, int file, std::uint64_t offset, std::size_t bytes,
                                std::uint32_t access, bool map, std::uint64_t address) {
  Memory memory;
  memory.bytes = bytes;
  if (map) {
    // The daemon allocates no pages.
    void* base =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, static_cast<off_t>(offset));
    if (base == MAP_FAILED) return memory;
    memory.data = static_cast<std::byte*>(base);
    mappings_.push_back({memory.data, bytes});
    address = memory.address();
  }
  uroce_reg_mr_request request{};
  request.pd = pd;
  request.access = access;
  request.addr = request.iova = address;
  request.length = bytes;
  request.piece_count = 1;
  request.piece[0] = {0, 0, offset, bytes};
  const Answer answer = call(UROCE_CMD_REG_MR, request, {&file, 1});
  memory.status = answer.status;
  memory.made = answer.as<uroce_reg_mr_response>();
  return memory;
}

std::uint32_t RawClient::create_channel(UniqueFd& out) {
  Answer answer = call(UROCE_CMD_CREATE_CHANNEL);
  if (!answer.ok() || answer.fds.size() != 1) return 0;
  out = std::move(answer.fds[0]);
  return answer.as<uroce_handle>().handle;
}

Cq RawClient::create_cq(std::uint32_t entries, std::uint32_t channel, std::uint64_t cookie) {
  const Answer answer = call(UROCE_CMD_CREATE_CQ, uroce_create_cq_request{entries, channel, cookie, 0, 0});
  Cq cq;
  cq.status = answer.status;
  if (!answer.ok()) return cq;
  cq.made = answer.as<uroce_create_cq_response>();
  map(cq.made.chunks, answer);
  cq.ring =
      queue::CqConsumer(at<uroce_cqe>(cq.made.ring), cq.made.entries, at<uroce_cq_client_block>(cq.made.client));
  return cq;
}

Qp RawClient::create_qp(std::uint32_t pd, const Cq& cq) {
  uroce_create_qp_request request{};
  request.type = kRc;
  request.pd = pd;
  request.send_cq = request.recv_cq = cq.made.handle;
  request.max_send_wr = request.max_recv_wr = 128;
  request.max_send_sge = request.max_recv_sge = 1;
  return create_qp(request);
}

Qp RawClient::create_qp(const uroce_create_qp_request& request) {
  const Answer answer = call(UROCE_CMD_CREATE_QP, request);
  Qp qp;
  qp.status = answer.status;
  if (!answer.ok()) return qp;
  qp.made = answer.as<uroce_create_qp_response>();
  map(qp.made.chunks, answer);
  auto* client = at<uroce_qp_client_block>(qp.made.client);
  const auto* daemon = at<uroce_qp_daemon_block>(qp.made.daemon);
  if (qp.made.sq_entries != 0) {
    qp.sq = {{at<std::byte>(qp.made.sq), qp.made.sq_entries, qp.made.sq_stride},
             &client->sq.index,
             &daemon->sq_consumer};
  }
  if (qp.made.rq_entries != 0) {
    qp.rq = {{at<std::byte>(qp.made.rq), qp.made.rq_entries, qp.made.rq_stride},
             &client->rq.index,
             &daemon->rq_consumer};
  }
  qp.bell = {doorbells() + qp.made.worker, &header()->worker[qp.made.worker]};
  return qp;
}

int RawClient::connect_qp(const Qp& qp, std::uint32_t dest_qpn) {
  using namespace proto;
  const auto gid = call(UROCE_CMD_QUERY_GID, uroce_gid_request{}).as<uroce_gid_response>();
  uroce_modify_qp_request init{};
  init.handle = qp.made.handle;
  init.attr.state = 1;
  init.attr.port = 1;
  init.attr.access_flags = 0xf;
  init.mask = kAttrState | kAttrPkeyIndex | kAttrPort | kAttrAccessFlags;
  if (const int error = call(UROCE_CMD_MODIFY_QP, init).status; error != 0) return error;
  uroce_modify_qp_request rtr{};
  rtr.handle = qp.made.handle;
  rtr.attr.state = 2;
  rtr.attr.path_mtu = 3;
  rtr.attr.dest_qpn = dest_qpn;
  rtr.attr.max_dest_rd_atomic = 16;
  rtr.attr.min_rnr_timer = 12;
  rtr.attr.av.is_global = rtr.attr.av.port_num = rtr.attr.av.hop_limit = 1;
  std::memcpy(rtr.attr.av.dgid, gid.gid, sizeof(gid.gid));
  rtr.mask =
      kAttrState | kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn | kAttrMaxDestRdAtomic | kAttrMinRnrTimer;
  if (const int error = call(UROCE_CMD_MODIFY_QP, rtr).status; error != 0) return error;
  uroce_modify_qp_request rts{};
  rts.handle = qp.made.handle;
  rts.attr.state = 3;
  rts.attr.timeout = 14, rts.attr.retry_cnt = 7, rts.attr.rnr_retry = 7, rts.attr.max_rd_atomic = 16;
  rts.mask = kAttrState | kAttrTimeout | kAttrRetryCnt | kAttrRnrRetry | kAttrSqPsn | kAttrMaxRdAtomic;
  return call(UROCE_CMD_MODIFY_QP, rts).status;
}

int RawClient::modify_to_error(const Qp& qp) {
  uroce_modify_qp_request request{};
  request.handle = qp.made.handle;
  request.attr.state = static_cast<std::uint32_t>(proto::QpState::kErr);
  request.mask = proto::kAttrState;
  return call(UROCE_CMD_MODIFY_QP, request).status;
}

// ---------------------------------------------------------------- queues

bool RawClient::post_send(Qp& qp, const uroce_sq_entry& entry, std::span<const uroce_sge> list) {
  std::byte* const slot = qp.sq.next();
  if (slot == nullptr) return false;
  queue::write_send(slot, entry, list.data(), list.size_bytes());
  qp.sq.advance();
  qp.sq.publish();
  if (qp.bell.ring(qp.made.doorbell_bit) != 0) ::eventfd_write(hello_fd(qp.made.worker), 1);
  return true;
}

bool RawClient::post_recv(Qp& qp, std::uint64_t wr_id, std::span<const uroce_sge> list) {
  std::byte* const slot = qp.rq.next();
  if (slot == nullptr) return false;
  const uroce_rq_entry entry{wr_id, static_cast<std::uint32_t>(list.size()), 0};
  std::memcpy(slot, &entry, sizeof(entry));
  if (!list.empty()) std::memcpy(slot + sizeof(entry), list.data(), list.size_bytes());
  qp.rq.advance();
  qp.rq.publish();
  return true;
}

bool RawClient::post_write(Qp& qp, const Memory& from, std::uint64_t remote_address, std::uint32_t rkey,
                           std::uint32_t bytes) {
  uroce_sq_entry entry{};
  entry.opcode = UROCE_WR_RDMA_WRITE;
  entry.flags = UROCE_SEND_SIGNALED;
  entry.num_sge = 1;
  entry.rkey = rkey;
  entry.remote_addr = remote_address;
  const uroce_sge element{from.address(), bytes, from.made.lkey};
  return post_send(qp, entry, {&element, 1});
}

bool RawClient::poll(Cq& cq, uroce_cqe& out, int timeout_ms) {
  const Nanos end = monotonic_now() + static_cast<Nanos>(timeout_ms) * kMillisecond;
  for (std::uint32_t turns = 0;; ++turns) {
    if (const uroce_cqe* entry = cq.ring.peek(); entry != nullptr) {
      out = *entry;
      cq.ring.pop();
      cq.ring.publish();
      return true;
    }
    if (monotonic_now() > end) return false;
    ::sched_yield();
  }
}

Tenant::Tenant(const std::string& socket_path, std::size_t bytes) : client(socket_path) {
  const auto failed = [this](const char* step, int status) {
    if (status == 0) return false;
    error = std::string(step) + ": " + std::to_string(status);
    return true;
  };
  if (!client.connected()) {
    error = "connect";
    return;
  }
  if (failed("HELLO", client.hello())) return;
  pd = client.alloc_pd();
  memory = client.register_memfd(pd, bytes);
  if (failed("REG_MR", memory.status)) return;
  cq = client.create_cq(256);
  if (failed("CREATE_CQ", cq.status)) return;
  qp = client.create_qp(pd, cq);
  if (failed("CREATE_QP", qp.status)) return;
  failed("MODIFY_QP", client.connect_qp(qp, qp.made.qpn));
}

Nanos Tenant::write_once() {
  const Nanos begun = monotonic_now();
  uroce_cqe done{};
  if (!client.post_write(qp, memory, memory.address() + memory.bytes - 8, memory.made.rkey, 8)) return 0;
  if (!client.poll(cq, done) || done.status != UROCE_WC_SUCCESS) return 0;
  return monotonic_now() - begun;
}

}  // namespace uroce::hostile
