// Sessions from the first byte on: whole messages of several users, cut off anywhere, with any descriptors.
//
// The input is a list of records: session (1 byte), descriptors (1 byte), length (2 bytes, little-endian), then
// that many bytes.
//   session & 3     the session that sends; sessions 0 and 1 belong to this process, 2 and 3 to other users
//   session & 0x40  the session ends first, and another takes its place
//   session & 0x80  time passes, and requests that wait are executed again
//   descriptors     & 7: how many (7: 33, more than any command takes); >> 3: the kind of the first, the next kinds
//   follow bytes           the message, header included. The word 0xfeedNNKK stands for handle NN (modulo those
//   there are)
//                   that a command KK of any session has returned
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>

#include "../unit/daemon/test_client.h"
#include "../unit/daemon/test_daemon.h"
#include "mapping/sigbus_guard.h"
#include "platform/log.h"

namespace {

using namespace uroce;
using namespace uroce::daemon::testing;

constexpr std::size_t kSessions = 4;

control::DaemonConfig fuzz_config() {
  platform::set_log_level(platform::LogLevel::kError);
  mapping::SigbusGuard::instance().install();
  control::DaemonConfig config = test_config();
  config.max_qps = 64;
  config.max_cqs = 64;
  config.max_mrs = 256;
  config.max_srqs = 32;
  config.limits = {.sessions = 3, .qps = 16, .cqs = 16, .mrs = 32, .pds = 8, .ahs = 8, .queue_bytes = 16u << 20};
  return config;
}

platform::Peer peer_of(std::size_t session) {
  platform::Peer peer{::getpid(), static_cast<uid_t>(session < 2 ? ::getuid() : 60'000 + session),
                      UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)))};
  if (session < 2) control::read_namespaces(peer);
  return peer;
}

constexpr std::uint32_t kKinds = 9;

/// What a client may attach to a message.
UniqueFd descriptor(std::uint32_t kind) {
  int pair[2];
  switch (kind % kKinds) {
    case 0:
    case 1: {
      UniqueFd file(::memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
      // The one with pages, the other without.
      if ((kind % 2 == 0 ? ::fallocate(file.get(), 0, 0, 65536) : ::ftruncate(file.get(), 4097)) != 0) return {};
      if (kind % 4 < 2) ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK);
      return file;
    }
    case 2:
      if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return {};
      ::close(pair[1]);
      return UniqueFd(pair[0]);
    case 3:
      if (::pipe2(pair, O_CLOEXEC) != 0) return {};
      ::close(pair[0]);
      return UniqueFd(pair[1]);
    case 4: return UniqueFd(::eventfd(0, EFD_CLOEXEC));
    case 5: return UniqueFd(::open("/", O_PATH | O_CLOEXEC));
    case 6: return UniqueFd(::open("/dev/zero", O_RDWR | O_CLOEXEC));
    case 7: return UniqueFd(::open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
    default: return UniqueFd(::open("/", O_DIRECTORY | O_CLOEXEC));
  }
}

class Attack {
 public:
  explicit Attack(TestDaemon& daemon) : daemon_(daemon) {
    for (std::size_t i = 0; i < kSessions; ++i) open(i);
  }
  ~Attack() {
    for (control::Session* session : sessions_) {
      if (session != nullptr) daemon_.conductor->close_session(*session);
    }
  }
  Attack(const Attack&) = delete;
  Attack& operator=(const Attack&) = delete;

  void record(std::uint8_t control, std::uint8_t attached, std::span<const std::byte> bytes) {
    const std::size_t which = control % kSessions;
    if ((control & 0x40) != 0) close(which);
    if ((control & 0x80) != 0) pass_time();
    if (sessions_[which] == nullptr) open(which);
    if (sessions_[which] == nullptr) return;
    std::vector<std::byte> message(bytes.begin(), bytes.end());
    put_handles(message);
    std::vector<UniqueFd> fds;
    const std::uint32_t count = (attached & 7) == 7 ? 33 : attached & 7;
    for (std::uint32_t i = 0; i < count; ++i) fds.push_back(attachment((attached >> 3) + i));
    send(which, message, std::move(fds));
    for (auto& loop : daemon_.loops) loop->step(now_ += 10 * kMicrosecond);
  }

 private:
  void open(std::size_t which) { sessions_[which] = daemon_.conductor->open_session(peer_of(which), UniqueFd()); }
  void close(std::size_t which) {
    if (sessions_[which] != nullptr) daemon_.conductor->close_session(*sessions_[which]);
    sessions_[which] = nullptr;
  }

  void send(std::size_t which, const std::vector<std::byte>& message, std::vector<UniqueFd> fds) {
    if (sessions_[which]->pending) return;  // the daemon reads nothing meanwhile
    control::Reply reply = daemon_.conductor->handle(*sessions_[which], message, std::move(fds));
    if (reply.status == control::kPending) {
      uroce_request header;
      std::memcpy(&header, message.data(), sizeof(header));
      return daemon_.conductor->answer_later(*sessions_[which], header, std::move(*reply.wait));
    }
    if (sessions_[which]->close_pending) return close(which);
    if (reply.status == 0 && !chunk_.valid() && reply.fds.size() > 2) chunk_ = std::move(reply.fds[0]);
    if (reply.status != 0 || reply.body.size() < 4 || message.size() < 4) return;
    std::uint32_t handle = 0;
    std::memcpy(&handle, reply.body.data(), 4);
    std::vector<std::uint32_t>& known = handles_[static_cast<std::uint8_t>(message[0])];
    if (known.size() < 64) known.push_back(handle);
  }

  /// Of the kinds above, or the memory of the first session that was greeted, for IMPORT_DEVICE.
  UniqueFd attachment(std::uint32_t kind) const {
    return kind % (kKinds + 1) == kKinds ? UniqueFd(::dup(chunk_.get())) : descriptor(kind % (kKinds + 1));
  }

  void pass_time() {
    daemon_.conductor->cm().step(now_ += kSecond);
    daemon_.conductor->link().check_neighbours(now_);
    // A command that waited is answered now; without a socket that ends its session.
    for (std::size_t i = 0; i < kSessions; ++i) {
      if (sessions_[i] != nullptr && sessions_[i]->close_pending) close(i);
    }
  }

  void put_handles(std::span<std::byte> bytes) {
    for (; bytes.size() >= 4; bytes = bytes.subspan(4)) {
      std::uint32_t word = 0;
      std::memcpy(&word, bytes.data(), 4);
      if (word >> 16 != 0xfeed) continue;
      const std::vector<std::uint32_t>& known = handles_[word & 0xff];
      if (known.empty()) continue;
      std::memcpy(bytes.data(), &known[(word >> 8 & 0xff) % known.size()], 4);
    }
  }

  TestDaemon& daemon_;
  std::array<control::Session*, kSessions> sessions_{};
  std::map<std::uint32_t, std::vector<std::uint32_t>> handles_;
  UniqueFd chunk_;
  Nanos now_ = monotonic_now();
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static TestDaemon* const daemon = new TestDaemon(fuzz_config());
  {
    Attack attack(*daemon);
    for (int records = 0; size >= 4 && records < 64; ++records) {
      const std::size_t length =
          std::min<std::size_t>(data[2] | data[3] << 8, std::min<std::size_t>(size - 4, UROCE_MAX_MESSAGE));
      attack.record(data[0], data[1], std::as_bytes(std::span(data + 4, length)));
      data += 4 + length;
      size -= 4 + length;
    }
  }
  // The connection manager keeps connections in TIMEWAIT after their session.
  daemon->settle();
  for (int i = 1; i <= 40; ++i) daemon->conductor->cm().step(monotonic_now() + i * 600 * kSecond);
  daemon->settle();
  while (mapping::SigbusGuard::instance().take_offender() != 0 ||
         mapping::SigbusGuard::instance().take_loser() != 0) {
  }
  if (daemon->memory.size() != 0 || !daemon->conductor->state().sessions().empty() || !daemon->nothing_is_held() ||
      daemon->conductor->cm().manager().connections() != 0) {
    __builtin_trap();
  }
  return 0;
}
