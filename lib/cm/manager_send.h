// How handlers send. Included by manager*.cc only.
#pragma once

#include "cm/manager_impl.h"

namespace uroce::cm {

/// The attribute modifier of a message's MAD.
template <class M>
std::uint32_t modifier_of(const M& message) {
  if constexpr (requires { message.ece; }) {
    return message.ece.options;
  } else {
    return 0;
  }
}

template <class M>
void Manager::Impl::send_once(const Peer& peer, std::uint64_t transaction, const M& message) {
  Message out{M::kAttribute, transaction, peer, {}, modifier_of(message)};
  message.emit(out.bytes);
  queue(out);
}

template <class M>
void Manager::Impl::send_until_answered(Connection& c, const M& message, Nanos now) {
  c.last_attribute = M::kAttribute;
  c.last_modifier = modifier_of(message);
  message.emit(c.last);
  c.retries_left = config.max_retries;
  send_again(c);
  deadlines.set(slot_of(c), now + c.timeout);
}

}  // namespace uroce::cm
