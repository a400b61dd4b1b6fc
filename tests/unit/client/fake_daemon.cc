#include "fake_daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace uroce::client::test {
namespace {

std::byte* map(int fd) {
  return static_cast<std::byte*>(mmap(nullptr, FakeDaemon::kChunkBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
}

}  // namespace

FakeDaemon::FakeDaemon() {
  char name[] = "/tmp/uroce-client-test-XXXXXX";
  dir_ = mkdtemp(name);
  path_ = dir_ + "/fake.sock";
  for (int& fd : memfds_) {
    fd = memfd_create("chunk", MFD_CLOEXEC);
    if (ftruncate(fd, kChunkBytes) != 0) std::abort();
  }
  client_chunk_ = map(memfds_[0]);
  daemon_chunk_ = map(memfds_[1]);
  wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  header().workers = 1;
  header().magic = UROCE_ABI_MAGIC;
  header().version = UROCE_ABI_VERSION;
  cq_ = {reinterpret_cast<uroce_cqe*>(daemon_chunk_ + kCqAt), kEntries,
         reinterpret_cast<uroce_cq_client_block*>(client_chunk_ + kCqClientAt)};
  listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path_.c_str(), sizeof(address.sun_path) - 1);
  if (bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 || listen(listener_, 8) != 0) {
    std::abort();
  }
  thread_ = std::thread([this] { serve(); });
}

FakeDaemon::~FakeDaemon() {
  die();
  munmap(client_chunk_, kChunkBytes);
  munmap(daemon_chunk_, kChunkBytes);
  for (const int fd : memfds_) close(fd);
  close(wake_fd_);
  rmdir(dir_.c_str());
}

void FakeDaemon::die() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  if (listener_ < 0) return;
  close(listener_);
  listener_ = -1;
  unlink(path_.c_str());
  for (const int fd : open_fds_) close(fd);
  open_fds_.clear();
}

queue::WorkConsumer FakeDaemon::sq() {
  auto* const daemon = reinterpret_cast<uroce_qp_daemon_block*>(daemon_chunk_ + kQpDaemonAt);
  return {{client_chunk_ + kSqAt, kEntries, kStride}, &qp_client().sq.index, &daemon->sq_consumer};
}

queue::WorkConsumer FakeDaemon::rq() {
  auto* const daemon = reinterpret_cast<uroce_qp_daemon_block*>(daemon_chunk_ + kQpDaemonAt);
  return {{client_chunk_ + kRqAt, kEntries, kStride}, &qp_client().rq.index, &daemon->rq_consumer};
}

int FakeDaemon::wakes() {
  std::uint64_t count = 0;
  return read(wake_fd_, &count, sizeof(count)) == sizeof(count) ? static_cast<int>(count) : 0;
}

void FakeDaemon::serve() {
  std::vector<pollfd> watched{{listener_, POLLIN, 0}};
  while (!stop_) {
    if (poll(watched.data(), watched.size(), 5) <= 0) continue;
    if ((watched[0].revents & POLLIN) != 0) {
      const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      const std::lock_guard lock(fds_mutex_);
      open_fds_.push_back(fd);
      watched.push_back({fd, POLLIN, 0});
    }
    for (std::size_t i = 1; i < watched.size(); ++i) {
      if ((watched[i].revents & POLLIN) == 0) continue;
      if (die_at_next_command) {
        for (const int fd : open_fds_) close(fd);
        open_fds_.clear();
        return;
      }
      if (!serve_one(watched[i].fd)) watched[i].fd = -1;
    }
  }
}

bool FakeDaemon::serve_one(int fd) {
  alignas(8) char message[UROCE_MAX_MESSAGE];
  const ssize_t got = recv(fd, message, sizeof(message), 0);
  if (got < static_cast<ssize_t>(sizeof(uroce_request))) return false;
  uroce_request request;
  std::memcpy(&request, message, sizeof(request));
  ++commands_;
  if (const pid_t killed = victim.exchange(0); killed != 0) {
    kill(killed, SIGKILL);
    waitid(P_PID, static_cast<id_t>(killed), nullptr, WEXITED | WNOWAIT);
  }
  if (request.command == UROCE_CMD_EXPLAIN) {
    reply(fd, request, 0, &refused_, sizeof(refused_), {});
  } else if (status != 0) {
    refused_ = {request.command, request.sequence, status, 0, {}};
    words.copy(refused_.text, sizeof(refused_.text) - 1);
    reply(fd, request, status, nullptr, 0, {});
  } else if (request.command == UROCE_CMD_HELLO) {
    greet(fd, request);
  } else if (request.command == UROCE_CMD_CREATE_QP) {
    make_qp(fd, request);
  } else if (request.command == UROCE_CMD_CREATE_CQ) {
    make_cq(fd, request);
  } else {
    reply(fd, request, 0, nullptr, 0, {});
  }
  return true;
}

void FakeDaemon::reply(int fd, const uroce_request& request, int status, const void* body, std::size_t bytes,
                       const std::vector<int>& fds) {
  uroce_response response{request.command, request.sequence, status, static_cast<std::uint32_t>(fds.size())};
  iovec io[2] = {{&response, sizeof(response)}, {const_cast<void*>(body), bytes}};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * UROCE_MAX_MESSAGE_FDS)] = {};
  msghdr message{};
  message.msg_iov = io;
  message.msg_iovlen = bytes != 0 ? 2 : 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(header), fds.data(), sizeof(int) * fds.size());
  }
  (void)sendmsg(fd, &message, MSG_NOSIGNAL);
}

void FakeDaemon::greet(int fd, const uroce_request& request) {
  int events[2];
  if (pipe2(events, O_CLOEXEC) != 0) std::abort();
  uroce_hello_response body{};
  body.version = version;
  body.workers = 1;
  body.chunks.count = 2;
  body.chunks.chunk[0] = {kChunkBytes, 1, 0};
  body.chunks.chunk[1] = {kChunkBytes, 0, 0};
  body.header = place(1, 0);
  body.doorbells = place(0, 0);
  reply(fd, request, 0, &body, sizeof(body), {memfds_[0], memfds_[1], wake_fd_, events[0]});
  close(events[0]);
  open_fds_.push_back(events[1]);
}

void FakeDaemon::make_qp(int fd, const uroce_request& request) {
  uroce_create_qp_response body{};
  body.handle = 7;
  body.qpn = 0x123456;
  body.doorbell_bit = 70;
  body.max_send_wr = body.max_recv_wr = body.sq_entries = body.rq_entries = kEntries;
  body.sq_stride = body.rq_stride = kStride;
  body.max_send_sge = body.max_recv_sge = 4;
  body.max_inline = 64;
  body.client = place(0, kQpAt);
  body.daemon = place(1, kQpDaemonAt);
  body.sq = place(0, kSqAt);
  body.rq = place(0, kRqAt);
  reply(fd, request, 0, &body, sizeof(body), {});
}

void FakeDaemon::make_cq(int fd, const uroce_request& request) {
  uroce_create_cq_response body{};
  body.handle = 9;
  body.entries = kEntries;
  body.ring = place(1, kCqAt);
  body.client = place(0, kCqClientAt);
  reply(fd, request, 0, &body, sizeof(body), {});
}

}  // namespace uroce::client::test
