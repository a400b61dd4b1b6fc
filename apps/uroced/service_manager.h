// The notification protocol of systemd (sd_notify(3)): datagrams to the socket that $NOTIFY_SOCKET names.
#pragma once

#include <optional>
#include <string_view>

#include "base/types.h"

namespace uroce::uroced {

/// Reads the environment once and removes the variables. No socket: notify() does nothing.
class ServiceManager {
 public:
  ServiceManager();
  ~ServiceManager();
  ServiceManager(const ServiceManager&) = delete;
  ServiceManager& operator=(const ServiceManager&) = delete;

  /// "READY=1", "WATCHDOG=1", "STOPPING=1". Never blocks.
  void notify(std::string_view state) const;
  /// How often the manager wants "WATCHDOG=1"; nullopt: never.
  std::optional<Nanos> watchdog() const { return watchdog_; }

 private:
  int socket_ = -1;
  std::optional<Nanos> watchdog_;
};

}  // namespace uroce::uroced
