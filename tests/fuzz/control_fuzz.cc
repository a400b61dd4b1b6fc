// A hostile client of the daemon: arbitrary control messages, arbitrary bytes in its queues and doorbells,
// arbitrary frames.
//
// The input is a list of records: kind (1 byte), argument (1 byte), length (2 bytes, little-endian), then that many
// bytes.
//   kind 0   control message: command = argument & 0x7f; argument & 0x80 adds a memfd, but to
//            CM_OPEN_CHANNEL; the bytes are the body
//   kind 1   writes the bytes into the memory of QP `argument`, after its producer indices, and rings its
//            doorbell; the word "lkey" in them is replaced by the L_Key of the last region
//   kind 2   the bytes are a received frame
//   kind 3   writes the bytes over the producer indices of QP `argument` and rings its doorbell
//   kind 4   rings the doorbell bit in the first two bytes
//   kind 5   writes the bytes into the ring of SRQ `argument`; the first byte is the number of entries to add
//   kind 6   `argument` seconds pass for the connection manager
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "../unit/daemon/test_client.h"
#include "../unit/daemon/test_daemon.h"
#include "mapping/sigbus_guard.h"
#include "platform/log.h"

namespace {

using namespace uroce;
using namespace uroce::daemon::testing;

// The corpus contains these structs. When the size of one changes, the corpus must be converted: a record of
// another size is refused, and the rest of the input is then never reached.
static_assert(sizeof(uroce_create_cq_request) == 24 && sizeof(uroce_create_qp_request) == 64);
static_assert(sizeof(uroce_modify_qp_request) == 120 && sizeof(uroce_create_srq_request) == 40);
static_assert(sizeof(uroce_create_flow_request) == 152 && sizeof(uroce_create_rss_request) == 560);

/// The credentials of this process as a socket reports them; root may use raw packets.
platform::Peer self() {
  return {::getpid(), ::getuid(), UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)))};
}

control::DaemonConfig fuzz_config() {
  platform::set_log_level(platform::LogLevel::kError);
  mapping::SigbusGuard::instance().install();
  control::DaemonConfig config = test_config();
  config.max_qps = 64;
  config.max_cqs = 64;
  config.max_mrs = 256;
  config.max_srqs = 32;
  config.limits = {.qps = 32, .cqs = 32, .mrs = 64, .queue_bytes = 32u << 20};
  return config;
}

class Attack {
 public:
  explicit Attack(TestDaemon& daemon) : daemon_(daemon), client_(*daemon.conductor, self()) { client_.hello(); }

  void record(std::uint8_t kind, std::uint8_t argument, std::span<const std::byte> bytes) {
    switch (kind % 7) {
      case 0: control(argument, bytes); break;
      case 1: scribble(argument, sizeof(uroce_qp_client_block), bytes); break;
      case 2: daemon_.devices[0].inject(bytes); break;
      case 3: scribble(argument, 0, bytes); break;
      case 5: post_srq(argument, bytes); break;
      case 6: daemon_.conductor->cm().step(now_ + argument * kSecond); break;
      default:
        ring(bytes.size() >= 2 ? static_cast<std::uint32_t>(bytes[0]) | static_cast<std::uint32_t>(bytes[1]) << 8
                               : 0);
    }
    for (int i = 0; i < 4; ++i) daemon_.loops[0]->step(now_ += 10 * kMicrosecond);
    daemon_.conductor->cm().step(now_);
  }

 private:
  void control(std::uint8_t argument, std::span<const std::byte> body) {
    std::vector<UniqueFd> fds;
    if ((argument & 0x80) != 0 && argument != (0x80 | UROCE_CMD_CM_OPEN_CHANNEL)) {
      fds.emplace_back(::memfd_create("fuzz", MFD_CLOEXEC));
      if (::fallocate(fds[0].get(), 0, 0, 65536) != 0) return;
    }
    control::Reply reply = client_.send(argument & 0x7f, body, std::move(fds));
    if ((argument & 0x7f) == UROCE_CMD_CM_OPEN_CHANNEL && !reply.fds.empty()) {
      unread_.push_back(std::move(reply.fds[0]));
    }
    if ((argument & 0x7f) == UROCE_CMD_CREATE_QP && reply.status == 0) {
      qps_.push_back(TestClient::value<uroce_create_qp_response>(reply).handle);
    }
    if ((argument & 0x7f) == UROCE_CMD_REG_MR && reply.status == 0) {
      lkey_ = TestClient::value<uroce_reg_mr_response>(reply).lkey;
    }
    if ((argument & 0x7f) == UROCE_CMD_CREATE_SRQ && reply.status == 0) {
      srqs_.push_back(TestClient::value<uroce_create_srq_response>(reply).handle);
    }
  }
  void post_srq(std::uint8_t which, std::span<const std::byte> bytes) {
    const control::SrqObject* srq =
        srqs_.empty() ? nullptr : client_.session().srqs.find(srqs_[which % srqs_.size()]);
    if (srq == nullptr || bytes.empty()) return;
    std::memcpy(srq->ring.data, bytes.data(), std::min(bytes.size(), srq->ring.bytes));
    reinterpret_cast<uroce_producer_line*>(srq->client.data)->index += static_cast<std::uint32_t>(bytes[0]);
  }
  void put_keys(std::span<std::byte> bytes) const {
    for (; bytes.size() >= 4; bytes = bytes.subspan(4)) {
      if (std::memcmp(bytes.data(), "lkey", 4) == 0) std::memcpy(bytes.data(), &lkey_, 4);
    }
  }
  void scribble(std::uint8_t which, std::size_t offset, std::span<const std::byte> bytes) {
    if (qps_.empty()) return;
    control::QpObject* qp = client_.session().qps.find(qps_[which % qps_.size()]);
    if (qp == nullptr || qp->client.data == nullptr) return;
    const std::size_t count = std::min(bytes.size(), qp->client.bytes - offset);
    std::memcpy(qp->client.data + offset, bytes.data(), count);
    put_keys({qp->client.data + offset, count});
    auto* block = reinterpret_cast<uroce_qp_client_block*>(qp->client.data);
    if (offset != 0) {
      ++block->sq.index;
      ++block->rq.index;
    }
    ring(qp->bit);
  }
  void ring(std::uint32_t bit) {
    queue::DoorbellRinger(client_.doorbells(), &client_.header()->worker[0]).ring(bit % UROCE_MAX_SESSION_QPS);
  }

  TestDaemon& daemon_;
  TestClient client_;
  std::vector<std::uint32_t> qps_, srqs_;
  std::uint32_t lkey_ = 0;
  std::vector<UniqueFd> unread_;  ///< receiving ends of event channels
  Nanos now_ = monotonic_now();
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static TestDaemon* const daemon = new TestDaemon(fuzz_config());
  {
    Attack attack(*daemon);
    for (int records = 0; size >= 4 && records < 64; ++records) {
      const std::size_t length =
          std::min<std::size_t>(data[2] | data[3] << 8, std::min<std::size_t>(size - 4, 4000));
      attack.record(data[0], data[1], std::as_bytes(std::span(data + 4, length)));
      data += 4 + length;
      size -= 4 + length;
    }
  }
  // What the connection manager keeps after a session (unanswered DREQs, TIMEWAIT) ends by time.
  daemon->settle();
  for (int i = 1; i <= 40; ++i) daemon->conductor->cm().step(monotonic_now() + i * 600 * kSecond);
  daemon->settle();
  while (mapping::SigbusGuard::instance().take_offender() != 0 ||
         mapping::SigbusGuard::instance().take_loser() != 0) {
  }
  // A closed session leaves no objects, whatever it did.
  if (daemon->memory.size() != 0 || !daemon->conductor->state().sessions().empty() || !daemon->nothing_is_held() ||
      daemon->conductor->cm().manager().connections() != 0) {
    __builtin_trap();
  }
  return 0;
}
