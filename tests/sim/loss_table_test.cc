// What loss, distance and the number of senders cost: goodput, retransmissions, timeouts and fairness, compared
// with the table that is kept. A change of retransmission or of the congestion window shows as a change of that
// file.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <numeric>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/sim/incast.h"
#include "tests/sim/model.h"

namespace uroce::sim {
namespace {

std::string program, table_path;  // as the test was called

// ---------------------------------------------------------------- the cases

constexpr SwitchSettings kCables{.gbps = 25, .port_bytes = 1'000'000};
constexpr std::size_t kMarkBytes = 200'000;
constexpr std::uint64_t kSeed = 1;

struct Shape {
  std::uint32_t senders, bytes, posted;
};
constexpr Shape kSingle{1, 65536, 1}, kQueue{1, 4096, 16}, kStream{1, 1u << 20, 4};
constexpr Shape kFew{8, 65536, 2}, kMany{32, 4096, 16}, kManyStreams{32, 1u << 20, 2};

constexpr Nanos kRack = 10 * kMicrosecond, kBuilding = 100 * kMicrosecond, kCity = kMillisecond,
                kCountry = 10 * kMillisecond;

/// All combinations of shape, round trip and loss.
struct Block {
  std::uint8_t opcode;
  bool marks;
  std::vector<Shape> shapes;
  std::vector<Nanos> round_trips;
  std::vector<std::uint32_t> losses;  ///< in a million
};

std::vector<Block> blocks() {
  constexpr std::uint8_t kWrite = UROCE_WR_RDMA_WRITE, kSend = UROCE_WR_SEND, kRead = UROCE_WR_RDMA_READ;
  return {
      {kWrite, false, {kSingle, kQueue}, {kRack, kBuilding, kCity}, {0, 1000, 10'000}},
      {kWrite, false, {kStream}, {kRack, kBuilding, kCity}, {0, 100, 1000, 10'000}},
      {kWrite, false, {kFew}, {kRack, kBuilding, kCity}, {0, 1000, 10'000}},
      {kWrite, false, {kStream}, {kCountry}, {0, 1000, 10'000}},
      {kWrite, false, {kMany}, {kRack, kCity}, {0, 10'000}},
      {kWrite, false, {kManyStreams}, {kRack, kCity}, {0, 1000, 10'000}},
      {kWrite, true, {kMany, kManyStreams}, {kRack, kCity}, {0}},
      {kSend, false, {kFew}, {kRack, kCity}, {0, 10'000}},
      {kRead, false, {kSingle, kStream}, {kRack, kCity}, {0, 1000, 10'000}},
      {kRead, false, {kManyStreams}, {kRack, kCity}, {0, 10'000}},
      {kRead, true, {kManyStreams}, {kRack}, {0}},
  };
}

/// What a row waits for: enough for several losses, and for 32 senders to get through their first ones.
std::uint64_t packets_for(const Load& load) {
  const bool rare = load.network.lost_in_million == 100;
  return rare ? 40960 : load.senders >= 32 ? 20480 : 10240;
}

// ---------------------------------------------------------------- the table

struct Column {
  std::string_view name;
  std::size_t width;
  std::string_view meaning;
};
constexpr Column kColumns[] = {
    {"op", 5, "data flows to one host: it READs, or the others WRITE or SEND"},
    {"senders", 7, "hosts that the data comes from, each with one connection"},
    {"bytes", 7, "of each message"},
    {"posted", 6, "messages of each connection, at all times"},
    {"rtt_us", 6, "round trip through empty cables"},
    {"loss", 5, "of all frames in both directions, by chance"},
    {"ecn", 3, "yes: the switch marks"},
    {"packets", 7, "of data; the row ends when they are acknowledged"},
    {"most", 5, "Mb/s of payload that cable and posted messages allow"},
    {"goodput", 7, "Mb/s of payload that is acknowledged"},
    {"random", 6, "frames lost by chance"},
    {"full", 5, "frames lost because the memory of the switch was full"},
    {"resent", 6, "retransmitted_pkts"},
    {"early", 5, "roce_adp_retrans: probes and early retransmissions"},
    {"timeouts", 8, "local_ack_timeout_err"},
    {"jain", 5, "Jain's fairness index of what is acknowledged, 1 if all senders have the same"}};
constexpr std::size_t kKeys = 8, kGoodput = 9;  // columns that name a row; the one to sum up

using Words = std::vector<std::string>;

std::string line_of(const Words& words) {
  std::string line;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::size_t width = kColumns[i].width;
    if (i != 0) line += i == kKeys ? " | " : " ";
    line += std::string(width - std::min(width, words[i].size()), ' ') + words[i];
  }
  return line;
}

/// A line for each setting that all rows share, and for each column.
std::string header() {
  const Nanos early = HostSettings{}.min_early_retry_delay;
  const auto us = [](Nanos time) { return std::to_string(time / kMicrosecond) + " us"; };
  const std::pair<std::string, std::string> settings[] = {
      {"cables", std::to_string(kCables.gbps) + " Gb/s, from each host to one switch"},
      {"memory", std::to_string(kCables.port_bytes) + " bytes wait for one host at most"},
      {"marks", "while more than " + std::to_string(kMarkBytes) + " bytes wait"},
      {"path MTU", std::to_string(Incast::kMtu)},
      {"timeout", std::to_string(Load{}.timeout) + ": " + us(Nanos{4096} << Load{}.timeout)},
      {"retry_cnt", std::to_string(Connection{}.retry_cnt)},
      {"early", us(early) + " to an early retransmission, " + us(early / 8) + " to a probe"}};
  std::string text =
      "# What loss, distance and the number of senders cost new connections: written and compared by\n"
      "# sim-loss-table-test, in virtual time (tests/sim/README.md).\n#\n";
  const auto add = [&text](std::string name, std::string_view value) {
    name.resize(10, ' ');
    text.append("# ").append(name).append(value).append("\n");
  };
  for (const auto& [name, value] : settings) add(name, value);
  text += "#\n";
  for (const Column& column : kColumns) add(std::string(column.name), column.meaning);
  return text + "#\n";
}

/// With `digits` digits after the point.
std::string decimal(std::uint64_t value, std::uint32_t digits) {
  std::string text = std::to_string(value);
  if (text.size() <= digits) text.insert(0, digits + 1 - text.size(), '0');
  return text.insert(text.size() - digits, ".");
}

/// Jain's index in thousandths.
std::uint64_t fairness(const std::vector<std::uint64_t>& shares) {
  std::uint64_t sum = 0, squares = 0;
  for (const std::uint64_t each : shares) {
    sum += each;
    squares += each * each;
  }
  return sum * sum * 1000 / (shares.size() * squares);
}

Words row(const Load& load) {
  const bool marks = load.network.mark_bytes != SIZE_MAX;
  const Nanos round_trip = load.network.latency * 4;
  const std::uint64_t bits = std::uint64_t{load.senders} * load.posted * load.bytes * 8;
  const std::uint64_t most = std::min<std::uint64_t>(bits * 1000 / round_trip, load.network.gbps * 1000);
  Words words{load.reads() ? "READ" : load.opcode == UROCE_WR_SEND ? "SEND" : "WRITE"};
  for (const std::uint64_t each : {std::uint64_t{load.senders}, std::uint64_t{load.bytes},
                                   std::uint64_t{load.posted}, std::uint64_t{round_trip / kMicrosecond}}) {
    words.push_back(std::to_string(each));
  }
  words.push_back(decimal(load.network.lost_in_million / 100, 2) + "%");
  words.push_back(marks ? "yes" : "no");
  words.push_back(std::to_string(packets_for(load)));

  Incast incast(load, kSeed);
  try {
    incast.keep_busy(packets_for(load));
  } catch (const Violation& violation) {
    throw Violation(line_of(words) + ": " + violation.what());
  }
  const std::vector<std::uint64_t> shares = incast.acknowledged();
  const std::uint64_t sum = std::accumulate(shares.begin(), shares.end(), std::uint64_t{0});
  const proto::Counters counters = incast.counters();
  for (const std::uint64_t each :
       {most, sum * Incast::kMtu * 8 * 1000 / incast.now(), incast.network().lost(), incast.network().overflowed(),
        counters.retransmitted_pkts, counters.roce_adp_retrans, counters.local_ack_timeout_err}) {
    words.push_back(std::to_string(each));
  }
  words.push_back(decimal(fairness(shares), 3));
  return words;
}

std::string table() {
  Words names;
  for (const Column& column : kColumns) names.emplace_back(column.name);
  std::string text = header() + line_of(names) + "\n";
  for (const Block& block : blocks()) {
    text += "\n";
    for (const Shape& shape : block.shapes) {
      for (const Nanos round_trip : block.round_trips) {
        for (const std::uint32_t loss : block.losses) {
          Load load{.opcode = block.opcode, .senders = shape.senders, .bytes = shape.bytes, .posted = shape.posted};
          load.network = kCables;
          load.network.latency = round_trip / 4;
          load.network.lost_in_million = loss;
          if (block.marks) load.network.mark_bytes = kMarkBytes;
          text += line_of(row(load)) + "\n";
        }
      }
    }
  }
  return text;
}

// ---------------------------------------------------------------- comparison

std::vector<Words> rows_of(const std::string& text) {
  std::vector<Words> rows;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream in(line);
    Words words;
    for (std::string word; in >> word;) {
      if (word != "|") words.push_back(word);
    }
    const bool is_row = words.size() == std::size(kColumns) && words[0] != "#" && words[0] != kColumns[0].name;
    if (is_row) rows.push_back(words);
  }
  return rows;
}

/// The columns that name a row.
std::string name_of(const Words& row) {
  std::string name = "  ";
  for (std::size_t i = 0; i < kKeys; ++i) name += row[i] + " ";
  return name;
}

struct Changes {
  std::string text;  ///< a line for each row
  int rows = 0, slower = 0, faster = 0;
  long per_mille = 0;  ///< of goodput: sum of the differences
};

void compare(const Words& before, const Words& after, Changes& out) {
  if (before == after) return;
  ++out.rows;
  const long old = std::stol(before[kGoodput]), now = std::stol(after[kGoodput]);
  (now < old ? out.slower : out.faster) += now != old;
  if (old != 0) out.per_mille += (now - old) * 1000 / old;
  out.text += name_of(before) + "|";
  for (std::size_t i = kKeys; i < std::size(kColumns); ++i) {
    if (before[i] == after[i]) continue;
    out.text += " " + std::string(kColumns[i].name) + " " + before[i] + " -> " + after[i];
  }
  out.text += "\n";
}

Changes changes(const std::string& kept, const std::string& now) {
  std::map<std::string, Words> before;
  for (const Words& row : rows_of(kept)) before.emplace(name_of(row), row);
  Changes out;
  for (const Words& row : rows_of(now)) {
    const auto old = before.find(name_of(row));
    if (old == before.end()) {
      out.text += name_of(row) + "| is not in the table\n";
      continue;
    }
    compare(old->second, row, out);
    before.erase(old);
  }
  for (const auto& [name, row] : before) out.text += name + "| is no longer a case\n";
  if (out.text.empty()) out.text = "  only the lines around the rows\n";
  return out;
}

TEST(LossTable, IsWhatTheCodeDoes) {
  const std::string now = table();
  if (std::getenv("UROCE_WRITE_REFERENCE") != nullptr) std::ofstream(table_path) << now;
  std::ostringstream kept;
  kept << std::ifstream(table_path).rdbuf();
  if (kept.str() == now) return;
  const Changes found = changes(kept.str(), now);
  std::string sum;
  if (found.rows != 0) {
    sum = std::to_string(found.rows) + " rows differ: goodput is lower in " + std::to_string(found.slower) +
          " and higher in " + std::to_string(found.faster) + ", on average by " +
          std::to_string(found.per_mille / found.rows) + " per mille.\n";
  }
  ADD_FAILURE() << table_path << " and the code differ, old -> new:\n"
                << found.text << sum << "If the change is meant, write the table anew and commit both:\n"
                << "  UROCE_WRITE_REFERENCE=1 " << program << " " << table_path;
}

}  // namespace
}  // namespace uroce::sim

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s tests/sim/loss_table.txt\n", argv[0]);
    return 2;
  }
  uroce::sim::program = argv[0];
  uroce::sim::table_path = argv[1];
  return RUN_ALL_TESTS();
}
