// `urocectl web` is a program of its own: loading its HTTP library, with TLS and compression, takes longer than
// another command of urocectl as a whole.
#pragma once

namespace uroce::ctl {

/// Becomes uroce-web, which parses the same arguments again. If that cannot be started, ends with status 1 and a
/// message.
[[noreturn]] void become_web_program(char** argv);

}  // namespace uroce::ctl
