// Static probes (USDT) for bpftrace, perf and gdb: docs/probes.md lists them. Each is one instruction without
// effect, and a note in the program that says where its arguments are. Without <sys/sdt.h> (Debian:
// systemtap-sdt-dev) there are none.
#pragma once

#if __has_include(<sys/sdt.h>)
#define SDT_USE_VARIADIC
#include <sys/sdt.h>
/// `arguments` are integers at hand: they are evaluated in any case.
#define UROCE_PROBE(name, ...) STAP_PROBEV(uroce, name, __VA_ARGS__)
#else
namespace uroce::base {
inline void no_probe(const auto&...) {}
}  // namespace uroce::base
#define UROCE_PROBE(name, ...) ::uroce::base::no_probe(__VA_ARGS__)
#endif
