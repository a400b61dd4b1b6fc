// The only source that includes the HTTP library, as that takes long to compile.
#include "web_server.h"

#include <httplib.h>
#include <sys/socket.h>

#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "web_guard.h"
#include "web_page.h"

namespace uroce::ctl {
namespace {

constexpr unsigned kMostConnections = 16;
constexpr unsigned kMostStreams = 12;  // the others are for requests that end soon
constexpr int kMostWaiting = 128;
constexpr std::chrono::milliseconds kKeepAlive{1500};

/// One thread per connection. While there are as many as may be, the oldest one without the token makes way.
class Connections : public httplib::TaskQueue {
 public:
  explicit Connections(ConnectionGuard& guard) : guard_(guard) {}

  // Later versions of the library expect bool.
  using Enqueued = decltype(std::declval<httplib::TaskQueue&>().enqueue({}));
  Enqueued enqueue(std::function<void()> serve) override {
    std::unique_lock lock(mutex_);
    while (running_ >= kMostConnections && !stopping_) {
      lock.unlock();
      guard_.end_oldest();
      lock.lock();
      changed_.wait_for(lock, std::chrono::milliseconds(50),
                        [&] { return running_ < kMostConnections || stopping_; });
    }
    ++running_;
    guard_.watch(true);
    lock.unlock();
    // The connection is the thread's from here on: without a thread it would stay open for ever.
    while (!start(serve)) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return static_cast<Enqueued>(true);
  }

  void shutdown() override {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return running_ == 0; });
  }

 private:
  bool start(const std::function<void()>& serve) {
    try {
      std::thread([this, serve] {
        serve();
        const std::lock_guard ended(mutex_);
        if (--running_ == 0) guard_.watch(false);
        changed_.notify_all();
      }).detach();
      return true;
    } catch (const std::system_error&) {
      return false;
    }
  }

  ConnectionGuard& guard_;
  std::mutex mutex_;
  std::condition_variable changed_;
  unsigned running_ = 0;
  bool stopping_ = false;
};

/// A header that is there once; one that is there twice is not valid.
std::string header(const httplib::Request& request, const char* name) {
  return request.get_header_value_count(name) == 1 ? request.get_header_value(name) : std::string();
}

RequestFacts facts_of(const httplib::Request& request) {
  RequestFacts facts;
  facts.method = request.method;
  facts.path = request.path;
  facts.host = header(request, "Host");
  facts.has_origin = request.has_header("Origin");
  facts.origin = header(request, "Origin");
  facts.content_type = header(request, "Content-Type");
  facts.has_encoding = request.has_header("Transfer-Encoding") || request.has_header("Content-Encoding");
  facts.has_range = request.has_header("Range");
  facts.length = header(request, "Content-Length");
  // EventSource sets no headers.
  facts.token = request.method == "GET" ? request.get_param_value("token") : header(request, "X-Uroce-Token");
  return facts;
}

}  // namespace

class WebServer::Implementation {
 public:
  Implementation(std::string token, Feed& feed, Change change)
      : token_(std::move(token)), feed_(feed), change_(std::move(change)) {
    server_.new_task_queue = [this] { return new Connections(guard_); };
    server_.set_keep_alive_max_count(1);
    server_.set_read_timeout(5);
    server_.set_write_timeout(5);
    server_.set_payload_max_length(kMostBody);
    // Instead of the library's own, with which other processes of the same user bind the same port (SO_REUSEPORT).
    server_.set_socket_options([this](socket_t socket) {
      const int yes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
      listener_ = socket;
    });
    server_.set_default_headers({{"Content-Security-Policy", kPagePolicy},
                                 {"X-Content-Type-Options", "nosniff"},
                                 {"Referrer-Policy", "no-referrer"},
                                 {"Cross-Origin-Resource-Policy", "same-origin"},
                                 {"Cross-Origin-Opener-Policy", "same-origin"},
                                 {"Cache-Control", "no-store"}});
    add_handlers();
  }

  int bind(Listen& listen) {
    errno = 0;
    if (listen.port == 0) {
      const int port = server_.bind_to_any_port(listen.address);
      if (port <= 0) return errno == 0 ? EADDRNOTAVAIL : errno;
      listen.port = static_cast<std::uint16_t>(port);
    } else if (!server_.bind_to_port(listen.address, listen.port)) {
      return errno == 0 ? EADDRNOTAVAIL : errno;
    }
    listen_ = listen;
    // The library lets 5 connections wait: the others would try again after a second.
    ::listen(listener_, kMostWaiting);
    return 0;
  }

  void run() { server_.listen_after_bind(); }
  void stop() { server_.stop(); }
  void end_slow_connections() { guard_.sweep(); }

 private:
  void add_handlers() {
    using Handled = httplib::Server::HandlerResponse;
    // Before the body is read.
    server_.set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      const Refusal refusal = check_request(facts_of(request), listen_, token_);
      if (refusal.token_is_right) guard_.trust(request.remote_addr, request.remote_port);
      if (refusal.status == 0) return Handled::Unhandled;
      response.status = refusal.status;
      response.set_content(refusal.text, "text/plain; charset=utf-8");
      return Handled::Handled;
    });
    server_.Get("/", [](const httplib::Request&, httplib::Response& response) {
      response.set_content(reinterpret_cast<const char*>(kPageText), kPageBytes, "text/html; charset=utf-8");
    });
    server_.Get("/events", [this](const httplib::Request&, httplib::Response& response) { stream(response); });
    server_.Post(
        "/(fault|verbs|link|latency)", [this](const httplib::Request& request, httplib::Response& response) {
          // What a daemon objects to is not a failure of HTTP, which browsers would log.
          const std::string problem = change_(request.path, request.body);
          const Json answer = problem.empty() ? Json{{"done", true}} : Json{{"error", problem}};
          response.status = 200;
          response.set_content(answer.dump(-1, ' ', false, Json::error_handler_t::replace), "application/json");
        });
  }

  void stream(httplib::Response& response) {
    if (!feed_.enter(kMostStreams)) {
      response.status = 503;
      response.set_content("12 pages are open: close one of them\n", "text/plain; charset=utf-8");
      return;
    }
    const auto next = [this, seen = std::uint64_t{0}](std::size_t, httplib::DataSink& sink) mutable {
      const Feed::Text text = feed_.next(seen, kKeepAlive);
      // Without a write nothing shows that the browser has gone.
      const std::string event = text ? "data: " + *text + "\n\n" : ":\n\n";
      return sink.write(event.data(), event.size());
    };
    response.set_chunked_content_provider("text/event-stream", next, [this](bool) { feed_.leave(); });
  }

  const std::string token_;
  Feed& feed_;
  const Change change_;
  Listen listen_;
  int listener_ = -1;
  ConnectionGuard guard_;
  httplib::Server server_;
};

WebServer::WebServer(std::string token, Feed& feed, Change change)
    : implementation_(std::make_unique<Implementation>(std::move(token), feed, std::move(change))) {}
WebServer::~WebServer() = default;
int WebServer::bind(Listen& listen) { return implementation_->bind(listen); }
void WebServer::run() { implementation_->run(); }
void WebServer::stop() { implementation_->stop(); }
void WebServer::end_slow_connections() { implementation_->end_slow_connections(); }

}  // namespace uroce::ctl
