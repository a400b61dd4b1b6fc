// Precompiled, as pch/gtest.h, for programs without GoogleTest.
#ifndef UROCE_TESTS_PCH_STD_H_
#define UROCE_TESTS_PCH_STD_H_

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#endif
