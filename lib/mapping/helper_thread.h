#pragma once

#include <functional>
#include <thread>

namespace uroce::mapping {

/// Starts a thread with all signals blocked; it is moved to `*keep`, or detached. False: no thread or no memory is
/// free.
bool start_helper_thread(std::function<void()> work, std::thread* keep = nullptr) noexcept;

}  // namespace uroce::mapping
