// Descriptors that came from clients. Behind one can be a FUSE server that answers nothing, or a socket with
// SO_LINGER: then fstat, fstatfs, and even close last for ever. So the conductor does none of these itself, unless
// the file is one of shared memory; threads do, and stay behind when they get stuck.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "mapping/stall_budget.h"
#include "platform/unique_fd.h"

namespace uroce::daemon {

struct FileFacts {
  dev_t device = 0;
  ino_t inode = 0;
  std::uint32_t magic = 0;  ///< of its file system; 0: of one whose page faults a server answers
  std::uint64_t block_bytes = 0;
};

/// Whether it is a file of shared memory (memfd, tmpfs, hugetlbfs), with which no call waits.
bool is_memory_file(int fd);

/// 0, EBADF, or ETIMEDOUT: nobody answers as long as `stall_budget` with the descriptor's owner lasts.
int examine(int fd, const std::shared_ptr<StallBudget>& stall_budget, FileFacts& out);

/// Closes them, now or later.
void close_async(std::vector<UniqueFd> files);
void close_async(UniqueFd file);

}  // namespace uroce::daemon
