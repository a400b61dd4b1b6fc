#include "tests/hostile/honest_tenants.h"

#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <vector>

#include "tests/hostile/random_values.h"
#include "tests/hostile/raw_client.h"

namespace uroce::hostile {
namespace {

/// The first one keeps its text.
void report_error(HonestReport& report, const std::string& text) {
  if (report.errors.fetch_add(1) == 0) {
    std::snprintf(report.first_error, sizeof(report.first_error), "%s", text.c_str());
  }
}

/// A login of its own: the kernel shares the processors among these (autogroup).
void log_in() {
  ::setsid();
  answer_timeout_ms = 60'000;  // attackers have thousands of threads
}

int measure(const std::string& path, HonestReport& report) {
  log_in();
  Tenant tenant(path, 1 << 20);
  if (!tenant.ok()) report_error(report, "the measuring tenant: " + tenant.error);
  while (tenant.ok() && !report.stop) {
    const int phase = report.phase;
    if (phase == kPause) {
      ::usleep(1000);
      continue;
    }
    const Nanos took = tenant.write_once();
    if (took == 0) {
      report_error(report, "an 8-byte WRITE did not complete well");
      return 1;
    }
    if (report.phase == phase) report.write[static_cast<std::size_t>(phase)].add(static_cast<std::uint64_t>(took));
  }
  return 0;
}

/// Moves random bytes with WRITE, READ and SEND, and compares them.
class Verifier {
 public:
  explicit Verifier(const std::string& path) : tenant_(path, 4 * kPart) {}

  /// Empty, or what went wrong.
  std::string turn(Random& random) {
    if (!tenant_.ok()) return tenant_.error;
    const std::uint32_t bytes = 1 + random.below(kPart);
    std::byte* const base = tenant_.memory.data;
    for (std::uint32_t i = 0; i < bytes; ++i) base[i] = static_cast<std::byte>(random.next());
    if (!move(UROCE_WR_RDMA_WRITE, 0, 1, bytes)) return "WRITE failed";
    if (!move(UROCE_WR_RDMA_READ, 2, 1, bytes)) return "READ failed";
    if (std::memcmp(base, base + 2 * kPart, bytes) != 0) return "READ returned other bytes than those written";
    const uroce_sge element{tenant_.memory.address() + 3 * kPart, kPart, tenant_.memory.made.lkey};
    if (!tenant_.client.post_recv(tenant_.qp, 7, {&element, 1})) return "no room for a receive";
    if (!move(UROCE_WR_SEND, 0, 0, bytes)) return "SEND failed";
    if (!complete()) return "the receive failed";
    if (std::memcmp(base, base + 3 * kPart, bytes) != 0) return "SEND delivered other bytes";
    moved = bytes;
    return {};
  }
  std::uint32_t moved = 0;

 private:
  static constexpr std::uint32_t kPart = 256 << 10;

  bool complete() {
    uroce_cqe done{};
    return tenant_.client.poll(tenant_.cq, done) && done.status == UROCE_WC_SUCCESS;
  }
  bool move(std::uint8_t opcode, std::uint32_t local, std::uint32_t remote, std::uint32_t bytes) {
    uroce_sq_entry entry{};
    entry.opcode = opcode;
    entry.flags = UROCE_SEND_SIGNALED;
    entry.num_sge = 1;
    entry.rkey = tenant_.memory.made.rkey;
    entry.remote_addr = tenant_.memory.address() + remote * kPart;
    const uroce_sge element{tenant_.memory.address() + local * kPart, bytes, tenant_.memory.made.lkey};
    return tenant_.client.post_send(tenant_.qp, entry, {&element, 1}) && complete();
  }

  Tenant tenant_;
};

int verify(const std::string& path, HonestReport& report) {
  log_in();
  Verifier verifier(path);
  Random random(1);
  while (!report.stop) {
    if (const std::string error = verifier.turn(random); !error.empty()) {
      report_error(report, "verification: " + error);
      return 1;
    }
    ++report.verified;
    report.verified_bytes += verifier.moved;
    ::usleep(2000);
  }
  return 0;
}

int open_again(const std::string& path, HonestReport& report) {
  log_in();
  while (!report.stop) {
    const int phase = report.phase;
    const Nanos begun = monotonic_now();
    Tenant tenant(path, 1 << 20);
    if (!tenant.ok() || tenant.write_once() == 0) {
      report_error(report, "opening the device: " + (tenant.ok() ? "a WRITE failed" : tenant.error));
      return 1;
    }
    report.open[static_cast<std::size_t>(phase)].add(static_cast<std::uint64_t>(monotonic_now() - begun));
    ::usleep(100'000);
  }
  return 0;
}

}  // namespace

void Latencies::add(std::uint64_t ns) {
  const double at = std::log2(static_cast<double>(ns < 1 ? 1 : ns)) * kSteps;
  ++buckets_[static_cast<std::size_t>(at)];
}

std::uint64_t Latencies::count() const {
  std::uint64_t sum = 0;
  for (const auto& bucket : buckets_) sum += bucket;
  return sum;
}

double Latencies::percentile_us(double part) const {
  const double wanted = part * static_cast<double>(count());
  double seen = 0;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    seen += static_cast<double>(buckets_[i]);
    if (seen > 0 && seen >= wanted) return std::exp2((static_cast<double>(i) + 1) / kSteps) / 1000;
  }
  return 0;
}

HonestTenants::HonestTenants(const std::string& socket_path, HonestReport& report)
    : report_(report),
      measuring_(kHonest, [&] { return measure(socket_path, report); }),
      verifying_(kHonest, [&] { return verify(socket_path, report); }),
      opening_(kHonest, [&] { return open_again(socket_path, report); }) {}

bool HonestTenants::end() {
  report_.stop = true;
  bool good = true;
  for (Child* child : {&measuring_, &verifying_, &opening_}) good = child->wait(90'000) == 0 && good;
  return good;
}

Child busy_neighbour(const std::string& socket_path, uid_t user) {
  return Child(user, [&socket_path] {
    ::setsid();
    constexpr std::uint32_t kBytes = 64 << 10;
    Tenant tenant(socket_path, 2 * kBytes);
    if (!tenant.ok()) return 1;
    const auto post = [&] {
      return tenant.client.post_write(tenant.qp, tenant.memory, tenant.memory.address() + kBytes,
                                      tenant.memory.made.rkey, kBytes);
    };
    for (int i = 0; i < 8; ++i) post();
    uroce_cqe done{};
    while (tenant.client.poll(tenant.cq, done, 60'000) && done.status == UROCE_WC_SUCCESS) post();
    return 2;
  });
}

}  // namespace uroce::hostile
