#include "page_sharing/mapping_info.h"

#include <fcntl.h>
#include <link.h>
#include <linux/ioctl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "page_sharing/page_arena.h"

namespace uroce::page_sharing {

namespace {

// struct procmap_query of include/uapi/linux/fs.h (Linux 6.11), which older headers lack.
struct ProcmapQuery {
  std::uint64_t size, flags, address;
  std::uint64_t start, end, vma_flags, page_bytes, offset, inode;
  std::uint32_t dev_major, dev_minor;
  std::uint32_t name_bytes, build_id_bytes;
  std::uint64_t name_address, build_id_address;
};
static_assert(sizeof(ProcmapQuery) == 104);
constexpr unsigned long kProcmapQuery = _IOWR('f', 17, ProcmapQuery);
constexpr std::uint64_t kCoveringOrNext = 0x10;
enum : std::uint64_t { kReadable = 1, kWritable = 2, kExecutable = 4, kShared = 8 };

constexpr std::uintptr_t kMostStaticTls = 64 * 1024;
// What glibc reserves below the static thread-local storage for libraries that are loaded later, with the defaults
// of its tunables rtld.nns and rtld.optional_static_tls. A program's own memory may end where that begins.
constexpr std::uintptr_t kStaticTlsReserve = 1664;

struct StaticTls {
  std::uintptr_t block;  // an address in the control block of the calling thread
  std::uintptr_t below;  // bytes that the loaded libraries use below it
};

int visit_tls(dl_phdr_info* info, std::size_t, void* to) {
  auto& tls = *static_cast<StaticTls*>(to);
  const std::uintptr_t below = tls.block - reinterpret_cast<std::uintptr_t>(info->dlpi_tls_data);
  if (info->dlpi_tls_data != nullptr && below < kMostStaticTls) tls.below = std::max(tls.below, below);
  return 0;
}

// The head of the robust futex list is in the C library's control block of each thread (get_robust_list(2)). 0: of
// a thread that has none.
std::uintptr_t control_block(long thread) {
  std::uintptr_t block = 0;
  std::size_t bytes = 0;
  return raw_syscall(SYS_get_robust_list, thread, &block, &bytes) == 0 ? block : 0;
}

std::uint64_t parse_hex(char*& at) {
  std::uint64_t value = 0;
  for (;; ++at) {
    const char c = *at;
    if (c >= '0' && c <= '9') {
      value = value * 16 + static_cast<std::uint64_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      value = value * 16 + static_cast<std::uint64_t>(c - 'a' + 10);
    } else {
      return value;
    }
  }
}

std::uint64_t parse_decimal(const char*& at) {
  std::uint64_t value = 0;
  for (; *at >= '0' && *at <= '9'; ++at) value = value * 10 + static_cast<std::uint64_t>(*at - '0');
  return value;
}

bool skip(char*& at, char expected) {
  if (*at != expected) return false;
  ++at;
  return true;
}

}  // namespace

int Mapping::protection() const {
  return (readable ? PROT_READ : 0) | (writable ? PROT_WRITE : 0) | (executable ? PROT_EXEC : 0);
}

int MappingReader::open(bool force_text) {
  const long fd = raw_syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return static_cast<int>(-fd);
  fd_ = RawFd(fd);
  text_ = force_text;
  rewind();
  return 0;
}

void MappingReader::rewind() {
  last_ = Mapping{};
  filled_ = taken_ = 0;
  if (text_) raw_syscall(SYS_lseek, fd_.get(), 0, SEEK_SET);
}

int MappingReader::at_or_after(std::uintptr_t address, Mapping& out) {
  if (!text_) {
    const int error = query(address, out);
    if (error == 0 || error == ENOENT) return error;
    text_ = true;
    rewind();
  }
  return parse_on(address, out);
}

int MappingReader::query(std::uintptr_t address, Mapping& out) {
  ProcmapQuery q = {};
  q.size = sizeof(q);
  q.flags = kCoveringOrNext;
  q.address = address;
  q.name_bytes = sizeof(path_) - 1;
  q.name_address = reinterpret_cast<std::uintptr_t>(path_);
  const long result = raw_syscall(SYS_ioctl, fd_.get(), kProcmapQuery, &q);
  if (result < 0) return static_cast<int>(-result);
  path_[q.name_bytes < sizeof(path_) ? q.name_bytes : sizeof(path_) - 1] = 0;
  out = Mapping{};
  out.start = q.start;
  out.end = q.end;
  out.offset = q.offset;
  out.inode = q.inode;
  out.dev_major = q.dev_major;
  out.dev_minor = q.dev_minor;
  out.readable = (q.vma_flags & kReadable) != 0;
  out.writable = (q.vma_flags & kWritable) != 0;
  out.executable = (q.vma_flags & kExecutable) != 0;
  out.shared = (q.vma_flags & kShared) != 0;
  set_origin(out);
  return 0;
}

void MappingReader::set_origin(Mapping& out) const {
  if (out.inode != 0) {
    out.origin = Mapping::Origin::kFile;
  } else if (path_[0] == 0 || std::strncmp(path_, "[anon:", 6) == 0) {
    out.origin = Mapping::Origin::kAnonymous;
  } else if (std::strcmp(path_, "[heap]") == 0) {
    out.origin = Mapping::Origin::kHeap;
  } else if (std::strncmp(path_, "[stack", 6) == 0) {
    out.origin = Mapping::Origin::kStack;
  } else {
    out.origin = Mapping::Origin::kSpecial;
  }
  // All shared memory has an inode. A shared mapping without one is a device.
  if (out.shared && out.inode == 0) out.origin = Mapping::Origin::kSpecial;
}

int MappingReader::parse_on(std::uintptr_t address, Mapping& out) {
  if (address < last_.start || last_.end == 0) rewind();
  while (last_.end <= address) {
    char* line = nullptr;
    const int error = next_line(line);
    if (error != 0) {
      rewind();
      return error;
    }
    if (!parse_line(line, last_)) {
      rewind();
      return EIO;
    }
  }
  out = last_;
  return 0;
}

int MappingReader::next_line(char*& line) {
  for (;;) {
    char* start = buffer_ + taken_;
    if (auto* end = static_cast<char*>(std::memchr(start, '\n', filled_ - taken_)); end != nullptr) {
      *end = 0;
      taken_ = static_cast<std::size_t>(end + 1 - buffer_);
      line = start;
      return 0;
    }
    std::memmove(buffer_, start, filled_ - taken_);
    filled_ -= taken_;
    taken_ = 0;
    if (filled_ == sizeof(buffer_)) return EIO;
    const long got = raw_syscall(SYS_read, fd_.get(), buffer_ + filled_, sizeof(buffer_) - filled_);
    if (got < 0) return static_cast<int>(-got);
    if (got == 0) return ENOENT;
    filled_ += static_cast<std::size_t>(got);
  }
}

// "start-end rwxp offset major:minor inode      path"
bool MappingReader::parse_line(char* line, Mapping& out) {
  Mapping m;
  char* at = line;
  m.start = parse_hex(at);
  if (!skip(at, '-')) return false;
  m.end = parse_hex(at);
  if (!skip(at, ' ') || std::strlen(at) < 5) return false;
  m.readable = at[0] == 'r';
  m.writable = at[1] == 'w';
  m.executable = at[2] == 'x';
  m.shared = at[3] == 's';
  at += 4;
  if (!skip(at, ' ')) return false;
  m.offset = parse_hex(at);
  if (!skip(at, ' ')) return false;
  m.dev_major = static_cast<std::uint32_t>(parse_hex(at));
  if (!skip(at, ':')) return false;
  m.dev_minor = static_cast<std::uint32_t>(parse_hex(at));
  if (!skip(at, ' ')) return false;
  const char* number = at;
  m.inode = parse_decimal(number);
  while (*number == ' ') ++number;
  const std::size_t length = std::strlen(number);
  if (length >= sizeof(path_)) return false;
  std::memcpy(path_, number, length + 1);
  set_origin(m);
  out = m;
  return m.end > m.start;
}

std::uintptr_t ThreadList::main_start_ = 0;

bool ThreadList::read() {
  count_ = 0;
  complete_ = false;
  RawFd folder(raw_syscall(SYS_openat, AT_FDCWD, "/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return false;
  const long process = raw_syscall(SYS_getpid);
  alignas(8) char buffer[4096];
  for (;;) {
    const long got = raw_syscall(SYS_getdents64, folder.get(), buffer, sizeof(buffer));
    if (got < 0) return false;
    if (got == 0) break;
    for (long at = 0; at < got;) {
      const char* entry = buffer + at;  // linux_dirent64: inode, offset, u16 length, u8 type, name
      std::uint16_t length = 0;
      std::memcpy(&length, entry + 16, sizeof(length));
      at += length;
      const char* name = entry + 19;
      const long thread = static_cast<long>(parse_decimal(name));
      if (thread == 0) continue;
      if (count_ == kMaxThreads) return false;
      entries_[count_++] = {control_block(thread), thread == process};
    }
  }
  complete_ = count_ > 0;
  return complete_;
}

void ThreadList::note_main_thread() {
  const std::uintptr_t block = control_block(raw_syscall(SYS_getpid));
  StaticTls tls{control_block(0), 0};  // which has the same layout in all threads
  dl_iterate_phdr(visit_tls, &tls);
  const std::uintptr_t first = (block - tls.below - kStaticTlsReserve) / kPageBytes * kPageBytes;
  MappingReader reader;
  Mapping mapping;
  if (block != 0 && reader.open() == 0 && reader.at_or_after(block, mapping) == 0) {
    main_start_ = std::max(mapping.start, first);
  }
}

bool ThreadList::may_hold_thread(const Mapping& mapping, std::uintptr_t start, std::uintptr_t end) const {
  for (std::size_t i = 0; i < count_; ++i) {
    const std::uintptr_t block = entries_[i].block;
    if (block < mapping.start || block >= mapping.end) continue;
    // The stack of a thread is below its control block in the same mapping. The main thread's stack is elsewhere,
    // but in the child of a fork the thread that forked is the main one.
    const bool first = entries_[i].main && main_start_ <= block;
    const std::uintptr_t low = first ? std::max(mapping.start, main_start_) : mapping.start;
    if (start < block + kPageBytes && end > low) return true;
  }
  return false;
}

}  // namespace uroce::page_sharing
