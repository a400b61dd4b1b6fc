#include "control/session/quotas.h"

#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "abi/control.h"
#include "control/machine/port.h"
#include "mapping/sigbus_guard.h"
#include "net/flow_table.h"
#include "platform/log.h"

namespace uroce::control {
namespace {

constexpr std::uint64_t kReserve = 16;  ///< this part of everything is for privileged users

std::uint64_t number_in(const char* path, std::uint64_t otherwise) {
  std::uint64_t number = 0;
  return std::ifstream(path) >> number ? number : otherwise;
}

// The rest after the daemon's own share: `own`, but at most a quarter.
std::uint64_t less(std::uint64_t all, std::uint64_t own) { return all - std::min(own, all / 4); }

std::uint64_t descriptors() {
  constexpr std::uint64_t kOwn = 512;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::uint64_t{1} << 20;
  return less(limit.rlim_cur, kOwn);
}

std::uint64_t ram_bytes() {
  struct sysinfo info {};
  return ::sysinfo(&info) == 0 ? std::uint64_t{info.totalram} * info.mem_unit : std::uint64_t{1} << 36;
}

void add(Usage& to, const Usage& more) {
  for (const Resource& resource : kResources) to.*resource.amount += more.*resource.amount;
}
void subtract(Usage& from, const Usage& less) {
  for (const Resource& resource : kResources) from.*resource.amount -= less.*resource.amount;
}

bool exceeds(std::uint64_t now, std::uint64_t more, std::uint64_t limit) {
  return more != 0 && (more > limit || now > limit - more);
}

}  // namespace

bool is_privileged(uid_t user) { return user == 0 || user == ::geteuid(); }

Usage capacity_of(const DaemonConfig& config, std::uint32_t workers) {
  Usage all;
  all.sessions = 4096;
  all.qps = std::uint64_t{config.max_qps} * workers;
  all.cqs = config.max_cqs;
  all.srqs = config.max_srqs - 1;
  all.mrs = config.max_mrs;
  all.pds = kMaxPd;
  all.ahs = kMaxAh - 1;
  all.groups = kMaxGroups;
  // All of them may be on one worker.
  all.attachments = kMaxAttachments;
  all.flows = net::FlowTable::kMaxFlows;
  all.cm_ids = std::uint64_t{1} << 17;
  // Those that a port space hands out: ports that programs choose count as well, as they may be the same ones.
  all.cm_ports = kMaxCmPorts;
  all.cm_connections = kMaxCmConnections;
  all.descriptors = descriptors();
  // Each has a stack, and is one of the tasks that systemd allows the service.
  all.threads = 2048;
  // vm.max_map_count counts the daemon's own as well: its libraries, hugepages and threads.
  all.mappings = std::min(less(number_in("/proc/sys/vm/max_map_count", 65530), 5530),
                          std::uint64_t{mapping::SigbusGuard::kMaxRanges});
  all.queue_bytes = ram_bytes();
  all.registered_bytes = ram_bytes();
  return all;
}

bool Quotas::Charge::grow(const Usage& more) {
  if (!owner_->admit(*account_, more)) return false;
  add(amount_, more);
  return true;
}

void Quotas::Charge::shrink(const Usage& less) {
  subtract(amount_, less);
  owner_->refund(*account_, less);
}

void Quotas::Charge::end() {
  if (owner_ == nullptr) return;
  owner_->refund(*account_, amount_);
  if (--account_->charges == 0) owner_->accounts_.erase(account_->user);
}

std::uint64_t Quotas::limit(const Resource& resource, bool privileged) const {
  const std::uint64_t all = capacity_.*resource.amount, own = limits_.*resource.amount;
  if (privileged) return resource.for_each_user_only ? ~std::uint64_t{0} : all;
  return own != 0 ? std::min(own, all) : all / 2;
}

void Quotas::refuse(std::string text) {
  ++refusals_;
  last_refusal_ = std::move(text);
  platform::log(platform::LogLevel::kWarning, "%s", last_refusal_.c_str());
}

Quotas::Excess Quotas::excess(const Account& account, const Usage& more) const {
  for (const Resource& resource : kResources) {
    const std::uint64_t amount = more.*resource.amount;
    const std::uint64_t own = limit(resource, account.privileged), all = capacity_.*resource.amount;
    const std::uint64_t usable = account.privileged ? all : all - all / kReserve;
    const bool too_much = exceeds(account.usage.*resource.amount, amount, own);
    const bool all_taken = !resource.for_each_user_only && exceeds(total_.*resource.amount, amount, usable);
    if (too_much || all_taken) return {&resource, too_much ? own : usable, !too_much};
  }
  return {};
}

bool Quotas::admit(Account& account, const Usage& more) {
  const Excess over = excess(account, more);
  if (over.resource == nullptr) {
    add(account.usage, more);
    add(total_, more);
    return true;
  }
  ++account.refusals;
  const std::string amount = std::to_string(over.limit) + " " + over.resource->name;
  const std::string user = "user " + std::to_string(account.user);
  refuse(over.of_all_users
             ? user + " is refused: all users together have reached the limit of " + amount + "; close programs"
             : user + " has reached its limit of " + amount + "; close programs, or raise " + over.resource->knob +
                   " in the configuration");
  return false;
}

Quotas::Account& Quotas::account_of(uid_t user) {
  return accounts_.try_emplace(user, Account{user, is_privileged(user), {}, 0, 0}).first->second;
}

Quotas::Charge Quotas::charge(uid_t user, const Usage& more) {
  Account& account = account_of(user);
  if (admit(account, more)) {
    ++account.charges;
    return {*this, account, more};
  }
  if (account.charges == 0) accounts_.erase(user);
  return {};
}

Quotas::Charge Quotas::record(uid_t user, const Usage& taken) {
  Account& account = account_of(user);
  add(account.usage, taken);
  add(total_, taken);
  ++account.charges;
  return {*this, account, taken};
}

bool Quotas::has_room(uid_t user, const Usage& more) const {
  const auto it = accounts_.find(user);
  const Account none{user, is_privileged(user), {}, 0, 0};
  return excess(it != accounts_.end() ? it->second : none, more).resource == nullptr;
}

void Quotas::refund(Account& account, const Usage& less) {
  subtract(account.usage, less);
  subtract(total_, less);
}

}  // namespace uroce::control
