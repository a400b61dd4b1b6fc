#include "execute.h"

#include <elf.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

namespace uroce::run {
namespace {

bool is_file(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

/// The file that execvp(3) finds; empty: none. Opening a FIFO would block.
std::string find(const std::string& program) {
  if (program.find('/') != std::string::npos) return is_file(program) ? program : "";
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "/bin:/usr/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = (folder.empty() ? "." : folder) + "/" + program;
    if (is_file(file)) return file;
  }
  return {};
}

template <class Header>
bool read_at(std::ifstream& file, std::uint64_t offset, Header& header) {
  file.seekg(static_cast<std::streamoff>(offset));
  return static_cast<bool>(file.read(reinterpret_cast<char*>(&header), sizeof header));
}

/// Whether the program, by its name or path, is an ELF file without a dynamic loader (PT_INTERP): LD_LIBRARY_PATH
/// means nothing to it. Scripts, and files that cannot be read, are none.
bool is_static(const std::string& program) {
  const std::string path = find(program);
  // The dynamic loader itself has no loader, and loads what follows it.
  if (path.empty() || std::filesystem::path(path).filename().string().starts_with("ld-")) return false;
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr elf{};
  if (!read_at(file, 0, elf) || std::memcmp(elf.e_ident, ELFMAG, SELFMAG) != 0) return false;
  if (elf.e_ident[EI_CLASS] != ELFCLASS64 || elf.e_phentsize != sizeof(Elf64_Phdr)) return false;
  for (unsigned i = 0; i < elf.e_phnum; ++i) {
    Elf64_Phdr part{};
    if (!read_at(file, elf.e_phoff + i * sizeof part, part)) return false;
    if (part.p_type == PT_INTERP) return false;
  }
  return true;
}

}  // namespace

void execute(char* const* program) {
  if (is_static(program[0])) {
    std::fprintf(stderr,
                 "uroce-run: note: %s is linked statically: it loads no library, so it does not see the devices\n",
                 program[0]);
  }
  ::execvp(program[0], program);
  const int problem = errno;
  std::fprintf(stderr, "uroce-run: %s: %s\n", program[0], std::strerror(problem));
  ::_exit(problem == ENOENT ? 127 : 126);
}

}  // namespace uroce::run
