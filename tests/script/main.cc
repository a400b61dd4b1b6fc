// One test case for each script: script-test [gtest options] [SCRIPT...]; without names all of
// tests/script/scripts.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "tests/script/runner.h"

namespace {

class ScriptTest : public testing::Test {
 public:
  explicit ScriptTest(std::string path) : path_(std::move(path)) {}
  void TestBody() override {
    const uroce::script::Result result = uroce::script::run_file(path_);
    EXPECT_TRUE(result.passed) << result.message;
    if (result.passed && !result.message.empty()) std::cout << "fails as marked: " << result.message << "\n";
  }

 private:
  std::string path_;
};

std::vector<std::filesystem::path> all_scripts() {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(UROCE_SCRIPTS)) {
    if (entry.path().extension() == ".script") found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  std::vector<std::filesystem::path> scripts(argv + 1, argv + argc);
  if (scripts.empty()) scripts = all_scripts();
  for (const std::filesystem::path& path : scripts) {
    const std::string folder = path.parent_path().filename().string();
    testing::RegisterTest(folder.c_str(), path.stem().c_str(), nullptr, nullptr, path.c_str(), 1,
                          [path]() -> testing::Test* { return new ScriptTest(path.string()); });
  }
  return RUN_ALL_TESTS();
}
