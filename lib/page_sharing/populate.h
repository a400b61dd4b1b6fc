// Allocates the pages of shared ranges in this process, so that they count as its memory, as pinned pages do. The
// daemon allocates none (docs/memory-sharing.md).
#pragma once

#include <cstddef>
#include <cstdint>

#include "page_sharing/page_sharing.h"

namespace uroce::page_sharing {

/// Allocates the pages of `range`, which is shared from `address` on, that are in memory files (memfd, tmpfs,
/// hugetlbfs) and missing there. errno: 0, EFAULT (past the end of the file, or its file system is full), ENOMEM.
int populate(const void* address, const SharedRange& range);

/// The same by a mapping of the file, for kernels that cannot populate an existing one. What is past the end of the
/// file is left out. errno.
int populate_file(const SharedPiece& piece);

}  // namespace uroce::page_sharing
