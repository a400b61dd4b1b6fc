// Becoming the program that uroce-run was asked to start.
#pragma once

namespace uroce::run {

/// Executes the program, with a note if it is linked statically, or says why it cannot and ends with the status of
/// a shell: 127 if there is no such program, otherwise 126.
[[noreturn]] void execute(char* const* program);

}  // namespace uroce::run
