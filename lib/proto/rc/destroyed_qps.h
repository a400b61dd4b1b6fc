// QPs that were destroyed recently. A requester whose last acknowledge was lost sends its request again; without an
// answer it would report requests that were executed as failed. Duplicates of SENDs and WRITEs are therefore
// acknowledged again for a second (IBTA vol. 1, 9.7.5: duplicate requests). Nothing is executed, and READs and
// atomics are not answered.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <vector>

#include "base/types.h"
#include "proto/state/qp.h"
#include "proto/state/qpn_table.h"
#include "proto/state/types.h"
#include "wire/frame_template.h"
#include "wire/opcode.h"
#include "wire/packet.h"

namespace uroce::proto {

class Context;

class DestroyedQps {
 public:
  static constexpr Nanos kLingerTime = kSecond;
  static constexpr std::uint32_t kNotes = 1024;  ///< how many QPs are kept, the newest; a power of 2

  explicit DestroyedQps(std::pmr::memory_resource* memory)
      : notes_(kNotes, memory), by_qpn_(kNotes, memory), owing_(memory) {
    owing_.reserve(kNotes);
  }

  /// This QP, which answers requests, is being destroyed.
  void note(const Qp& qp, Nanos now);
  /// The number is in use again.
  void forget(Qpn qpn);
  /// A packet for a QPN that is not in use. False: it is not for one of these either, or is not valid.
  bool receive(Context& context, wire::RxPacket& packet);

  bool owes() const { return !owing_.empty(); }
  void transmit(Context& context, TxBurst& burst);

 private:
  struct Note {
    Qpn qpn, dest_qpn;
    Psn epsn, owed_psn;
    Msn msn;
    std::uint32_t path_v4[2] = {};
    std::uint32_t peer_sender = 0;
    std::uint16_t pkey = 0;
    wire::Service service{};
    bool owed = false;
    bool listed = false;  ///< in owing_
    Nanos until = 0;      ///< 0: the entry is free
    std::array<std::byte, 32> path_v6{};
    wire::FrameTemplate path;
  };

  void owe(std::uint32_t slot, Psn psn);

  std::pmr::vector<Note> notes_;  // a ring
  std::uint32_t next_ = 0;
  QpnTable by_qpn_;
  std::pmr::vector<std::uint32_t> owing_;
};

}  // namespace uroce::proto
