// repoll_create(), repoll_ctl() and repoll_wait() of rdma/rsocket.h, since rdma-core 61: epoll(7) for rsockets and
// ordinary descriptors.
#pragma once

namespace uroce::rdmacm {

/// Ends the set with this number and the calls that wait for it. False: there is none.
bool close_set(int number);

}  // namespace uroce::rdmacm
