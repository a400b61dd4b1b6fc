// Confinement of the daemon: it gives up rights and system calls that serving does not need.
#pragma once

#include <sys/types.h>

#include <string>

#include "apps/uroced/settings.h"

namespace uroce::uroced {

/// Before the port is opened and threads start: no program that the daemon might execute gains rights.
void forbid_new_privileges();

/// Empty, or why Settings::user can't be changed to.
std::string check_user(const Settings& settings);

/// The user that serves: Settings::user, which check_user() has found, or that of this process.
uid_t user_of(const Settings& settings);

/// Empty, or which capability opening the port takes that the process does not have.
std::string check_rights(const Settings& settings);
/// The same for the netdev of each device, at the start only: a daemon that serves has given them up.
std::string check_netdev_rights(const Settings& settings);

/// After the port is open and before the daemon's threads start, which inherit it: changes to Settings::user, and
/// keeps only the capabilities that serving needs. Returns empty, or what failed and what to do.
std::string drop_privileges(const Settings& settings);

/// Once the daemon serves: the system calls that it may still make, for all threads. Returns what is in force, for
/// the log.
std::string filter_system_calls(const Settings& settings);

/// The capabilities of this thread, such as "cap_net_raw cap_sys_ptrace"; "none".
std::string capabilities_text();

}  // namespace uroce::uroced
