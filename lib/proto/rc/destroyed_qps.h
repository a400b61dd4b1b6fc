// Destroyed QPs, for a while. A requester whose last acknowledge was lost sends its request again; if nobody
// answered, it would take what had long been done for failed. What a QP had executed is therefore acknowledged once
// more. Nothing is executed, and a READ or an atomic has no answer any more.
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
#include "wire/packet.h"

namespace uroce::proto {

class Context;

class DestroyedQps {
 public:
  static constexpr Nanos kLingerTime = kSecond;
  static constexpr std::uint32_t kNotes = 1024;  ///< the QPs destroyed last; a power of 2

  explicit DestroyedQps(std::pmr::memory_resource* memory)
      : notes_(kNotes, memory), by_qpn_(kNotes, memory), owing_(memory) {
    owing_.reserve(kNotes);
  }

  /// This QP, which answers requests, ends now.
  void note(const Qp& qp, Nanos now);
  /// Its number has another owner.
  void forget(Qpn qpn);
  /// A packet that no QP takes. False: it is for none of these either, or bad.
  bool receive(Context& context, wire::RxPacket& packet);

  bool owes() const { return !owing_.empty(); }
  void transmit(Context& context, TxBurst& burst);

 private:
  struct Note {
    Qpn qpn, dest_qpn;
    Psn epsn, owed_psn;
    Msn msn;
    std::uint32_t peer_v4 = 0;
    std::uint16_t pkey = 0;
    wire::Service service{};
    bool owed = false;
    bool listed = false;  ///< in owing_
    Nanos until = 0;      ///< 0: nobody's
    std::array<std::byte, 16> peer{};
    wire::FrameTemplate path;
  };

  void owe(std::uint32_t slot, Psn psn);

  std::pmr::vector<Note> notes_;  // a ring
  std::uint32_t next_ = 0;
  QpnTable by_qpn_;
  std::pmr::vector<std::uint32_t> owing_;
};

}  // namespace uroce::proto
