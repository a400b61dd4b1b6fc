#include "report.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <numeric>

namespace uroce::ping {
namespace {

__attribute__((format(printf, 1, 2))) std::string format(const char* text, ...) {
  char buffer[512];
  va_list args;
  va_start(args, text);
  std::vsnprintf(buffer, sizeof(buffer), text, args);
  va_end(args);
  return buffer;
}

struct Latency {
  double least = 0, mean = 0, p50 = 0, p90 = 0, p99 = 0, p999 = 0, most = 0;
};

Latency summary(const std::vector<std::uint32_t>& sorted) {
  const double sum = std::accumulate(sorted.begin(), sorted.end(), 0.0);
  return {sorted.front() / 1e3,      sum / 1e3 / static_cast<double>(sorted.size()),
          quantile_us(sorted, 0.5),  quantile_us(sorted, 0.9),
          quantile_us(sorted, 0.99), quantile_us(sorted, 0.999),
          sorted.back() / 1e3};
}

}  // namespace

double quantile_us(const std::vector<std::uint32_t>& sorted, double quantile) {
  if (sorted.empty()) return 0;
  const double rank = std::ceil(quantile * static_cast<double>(sorted.size()));
  const std::size_t index = std::clamp<std::size_t>(static_cast<std::size_t>(rank), 1, sorted.size());
  return sorted[index - 1] / 1e3;
}

std::string report(const Options& options, Result result, bool json) {
  std::sort(result.latencies_ns.begin(), result.latencies_ns.end());
  const Latency latency = result.latencies_ns.empty() ? Latency{} : summary(result.latencies_ns);
  const double seconds = static_cast<double>(result.elapsed_ns) / 1e9;
  const double gbits = seconds > 0 ? static_cast<double>(result.bytes) * 8 / 1e9 / seconds : 0;
  const std::string test(test_name(options.test));
  const char* role = options.role == Role::kServer ? "server" : "client";
  const auto rounds = static_cast<unsigned long long>(result.rounds);
  const auto corrupt = static_cast<unsigned long long>(result.corrupt);
  std::string text;
  if (json) {
    text = format(
        "{\"test\":\"%s\",\"role\":\"%s\",\"device\":\"%s\",\"size\":%u,\"rounds\":%llu,\"corrupt\":%llu,"
        "\"seconds\":%.6f,\"gbits_per_second\":%.3f",
        test.c_str(), role, result.device.c_str(), options.size, rounds, corrupt, seconds, gbits);
    if (!result.keys.empty()) text += ",\"keys\":\"" + result.keys + "\"";
    if (!result.latencies_ns.empty()) {
      text += format(
          ",\"latency_us\":{\"min\":%.3f,\"mean\":%.3f,\"p50\":%.3f,\"p90\":%.3f,\"p99\":%.3f,\"p99.9\":%.3f,"
          "\"max\":%.3f}",
          latency.least, latency.mean, latency.p50, latency.p90, latency.p99, latency.p999, latency.most);
    }
    return text + "}\n";
  }
  text = format("%s, %s on %s: %llu rounds of %u bytes in %.3f s", test.c_str(), role, result.device.c_str(),
                rounds, options.size, seconds);
  if (options.validate) text += format(", %llu corrupt", corrupt);
  if (result.bytes != 0) text += format(", %.3f Gbit/s", gbits);
  text += '\n';
  if (result.latencies_ns.empty()) return text;
  return text +
         format("latency, us: min %.2f, mean %.2f, median %.2f, 90 %% %.2f, 99 %% %.2f, 99.9 %% %.2f, max %.2f\n",
                latency.least, latency.mean, latency.p50, latency.p90, latency.p99, latency.p999, latency.most);
}

}  // namespace uroce::ping
