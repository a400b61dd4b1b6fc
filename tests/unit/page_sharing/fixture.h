// Stands in for the daemon, which maps shared memory, and for processes that a test runs in.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <utility>

#include "page_sharing/page_sharing.h"

namespace uroce::page_sharing {

inline constexpr std::size_t kPage = 4096;

/// A registration that is shared during its lifetime.
class Shared {
 public:
  Shared(void* at, std::size_t bytes, bool writable = true) : at_(at), bytes_(bytes) {
    error_ = PageSharing::instance().share(at, bytes, writable, range_);
  }
  ~Shared() { stop(); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  void stop() {
    if (error_ == 0) PageSharing::instance().unshare(at_, bytes_);
    error_ = -1;
  }
  int error() const { return error_; }
  bool direct() const { return error_ == 0 && !range_.pieces.empty(); }
  bool indirect() const { return error_ == 0 && range_.pieces.empty(); }
  const SharedRange& range() const { return range_; }
  std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(at_); }
  std::size_t bytes() const { return bytes_; }

 private:
  void* at_;
  std::size_t bytes_;
  int error_;
  SharedRange range_;
};

/// The pages of a registration, mapped piece by piece as the daemon does.
class DaemonView {
 public:
  explicit DaemonView(const Shared& shared, int protection = PROT_READ | PROT_WRITE)
      : first_byte_(shared.address() % kPage) {
    for (const SharedPiece& piece : shared.range().pieces) bytes_ += piece.bytes;
    const std::size_t pages = (first_byte_ + shared.bytes() + kPage - 1) / kPage;
    EXPECT_EQ(bytes_, pages * kPage);
    if (bytes_ == 0) return;
    base_ = static_cast<std::byte*>(
        ::mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    std::size_t at = 0;
    for (const SharedPiece& piece : shared.range().pieces) {
      void* mapped = ::mmap(base_ + at, piece.bytes, protection, MAP_SHARED | MAP_FIXED, piece.fd,
                            static_cast<off_t>(piece.offset));
      EXPECT_NE(mapped, MAP_FAILED) << std::strerror(errno);
      at += piece.bytes;
    }
  }
  ~DaemonView() {
    if (base_ != nullptr) ::munmap(base_, bytes_);
  }
  DaemonView(const DaemonView&) = delete;
  DaemonView& operator=(const DaemonView&) = delete;

  /// The byte at this offset from the program's address.
  template <class T = unsigned char>
  volatile T& at(std::size_t offset) const {
    return *reinterpret_cast<volatile T*>(base_ + first_byte_ + offset);
  }

 private:
  std::size_t first_byte_;
  std::size_t bytes_ = 0;
  std::byte* base_ = nullptr;
};

/// Checks that each side sees the other's writes, at the first and the last byte.
inline void expect_same_memory(const Shared& shared, void* at) {
  ASSERT_TRUE(shared.direct());
  const DaemonView daemon(shared);
  auto* bytes = static_cast<volatile unsigned char*>(at);
  for (const std::size_t where : {std::size_t{0}, shared.bytes() - 1}) {
    const unsigned char before = bytes[where];
    EXPECT_EQ(daemon.at(where), before);
    bytes[where] = static_cast<unsigned char>(before + 1);
    EXPECT_EQ(daemon.at(where), static_cast<unsigned char>(before + 1));
    daemon.at(where) = before;
    EXPECT_EQ(bytes[where], before);
  }
}

inline unsigned char* map_anonymous(std::size_t bytes, int protection = PROT_READ | PROT_WRITE) {
  void* at = ::mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  EXPECT_NE(at, MAP_FAILED);
  return static_cast<unsigned char*>(at);
}

/// Runs f in a child process. True if no check failed there.
template <class F>
bool passes_in_child(F&& f) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    std::forward<F>(f)();
    std::fflush(nullptr);
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << (WIFSIGNALED(status) ? WTERMSIG(status) : 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/// The number of mappings of the process, and whether the page at `at` is private anonymous memory.
std::size_t count_mappings();
bool is_private_anonymous(const void* at);

}  // namespace uroce::page_sharing
