#include "control/machine/counters_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/version.h"
#include "platform/clock.h"
#include "platform/unique_fd.h"

namespace uroce::control {
namespace {

constexpr char kMemoryFile[] = "/dev/shm/uroce-";
constexpr std::size_t kLine = 128;  // a section shares no pair of cache lines with another one

constexpr std::size_t rounded(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

bool is_in_memory(const std::string& directory) {
  struct statfs info {};
  return ::statfs(directory.c_str(), &info) == 0 && (info.f_type == TMPFS_MAGIC || info.f_type == RAMFS_MAGIC);
}

/// Removes what an earlier daemon has left: the file, or the link and its target, if both are of this user.
void remove_old(const std::string& path) {
  char target[64] = {};
  struct stat link {
  }, info{};
  const bool own_link = ::lstat(path.c_str(), &link) == 0 && S_ISLNK(link.st_mode) && link.st_uid == ::geteuid() &&
                        ::readlink(path.c_str(), target, sizeof target - 1) > 0;
  const std::string_view name(target);
  if (own_link && name.starts_with(kMemoryFile) && name.find('/', sizeof kMemoryFile - 1) == name.npos &&
      ::lstat(target, &info) == 0 && info.st_uid == ::geteuid()) {
    ::unlink(target);
  }
  ::unlink(path.c_str());
}

/// `target`: gets the path of the file if `path` is a link to it.
UniqueFd create(const std::string& path, bool in_memory, std::string& target) {
  remove_old(path);
  if (in_memory) return UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
  std::string name = std::string(kMemoryFile) + "XXXXXX";
  UniqueFd file(::mkostemp(name.data(), O_CLOEXEC));
  if (!file.valid()) return file;
  if (::symlink(name.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(name.c_str());
    file.reset();
    errno = error;
    return file;
  }
  target = std::move(name);
  return file;
}

template <std::size_t kBytes>
void set_text(char (&to)[kBytes], std::string_view text) {
  std::memcpy(to, text.data(), std::min(text.size(), kBytes - 1));
}

std::uint64_t utc_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

}  // namespace

absl::Status CountersFile::make(const std::string& run_dir, const std::string& device, std::size_t workers,
                                const std::vector<Name>& of_workers, const std::vector<Name>& of_control) {
  const std::size_t names = of_workers.size() + of_control.size();
  const std::size_t sections = rounded(sizeof(abi::CountersPage) + names * sizeof(abi::CounterName));
  const std::size_t section_bytes =
      rounded(sizeof(abi::CounterSection) + std::max(of_workers.size(), of_control.size()) * sizeof(std::uint64_t));
  const std::size_t bytes = sections + (workers + 1) * section_bytes;

  path_ = run_dir + "/" + device + ".counters";
  const UniqueFd file = create(path_, is_in_memory(run_dir), target_);
  int error = file.valid() ? 0 : errno;
  if (error == 0 && ::fchmod(file.get(), 0644) != 0) error = errno;
  if (error == 0) error = ::posix_fallocate(file.get(), 0, static_cast<off_t>(bytes));
  void* const start =
      error == 0 ? ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0) : MAP_FAILED;
  if (start == MAP_FAILED) {
    if (error == 0) error = errno;
    if (file.valid()) remove();
    return absl::ErrnoToStatus(error, "can't make " + (target_.empty() ? path_ : target_) +
                                          ", so the counters cannot be read without the daemon; remove what is "
                                          "there, or give a --run-dir in /run");
  }

  auto* const page = static_cast<abi::CountersPage*>(start);
  page->version = abi::kCountersVersion;
  page->bytes = static_cast<std::uint32_t>(bytes);
  page->names_offset = sizeof(abi::CountersPage);
  page->names = static_cast<std::uint32_t>(names);
  page->worker_names = static_cast<std::uint32_t>(of_workers.size());
  page->sections_offset = static_cast<std::uint32_t>(sections);
  page->section_bytes = static_cast<std::uint32_t>(section_bytes);
  page->workers = static_cast<std::uint32_t>(workers);
  page->process = ::getpid();
  page->started = monotonic_now();
  page->started_utc = utc_now();
  set_text(page->device, device);
  set_text(page->release, UROCE_VERSION);
  auto* to = reinterpret_cast<abi::CounterName*>(page + 1);
  for (const std::vector<Name>* const list : {&of_workers, &of_control}) {
    for (const Name& name : *list) {
      set_text(to->group, name.group);
      set_text(to->name, name.name);
      to->kind = static_cast<std::uint32_t>(name.kind);
      ++to;
    }
  }
  std::atomic_ref(page->magic).store(abi::kCountersMagic, std::memory_order_release);
  page_ = page;
  return absl::OkStatus();
}

CountersFile::~CountersFile() {
  if (page_ == nullptr) return;
  ::munmap(page_, page_->bytes);
  remove();
}

void CountersFile::remove() {
  if (!target_.empty()) ::unlink(target_.c_str());
  ::unlink(path_.c_str());
}

abi::CounterSection& CountersFile::section(std::size_t index) {
  std::byte* const first = reinterpret_cast<std::byte*>(page_) + page_->sections_offset;
  return *reinterpret_cast<abi::CounterSection*>(first + index * page_->section_bytes);
}

}  // namespace uroce::control
