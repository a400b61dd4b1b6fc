// The objects of one opened device context of one client. Used by the control thread only; workers use its
// SessionPorts.
#pragma once

#include <sys/types.h>
#include <array>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "abi/control.h"
#include "control/session/answer_file.h"
#include "control/session/cm_id.h"
#include "control/session/handle_table.h"
#include "control/session/neighbour_waiters.h"
#include "control/session/objects.h"
#include "control/session/quotas.h"
#include "mapping/client_memory.h"
#include "mapping/proc_mem.h"
#include "mapping/shared_segment.h"
#include "platform/peer.h"
#include "platform/unique_fd.h"
#include "worker/worker.h"

namespace uroce::control {

namespace commands {
struct Call;
}

struct Session {
  Session(std::uint64_t number, platform::Peer from, UniqueFd socket_fd, Charge of_user, bool hugepages,
          std::shared_ptr<mapping::StallBudget> with_user)
      : id(number),
        peer(std::move(from)),
        stall_budget(std::move(with_user)),
        socket(std::move(socket_fd), stall_budget),
        memory_budget(std::move(of_user)),
        arena(hugepages, number, &memory_budget),
        memory(number, stall_budget, &memory_budget) {}

  std::uint64_t id;
  platform::Peer peer;
  std::shared_ptr<mapping::StallBudget> stall_budget;
  bool privileged = false;  ///< of root, or of the daemon's own user, who could end the daemon anyway
  mapping::ClientSocket socket;
  std::string program;

  Nanos idle_since = 0;  ///< before HELLO: of the last request
  AnswerFile answer_file{stall_budget};

  // From HELLO on.
  bool hello_done = false;
  uroce_session_header* header = nullptr;
  /// Random bytes that the daemon wrote into chunk 0. They identify the chunk: inode numbers of files on hugepages
  /// have 32 bits and repeat.
  std::array<std::byte, 16> cookie{};
  std::uint64_t cookie_offset = 0;                          ///< in chunk 0
  std::vector<std::unique_ptr<worker::SessionPort>> ports;  ///< by worker
  std::vector<UniqueFd> eventfds;
  std::vector<DoorbellBits> bits;  ///< by worker
  mapping::ClientSocket events;    ///< the daemon's end of the event channel
  std::vector<uroce_async_event> events_owed;
  Charge indirect_charge;
  std::unique_ptr<mapping::ProcMemAccess> indirect;

  ChargedMemory memory_budget;  ///< holds the charge of the session itself, too
  mapping::SharedSegment arena;
  mapping::ClientMemory memory;
  UnknownHandles unknown_handles;
  HandleTable<PdObject> pds{unknown_handles};
  HandleTable<MrObject> mrs{unknown_handles};
  HandleTable<MwObject> mws{unknown_handles};
  HandleTable<DmObject> dms{unknown_handles};
  HandleTable<ChannelObject> channels{unknown_handles};
  HandleTable<CqObject> cqs{unknown_handles};
  HandleTable<QpObject> qps{unknown_handles};
  HandleTable<SrqObject> srqs{unknown_handles};
  HandleTable<XrcdObject> xrcds{unknown_handles};
  HandleTable<AhObject> ahs{unknown_handles};
  HandleTable<RssObject> rss{unknown_handles};
  HandleTable<CountersObject> counters{unknown_handles};
  HandleTable<CompCntrObject> comp_cntrs{unknown_handles};
  HandleTable<FlowObject> flows{unknown_handles};
  CmObjects cm{unknown_handles};
  std::uint32_t connected_qps = 0;
  std::uint64_t imported = 0;  ///< session whose PDs and MRs this session may import; 0: none

  /// Whether the process that opened the session sent the request that is being executed. Another process that got
  /// the socket from it has neither its rights nor its memory.
  bool from_peer = true;
  bool any_read = false;  ///< a request was read from the socket

  /// The answer to EXPLAIN: the latest refusal of this session.
  struct Explained {
    uroce_request request;
    int error = 0;
    std::string text;
  };
  Explained explained{};

  /// A request that waits for a neighbour. No other is read from this session until it is answered.
  struct PendingRequest {
    uroce_request header;
    NeighbourWaiters::Id waiter = 0;
  };
  std::optional<PendingRequest> pending;
  /// A request that is executed in slices. No other is read from this session until it is answered.
  struct UnfinishedRequest {
    uroce_request header;
    std::function<int(commands::Call&)> rest;
  };
  std::optional<UnfinishedRequest> unfinished;
  /// A message whose descriptors did not fit into the daemon's table: the user's closer takes it out of the socket,
  /// and then it is refused with EMFILE.
  struct Discarded {
    uroce_request request;
    Nanos deadline = 0;
  };
  std::optional<Discarded> discarding;
  /// What the rules of `urocectl fault verbs` for control commands have seen of this session, by their numbers.
  struct FaultMatches {
    std::uint64_t stream = 0, matches = 0;
  };
  std::map<std::uint32_t, FaultMatches> fault_matches;
  bool close_pending = false;  ///< to be closed at the end of the round
  /// How far a session that is being closed has come (commands/teardown.cc).
  struct Closing {
    std::size_t step = 0;
    std::uint32_t next_window = 0, next_region = 0;  ///< handles: those before are invalid
    std::uint64_t next_session = 0;                  ///< in whose windows next_window is
    std::vector<Key> bound;                          ///< MRs to which windows of other sessions are bound
    std::unordered_set<std::uint32_t> pds;           ///< of these
  };
  Closing closing;
};

}  // namespace uroce::control
