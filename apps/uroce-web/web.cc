#include "web.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "urocectl/daemon_client.h"
#include "web_requests.h"
#include "web_server.h"
#include "web_snapshot.h"

namespace uroce::ctl {
namespace {

/// What the page shows and changes, through the sockets of the daemons.
class Daemons {
 public:
  explicit Daemons(const Options& options) : options_(options) {}

  /// Those that run now, or those of -d.
  std::vector<std::string> devices() const {
    return options_.devices.empty() ? running_daemons(options_.run_dir) : options_.devices;
  }

  /// Takes snapshots while a browser wants them.
  void feed(Feed& out) const {
    Snapshots snapshots(
        [this](const std::string& device, const Json& request) { return ask(options_.run_dir, device, request); });
    const auto interval =
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.interval_s));
    for (auto due = Clock::now();; due = std::max(due + interval, Clock::now())) {
      if (!out.wait_for_reader(std::chrono::hours(1))) continue;
      std::this_thread::sleep_until(due);
      try {
        Json now = snapshots.take(devices());
        now["interval_s"] = options_.interval_s;
        out.publish(now.dump(-1, ' ', false, Json::error_handler_t::replace));
      } catch (const std::exception& error) {  // no memory, no descriptor: the next round may have some
        std::fprintf(stderr, "urocectl: no snapshot: %s\n", error.what());
      }
    }
  }

  /// Empty: done, else what is wrong.
  std::string change(const std::string& path, const std::string& body) {
    unsigned number = 0;
    {
      const std::lock_guard lock(mutex_);
      number = ++rules_;
    }
    std::string device;
    Json request;
    std::string problem = request_of(path, body, devices(), number, device, request);
    return problem.empty() ? ask(options_.run_dir, device, request).problem : problem;
  }

 private:
  using Clock = std::chrono::steady_clock;

  const Options& options_;
  std::mutex mutex_;
  /// Rules outlive this process, and there may be another one: its number makes their names differ.
  unsigned rules_ = static_cast<unsigned>(::getpid()) * 1000;
};

/// The library reads some headers by recursion: 3 MiB of stack are too little, and where a process may have an
/// unlimited stack, its threads get 2.
void enlarge_stacks() {
  constexpr std::size_t kStackBytes = 8u << 20;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_setattr_default_np(&attributes);
  pthread_attr_destroy(&attributes);
}

[[noreturn]] void fail_to_bind(const Listen& listen, int error) {
  std::string text = "--listen " + listen.authority() + ": " + std::strerror(error);
  if (error == EADDRINUSE) text += "; give another port, or 0 for a free one: --listen " + listen.address + ":0";
  if (error == EADDRNOTAVAIL) text += "; give an address of this machine, such as 127.0.0.1:8470";
  if (error == EACCES) text += "; give a port above 1023";
  fail(1, text);
}

}  // namespace

int web(const Options& options) {
  Listen listen;
  if (const std::string problem = parse_listen(options.listen.empty() ? kDefaultListen : options.listen, listen);
      !problem.empty())
    fail(2, problem);
  for (const std::string& name : options.devices) {
    const Answer answer = ask(options.run_dir, name, {{"command", "link"}});
    if (!answer.problem.empty()) fail(1, name + ": " + answer.problem);
  }
  const std::string token = new_token();
  if (token.empty()) fail(1, std::string("getrandom: ") + std::strerror(errno));

  // Before the threads start, which inherit the mask.
  sigset_t stop;
  sigemptyset(&stop);
  for (const int each : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&stop, each);
  sigprocmask(SIG_BLOCK, &stop, nullptr);
  signal(SIGPIPE, SIG_IGN);

  enlarge_stacks();
  Daemons daemons(options);
  Feed feed;
  WebServer server(token, feed,
                   [&](const std::string& path, const std::string& body) { return daemons.change(path, body); });
  if (const int error = server.bind(listen); error != 0) fail_to_bind(listen, error);
  if (!listen.loopback) {
    std::fprintf(
        stderr,
        "urocectl: %s is reached from the network, and HTTP is not encrypted: a host that sees the URL, or "
        "the packets, sees and changes what you may\n",
        listen.address.c_str());
  }
  std::printf("http://%s/?token=%s\n", listen.authority().c_str(), token.c_str());
  if (std::fflush(stdout) != 0) return 1;
  std::atomic<bool> stopping{false};
  std::thread serving([&] {
    server.run();
    if (stopping) return;
    std::fputs("urocectl: no connection can be accepted any more: start it again\n", stderr);
    std::_Exit(1);
  });
  std::thread asking([&] { daemons.feed(feed); });
  const timespec tenth{0, 100'000'000};
  while (sigtimedwait(&stop, nullptr, &tenth) < 0) server.end_slow_connections();
  // Nothing is to be saved, and threads may wait for a daemon that does not answer.
  stopping = true;
  server.stop();
  std::_Exit(0);
}

}  // namespace uroce::ctl
