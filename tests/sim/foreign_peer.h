// A second implementation of RC, as an oracle: one QP, written from the specification alone (IBTA vol. 1, chapter
// 9; annexes A16 and A17), with nothing of lib/. It is simple where a real one is fast: bytes are read and written
// one by one, each request is kept as a list of packets, loss is answered by going back to the oldest packet,
// duplicates of READs are executed again. It is strict: whatever it receives that no correct peer sends is a
// Violation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/sim/random.h"

namespace uroce::sim {

struct ForeignSettings {
  std::uint32_t qpn = 0, peer_qpn = 0;
  std::uint32_t sq_psn = 0, rq_psn = 0;
  std::uint32_t mtu = 1024;
  bool ipv6 = false;
  std::uint32_t window = 1;           ///< packets; 1: stop and wait
  bool ask_each = false;              ///< AckReq in each packet
  std::uint64_t ack_delay = 0;        ///< ns; 0: an acknowledge for each request for one
  bool credits = false;               ///< advertise receives, else unlimited
  bool linux_reads = false;           ///< repeated READs are answered as by Linux 6.1: read_again()
  std::uint8_t rnr_timer = 1;         ///< code
  std::uint64_t timeout = 1'000'000;  ///< ns
  std::uint64_t seed = 1;
};

enum class ForeignKind : std::uint8_t { kSend, kSendImm, kWrite, kWriteImm, kRead, kCompareSwap, kFetchAdd };

struct ForeignWork {
  ForeignKind kind = ForeignKind::kSend;
  std::vector<std::uint8_t> data;  ///< leaves, or has arrived (READ)
  std::uint32_t length = 0;
  std::uint64_t address = 0;
  std::uint32_t rkey = 0, immediate = 0;
  std::uint32_t declared = 0;  ///< RETH length of a WRITE; usually `length`
  std::uint64_t compare = 0, swap_add = 0, result = 0;
  std::uint8_t nak = 0;  ///< syndrome that must answer it; 0: it must succeed
  bool done = false;
};

struct ForeignMessage {
  std::vector<std::uint8_t> data;  ///< of a SEND
  std::uint32_t length = 0;
  bool write = false;
  std::optional<std::uint32_t> immediate;
};

class ForeignPeer {
 public:
  static constexpr std::uint64_t kBase = 0x5000'0000'0000;  ///< address of `memory`
  static constexpr std::uint32_t kKey = 0x00c0ffee;

  ForeignPeer(const ForeignSettings& settings, std::size_t memory_bytes);

  void post(const ForeignWork& work);
  void post_receives(std::uint32_t count) { receives_ += count; }
  /// A frame. `damaged`: by the network; only an ICRC must notice.
  void receive(std::span<const std::byte> frame, bool damaged, std::uint64_t now);
  /// The next frame to send now; empty: none.
  std::vector<std::byte> transmit(std::uint64_t now);
  /// Nothing happens before, unless a frame arrives or work is posted. ~0: never.
  std::uint64_t next_time(std::uint64_t now) const;

  std::vector<std::uint8_t> memory;
  const std::deque<ForeignWork>& works() const { return works_; }
  const std::vector<ForeignMessage>& messages() const { return messages_; }
  std::size_t works_done() const { return done_; }
  /// It has sent a NAK after which it takes no more requests, or has got one.
  bool dead() const { return dead_; }
  /// Nothing answered the request that must be refused: the NAK was lost.
  bool gave_up() const { return gave_up_; }
  std::uint32_t receives() const { return receives_; }

 private:
  using Bytes = std::vector<std::uint8_t>;
  struct Packet {
    std::uint32_t psn = 0, psns = 1;
    std::uint8_t opcode = 0;
    std::size_t work = 0;
    std::uint32_t offset = 0, bytes = 0;
    bool ends = false;
  };
  struct Request {  ///< a request or response as received
    std::uint8_t opcode = 0, pad = 0;
    bool ask = false, solicited = false;
    std::uint32_t psn = 0;
    std::span<const std::uint8_t> rest;  ///< after the BTH, without pad and ICRC
  };
  struct AnsweredRead {
    std::uint32_t psn = 0, psns = 1;
    std::uint32_t repeated = 0;  ///< the first PSN that was requested last
  };
  enum class Amid : std::uint8_t { kNothing, kSend, kWrite };

  // Both.
  bool parse(const Bytes& frame, Request& out) const;
  std::vector<std::byte> frame(std::uint8_t opcode, bool ask, std::uint32_t psn, const Bytes& headers,
                               const Bytes& payload);
  // Requester.
  void on_response(const Request& response, std::uint64_t now);
  void on_acknowledge(const Request& response, std::uint64_t now);
  void on_nak(const Request& response, std::uint8_t syndrome);
  void on_read_response(const Request& response, std::uint64_t now);
  void on_atomic_response(const Request& response, std::uint64_t now);
  void check_msn(std::uint32_t psn, std::span<const std::uint8_t> aeth) const;
  /// Everything before this PSN is acknowledged. False: a READ or atomic among it is not answered.
  bool acknowledge_before(std::uint32_t psn, std::uint64_t now);
  void complete(std::uint64_t now);
  void go_back();
  bool may_send(std::uint64_t now) const;
  std::vector<std::byte> send_request(std::uint64_t now);
  Bytes headers_of(const Packet& packet, std::uint32_t read_offset) const;
  // Responder.
  void on_request(const Request& request, std::uint64_t now);
  void execute(const Request& request, std::uint64_t now);
  void on_duplicate(const Request& request, std::uint64_t now);
  void on_send(const Request& request, std::uint64_t now);
  void on_write(const Request& request, std::uint64_t now);
  void on_read(const Request& request, bool again);
  /// The READ that is requested again. nullptr: Linux answers no request that begins before the one that was
  /// repeated last. From amid a response it goes on with a MIDDLE or LAST packet.
  const AnsweredRead* read_again(const Request& request);
  void on_atomic(const Request& request);
  void accept(const Request& request, std::uint64_t now);
  void finish_message(const std::uint8_t* immediate);
  void check_place(const Request& request, Amid kind, bool starts, bool ends, std::size_t bytes) const;
  void nak(std::uint8_t syndrome);
  Bytes aeth(std::uint8_t syndrome) const;
  std::uint8_t ack_syndrome() const;
  bool may_access(std::uint64_t address, std::uint64_t bytes, std::uint32_t key) const;

  const ForeignSettings settings_;
  Random random_;

  std::deque<ForeignWork> works_;
  std::deque<Packet> packets_;
  std::size_t una_ = 0, next_ = 0, most_ = 0;  ///< in packets_; most_: one past the newest ever sent
  std::size_t done_ = 0;
  std::uint32_t post_psn_;
  std::uint32_t got_ = 0;  ///< responses of the READ at una_
  std::uint64_t progress_at_ = 0, rnr_until_ = 0;
  std::uint32_t timeouts_ = 0;

  std::uint32_t epsn_, msn_ = 0;
  std::uint32_t receives_ = 0;
  Amid amid_ = Amid::kNothing;
  bool nak_sent_ = false, dead_ = false, gave_up_ = false;
  ForeignMessage message_;
  std::uint64_t write_at_ = 0;
  std::uint32_t write_left_ = 0;
  std::optional<std::uint64_t> ack_at_;  ///< an acknowledge is owed
  std::map<std::uint32_t, std::uint64_t> results_;
  std::deque<AnsweredRead> reads_;
  std::deque<std::vector<std::byte>> out_;
  std::vector<ForeignMessage> messages_;
};

}  // namespace uroce::sim
