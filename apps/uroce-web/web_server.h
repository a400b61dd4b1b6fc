// The HTTP server of `urocectl web`.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "web_requests.h"
#include "web_snapshot.h"

namespace uroce::ctl {

class WebServer {
 public:
  /// Carries out a POST; returns what the daemon, or the check of the body, objects to; empty: done.
  using Change = std::function<std::string(const std::string& path, const std::string& body)>;

  WebServer(std::string token, Feed& feed, Change change);
  ~WebServer();

  /// Binds the address; a port 0 becomes the one that was free. Returns the error number, 0: done.
  int bind(Listen& listen);
  /// Serves until stop(), in this thread and others.
  void run();
  void stop();
  /// To be called several times a second.
  void end_slow_connections();

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace uroce::ctl
