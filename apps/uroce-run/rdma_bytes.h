// --require-rdma: whether a program has used its devices. A program that falls back to TCP ends well, too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace uroce::run {

class RdmaBytes {
 public:
  /// Of these devices, or of all that listen in `run_dir`. Remembers what they have sent so far.
  RdmaBytes(std::string run_dir, std::vector<std::string> devices);

  /// Bytes of RoCE packets that the devices have sent since, for all programs. 0 with `problem` if one does not
  /// answer.
  std::uint64_t since(std::string& problem) const;
  /// The names of the devices, for messages.
  std::string names() const;

 private:
  std::uint64_t sent(std::string& problem) const;

  std::string run_dir_;
  std::vector<std::string> devices_;
  std::uint64_t before_ = 0;
  std::string first_problem_;  ///< without the count before, the one after says nothing
};

}  // namespace uroce::run
