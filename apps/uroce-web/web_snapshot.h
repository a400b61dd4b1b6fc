// What the page of `urocectl web` shows, as JSON (docs/urocectl.schema.json, "web"), and which of its readers has
// it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "urocectl/daemon_client.h"
#include "urocectl/rates.h"

namespace uroce::ctl {

/// For one thread.
class Snapshots {
 public:
  using Ask = std::function<Answer(const std::string& device, const Json& request)>;
  static constexpr std::size_t kMostQps = 300;  ///< those that move most; "qps_total" counts all

  explicit Snapshots(Ask ask) : ask_(std::move(ask)) {}

  /// A device that does not answer has "problem" in place of the rest.
  Json take(const std::vector<std::string>& devices,
            std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now());

 private:
  Json device(const std::string& name, Json& qps);
  /// An empty object if the device refuses or does not answer.
  Json answer(const std::string& name, const Json& request);

  Ask ask_;
  Rates rates_;
};

/// The rules of "fault" in the answer to `fault`, each with "name", "rule" and "matched".
Json fault_rules(const Json& settings);

/// Passes the newest snapshot from the thread that takes them to those that send them to browsers.
class Feed {
 public:
  using Text = std::shared_ptr<const std::string>;

  void publish(std::string text);
  /// The newest one, if it is not the one with the number `seen`, which is changed; else waits. Null: none came in
  /// time.
  Text next(std::uint64_t& seen, std::chrono::milliseconds within);

  /// At most `most` readers at a time; false: there are as many.
  bool enter(unsigned most);
  void leave();
  /// Returns when there is a reader, or after that time. False: there is none.
  bool wait_for_reader(std::chrono::milliseconds within);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Text newest_;
  std::uint64_t number_ = 0;
  unsigned readers_ = 0;
};

}  // namespace uroce::ctl
