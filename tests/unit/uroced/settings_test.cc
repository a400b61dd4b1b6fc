// How uroced reads its flags and configuration file.
#include "apps/uroced/settings.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <set>

#include "apps/uroced/addresses.h"
#include "apps/uroced/devices.h"

namespace uroce::uroced {
namespace {

std::string parse(std::vector<std::string> arguments, CommandLine& line) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return parse_command_line(argv, line);
}

class SettingsTest : public ::testing::Test {
 protected:
  SettingsTest() : path_(::testing::TempDir() + "uroced_settings_" + std::to_string(::getpid()) + ".toml") {
    ::unsetenv("UROCE_RUN_DIR");
  }
  ~SettingsTest() override { std::remove(path_.c_str()); }

  std::string read(const std::string& text) {
    std::ofstream(path_) << text;
    return read_config_file(path_, settings_);
  }

  std::string path_;
  Settings settings_;
};

TEST_F(SettingsTest, the_documented_file_names_every_knob_with_its_default) {
  const std::string path = UROCE_CONFIG_DIR "/uroced.toml";
  ASSERT_EQ(read_config_file(path, settings_), "");
  const Settings defaults;
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  for (const Knob& knob : knobs()) {
    EXPECT_EQ(knob.show(settings_), knob.show(defaults)) << knob.key;
    const std::string key = knob.key;
    EXPECT_NE(text.find("\n" + key.substr(key.find('.') + 1) + " = "), std::string::npos)
        << key << " is not documented";
    EXPECT_NE(help_text().find(std::string("--") + knob.flag), std::string::npos) << knob.flag;
  }
}

TEST_F(SettingsTest, a_netdev_has_the_name_of_an_interface_and_may_have_a_namespace) {
  for (const char* good : {"rdma0", "rdma0@host0", "a@/proc/1/ns/net", "", "fifteen-letters"}) {
    CommandLine line;
    EXPECT_EQ(parse({"--netdev", good}, line), "") << good;
    EXPECT_EQ(line.settings.config.netdev, good);
  }
  for (const char* bad :
       {"sixteen-letters-", "@host0", "rdma0@", "rdma%d", "a/b", "a:b", "a b", ".", "..", "rdma0@.."}) {
    CommandLine line;
    EXPECT_NE(parse({"--netdev", bad}, line).find("an interface, of at most 15 characters"), std::string::npos)
        << bad;
  }
  for (const char* port : {"udp", "udp,gso=off", "net_af_packet0,iface=eth0", "net_af_xdp0,iface=eth0", "net_tap0",
                           "net_pcap0,iface=lo"}) {
    CommandLine line;
    EXPECT_NE(parse({"--netdev", "rdma0", "--port", port}, line).find("leave out --netdev"), std::string::npos)
        << port;
  }
  CommandLine line;
  std::vector<Settings> hosts;
  ASSERT_EQ(parse({"--netdev", "rdma0@host9", "--hosts", "2", "--ip", "192.0.2.1/24"}, line), "");
  ASSERT_EQ(settings_of_devices(line.settings, hosts), "");
  EXPECT_EQ(hosts[0].config.netdev, "rdma0@host9");
  EXPECT_EQ(hosts[1].config.netdev, "rdma1@host10");
  ASSERT_EQ(parse({"--netdev", "rdma0@/proc/9/ns/net", "--hosts", "2", "--ip", "192.0.2.1/24"}, line), "");
  EXPECT_NE(settings_of_devices(line.settings, hosts).find("a path is the same for all hosts"), std::string::npos);
  ASSERT_EQ(parse({"--netdev", "rdma-interface9@h", "--hosts", "2", "--ip", "192.0.2.1/24"}, line), "");
  EXPECT_NE(settings_of_devices(line.settings, hosts).find("rdma-interface10@h1"), std::string::npos);
}

TEST_F(SettingsTest, the_examples_are_valid) {
  for (const char* name : {"memif-server", "memif-client", "pci-nic", "tap", "af_packet", "udp"}) {
    Settings settings;
    EXPECT_EQ(read_config_file(std::string(UROCE_CONFIG_DIR "/examples/") + name + ".toml", settings), "") << name;
  }
}

TEST_F(SettingsTest, flags_override_the_file) {
  ASSERT_EQ(read("name = \"a\"\nip = [\"192.0.2.1/24\", \"2001:db8::1/64\"]\n[workers]\ncount = 3\n"), "");
  CommandLine line;
  ASSERT_EQ(
      parse({"--workers", "2", "--config", path_, "--ip=192.0.2.7/25", "--no-hugepages", "--no-indirect"}, line),
      "");
  EXPECT_EQ(line.settings.config.name, "a");
  EXPECT_EQ(line.settings.workers, 2u);
  EXPECT_FALSE(line.settings.hugepages);
  EXPECT_FALSE(line.settings.config.indirect);
  ASSERT_EQ(line.settings.config.addresses.size(), 1u);
  EXPECT_EQ(to_string(line.settings.config.addresses[0].address), "192.0.2.7");
  EXPECT_EQ(line.settings.config.addresses[0].prefix_bits, 25);
}

TEST_F(SettingsTest, a_wrong_key_is_named_with_its_line_and_the_nearest_right_one) {
  EXPECT_EQ(
      read("name = \"a\"\n[workers]\ncuont = 3\n"),
      path_ +
          ":3: there is no key \"workers.cuont\"; did you mean \"workers.count\"? config/uroced.toml lists all");
  EXPECT_NE(read("[wrokers]\ncount = 3\n"), "");
  EXPECT_NE(read("name = 3.5\n"), "");
  EXPECT_NE(read("name = [\"a\", \"b\"]\n"), "");
  EXPECT_NE(read("name = \"a\n"), "");
  EXPECT_NE(read_config_file("/nonexistent.toml", settings_), "");
}

TEST_F(SettingsTest, an_error_names_what_is_allowed) {
  const std::vector<std::vector<std::string>> wrong{{"--nmae", "x"},
                                                    {"--name"},
                                                    {"--name", ""},
                                                    {"--name", "../x"},
                                                    {"--mtu", "99999"},
                                                    {"--mtu", "1x"},
                                                    {"--ip", "192.0.2"},
                                                    {"--ip", "192.0.2.1/33"},
                                                    {"--ip", "224.0.0.1"},
                                                    {"--gateway", "x"},
                                                    {"--mac", "ff:ff:ff:ff:ff:ff"},
                                                    {"--mac", "02:00"},
                                                    {"--workers", "0"},
                                                    {"--workers", "17"},
                                                    {"--cpus", "3-1"},
                                                    {"--cpus", "a"},
                                                    {"--poll-mode", "lazy"},
                                                    {"--log-level", "loud"},
                                                    {"--no-hugepages=1"},
                                                    {"--user-weight", "root"},
                                                    {"--user-weight", "=2"},
                                                    {"--user-weight", "root=0"},
                                                    {"--user-weight", "root=101"},
                                                    {"--user-weight", "no such user=1"},
                                                    {"--user-weight", "4294967295=1"},
                                                    {"--user-rate-mbps", "root=x"},
                                                    {"stray"},
                                                    {"--port", ""}};
  for (const auto& arguments : wrong) {
    CommandLine line;
    const std::string error = parse(arguments, line);
    EXPECT_NE(error, "") << arguments[0];
    EXPECT_EQ(error.find('\n'), std::string::npos) << "one line";
  }
  CommandLine line;
  EXPECT_EQ(parse({"--nmae", "x"}, line), "there is no flag --nmae; did you mean --name? See uroced --help");
}

TEST_F(SettingsTest, addresses_make_a_device_together) {
  struct Case {
    std::vector<std::string> flags;
    std::string says;  // empty: accepted
  };
  const Case cases[] = {
      {{"--ip", "192.0.2.0/24"}, "the network's own address"},
      {{"--ip", "192.0.2.255/24"}, "the broadcast address"},
      {{"--ip", "192.0.2.64/26"}, "the network's own address"},
      {{"--ip", "192.0.2.127/26"}, "the broadcast address"},
      {{"--ip", "192.0.2.64/25"}, ""},
      {{"--ip", "192.0.2.0/31"}, ""},
      {{"--ip", "192.0.2.1/31"}, ""},
      {{"--ip", "192.0.2.0/32"}, ""},
      {{"--ip", "2001:db8::/64"}, ""},
      {{"--ip", "192.0.2.1/24", "--ip", "192.0.2.1/25"}, "given twice"},
      {{"--ip", "2001:db8::1/64", "--ip", "192.0.2.1/24", "--ip", "2001:db8:0::1/64"}, "given twice"},
      {{"--ip", "192.0.2.1/24", "--ip", "192.0.2.1/24@vlan5"}, ""},
      {{"--ip", "192.0.2.1/24", "--gateway", "192.0.2.254"}, ""},
      {{"--ip", "192.0.2.1/24", "--gateway", "198.51.100.1"}, "in no prefix"},
      {{"--ip", "192.0.2.1/25", "--gateway", "192.0.2.254"}, "in no prefix"},
      {{"--ip", "192.0.2.1/24", "--gateway", "192.0.2.1"}, "of the device itself"},
      {{"--ip", "192.0.2.1/24", "--gateway", "2001:db8::1"}, "in no prefix"},
      {{"--ip", "2001:db8::2/64", "--gateway", "2001:db8::1"}, ""},
      {{"--ip", "192.0.2.1/24", "--gateway", "fe80::1"}, ""},
      {{"--ip", "192.0.2.1/24", "--gateway", "192.0.2.2", "--gateway", "192.0.2.3"}, "another one for IPv4"},
      {{"--ip", "192.0.2.1/24", "--ip", "2001:db8::2/64", "--gateway", "192.0.2.2", "--gateway", "2001:db8::1"},
       ""},
  };
  for (const Case& each : cases) {
    std::string given;
    for (const std::string& flag : each.flags) given += flag + " ";
    SCOPED_TRACE(given);
    CommandLine line;
    const std::string error = parse(each.flags, line);
    EXPECT_EQ(error.empty(), each.says.empty()) << error;
    EXPECT_NE(error.find(each.says), std::string::npos) << error;
  }
}

TEST_F(SettingsTest, cpus_must_exist) {
  settings_.config.cpus = {0};
  cpu_set_t allowed;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  if (CPU_ISSET(0, &allowed)) {
    EXPECT_EQ(check_cpus(settings_), "");
  }
  settings_.config.cpus = {0, 1023};
  EXPECT_NE(check_cpus(settings_).find("CPU 1023"), std::string::npos);
  cpu_set_t after;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(after), &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&allowed, &after));
}

TEST_F(SettingsTest, a_folder_is_no_configuration) {
  EXPECT_NE(read_config_file(::testing::TempDir(), settings_).find("is a folder"), std::string::npos);
}

TEST_F(SettingsTest, sizes_take_suffixes_and_cpus_take_ranges) {
  CommandLine line;
  ASSERT_EQ(parse({"--receive-ring-bytes", "8M", "--cpus", "1,4-6", "--user-bytes", "2G"}, line), "");
  EXPECT_EQ(line.settings.config.receive_ring_bytes, 8u << 20);
  EXPECT_EQ(line.settings.config.limits.queue_bytes, 2ull << 30);
  EXPECT_EQ(line.settings.config.cpus, (std::vector<int>{1, 4, 5, 6}));
}

TEST_F(SettingsTest, users_are_named_or_numbered_and_flags_replace_the_file) {
  const auto grant = [](const Settings& settings, std::uint32_t uid) {
    const auto at = std::ranges::find(settings.config.grants, uid, &control::UserGrant::uid);
    return at != settings.config.grants.end() ? *at : control::UserGrant{.uid = uid, .weight = 0};
  };
  ASSERT_EQ(read("[limits]\nuser_weight = [\"root=4\", \"1002=2\"]\nuser_rate_mbps = [\"1002=100\"]\n"), "");
  EXPECT_EQ(settings_.config.grants.size(), 2u);
  EXPECT_EQ(grant(settings_, 0).weight, 4u);
  EXPECT_EQ(grant(settings_, 0).rate_mbps, 0u);
  EXPECT_EQ(grant(settings_, 1002).weight, 2u);
  EXPECT_EQ(grant(settings_, 1002).rate_mbps, 100u);
  CommandLine line;
  ASSERT_EQ(parse({"--config", path_, "--user-weight", "1003=7"}, line), "");
  EXPECT_EQ(grant(line.settings, 0).weight, 1u);
  EXPECT_EQ(grant(line.settings, 1002).weight, 1u);
  EXPECT_EQ(grant(line.settings, 1002).rate_mbps, 100u);
  EXPECT_EQ(grant(line.settings, 1003).weight, 7u);
}

TEST_F(SettingsTest, addresses_survive_parsing_and_derived_macs_are_stable) {
  for (const char* text : {"192.0.2.1", "2001:db8::1", "fe80::1"}) EXPECT_EQ(to_string(*parse_address(text)), text);
  EXPECT_EQ(parse_interface_address("192.0.2.1")->prefix_bits, 24);
  EXPECT_EQ(parse_interface_address("2001:db8::1")->prefix_bits, 64);
  EXPECT_EQ(parse_interface_address("192.0.2.1/27")->vlan, 0);
  EXPECT_EQ(parse_interface_address("192.0.2.1/27@vlan4094")->vlan, 4094);
  EXPECT_EQ(parse_interface_address("192.0.2.1/27@vlan4094")->prefix_bits, 27);
  for (const char* text : {"192.0.2.1@vlan0", "192.0.2.1@vlan4095", "192.0.2.1@5", "192.0.2.1@vlan",
                           "192.0.2.1@vlan5x", "192.0.2.1@vlan5/24"}) {
    EXPECT_FALSE(parse_interface_address(text)) << text;
  }
  const auto address = *parse_address("192.0.2.1");
  EXPECT_EQ(derive_mac("uroce0", address), derive_mac("uroce0", address));
  EXPECT_NE(derive_mac("uroce0", address), derive_mac("uroce1", address));
  EXPECT_EQ(derive_mac("uroce0", address)[0], 0x02);
  EXPECT_EQ(to_string(link_local({0x02, 0x11, 0x22, 0x33, 0x44, 0x55}).address), "fe80::11:22ff:fe33:4455");
}

TEST_F(SettingsTest, what_changes_live_is_taken_over_and_the_rest_is_named) {
  CommandLine before, after;
  ASSERT_EQ(parse({"--ip", "192.0.2.1/24", "--gateway", "192.0.2.9", "--workers", "2"}, before), "");
  ASSERT_EQ(parse({"--ip", "192.0.2.2/24", "--cpus", "0", "--user-qps", "5", "--user-weight", "0=3", "--fault",
                   "drop=0.1", "--log-level", "debug", "--workers", "3", "--mtu", "1500"},
                  after),
            "");
  Settings current = before.settings;
  const Adopted adopted = adopt(current, after.settings);
  EXPECT_EQ(
      std::set<std::string>(adopted.changed.begin(), adopted.changed.end()),
      (std::set<std::string>{"ip", "gateway", "workers.cpus", "limits.user_qps", "debug.fault", "log_level"}));
  EXPECT_EQ(std::set<std::string>(adopted.waiting.begin(), adopted.waiting.end()),
            (std::set<std::string>{"workers.count", "mtu", "limits.user_weight"}));
  EXPECT_EQ(current.config.addresses, after.settings.config.addresses);
  EXPECT_TRUE(current.gateways.empty());
  EXPECT_EQ(current.config.cpus, std::vector<int>{0});
  EXPECT_EQ(current.config.limits.qps, 5u);
  EXPECT_EQ(current.fault, "drop=0.1");
  EXPECT_EQ(current.log_level, platform::LogLevel::kDebug);
  EXPECT_EQ(current.workers, 2u);
  EXPECT_EQ(current.config.mtu, 0u);
  const Adopted again = adopt(current, after.settings);
  EXPECT_TRUE(again.changed.empty());
  EXPECT_EQ(again.waiting, adopted.waiting) << "until the restart";
}

TEST_F(SettingsTest, sockets_keep_their_addresses) {
  CommandLine before, after;
  ASSERT_EQ(parse({"--port", "udp,gso=off", "--ip", "192.0.2.1/24"}, before), "");
  ASSERT_EQ(parse({"--port", "udp,gso=off", "--ip", "192.0.2.2/24"}, after), "");
  const Adopted adopted = adopt(before.settings, after.settings);
  EXPECT_TRUE(adopted.changed.empty());
  EXPECT_EQ(adopted.waiting, std::vector<std::string>{"ip"});
}

TEST_F(SettingsTest, check_is_a_flag_without_a_value) {
  CommandLine line;
  EXPECT_EQ(parse({"--check", "--ip", "192.0.2.1/24"}, line), "");
  EXPECT_TRUE(line.check);
}

class HostsTest : public ::testing::Test {
 protected:
  std::string set(std::vector<std::string> arguments) {
    CommandLine line;
    if (std::string error = parse(std::move(arguments), line); !error.empty()) return error;
    return settings_of_devices(line.settings, hosts);
  }
  std::vector<std::string> addresses(std::size_t host) const {
    std::vector<std::string> all;
    for (const auto& own : hosts[host].config.addresses) all.push_back(to_string(own.address));
    return all;
  }

  using Texts = std::vector<std::string>;
  std::vector<Settings> hosts;
};

TEST_F(HostsTest, names_and_addresses_count_up) {
  ASSERT_EQ(set({"--hosts", "3", "--ip", "192.0.2.1/24", "--ip", "2001:db8::ff/64", "--workers", "2"}), "");
  ASSERT_EQ(hosts.size(), 3u);
  for (const Settings& host : hosts) EXPECT_EQ(host.workers, 2u);
  EXPECT_EQ(hosts[0].config.name, "uroce0");
  EXPECT_EQ(hosts[2].config.name, "uroce2");
  EXPECT_EQ(addresses(0), (Texts{"192.0.2.1", "2001:db8::ff"}));
  EXPECT_EQ(addresses(1), (Texts{"192.0.2.2", "2001:db8::100"}));
  EXPECT_EQ(addresses(2), (Texts{"192.0.2.3", "2001:db8::101"}));
}

TEST_F(HostsTest, a_name_counts_from_its_number) {
  ASSERT_EQ(set({"--hosts", "2", "--ip", "192.0.2.1/24", "--name", "rack7n9"}), "");
  EXPECT_EQ(hosts[1].config.name, "rack7n10");
  ASSERT_EQ(set({"--hosts", "2", "--ip", "192.0.2.1/24", "--name", "a099"}), "");
  EXPECT_EQ(hosts[0].config.name, "a099");
  EXPECT_EQ(hosts[1].config.name, "a100");
  const std::string long_number = "a18446744073709551616";
  ASSERT_EQ(set({"--hosts", "2", "--ip", "192.0.2.1/24", "--name", long_number.c_str()}), "");
  EXPECT_EQ(hosts[0].config.name, long_number);
  EXPECT_EQ(hosts[1].config.name, "a18446744073709551617");
  ASSERT_EQ(set({"--hosts", "2", "--ip", "192.0.2.1/24", "--name", "rack"}), "");
  EXPECT_EQ(hosts[0].config.name, "rack0");
  EXPECT_EQ(hosts[1].config.name, "rack1");
}

TEST_F(HostsTest, one_host_is_as_given) {
  ASSERT_EQ(set({"--name", "rack", "--ip", "192.0.2.254/24", "--mac", "02:00:00:00:00:07"}), "");
  EXPECT_EQ(hosts[0].config.name, "rack");
  EXPECT_EQ(addresses(0), Texts{"192.0.2.254"});
}

TEST_F(HostsTest, a_prefix_has_room_for_as_many_as_it_has) {
  EXPECT_EQ(set({"--hosts", "6", "--ip", "192.0.2.1/29"}), "");
  EXPECT_EQ(set({"--hosts", "7", "--ip", "192.0.2.1/29"}),
            "--hosts 7: --ip 192.0.2.1/29 has room for 6 from there on; give a lower address, a shorter prefix, or "
            "fewer hosts");
  EXPECT_NE(set({"--hosts", "3", "--ip", "2001:db8::fffe/112"}), "");
  EXPECT_EQ(set({"--hosts", "2", "--ip", "2001:db8::fffe/112"}), "");
  EXPECT_EQ(set({"--hosts", "2", "--ip", "192.0.2.0/31"}), "");
  EXPECT_NE(set({"--hosts", "3", "--ip", "192.0.2.0/31"}), "");
  EXPECT_NE(set({"--hosts", "2", "--ip", "192.0.2.1/32"}), "");
}

TEST_F(HostsTest, no_two_have_an_address_in_common) {
  EXPECT_EQ(
      set({"--hosts", "3", "--ip", "192.0.2.1/24", "--ip", "192.0.2.3/24"}),
      "--hosts 3: 192.0.2.3 would be an address of uroce0 and of uroce2; give addresses with --ip that are at "
      "least 3 apart");
  EXPECT_EQ(set({"--hosts", "3", "--ip", "192.0.2.1/24", "--ip", "192.0.2.4/24"}), "");
  EXPECT_EQ(set({"--hosts", "3", "--ip", "192.0.2.1/24", "--ip", "192.0.2.3/24@vlan5"}), "");
}

TEST_F(HostsTest, devices_have_settings_of_their_own) {
  ASSERT_EQ(
      set({"--workers", "2", "--gateway", "192.0.2.254", "--device",
           "name=a,ip=192.0.2.1/24,ip=2001:db8::1/64,mac=02:00:00:00:00:07,run_dir=/run/a,gid_layout=rxe",
           "--device", "name=a,ip=198.51.100.1/24,gateway=198.51.100.9,run_dir=/run/b,netdev=eth0@/proc/1/ns/net"}),
      "");
  ASSERT_EQ(hosts.size(), 2u);
  EXPECT_EQ(addresses(0), (Texts{"192.0.2.1", "2001:db8::1"}));
  EXPECT_EQ(addresses(1), Texts{"198.51.100.1"});
  EXPECT_EQ(hosts[0].config.name, "a");
  EXPECT_EQ(hosts[0].config.run_dir, "/run/a");
  EXPECT_EQ(hosts[0].config.gid_layout, net::GidLayout::kRxe);
  EXPECT_TRUE(hosts[0].mac);
  EXPECT_FALSE(hosts[1].mac);
  EXPECT_EQ(to_string(hosts[0].gateways.at(0)), "192.0.2.254") << "as for all";
  EXPECT_EQ(to_string(hosts[1].gateways.at(0)), "198.51.100.9");
  EXPECT_EQ(hosts[1].config.netdev, "eth0@/proc/1/ns/net");
  for (const Settings& host : hosts) EXPECT_EQ(host.workers, 2u);
}

TEST_F(HostsTest, devices_are_tables_of_the_file) {
  const std::string path = ::testing::TempDir() + "devices.toml";
  std::ofstream(path) << "ip = [\"192.0.2.9/24\"]\n[[device]]\nname = \"a\"\n"
                         "[[device]]\nname = \"b\"\nip = [\"192.0.2.1/24\", \"2001:db8::1/64\"]\n";
  ASSERT_EQ(set({"--config", path}), "");
  ASSERT_EQ(hosts.size(), 2u);
  EXPECT_EQ(addresses(0), Texts{"192.0.2.9"});
  EXPECT_EQ(addresses(1), (Texts{"192.0.2.1", "2001:db8::1"}));
  // As `urocectl save` writes them.
  std::ofstream(path) << "device = [\"" << hosts[0].devices[0] << "\", \"" << hosts[0].devices[1] << "\"]\n"
                      << "ip = [\"192.0.2.9/24\"]\n";
  ASSERT_EQ(set({"--config", path}), "");
  EXPECT_EQ(addresses(1), (Texts{"192.0.2.1", "2001:db8::1"}));
  for (const auto& [bad, words] :
       {std::pair{"name = 7", "devices.toml:2: name of a device must be a string"},
        {"name = \"a,ip=192.0.2.1/24\"", "without a comma"},
        {"workers = \"2\"", "with the keys name, ip, gid_layout, gateway, netdev, mac, run_dir, not \"workers=2\""},
        {"ip = [[\"192.0.2.1/24\"]]", "devices.toml:2: ip of a device must be a string"},
        {"ip = []", "devices.toml:2: ip of a device is empty"},
        {"ip = \"192.0.2\"", "the value of ip=192.0.2 must be an address"}}) {
    std::ofstream(path) << "[[device]]\n" << bad << "\n";
    EXPECT_NE(set({"--config", path}).find(words), std::string::npos) << set({"--config", path});
  }
}

TEST_F(HostsTest, addresses_of_devices_change_while_they_serve) {
  CommandLine before, after;
  const Texts first{"--device", "name=a,ip=192.0.2.1/24", "--device", "name=b,ip=192.0.2.2/24"};
  ASSERT_EQ(parse(first, before), "");
  ASSERT_EQ(parse({"--device", "name=a,ip=192.0.2.9/24", "--device", "name=b,ip=192.0.2.2/24,gateway=192.0.2.254"},
                  after),
            "");
  Settings current = before.settings;
  EXPECT_EQ(adopt(current, after.settings).changed, Texts{"device"});
  ASSERT_EQ(settings_of_devices(current, hosts), "");
  EXPECT_EQ(addresses(0), Texts{"192.0.2.9"});
  for (const char* other : {"name=c,ip=192.0.2.2/24", "name=b,ip=192.0.2.2/24,mac=02:00:00:00:00:07"}) {
    CommandLine next;
    ASSERT_EQ(parse({"--device", "name=a,ip=192.0.2.9/24", "--device", other}, next), "");
    current = before.settings;
    EXPECT_EQ(adopt(current, next.settings).waiting, Texts{"device"});
    EXPECT_EQ(current.devices, before.settings.devices);
  }
}

TEST_F(HostsTest, the_number_of_devices_never_changes_while_they_serve) {
  const Texts one{"--name", "a", "--ip", "192.0.2.1/24"};
  const Texts counted{"--name", "a1", "--ip", "192.0.2.1/24", "--hosts", "2"};
  const Texts listed{"--device", "name=a1,ip=192.0.2.1/24", "--device", "name=a2,ip=192.0.2.2/24"};
  const Texts single{"--device", "name=a,ip=192.0.2.1/24"}, wide{"--name", "a", "--ip", "192.0.2.1/25"};
  for (const Texts* from : {&one, &counted, &listed, &single, &wide}) {
    for (const Texts* to : {&one, &counted, &listed, &single, &wide}) {
      CommandLine before, after;
      ASSERT_EQ(parse(*from, before), "");
      ASSERT_EQ(parse(*to, after), "");
      const std::size_t count = devices_of(before.settings).size();
      const std::string name = devices_of(before.settings)[0].config.name;
      adopt(before.settings, after.settings);
      EXPECT_EQ(settings_of_devices(before.settings, hosts), "");
      EXPECT_EQ(hosts.size(), count);
      EXPECT_EQ(hosts[0].config.name, name);
    }
  }
}

TEST_F(HostsTest, what_two_devices_share_is_named) {
  const Texts a{"--device", "name=a,ip=192.0.2.1/24"};
  for (const auto& [other, words] :
       {std::pair{"name=a,ip=192.0.2.2/24", "two devices would be a in "},
        {"name=b,ip=192.0.2.1/24", "192.0.2.1 would be an address of a and of b; give each device addresses"},
        {"name=b,ip=192.0.2.255/24",
         "--device name=b,ip=192.0.2.255/24: --ip \"192.0.2.255/24\": this is the broadcast"},
        {"name=b", "--device name=b: it has no address; give one, such as ip=192.0.2.1/24"},
        {"name=b,ip=192.0.2.2/24,gateway=198.51.100.1", "it is in no prefix of the device's addresses"}}) {
    Texts arguments = a;
    arguments.insert(arguments.end(), {"--device", other});
    EXPECT_NE(set(arguments).find(words), std::string::npos) << other << ": " << set(arguments);
  }
  const auto together = [&](const std::string& one, const std::string& other) {
    return set({"--device", "name=a,ip=192.0.2.1/24," + one, "--device", "name=b,ip=192.0.2.2/24," + other});
  };
  EXPECT_NE(together("mac=02:00:00:00:00:07", "mac=02:00:00:00:00:07").find("give each one of its own"),
            std::string::npos);
  EXPECT_NE(together("netdev=x@host", "netdev=y@/run/netns/host").find("in one network namespace"),
            std::string::npos);
  EXPECT_NE(together("netdev=x", "netdev=y").find("give y another namespace, such as y@host1"), std::string::npos);
  EXPECT_EQ(together("netdev=eth0", "netdev=eth0@host1"), "");
  EXPECT_EQ(together("run_dir=/run/a", "run_dir=/run/a/"), "");
  EXPECT_NE(set({"--device", "name=a,ip=192.0.2.1/24,run_dir=/run/x", "--device",
                 "name=a,ip=192.0.2.2/24,run_dir=/run/x/"})
                .find("two devices would be a in /run/x/"),
            std::string::npos);
  EXPECT_NE(set({"--device", "ip=192.0.2.1/24,run_dir=/run/x", "--device", "ip=192.0.2.1/24,run_dir=/run/y"})
                .find("of /run/x/uroce0 and of /run/y/uroce0"),
            std::string::npos);
}

TEST_F(HostsTest, a_bad_device_is_refused_by_its_part) {
  for (const auto& [bad, words] : {std::pair{"", "KEY=VALUE,KEY=VALUE with the keys name, ip"},
                                   {"name", "not \"name\""},
                                   {"name=", "the value of name= must be 1 to 31 letters"},
                                   {"=a", "not \"=a\""},
                                   {"name=a,,ip=192.0.2.1/24", "not \"\""},
                                   {"name=a,ip=192.0.2.1/24,", "not \"\""},
                                   {"name=a,name=b", "with name once"},
                                   {"device=name=a", "not \"device=name=a\""},
                                   {"port=udp", "not \"port=udp\""}}) {
    const std::string error = set({"--device", bad});
    EXPECT_NE(error.find(words), std::string::npos) << error;
    EXPECT_EQ(error.find("--device \"" + std::string(bad) + "\": it must be "), 0u) << error;
  }
  Texts many;
  for (int i = 0; i < 33; ++i) {
    many.insert(many.end(),
                {"--device", "name=a" + std::to_string(i) + ",ip=192.0.2." + std::to_string(i + 1) + "/24"});
  }
  EXPECT_NE(set(many).find("one of at most 32"), std::string::npos);
  many.resize(64);
  EXPECT_EQ(set(many), "");
  EXPECT_NE(set({"--hosts", "2", "--device", "name=a,ip=192.0.2.1/24"}).find("leave out --hosts"),
            std::string::npos);
  EXPECT_NE(set({"--port", "udp", "--device", "name=a,ip=192.0.2.1/24"}).find("--device with --port udp"),
            std::string::npos);
}

TEST_F(HostsTest, what_several_cannot_have_is_refused_by_name) {
  for (const Texts& with : {Texts{"--port", "udp"}, Texts{"--port", "net_tap0"},
                            Texts{"--mac", "02:00:00:00:00:07"}, Texts{"--pcap", "/tmp/file"}}) {
    Texts arguments{"--hosts", "2", "--ip", "192.0.2.1/24"};
    arguments.insert(arguments.end(), with.begin(), with.end());
    EXPECT_NE(set(arguments).find(with[0] + (with[0] == "--port" ? " " + with[1] : "")), std::string::npos)
        << with[0];
  }
  EXPECT_NE(set({"--hosts", "0"}).find("a number from 1 to 32"), std::string::npos);
  EXPECT_NE(set({"--hosts", "33"}).find("a number from 1 to 32"), std::string::npos);
}

}  // namespace
}  // namespace uroce::uroced
