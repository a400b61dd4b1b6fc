#include "admin/show_events.h"

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "admin/show_rejections.h"
#include "control/state/verb_faults.h"
#include "platform/clock.h"
#include "proto/state/congestion_window.h"
#include "proto/state/faults.h"
#include "proto/state/qp_events.h"
#include "wire/extended_headers.h"
#include "worker/worker.h"

namespace uroce::admin {
namespace {

using Json = nlohmann::ordered_json;
using proto::QpEvent;
using proto::QpEventType;

struct ReadQpEvents {
  static constexpr std::string_view kName = "read_qp_events";
  std::uint64_t first = 0;  ///< in: number of the first; out: of the first that was read
  std::uint64_t end = 0;    ///< out: of all, now
  std::vector<QpEvent> events = std::vector<QpEvent>(2 * Page::kRows);
  void describe(worker::ArgumentText& text) const { text.add("first", first); }
  void run(worker::WorkerCore& worker) {
    const proto::QpEventLog& log = worker.transport().qp_events();
    std::span<QpEvent> out(events);
    first = log.read(first, out);
    end = log.end();
    events.resize(out.size());
  }
};

std::string_view name_of(QpEventType type) {
  switch (type) {
    case QpEventType::kWentBack: return "went_back";
    case QpEventType::kProbed: return "probed";
    case QpEventType::kWindowCut: return "window_cut";
    case QpEventType::kWaits: return "waits";
    case QpEventType::kNakSent: return "nak_sent";
    case QpEventType::kFailed: return "failed";
  }
  return "?";
}

std::string_view text_of(proto::RetryCause cause) {
  switch (cause) {
    case proto::RetryCause::kSequenceNak: return "PSN sequence error";
    case proto::RetryCause::kImpliedNak: return "implied NAK";
    case proto::RetryCause::kMissingAcknowledge: return "no acknowledge";
    case proto::RetryCause::kTimeout: return "timeout";
  }
  return "?";
}

std::string_view text_of(proto::CongestionCause cause) {
  switch (cause) {
    case proto::CongestionCause::kLoss: return "loss";
    case proto::CongestionCause::kMarked: return "ECN mark";
    case proto::CongestionCause::kCnp: return "CNP";
    case proto::CongestionCause::kTimeout: return "no acknowledge";
  }
  return "?";
}

std::string nak_text(std::uint8_t syndrome) {
  if ((syndrome & 0x60) == wire::kRnrNak) return "RNR";
  switch (static_cast<wire::Nak>(syndrome)) {
    case wire::Nak::kSequence: return "PSN sequence error";
    case wire::Nak::kInvalidRequest: return "invalid request";
    case wire::Nak::kRemoteAccess: return "remote access error";
    case wire::Nak::kRemoteOperational: return "remote operational error";
    default: break;
  }
  char text[16];
  std::snprintf(text, sizeof text, "0x%02x", syndrome);
  return text;
}

std::string failure_text(const QpEvent& event) {
  if (event.cause == 0) return std::string(control::event_name(static_cast<proto::AsyncEvent>(event.value)));
  const std::uint32_t vendor_err = proto::vendor_err_of(event.cause);
  char text[32];
  std::snprintf(text, sizeof text, ", vendor_err 0x%x", vendor_err);
  return std::string(control::status_name(vendor_err / 16)) + text;
}

std::string cause_of(const QpEvent& event) {
  switch (event.type) {
    case QpEventType::kWentBack: return std::string(text_of(static_cast<proto::RetryCause>(event.cause)));
    case QpEventType::kProbed: return "no acknowledge";
    case QpEventType::kWindowCut: return std::string(text_of(static_cast<proto::CongestionCause>(event.cause)));
    case QpEventType::kWaits: return "RNR";
    case QpEventType::kNakSent: return nak_text(event.cause);
    case QpEventType::kFailed: return failure_text(event);
  }
  return "?";
}

void add_value(const QpEvent& event, Json& row) {
  const auto value = [&](const char* unit) {
    row["value"] = event.value;
    row["unit"] = unit;
  };
  switch (event.type) {
    case QpEventType::kWentBack: return value("packets");
    case QpEventType::kWindowCut: return value("bytes");
    case QpEventType::kWaits: return value("us");
    default:
      row["value"] = "-";
      row["unit"] = "-";
      return;
  }
}

/// Of the wall clock from the monotonic one, in whole milliseconds, so that a time is the same in each answer.
std::uint64_t clock_offset() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto wall = static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
  return (wall - monotonic_now() + kMillisecond / 2) / kMillisecond * kMillisecond;
}

Json describe(const QpEvent& event, std::uint32_t worker, const control::Session* session, std::uint64_t offset) {
  char qpn[16];
  std::snprintf(qpn, sizeof qpn, "0x%x", event.qpn.value);
  Json row = {{"time", utc_text(event.when + offset)},
              {"worker", worker},
              {"qpn", qpn},
              {"session", event.owner},
              {"program", session != nullptr ? session->program : "-"},
              {"event", name_of(event.type)},
              {"count", event.count},
              {"psn", event.psn},
              {"cause", cause_of(event)}};
  add_value(event, row);
  return row;
}

/// The place in a list: the events of a worker up to `end`, which the first look at them found, so that the list
/// ends while others are added. A cursor has it as Cursor::at.
struct Place {
  std::uint32_t worker = 0;
  std::uint64_t end = 0;  ///< 0: not known yet

  static Place of(std::uint64_t at) { return {static_cast<std::uint32_t>(at & 0xffff), at >> 16}; }
  std::uint64_t at() const { return worker | end << 16; }
};

/// Adds the rows of the place from `number` on. False: the page is full.
bool list_worker(const control::ControlState& state, Page& page, Place place, std::uint64_t number, Json& list) {
  const std::uint64_t offset = clock_offset();
  do {
    ReadQpEvents read{number};
    state.worker(place.worker).call(read);
    if (place.end == 0) place.end = read.end;
    number = read.first;
    for (const QpEvent& event : read.events) {
      if (number >= place.end) return true;
      const Cursor here{place.at(), number++};
      if (!page.take_session(here)) return false;
      const control::Session* const session = state.session(event.owner);
      // Those of programs that have ended are for administrators.
      const bool seen = session != nullptr ? page.viewer.sees(*session, 1) : page.viewer.sees_all();
      if (!seen && session == nullptr) page.viewer.hide(1);
      if (!seen) continue;
      if (!page.take_row(here)) return false;
      list.push_back(describe(event, place.worker, session, offset));
    }
    if (read.events.empty()) return true;
  } while (number < place.end);
  return true;
}

}  // namespace

Json list_events(const control::ControlState& state, Page& page) {
  const Cursor start = page.take_start();
  Json list = Json::array();
  std::uint64_t number = start.handle;
  for (Place place = Place::of(start.at); place.worker < state.worker_count(); place = {place.worker + 1, 0}) {
    if (!list_worker(state, page, place, std::exchange(number, 0), list)) break;
  }
  return list;
}

}  // namespace uroce::admin
