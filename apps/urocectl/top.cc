#include "top.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>

#include "daemon_client.h"
#include "rates.h"
#include "row_filter.h"
#include "stop_signal.h"
#include "table.h"

namespace uroce::ctl {
namespace {

using Clock = std::chrono::steady_clock;

/// Keys come without Return until the program ends, in whatever way; nothing changes without a terminal.
class RawTerminal {
 public:
  RawTerminal() : is_one_(isatty(STDIN_FILENO) != 0 && tcgetattr(STDIN_FILENO, &before_) == 0) {
    if (!is_one_) return;
    std::atexit([] { tcsetattr(STDIN_FILENO, TCSANOW, &before_); });
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  }

  /// The key that is pressed within that time; 0: none.
  char key(std::chrono::milliseconds within) const {
    pollfd input{is_one_ ? STDIN_FILENO : -1, POLLIN, 0};
    char pressed = 0;
    if (poll(&input, 1, static_cast<int>(within.count())) > 0 && ::read(STDIN_FILENO, &pressed, 1) != 1) return 0;
    return pressed;
  }

 private:
  static inline termios before_{};
  bool is_one_;
};

struct SortKey {
  char key;
  const char *word, *column;
};
constexpr SortKey kSortKeys[] = {{'s', "sent", "tx_packets_s"},
                                 {'r', "received", "rx_packets_s"},
                                 {'x', "retransmitted", "retransmitted_s"},
                                 {'o', "outstanding", "outstanding"}};

/// Of a word of --sort.
std::string column_of(const std::string& word) {
  for (const SortKey& each : kSortKeys) {
    if (word == each.word) return each.column;
  }
  fail(2, "--sort " + word + ": give sent, received, retransmitted or outstanding");
}

class Top {
 public:
  Top(const Options& options, std::vector<std::string> devices)
      : options_(options),
        devices_(std::move(devices)),
        filter_(options.argument),
        sort_(column_of(options.sort)) {}

  int run() {
    stop_on_signal();
    const bool screen = isatty(STDOUT_FILENO) != 0 && !options_.json;
    round();  // the first has nothing to compare with
    std::optional<RawTerminal> terminal;
    if (screen) terminal.emplace();
    for (unsigned shown = 0; options_.rounds == 0 || shown < options_.rounds; ++shown) {
      if (!pause(terminal ? &*terminal : nullptr)) break;
      const Json now = round();
      if (options_.json) {
        std::printf("%s\n", now.dump().c_str());
      } else {
        std::printf("%s%s", screen ? "\033[H\033[2J" : "", text(now, screen ? rows_of_screen() : ~0u).c_str());
      }
      if (std::fflush(stdout) != 0) return 1;
    }
    return 0;
  }

 private:
  /// False: the end.
  bool pause(const RawTerminal* keys) {
    const auto end = Clock::now() + std::chrono::duration<double>(options_.interval_s);
    while (g_stop.load() == 0 && Clock::now() < end) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
      if (keys == nullptr) {
        wait_for(std::chrono::duration<double>(left).count());
        continue;
      }
      const char key = keys->key(std::clamp(left, std::chrono::milliseconds(1), std::chrono::milliseconds(100)));
      if (key == 'q') return false;
      for (const SortKey& each : kSortKeys) {
        if (key == each.key) sort_ = each.column;
      }
    }
    return g_stop.load() == 0;
  }

  static unsigned rows_of_screen() {
    winsize size{};
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 4 ? size.ws_row : 24;
  }

  Json round() {
    rates_.begin_round();
    Json devices = Json::array(), workers = Json::array(), qps = Json::array();
    for (const std::string& device : devices_) {
      const Answer counters = ask(options_.run_dir, device, {{"command", "stat"}});
      const Answer sessions = ask(options_.run_dir, device, {{"command", "show"}, {"what", "sessions"}});
      Answer rows = ask(options_.run_dir, device, {{"command", "show"}, {"what", "qps"}});
      if (!counters.problem.empty() || !rows.problem.empty()) {
        devices.push_back({{"device", device}, {"problem", counters.problem + rows.problem}});
        continue;
      }
      devices.push_back(rates_.device(device, counters.json));
      const Answer threads = ask(options_.run_dir, device, {{"command", "show"}, {"what", "workers"}});
      if (threads.problem.empty()) {
        for (const Json& row : threads.json.value("workers", Json::array()))
          workers.push_back(rates_.worker(device, row));
      }
      add_session_columns(rows.json, sessions.json);
      filter_.apply(rows.json, sessions.json);
      for (const Json& row : rows.json.value("qps", Json::array())) qps.push_back(rates_.qp(device, row));
    }
    std::stable_sort(qps.begin(), qps.end(), [&](const Json& a, const Json& b) {
      return number_at(a, sort_.c_str()) > number_at(b, sort_.c_str());
    });
    return {{"devices", devices}, {"workers", workers}, {"qps", qps}};
  }

  /// Rates as whole numbers, at most as many lines as there is room for.
  static std::string text(Json now, unsigned lines) {
    for (Json& list : now) {
      for (Json& row : list) {
        for (auto& [name, value] : row.items()) {
          if (!value.is_number_float()) continue;
          char number[32];
          std::snprintf(number, sizeof number, name.ends_with("gbit_s") ? "%.2f" : "%.0f", value.get<double>());
          value = number;
        }
      }
    }
    const std::string whole = tables(now);
    std::size_t end = 0;
    for (unsigned line = 0; line + 2 < lines && end != std::string::npos; ++line) end = whole.find('\n', end + 1);
    return (end == std::string::npos ? whole : whole.substr(0, end + 1)) +
           (lines == ~0u ? "\n" : "q: end; sort by s: sent, r: received, x: retransmitted, o: outstanding\n");
  }

  const Options& options_;
  std::vector<std::string> devices_;
  RowFilter filter_;
  std::string sort_;  // a column
  Rates rates_;
};

}  // namespace

int top(const Options& options, const std::vector<std::string>& devices) { return Top(options, devices).run(); }

}  // namespace uroce::ctl
