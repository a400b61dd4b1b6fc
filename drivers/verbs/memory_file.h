// Memory in a file without a name (memfd_create(2)), which the daemon maps as it is: no page moves when a region of
// it is registered.
#pragma once

#include <cstddef>

namespace uroce::verbs {

/// `bytes`: whole pages. A descriptor, or -1 with errno.
int make_memory_file(const char* name, std::size_t bytes);

/// A new descriptor of the file's memory for ibv_reg_dmabuf_mr(3) and mmap(2): a DMA-BUF that other drivers import,
/// if the process may open /dev/udmabuf (Linux, drivers/dma-buf/udmabuf.c), else the file itself. -1 with errno.
int export_memory_file(int fd, std::size_t bytes);

}  // namespace uroce::verbs
