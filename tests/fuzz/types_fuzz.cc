// A hostile client of QP types other than RC, with shared receive queues, windows and fast registrations.
//
// Input: a byte for the type (upper half 5: raw packets), followed by the steps of hostile_client.h.
#include "tests/fuzz/hostile_client.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using uroce::proto::QpType;
  constexpr QpType kTypes[] = {QpType::kRc, QpType::kUc, QpType::kUd, QpType::kXrcSend};
  uroce::fuzz::Input input(data, size);
  const std::uint8_t control = input.byte();
  const QpType type = control >> 4 == 5 ? QpType::kRawPacket : kTypes[control % 4];
  uroce::fuzz::Fixture world(type, (control & 4) != 0);
  uroce::fuzz::run_hostile_client(world, input);
  return 0;
}
