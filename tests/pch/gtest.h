// Precompiled for test programs whose sources are compiled one by one: half of such a test's time goes into these.
// No pragma once, which gcc takes for a mistake in a header that it precompiles.
#ifndef UROCE_TESTS_PCH_GTEST_H_
#define UROCE_TESTS_PCH_GTEST_H_

#include <gtest/gtest.h>

#include "std.h"

#endif
