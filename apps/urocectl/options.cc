#include "options.h"

#include <getopt.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/version.h"
#include "platform/run_dir.h"

namespace uroce::ctl {
namespace {

constexpr char kHelp[] =
    R"(urocectl [-d NAME]... [--json] [--run-dir DIR] COMMAND

  show [all|devices|sessions|users|qps|mrs|cqs|srqs|cm_ids|flows|errors|rejections|worker_commands]
                                            objects of a daemon: QPs with their states and counters, ...;
                                            all for root, else those of the user's programs;
                                            rejections: the last 256 refused requests, with reasons
  stat [--watch [--interval S]]             counters that are not zero, with the names of rxe and mlx5; rejected.*
                                            counts refused requests of clients by reason;
                                            --watch prints the changes of each second until Ctrl-C
  metrics                                   all counters and gauges with their meaning, in the text format of
                                            OpenMetrics (Prometheus)
  fault SETTINGS                            injects faults: drop=0.01,dup=0.01,reorder=0.05,
                                            delay=0.01:200us,corrupt=0.001,seed=7,direction=rx|tx|both
  fault off                                 stops that
  fault                                     prints the settings
  fault verbs RULE                          lets work requests or control commands fail; KEY=VALUE,...
      which programs and QPs: prog=PATTERN,pid=N,user=UID,qpn=N,peer=QPN|ADDRESS (default: all)
      which work requests: op=SEND|WRITE|READ|ATOMIC|ATOMIC_WRITE|FLUSH|LOCAL_INV|BIND_MW|REG_MR|TSO|RECV
          (default: all but RECV), or control commands: call=NAME, such as create_qp, reg_mr, cm_connect
      when, counted for each QP: nth=N (once), every=N, probability=P,seed=S; count=N times at most
      what: status=NAME (of ibv_wc_status), event=NAME (of ibv_event_type), qp=error; of a call: errno=NAME
                                            prog=nccl*,op=WRITE,nth=100,status=RETRY_EXC_ERR
  fault verbs off [NUMBER]                  removes all rules, or one
  fault verbs                               prints the rules, and how often each matched and fired
  trace FILE                                writes the frames of the port to FILE (pcapng) until Ctrl-C
  trace stop                                stops a trace that is still running
  link down                                 drops all frames; clients get IBV_EVENT_PORT_ERR
  link up                                   stops that; clients get IBV_EVENT_PORT_ACTIVE
  link add ADDRESS[/PREFIX]                 adds an address, and its GID: 192.0.2.9/24, 2001:db8::9/64
  link remove ADDRESS                       removes an address; QPs that use it are not changed
  link mtu BYTES                            sets the MTU, up to its value at the start; QPs keep their path MTU
  link                                      prints the state of the port

  -d, --device NAME   only this daemon; repeat for several (default: all running)
  --json              show, stat, metrics, fault and link as JSON, an object from name to answer
  --run-dir DIR       where the daemons listen (default: $UROCE_RUN_DIR, else $XDG_RUNTIME_DIR/uroce or
                      /tmp/uroce-UID if the user's own daemons listen there, else )" UROCE_SYSTEM_RUN_DIR R"()
  --watch             repeat
  --interval S        seconds between two rounds of --watch (default: 1)
  --version           print the version
  -h, --help          this text

Exit status: 0; 1 no such daemon, or it refused the request; 2 wrong usage.
)";

bool one_of(const std::string& word, std::initializer_list<const char*> allowed) {
  return std::any_of(allowed.begin(), allowed.end(), [&](const char* each) { return word == each; });
}

bool is_number(const std::string& text) {
  return text.size() <= 5 && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

void check_link(const Options& options, int extra) {
  if (!one_of(options.argument, {"", "up", "down", "add", "remove", "mtu"})) {
    fail(2, "link " + options.argument + ": give up, down, add ADDRESS, remove ADDRESS or mtu BYTES");
  }
  const bool mtu = options.argument == "mtu";
  const bool needs = mtu || options.argument == "add" || options.argument == "remove";
  if (needs != !options.operand.empty() || extra > 0) {
    fail(2, "link " + options.argument +
                (mtu     ? " takes a number of bytes"
                 : needs ? " takes one address"
                         : " takes no more arguments"));
  }
  if (mtu && !is_number(options.operand)) fail(2, "link mtu " + options.operand + ": give a number of bytes");
}

void check_fault_verbs(const Options& options, int extra) {
  const bool off = options.operand == "off";
  if (extra > 0 || (!options.number.empty() && (!off || !is_number(options.number)))) {
    fail(2, "fault verbs: give one rule, `off`, `off NUMBER` or nothing");
  }
}

void check(const Options& options, int extra) {
  if (options.command.empty())
    fail(2, "no command given: show, stat, metrics, fault, trace or link; see urocectl --help");
  if (!one_of(options.command, {"show", "stat", "metrics", "fault", "trace", "link"})) {
    fail(2, options.command + ": no such command; give show, stat, metrics, fault, trace or link");
  }
  if (options.command == "link") return check_link(options, extra);
  if (options.command == "fault" && options.argument == "verbs") return check_fault_verbs(options, extra);
  if (extra > 0 || !options.operand.empty())
    fail(2, options.command + " takes one argument at most; see urocectl --help");
  if (options.command == "show" &&
      !one_of(options.argument, {"", "all", "devices", "sessions", "users", "qps", "mrs", "cqs", "srqs", "cm_ids",
                                 "flows", "errors", "rejections", "worker_commands"})) {
    fail(2, "show " + options.argument +
                ": give all, devices, sessions, users, qps, mrs, cqs, srqs, cm_ids, flows, errors, rejections or "
                "worker_commands");
  }
  if (one_of(options.command, {"stat", "metrics"}) && !options.argument.empty()) {
    fail(2, options.command + " takes no argument");
  }
  if (options.command == "trace" && options.argument.empty()) fail(2, "trace: give a file to write, or `stop`");
  if (options.watch && options.command != "stat") fail(2, "--watch is an option of stat");
  if (options.interval_s < 0.01 || options.interval_s > 3600) fail(2, "--interval: give 0.01 to 3600 seconds");
}

}  // namespace

void fail(int status, const std::string& message) {
  std::fprintf(stderr, "urocectl: %s\n", message.c_str());
  std::exit(status);
}

Options parse_options(int argc, char** argv) {
  enum { kJson = 256, kRunDir, kWatch, kInterval, kVersion };
  const option long_options[] = {{"device", required_argument, nullptr, 'd'},
                                 {"json", no_argument, nullptr, kJson},
                                 {"run-dir", required_argument, nullptr, kRunDir},
                                 {"watch", no_argument, nullptr, kWatch},
                                 {"interval", required_argument, nullptr, kInterval},
                                 {"version", no_argument, nullptr, kVersion},
                                 {"help", no_argument, nullptr, 'h'},
                                 {nullptr, 0, nullptr, 0}};
  Options options;
  options.run_dir = client_run_dir();
  int option = 0;
  while ((option = getopt_long(argc, argv, ":d:h", long_options, nullptr)) != -1) {
    switch (option) {
      case 'd': options.devices.emplace_back(optarg); break;
      case kJson: options.json = true; break;
      case kRunDir: options.run_dir = optarg; break;
      case kWatch: options.watch = true; break;
      case kInterval: options.interval_s = std::atof(optarg); break;
      case kVersion: std::puts("urocectl " UROCE_VERSION); std::exit(0);
      case 'h': std::fputs(kHelp, stdout); std::exit(0);
      case ':': fail(2, std::string(argv[optind - 1]) + " needs a value; see urocectl --help");
      default: fail(2, std::string(argv[optind - 1]) + ": no such option; see urocectl --help");
    }
  }
  if (optind < argc) options.command = argv[optind++];
  if (optind < argc) options.argument = argv[optind++];
  if (optind < argc) options.operand = argv[optind++];
  if (options.command == "fault" && optind < argc) options.number = argv[optind++];
  check(options, argc - optind);
  return options;
}

}  // namespace uroce::ctl
