// Descriptors of all kinds that a client may attach to a message.
#pragma once

#include <string>

#include "platform/unique_fd.h"
#include "tests/hostile/random_values.h"

namespace uroce::hostile {

/// A memfd of up to 4 MiB, with random seals and holes.
UniqueFd random_memfd(Random& random);

/// A new descriptor of a random kind: file, deleted file, memfd, pipe, socket, eventfd, O_PATH, directory, device,
/// userfaultfd, ... `socket_path`: that of the daemon, to which some are connected. Invalid where the kernel or a
/// limit refuses it.
UniqueFd random_descriptor(Random& random, const std::string& socket_path);

}  // namespace uroce::hostile
