// memory_copy SIZE      prints the Gbit/s of memcpy() between two buffers of SIZE bytes
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

int main(int argc, char** argv) {
  const std::size_t size = argc == 2 ? std::strtoull(argv[1], nullptr, 10) : 0;
  if (size == 0) {
    std::fprintf(stderr, "usage: memory_copy SIZE, in bytes and above 0\n");
    return 2;
  }
  std::vector<char> from(size, 'x'), to(size);
  double seconds = 0, bytes = 0;
  const auto began = std::chrono::steady_clock::now();
  while (seconds < 0.5) {
    for (int i = 0; i < 64; ++i) {
      std::memcpy(to.data(), from.data(), size);
      // For all that the compiler knows, the copy is used and the source has changed.
      asm volatile("" : : "r"(to.data()), "r"(from.data()) : "memory");
    }
    bytes += 64 * static_cast<double>(size);
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  }
  std::printf("%.3f\n", bytes * 8 / seconds / 1e9);
  return 0;
}
