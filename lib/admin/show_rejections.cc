#include "admin/show_rejections.h"

#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>

#include "base/errno_name.h"
#include "base/types.h"

namespace uroce::admin {
namespace {

using Json = nlohmann::ordered_json;

std::string errno_text(int error) {
  const char* const name = errno_name(error);
  return name != nullptr ? name : std::to_string(error);
}

}  // namespace

std::string utc_text(std::uint64_t time_ns) {
  const auto seconds = static_cast<std::time_t>(time_ns / kSecond);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[40];
  const std::size_t length = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text + length, sizeof(text) - length, ".%03uZ",
                static_cast<unsigned>(time_ns % kSecond / kMillisecond));
  return text;
}

Json list_rejections(const control::ControlState& state, Page& page) {
  const std::uint64_t start = page.take_start().handle;
  Json list = Json::array();
  for (const control::Refusal& refusal : state.rejections().kept()) {
    if (refusal.number < start || !page.viewer.sees(refusal.tenant, 1)) continue;
    if (!page.take_row({0, refusal.number})) break;
    list.push_back({{"time", utc_text(refusal.time_ns)},
                    {"user", refusal.tenant.uid},
                    {"pid", refusal.pid},
                    {"program", refusal.program},
                    {"command", std::string(control::command_name(refusal.command))},
                    {"errno", errno_text(refusal.error)},
                    {"reason", std::string(control::kRejectionNames[static_cast<std::size_t>(refusal.reason)])},
                    {"text", refusal.text}});
  }
  return list;
}

}  // namespace uroce::admin
