#include "options.h"

#include <getopt.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "base/version.h"
#include "platform/run_dir.h"

namespace uroce::ctl {
namespace {

constexpr char kHelp[] =
    R"(urocectl [-d NAME]... [--json] [--run-dir DIR] COMMAND

  show [KIND] [FILTER]                      objects of a daemon: QPs with their states and counters, ...;
                                            all for root, else those of the user's programs;
                                            rejections: the last 256 refused requests, with reasons;
                                            neighbours: stations on the link, as `ip neighbour` has them;
                                            --watch prints them each second until Ctrl-C
      KIND: all|devices|sessions|users|qps|mrs|cqs|srqs|cm_ids|flows|errors|rejections|workers|gids|routes|
            neighbours|settings|worker_commands|latency|events
      FILTER: COLUMN=PATTERN,...: pid=4711, state=RTS,program=ib_*, user=1000, peer=192.0.2.7, qpn=0x12
  stat                                      counters that are not zero, with the names of rxe and mlx5; rejected.*
                                            counts refused requests of clients by reason;
                                            --watch prints the changes of each second until Ctrl-C;
                                            --page reads the file RUN_DIR/NAME.counters: no thread of the daemon has
                                            to run for that, and it says what each does. Without --page that is
                                            done for a daemon that does not answer
  top [FILTER]                              rates of devices, workers and QPs, each second until q or Ctrl-C
      --sort sent|received|retransmitted|outstanding        which QPs come first (default: sent)
  web                                       a live page for browsers, until Ctrl-C: devices, flows, QPs, latency,
                                            and faults to click; prints its URL, whose token gives your rights
      --listen ADDRESS:PORT                 where it is served (default: 127.0.0.1:8470); port 0: a free one
  doctor                                    what is wrong with these devices and this machine, with the numbers
                                            that say so, and what to do
  metrics                                   all counters and gauges with their meaning, in the text format of
                                            OpenMetrics (Prometheus)
      --http               answers one HTTP request on standard input, as uroce-metrics.socket of systemd
                           has it do
  latency on                                measures how long work requests take, by operation, how long workers
                                            need to wake up, and how long their duty cycles are; from none
  latency off                               stops that
  latency                                   what half, 90 %, 99 % and 99.9 % of them took at most;
                                            `show latency --watch` prints it each second
  events on                                 records why QPs send again, send less, are refused or fail, from none;
                                            `show events` lists the last 1024 of each worker
  events off                                stops that
  fault RULE[; RULE]...                     injects faults into frames; RULE: KEY=VALUE,...
      what, as chances: drop=0.01,dup=0.01,reorder=0.05,delay=0.01:200us,corrupt=0.001; delay=1:200us-300us: between
          these; burst=N: frames that are lost in a row, on average; rate=100M: bits a second; nak=0.01:RNR:
          acknowledges are NAKs, or SEQUENCE, INVALID_REQUEST, REMOTE_ACCESS, REMOTE_OPERATIONAL
      which frames: qp=N,peer=ADDRESS,op=SEND|WRITE|READ|ATOMIC|FLUSH|ACK|CNP|CM|OTHER,direction=rx|tx|both; of CM
          also op=REQ|MRA|REJ|REP|RTU|DREQ|DREP|SIDR_REQ|SIDR_REP|LAP|APR
      seed=N: of the draws; name=NAME
  fault add RULE                            a rule more, which leaves the draws of the others as they are
                                            name=cut,drop=1,peer=192.0.2.7
  fault off [NAME]                          removes all of them, or one
  fault                                     prints the rules, and how many frames each matched
  fault verbs RULE                          lets work requests or control commands fail; KEY=VALUE,...
      which programs and QPs: prog=PATTERN,pid=N,user=UID,qpn=N,peer=QPN|ADDRESS (default: all)
      which work requests: op=SEND|WRITE|READ|ATOMIC|ATOMIC_WRITE|FLUSH|LOCAL_INV|BIND_MW|REG_MR|TSO|RECV
          (default: all but RECV), or control commands: call=NAME, such as create_qp, reg_mr, cm_connect
      when, counted for each QP: nth=N (once), every=N, probability=P,seed=S; count=N times at most
      what: status=NAME (of ibv_wc_status), event=NAME (of ibv_event_type), qp=error,
          completion=late:TIME|lost|swapped; with op=RECV answer=RNR_NAK; of a call: errno=NAME|N, or
          cm=NAME (of rdma_cm_event_type) in its place, cm_status=N
                                            prog=nccl*,op=WRITE,nth=100,status=RETRY_EXC_ERR
  fault verbs off [NUMBER]                  removes all rules, or one
  fault verbs                               prints the rules, and how often each matched and fired
  play FILE                                 carries out a scenario: lines `WHEN DEVICE fault ...|link up|link down`,
                                            WHEN: 2s, +2s, DEVICE/RULE>=FRAMES; at its end it removes its rules
                                            and puts up the links that it has put down
  trace [OPTIONS] [FILTER]                  prints the frames of the port until Ctrl-C, with remarks on those
                                            that are retransmitted, or dropped or changed by `fault`
      -w, --write FILE     writes them to FILE as pcapng, for Wireshark; -: standard output
      -c, --count N        ends after N frames
      -s, --snaplen BYTES  of each frame: 64 to 262144 (default: all)
      -C, --file-size MB   then FILE1, FILE2, ... follow; 1 MB is a million bytes
      -G, --rotate SECONDS the next file begins after that time; FILE may be a pattern of strftime(3), such as
                           trace-%H%M%S.pcapng, else FILE1, FILE2, ... follow
      -W, --files N        with -C: FILE0 to the N-th, which are written again and again; with -G: ends after
                           N files
      FILTER: qp=N,peer=ADDRESS,op=SEND|WRITE|READ|ATOMIC|FLUSH|ACK|CNP|CM|OTHER (OTHER: all but RoCE), or
                           CM messages as of `fault`
                                            -w - -s 96 'qp=0x12,op=READ|ACK' | tshark -r -
  trace FILE [FILTER]                       the same as -w FILE
  trace stop                                ends a trace that another urocectl has begun
  link down                                 drops all frames; clients get IBV_EVENT_PORT_ERR
  link up                                   stops that; clients get IBV_EVENT_PORT_ACTIVE
  link add ADDRESS[/PREFIX]                 adds an address, and its GID: 192.0.2.9/24, 2001:db8::9/64
  link remove ADDRESS                       removes an address; QPs that use it are not changed
  link mtu BYTES                            sets the MTU, up to its value at the start; QPs keep their path MTU
  link                                      prints the state of the port
  reload                                    has the daemon read its configuration file and flags again: addresses,
                                            gateways, CPUs of workers, limits of users, faults, latency, events and
                                            the log level change at once; the answer names what waits for a restart
  save [FILE]                               writes the settings in force that differ from their defaults as a
                                            configuration file, with what urocectl has changed; to standard output
                                            without FILE, which must be new

  -d, --device NAME   only this daemon; repeat for several (default: all running)
  --json              show, stat, metrics, latency, events, fault, link and reload as JSON, an object from name to
                      answer; doctor and each round of top: one object
  --run-dir DIR       where the daemons listen (default: $UROCE_RUN_DIR, else $XDG_RUNTIME_DIR/uroce or
                      /tmp/uroce-UID if the user's own daemons listen there, else )" UROCE_SYSTEM_RUN_DIR R"()
  --quiet             trace prints errors only; play does not print its steps
  --watch             show and stat: repeat
  --interval S        seconds between two rounds of --watch, top and web, and for which doctor looks (default: 1)
  --rounds N          of --watch and top: ends after N (default: until Ctrl-C)
  --version           print the version
  -h, --help          this text; after a command: what concerns it

Exit status: 0; 1 no such daemon, or it refused the request; 2 wrong usage; 3 frames are missing in a trace;
4 doctor has found problems.
)";

/// The lines about a command, and about the options; everything if there is no such command.
std::string help_of(const std::string& command) {
  std::istringstream lines(kHelp);
  std::string usage, text, line;
  std::getline(lines, usage);
  bool wanted = false, found = false;
  while (std::getline(lines, line)) {
    // A line about a command is indented by two; those that go on about it by more.
    const bool begins = line.rfind("  ", 0) == 0 && line.size() > 2 && line[2] != ' ';
    if (begins)
      wanted =
          line[2] == '-' || line.compare(2, command.size() + 1, command + " ") == 0 || line.substr(2) == command;
    if (begins && wanted && line[2] != '-') found = true;
    if (line.empty() || line[0] != ' ') wanted = true;
    if (wanted) text += line + "\n";
  }
  return found ? usage + "\n" + text : kHelp;
}

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

void check_fault(const Options& options, int extra) {
  const bool add = options.argument == "add";
  if (add && options.operand.empty()) fail(2, "fault add takes a rule, such as name=cut,drop=1,peer=192.0.2.7");
  if (extra > 0 || !options.number.empty() || (!options.operand.empty() && !add && options.argument != "off")) {
    fail(2, "fault: give settings, `add RULE`, `off`, `off NAME` or nothing; see urocectl --help");
  }
}

void check_trace(const Options& options, int extra) {
  const TraceOptions& trace = options.trace;
  if (options.argument == "stop" && (trace != TraceOptions{} || extra > 0))
    fail(2, "trace stop takes no more arguments");
  if (extra > 0 || !options.operand.empty()) {
    fail(2, "trace takes one filter, whose parts are separated by commas; see urocectl --help");
  }
  if (options.watch) fail(2, "--watch is an option of show and stat");
  const bool no_file = trace.file.empty() || trace.file == "-";
  if (trace.file_bytes != 0 && no_file) fail(2, "--file-size needs --write FILE");
  if (trace.rotate_s != 0 && no_file) fail(2, "--rotate needs --write FILE");
  if (trace.files != 0 && (trace.file_bytes != 0) == (trace.rotate_s != 0)) {
    fail(2, "--files needs --file-size or --rotate, and takes one of them");
  }
}

/// `trace FILE [FILTER]` and `trace -w FILE [FILTER]`.
void take_trace_arguments(Options& options) {
  if (options.argument == "stop") return;
  std::string& file = options.trace.file;
  if (file.empty() && options.argument.find('=') == std::string::npos) {
    file = options.argument;
    options.argument = std::move(options.operand);
    options.operand.clear();
  }
  options.trace.filter = std::move(options.argument);
  options.argument.clear();
}

/// A whole number; ends the program with a message if it is none, or out of range.
std::uint64_t number(const char* option, const char* text, std::uint64_t least, std::uint64_t most) {
  char* end = nullptr;
  errno = 0;
  const std::uint64_t value = std::strtoull(text, &end, 10);
  if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || value < least || value > most) {
    fail(2, std::string(option) + " " + text + ": give " + std::to_string(least) + " to " + std::to_string(most));
  }
  return value;
}

void check(const Options& options, int extra) {
  if (options.command.empty())
    fail(2,
         "no command given: show, stat, top, web, doctor, metrics, latency, events, fault, play, trace, link, "
         "reload or save; see urocectl --help");
  if (!one_of(options.command, {"show", "stat", "top", "web", "doctor", "metrics", "latency", "events", "fault",
                                "play", "trace", "link", "reload", "save"})) {
    fail(2, options.command +
                ": no such command; give show, stat, top, web, doctor, metrics, latency, events, fault, "
                "play, trace, link, reload or save");
  }
  if (options.command == "link") return check_link(options, extra);
  if (options.command == "fault" && options.argument == "verbs") return check_fault_verbs(options, extra);
  if (options.command == "fault") check_fault(options, extra);
  if (options.command == "trace") return check_trace(options, extra);
  if (options.trace != TraceOptions{}) fail(2, "-w, -c, -s, -C, -G and -W are options of trace");
  if (extra > 0 || (!options.operand.empty() && options.command != "show" && options.command != "fault"))
    fail(2, options.command + " takes no more arguments; see urocectl --help");
  if (options.command == "show" &&
      !one_of(options.argument,
              {"",     "all",    "devices",    "sessions", "users",           "qps",        "mrs",
               "cqs",  "srqs",   "cm_ids",     "flows",    "errors",          "rejections", "workers",
               "gids", "routes", "neighbours", "settings", "worker_commands", "latency",    "events"})) {
    fail(2, "show " + options.argument +
                ": give all, devices, sessions, users, qps, mrs, cqs, srqs, cm_ids, flows, errors, rejections, "
                "workers, gids, routes, neighbours, settings, worker_commands, latency or events");
  }
  if (options.command == "play" && (options.argument.empty() || options.json || !options.devices.empty())) {
    fail(2, "play takes a file with a scenario, or -, and neither --json nor --device");
  }
  if (one_of(options.command, {"latency", "events"}) && !one_of(options.argument, {"", "on", "off"})) {
    fail(2, options.command + " " + options.argument + ": give on, off or nothing");
  }
  if (one_of(options.command, {"stat", "web", "metrics", "doctor", "reload"}) && !options.argument.empty()) {
    fail(2, options.command + " takes no argument");
  }
  if (options.command == "web" && options.json) fail(2, "web takes no --json: its page gets JSON from /events");
  if (options.command != "web" && !options.listen.empty()) fail(2, "--listen is an option of web");
  if (options.http && (options.command != "metrics" || options.json)) {
    fail(2, "--http is an option of metrics, without --json");
  }
  if (options.page && options.command != "stat") fail(2, "--page is an option of stat");
  if (options.watch && !one_of(options.command, {"show", "stat"})) {
    fail(2, "--watch is an option of show and stat");
  }
  if (!(options.interval_s >= 0.01 && options.interval_s <= 3600)) fail(2, "--interval: give 0.01 to 3600 seconds");
}

}  // namespace

void fail(int status, const std::string& message) {
  std::fprintf(stderr, "urocectl: %s\n", message.c_str());
  std::exit(status);
}

Options parse_options(int argc, char** argv) {
  enum { kJson = 256, kQuiet, kRunDir, kWatch, kInterval, kRounds, kSort, kHttp, kPage, kListen, kVersion };
  constexpr std::uint64_t kMost = 1'000'000'000;
  const option long_options[] = {{"device", required_argument, nullptr, 'd'},
                                 {"json", no_argument, nullptr, kJson},
                                 {"quiet", no_argument, nullptr, kQuiet},
                                 {"run-dir", required_argument, nullptr, kRunDir},
                                 {"watch", no_argument, nullptr, kWatch},
                                 {"interval", required_argument, nullptr, kInterval},
                                 {"rounds", required_argument, nullptr, kRounds},
                                 {"sort", required_argument, nullptr, kSort},
                                 {"http", no_argument, nullptr, kHttp},
                                 {"page", no_argument, nullptr, kPage},
                                 {"listen", required_argument, nullptr, kListen},
                                 {"write", required_argument, nullptr, 'w'},
                                 {"count", required_argument, nullptr, 'c'},
                                 {"snaplen", required_argument, nullptr, 's'},
                                 {"file-size", required_argument, nullptr, 'C'},
                                 {"rotate", required_argument, nullptr, 'G'},
                                 {"files", required_argument, nullptr, 'W'},
                                 {"version", no_argument, nullptr, kVersion},
                                 {"help", no_argument, nullptr, 'h'},
                                 {nullptr, 0, nullptr, 0}};
  Options options;
  options.run_dir = client_run_dir();
  bool help = false;
  int option = 0;
  while ((option = getopt_long(argc, argv, ":d:hw:c:s:C:G:W:", long_options, nullptr)) != -1) {
    switch (option) {
      case 'd': options.devices.emplace_back(optarg); break;
      case kJson: options.json = true; break;
      case kQuiet: options.quiet = true; break;
      case kRunDir: options.run_dir = optarg; break;
      case kWatch: options.watch = true; break;
      case kInterval: options.interval_s = std::atof(optarg); break;
      case kRounds: options.rounds = static_cast<unsigned>(number("--rounds", optarg, 1, kMost)); break;
      case kSort: options.sort = optarg; break;
      case kHttp: options.http = true; break;
      case kPage: options.page = true; break;
      case kListen: options.listen = optarg; break;
      case 'w': options.trace.file = optarg; break;
      case 'c': options.trace.count = number("--count", optarg, 1, kMost); break;
      case 's': options.trace.snaplen = static_cast<std::uint32_t>(number("--snaplen", optarg, 64, 262'144)); break;
      case 'C': options.trace.file_bytes = number("--file-size", optarg, 1, 1'000'000) * 1'000'000; break;
      case 'G': options.trace.rotate_s = static_cast<unsigned>(number("--rotate", optarg, 1, 1'000'000)); break;
      case 'W': options.trace.files = static_cast<unsigned>(number("--files", optarg, 1, 10'000)); break;
      case kVersion: std::puts("urocectl " UROCE_VERSION); std::exit(0);
      case 'h': help = true; break;
      case ':': fail(2, std::string(argv[optind - 1]) + " needs a value; see urocectl --help");
      default: fail(2, std::string(argv[optind - 1]) + ": no such option; see urocectl --help");
    }
  }
  if (optind < argc) options.command = argv[optind++];
  if (help) {
    std::fputs(help_of(options.command).c_str(), stdout);
    std::exit(0);
  }
  if (optind < argc) options.argument = argv[optind++];
  if (optind < argc) options.operand = argv[optind++];
  if (options.command == "fault" && optind < argc) options.number = argv[optind++];
  if (options.command == "trace") take_trace_arguments(options);
  if (options.command == "show" && options.argument.find('=') != std::string::npos && options.operand.empty()) {
    options.operand = std::exchange(options.argument, "all");
  }
  check(options, argc - optind);
  return options;
}

}  // namespace uroce::ctl
