// fuzz-replay-NAME [--mutations N] CORPUS...: runs a fuzz target over every file of its corpus and over N (20)
// deterministic mutations of each, so that an ordinary test run covers the code without libFuzzer.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Bytes = std::vector<std::uint8_t>;

/// A copy of exact size, so that a sanitizer detects a read beyond its end.
void run(const Bytes& input) {
  const Bytes exact(input);
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

void mutate(Bytes& input, std::mt19937& random) {
  const auto at = [&] { return random() % input.size(); };
  switch (random() % 4) {
    case 0: input[at()] ^= static_cast<std::uint8_t>(1u << (random() % 8)); break;
    case 1: input[at()] = static_cast<std::uint8_t>(random()); break;
    case 2: input.resize(at()); break;
    default: input.insert(input.begin() + static_cast<std::ptrdiff_t>(at()), static_cast<std::uint8_t>(random()));
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t files = 0;
  int mutations = 20, first = 1;
  if (argc > 2 && std::string_view(argv[1]) == "--mutations") mutations = std::atoi(argv[2]), first = 3;
  for (int i = first; i < argc; ++i) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
      if (!entry.is_regular_file()) continue;
      std::ifstream in(entry.path(), std::ios::binary);
      const Bytes seed{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
      run(seed);
      ++files;
      std::mt19937 random(static_cast<std::uint32_t>(seed.size()));
      for (int round = 0; round < mutations; ++round) {
        Bytes input(seed);
        for (int n = 0; n < 1 + round % 8 && !input.empty(); ++n) mutate(input, random);
        run(input);
      }
    }
  }
  std::printf("%zu files replayed\n", files);
  return files > 0 ? 0 : 1;  // an empty corpus tests nothing
}
