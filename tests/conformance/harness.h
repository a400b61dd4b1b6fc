// A small test harness. Each case names the man page or clause that it tests, and prints one line of TAP.
//
// A case fails by throwing Failed (CHECK and related macros). It is skipped by throwing Skipped if the device
// reports that it lacks a feature: EOPNOTSUPP, or a limit of 0. Any other answer is a failure.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

namespace conformance {

struct Failed {
  std::string what;
};
struct Skipped {
  std::string why;
};

class Bench;  // fixtures.h

struct Case {
  const char* name;
  const char* clause;
  void (*run)(Bench&);
};

std::vector<Case>& cases();

struct Registration {
  Registration(const char* name, const char* clause, void (*run)(Bench&)) {
    cases().push_back({name, clause, run});
  }
};

template <class A, class B>
[[noreturn]] void fail_comparison(const char* file, int line, const char* text, const A& a, const B& b) {
  std::ostringstream out;
  out << file << ':' << line << ": " << text << ": " << a << " and " << b;
  throw Failed{out.str()};
}
[[noreturn]] inline void fail_at(const char* file, int line, const std::string& text) {
  throw Failed{std::string(file) + ':' + std::to_string(line) + ": " + text};
}

}  // namespace conformance

#define CONFORMANCE_CASE(id, clause)                                              \
  static void id(::conformance::Bench& bench);                                    \
  static const ::conformance::Registration registration_of_##id(#id, clause, id); \
  static void id([[maybe_unused]] ::conformance::Bench& bench)

#define CHECK(condition) ((condition) ? (void)0 : ::conformance::fail_at(__FILE__, __LINE__, "not so: " #condition))
#define CHECK_EQ(a, b)                                                                                       \
  do {                                                                                                       \
    const auto& left_ = (a);                                                                                 \
    const auto& right_ = (b);                                                                                \
    if (!(left_ == right_)) ::conformance::fail_comparison(__FILE__, __LINE__, #a " == " #b, left_, right_); \
  } while (false)
/// A call that returns 0, or an errno (or -1 and errno).
#define CHECK_OK(call)                                                                                          \
  do {                                                                                                          \
    const int error_ = (call);                                                                                  \
    const int code_ = error_ == -1 ? errno : error_;                                                            \
    if (code_ == EOPNOTSUPP) throw ::conformance::Skipped{#call ": EOPNOTSUPP"};                                \
    if (code_ != 0) ::conformance::fail_at(__FILE__, __LINE__, #call ": " + std::string(std::strerror(code_))); \
  } while (false)
/// Checks that a pointer is not null; else the case fails with errno.
#define CHECK_MADE(call) ::conformance::made((call), __FILE__, __LINE__, #call)

namespace conformance {
template <class T>
T* made(T* pointer, const char* file, int line, const char* call) {
  if (pointer != nullptr) return pointer;
  if (errno == EOPNOTSUPP || errno == ENOSYS) throw Skipped{std::string(call) + ": not supported"};
  fail_at(file, line, std::string(call) + ": " + std::strerror(errno));
}
}  // namespace conformance
