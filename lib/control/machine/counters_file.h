// The file of the page of counters (abi/counters_page.h).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "abi/counters_page.h"
#include "absl/status/status.h"
#include "base/counter_info.h"

namespace uroce::control {

class CountersFile {
 public:
  struct Name {
    std::string_view group, name;
    CounterKind kind = CounterKind::kTotal;
  };

  CountersFile() = default;
  /// Removes it.
  ~CountersFile();
  CountersFile(const CountersFile&) = delete;
  CountersFile& operator=(const CountersFile&) = delete;

  /// Makes RUN_DIR/DEVICE.counters in place of what was there; readable by all, its pages reserved. Where the run
  /// directory is not in memory, it is a link to a file in /dev/shm: a thread that writes to a mapped file on a
  /// disk waits while the kernel writes that page back. Errors name the remedy.
  absl::Status make(const std::string& run_dir, const std::string& device, std::size_t workers,
                    const std::vector<Name>& of_workers, const std::vector<Name>& of_control);

  bool is_made() const { return page_ != nullptr; }
  abi::CounterSection& section_of_worker(std::size_t worker) { return section(worker); }
  abi::CounterSection& section_of_control() { return section(page_->workers); }

 private:
  void remove();
  abi::CounterSection& section(std::size_t index);

  abi::CountersPage* page_ = nullptr;
  std::string path_, target_;  ///< of the link; target_ is empty without one
};

}  // namespace uroce::control
