// A hostile client of an RC QP.
#include "tests/fuzz/hostile_client.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  uroce::fuzz::Fixture world;
  uroce::fuzz::Input input(data, size);
  uroce::fuzz::run_hostile_client(world, input);
  return 0;
}
