#include "tests.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <utility>

namespace uroce::ping {
namespace {

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

class Run {
 public:
  Run(Connection& connection, Buffers& buffers, const Options& options)
      : connection_(connection), buffers_(buffers), options_(options) {}

  Result run();

 private:
  bool goes_on(std::uint64_t round) const { return options_.rounds() == 0 || round < options_.rounds(); }
  void count_latency(std::uint64_t began, unsigned parts);

  // Sends and receives complete in any order relative to each other: completions that no caller waits for yet are
  // remembered.
  void note(const ibv_wc& wc);
  void wait_for(Id id);
  Advert wait_for_message();

  void move(Id id, bool sink, const Advert& to, bool invalidate = false);
  void move_by_local_key(Id id, const Advert& to);
  void fill(std::uint64_t round);
  void compare();
  void show(const char* what, const std::byte* data) const;

  void ping_client();
  void ping_server();
  Advert exchange();
  void agree_on_end();
  void read_latency(const Advert& peer);
  void write_latency(const Advert& peer);
  void bandwidth(const Advert& peer);

  Connection& connection_;
  Buffers& buffers_;
  const Options& options_;
  Result result_;
  std::uint32_t seen_[16] = {};
  Advert message_;
};

Advert checked(const Advert& advert, const Options& options) {
  if (advert.bytes == options.size) return advert;
  throw Failure("the peer has size=" + std::to_string(advert.bytes) +
                ", we have size=" + std::to_string(options.size) + ": both sides need the same options");
}

void Run::note(const ibv_wc& wc) {
  if (wc.wr_id == kReceive) {
    message_ = buffers_.received(wc);
    if ((wc.wc_flags & IBV_WC_WITH_INV) != 0) buffers_.invalidated(wc.invalidated_rkey);
    buffers_.post_receive();
  }
  ++seen_[wc.wr_id & 15];
}

void Run::wait_for(Id id) {
  while (seen_[id] == 0) note(connection_.wait());
  --seen_[id];
}

Advert Run::wait_for_message() {
  wait_for(kReceive);
  return message_;
}

void Run::count_latency(std::uint64_t began, unsigned parts) {
  const std::uint64_t took = (now_ns() - began) / parts;
  result_.latencies_ns.push_back(static_cast<std::uint32_t>(std::min<std::uint64_t>(took, ~0u)));
}

/// READ (into the sink) or WRITE (from the sink or the source) of the whole size. `invalidate`: the local key is
/// invalidated afterwards.
void Run::move(Id id, bool sink, const Advert& to, bool invalidate) {
  ibv_sge part = sink ? buffers_.sink_part() : buffers_.source_part();
  ibv_send_wr wr{};
  wr.wr_id = id;
  wr.sg_list = &part;
  wr.num_sge = 1;
  wr.opcode = id == kRead ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = to.address;
  wr.wr.rdma.rkey = to.key;
  invalidate ? buffers_.unregister_now(&wr) : connection_.send(wr);
  result_.bytes += part.length;
}

/// "uroce-ping-N: ", followed by letters that begin at another one each round.
void Run::fill(std::uint64_t round) {
  char* to = reinterpret_cast<char*>(buffers_.source());
  const int head = std::snprintf(to, options_.size, "uroce-ping-%llu: ", static_cast<unsigned long long>(round));
  for (std::uint32_t i = std::min(static_cast<std::uint32_t>(head), options_.size); i < options_.size; ++i) {
    to[i] = static_cast<char>('A' + (round + i) % 58);
  }
  std::memset(buffers_.sink(), 0, options_.size);
}

void Run::show(const char* what, const std::byte* data) const {
  const char* text = reinterpret_cast<const char*>(data);
  std::printf("%s: %.*s\n", what, static_cast<int>(strnlen(text, options_.size)), text);
}

void Run::compare() {
  if (std::memcmp(buffers_.source(), buffers_.sink(), options_.size) == 0) return;
  ++result_.corrupt;
  std::fprintf(stderr, "uroce-ping: round %llu: the data that came back differs\n",
               static_cast<unsigned long long>(result_.rounds));
}

/// READ or WRITE of the sink. In modes with changing keys its local key is made before and invalidated afterwards.
void Run::move_by_local_key(Id id, const Advert& to) {
  if (buffers_.fast()) {
    buffers_.register_now(true);
    wait_for(kBound);
  }
  const bool with_read = options_.read_invalidates && id == kRead;
  move(id, true, to, with_read);
  wait_for(id);
  if (!buffers_.fast()) return;
  if (!with_read) buffers_.unregister_now();
  wait_for(kInvalidated);
}

void Run::ping_client() {
  while (goes_on(result_.rounds)) {
    fill(result_.rounds);
    const std::uint64_t began = now_ns();
    for (const bool sink : {false, true}) {
      if (options_.keys_change()) {
        buffers_.register_now(sink);
        wait_for(kBound);
      }
      buffers_.advertise(sink);
      wait_for(kAdvertSent);
      wait_for_message();
    }
    count_latency(began, 1);
    if (options_.validate) compare();
    if (options_.verbose) show("ping data", buffers_.sink());
    ++result_.rounds;
  }
}

void Run::ping_server() {
  const bool invalidates = options_.server_invalidates;
  if (options_.read_invalidates && !buffers_.fast()) {
    throw Failure("read_inv: " + connection_.device() + " does not support fast registration; omit read_inv");
  }
  while (goes_on(result_.rounds)) {
    const Advert source = checked(wait_for_message(), options_);
    move_by_local_key(kRead, source);
    if (options_.verbose) show("server ping data", buffers_.sink());
    buffers_.go_ahead(invalidates ? source.key : 0);
    wait_for(kGoAhead);
    const Advert sink = checked(wait_for_message(), options_);
    move_by_local_key(kWrite, sink);
    buffers_.go_ahead(invalidates ? sink.key : 0);
    wait_for(kGoAhead);
    ++result_.rounds;
  }
}

/// The client sends first: it knows that the server's receives are posted.
Advert Run::exchange() {
  if (options_.role == Role::kClient) buffers_.advertise(true);
  const Advert peer = checked(wait_for_message(), options_);
  if (options_.role == Role::kServer) buffers_.advertise(true);
  wait_for(kAdvertSent);
  return peer;
}

/// Neither side disconnects before the other has received everything.
void Run::agree_on_end() {
  buffers_.go_ahead(0);
  wait_for(kGoAhead);
  wait_for_message();
}

void Run::read_latency(const Advert& peer) {
  while (goes_on(result_.rounds)) {
    const std::uint64_t began = now_ns();
    move(kRead, true, peer);
    wait_for(kRead);
    count_latency(began, 1);
    ++result_.rounds;
  }
}

/// Each side waits for the other's WRITE by polling the last byte of its memory.
void Run::write_latency(const Advert& peer) {
  volatile std::byte* last = buffers_.sink() + options_.size - 1;
  std::byte* ours = buffers_.source() + options_.size - 1;
  const bool client = options_.role == Role::kClient;
  const auto await_round = [&](std::byte value) {
    for (std::uint32_t spins = 0; *last != value; ++spins) {
      if (spins % 65536 == 65535) connection_.check_alive();
    }
  };
  for (; goes_on(result_.rounds); ++result_.rounds) {
    const auto value = static_cast<std::byte>(1 + result_.rounds % 255);
    const std::uint64_t began = now_ns();
    if (!client) await_round(value);
    *ours = value;
    move(kWrite, false, peer);
    if (client) await_round(value);
    wait_for(kWrite);
    if (client) count_latency(began, 2);
  }
}

void Run::bandwidth(const Advert& peer) {
  std::uint64_t posted = 0, empty = 0;
  ibv_wc done[16];
  while (goes_on(result_.rounds)) {
    while (posted - result_.rounds < options_.tx_depth && goes_on(posted)) {
      move(kWrite, false, peer);
      ++posted;
    }
    if (options_.poll) {
      const std::size_t n = connection_.take(done, 16);
      std::for_each(done, done + n, [this](const ibv_wc& wc) { note(wc); });
      result_.rounds += std::exchange(seen_[kWrite], 0);
      if (n == 0 && ++empty % 4096 == 0) connection_.check_alive();
    } else {
      wait_for(kWrite);
      ++result_.rounds;
    }
  }
}

Result Run::run() {
  result_.device = connection_.device();
  if (options_.keys_change()) result_.keys = buffers_.fast() ? "fast registration" : "window";
  const bool client = options_.role == Role::kClient;
  std::uint64_t began = now_ns();
  try {
    if (options_.test == Test::kPing) {
      client ? ping_client() : ping_server();
    } else {
      const Advert peer = exchange();
      began = now_ns();
      if (options_.test == Test::kWriteLatency) write_latency(peer);
      if (options_.test == Test::kReadLatency && client) read_latency(peer);
      if (options_.test == Test::kBandwidth && (client || options_.duplex)) bandwidth(peer);
      result_.elapsed_ns = now_ns() - began;
      agree_on_end();
    }
  } catch (const Disconnected&) {
    if (client) throw Failure("the server disconnected after " + std::to_string(result_.rounds) + " rounds");
  } catch (const Interrupted&) {
  }
  if (result_.elapsed_ns == 0) result_.elapsed_ns = now_ns() - began;
  return result_;
}

}  // namespace

Result run(Connection& connection, Buffers& buffers, const Options& options) {
  return Run(connection, buffers, options).run();
}

}  // namespace uroce::ping
