#include "apps/uroce-ping/options.h"

#include <gtest/gtest.h>

#include "apps/uroce-ping/report.h"

namespace uroce::ping {
namespace {

std::string error_of(std::string_view text) {
  std::string error;
  EXPECT_FALSE(parse(text, error)) << text;
  return error;
}

TEST(Options, krpings_documented_strings_are_accepted) {
  std::string error;
  const auto server = parse("server,addr=192.168.69.127,port=9999", error);
  ASSERT_TRUE(server) << error;
  EXPECT_EQ(server->role, Role::kServer);
  EXPECT_EQ(server->port, 9999);
  const auto client = parse("client,addr=192.168.69.127,port=9999,count=100", error);
  ASSERT_TRUE(client) << error;
  EXPECT_EQ(client->role, Role::kClient);
  EXPECT_EQ(client->address, "192.168.69.127");
  EXPECT_EQ(client->count, 100u);
  EXPECT_EQ(client->rounds(), 100u);
  EXPECT_EQ(client->test, ping::Test::kPing);
}

TEST(Options, every_word_sets_its_option) {
  std::string error;
  const auto all = parse(
      "client,addr6=2001:db8::1,size=65536,verbose,validate,mem_mode=fastreg,server_inv,read_inv,local_dma_lkey,"
      "poll",
      error);
  ASSERT_TRUE(all) << error;
  EXPECT_EQ(all->size, 65536u);
  EXPECT_EQ(all->memory, MemoryMode::kFastReg);
  EXPECT_TRUE(all->verbose && all->validate && all->server_invalidates && all->read_invalidates && all->poll);
  EXPECT_EQ(all->rounds(), 0u) << "until interrupted";
  EXPECT_EQ(parse("server,mem_mode=reg,server_inv", error)->memory, MemoryMode::kFastReg);
  EXPECT_EQ(parse("server,mem_mode=window", error)->memory, MemoryMode::kWindow);
  const auto bandwidth = parse("server,bw,duplex,txdepth=16,mem_mode=mr", error);
  ASSERT_TRUE(bandwidth) << error;
  EXPECT_EQ(bandwidth->test, ping::Test::kBandwidth);
  EXPECT_TRUE(bandwidth->duplex);
  EXPECT_EQ(bandwidth->tx_depth, 16u);
  EXPECT_EQ(bandwidth->rounds(), 1000u);
  EXPECT_EQ(parse("server,rlat", error)->test, ping::Test::kReadLatency);
  EXPECT_EQ(parse("server,wlat", error)->test, ping::Test::kWriteLatency);
}

TEST(Options, options_for_changing_keys_are_checked) {
  std::string error;
  EXPECT_TRUE(parse("server,mem_mode=window,server_inv", error)) << error;
  EXPECT_TRUE(parse("server,mem_mode=fastreg,read_inv", error)) << error;
  EXPECT_NE(error_of("server,mem_mode=window,read_inv").find("fastreg"), std::string::npos);
  EXPECT_NE(error_of("server,mem_mode=mr,server_inv").find("window"), std::string::npos);
  EXPECT_NE(error_of("server,mem_mode=window,bw").find("ping"), std::string::npos);
}

TEST(Options, errors_name_the_word_and_what_is_allowed) {
  EXPECT_NE(error_of("server,size=0").find("from 1 to"), std::string::npos);
  EXPECT_NE(error_of("server,port=65536").find("port=65536"), std::string::npos);
  EXPECT_NE(error_of("server,count=ten").find("count=ten"), std::string::npos);
  EXPECT_NE(error_of("server,size").find("size"), std::string::npos);
  EXPECT_NE(error_of("server,mem_mode=quick").find("fastreg (or reg)"), std::string::npos);
  EXPECT_NE(error_of("server,bv").find("bv"), std::string::npos);
  EXPECT_NE(error_of("server,poll=1").find("poll=1"), std::string::npos);
  EXPECT_NE(error_of("").find("server or client"), std::string::npos);
  EXPECT_NE(error_of("server,client,addr=192.0.2.1").find("either"), std::string::npos);
  EXPECT_NE(error_of("client").find("addr="), std::string::npos);
  EXPECT_NE(error_of("server,bw,rlat").find("one"), std::string::npos);
  EXPECT_NE(error_of("server,duplex").find("bw"), std::string::npos);
  EXPECT_NE(error_of("server,server_inv").find("fastreg"), std::string::npos);
}

TEST(Report, quantiles_are_measured_values) {
  std::vector<std::uint32_t> latencies;
  for (std::uint32_t i = 1; i <= 1000; ++i) latencies.push_back(i * 1000);
  EXPECT_EQ(quantile_us(latencies, 0.5), 500);
  EXPECT_EQ(quantile_us(latencies, 0.99), 990);
  EXPECT_EQ(quantile_us(latencies, 0.999), 999);
  EXPECT_EQ(quantile_us(latencies, 1), 1000);
  EXPECT_EQ(quantile_us({7000}, 0.5), 7);
  EXPECT_EQ(quantile_us({}, 0.5), 0);
}

TEST(Report, json_contains_the_results) {
  Options options;
  options.test = ping::Test::kWriteLatency;
  const std::string text = report(
      options, {.device = "uroce0", .rounds = 2, .bytes = 128, .elapsed_ns = 1000, .latencies_ns = {3000, 1000}},
      true);
  EXPECT_NE(text.find("\"test\":\"wlat\""), std::string::npos) << text;
  EXPECT_NE(text.find("\"device\":\"uroce0\""), std::string::npos) << text;
  EXPECT_NE(text.find("\"gbits_per_second\":1.024"), std::string::npos) << text;
  EXPECT_NE(text.find("\"min\":1.000"), std::string::npos) << text;
  EXPECT_NE(text.find("\"max\":3.000"), std::string::npos) << text;
  EXPECT_EQ(report(options, {}, true).find("latency"), std::string::npos) << "not measured";
}

}  // namespace
}  // namespace uroce::ping
