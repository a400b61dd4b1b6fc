// Which engine computes the ICRC: the fastest, or the one that UROCE_ICRC names. This program obeys the variable,
// too, and its output names the engines that the tests of all engines ran with, and those that they did not.
#include "control/machine/icrc_choice.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "wire/icrc.h"

namespace uroce::wire {
namespace {

/// Before the first test. tests/engines.sh reads the lines.
class Choice : public ::testing::Environment {
  void SetUp() override {
    const std::string error = control::choose_icrc_engine();
    ASSERT_EQ(error, "");
    const std::string lacking =
        control::crc_engine_names([](const CrcEngine& engine) { return !engine.supported(); });
    std::printf("ICRC engines tested: %s\n", control::usable_crc_engines().c_str());
    std::printf("ICRC engines not tested, since this CPU lacks them: %s\n",
                lacking.empty() ? "none" : lacking.c_str());
    std::fflush(stdout);
  }
};
const auto* const kChoice = ::testing::AddGlobalTestEnvironment(new Choice);

/// The variable and the engine are restored after each test.
class IcrcChoice : public ::testing::Test {
 protected:
  IcrcChoice() : engine_(&crc_engine()) {
    if (const char* const given = std::getenv("UROCE_ICRC")) given_ = given;
  }
  ~IcrcChoice() override {
    set(given_ ? given_->c_str() : nullptr);
    detail::chosen_engine.store(engine_);
  }

  static void set(const char* value) {
    if (value != nullptr) {
      ::setenv("UROCE_ICRC", value, 1);
    } else {
      ::unsetenv("UROCE_ICRC");
    }
  }
  /// What a program says that starts with this value.
  static std::string start_with(const char* value) {
    set(value);
    detail::chosen_engine.store(nullptr);
    return control::choose_icrc_engine();
  }

 private:
  const CrcEngine* engine_;
  std::optional<std::string> given_;
};

TEST_F(IcrcChoice, IsTheLastThatTheCpuHasOrTheFasterOf512Bits) {
  const CrcEngine* best = nullptr;
  for (const CrcEngine* engine : crc_engines()) best = engine->supported() ? engine : best;
  for (const char* value : {static_cast<const char*>(nullptr), ""}) {
    EXPECT_EQ(start_with(value), "");
    if (best->name == "gfni") {
      EXPECT_TRUE(crc_engine().name == "gfni" || crc_engine().name == "vpclmulqdq") << crc_engine().name;
    } else {
      EXPECT_EQ(&crc_engine(), best);
    }
    EXPECT_EQ(&crc_engine(), &crc_engine());
  }
  EXPECT_EQ(crc_engines().front()->name, "portable");
}

TEST_F(IcrcChoice, IsTheEngineThatTheVariableNames) {
  for (const CrcEngine* engine : crc_engines()) {
    if (!engine->supported()) continue;
    EXPECT_EQ(start_with(std::string(engine->name).c_str()), "");
    EXPECT_EQ(&crc_engine(), engine) << engine->name;
  }
}

TEST_F(IcrcChoice, RefusesAnEngineThatTheCpuLacks) {
  bool lacking = false;
  for (const CrcEngine* engine : crc_engines()) {
    if (engine->supported()) continue;
    lacking = true;
    const std::string name{engine->name};
    EXPECT_EQ(start_with(name.c_str()), "UROCE_ICRC \"" + name +
                                            "\": this CPU lacks its instructions; it must be one of " +
                                            control::usable_crc_engines() + ", or unset for the fastest");
    EXPECT_NE(&crc_engine(), engine) << name;
  }
  if (!lacking) GTEST_SKIP() << "this CPU has all engines";
}

TEST_F(IcrcChoice, RefusesANameThatIsNotAnEngine) {
  for (const std::string name : {"crc32", "Portable", "portable ", "portable,pclmulqdq", "pclmul"}) {
    EXPECT_EQ(start_with(name.c_str()), "UROCE_ICRC \"" + name + "\": there is no such engine; it must be one of " +
                                            control::usable_crc_engines() + ", or unset for the fastest");
  }
}

}  // namespace
}  // namespace uroce::wire
