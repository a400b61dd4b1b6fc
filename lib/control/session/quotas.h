// The totals of each user's clients, and their limits. Used by the control thread only.
//
// Each object of a client keeps its Charge, which is returned when the object is destroyed.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "control/machine/config.h"
#include "mapping/memory_budget.h"

namespace uroce::control {

/// Whether the user could end this daemon anyway: root, and the user that it runs as.
bool is_privileged(uid_t user);

struct Resource {
  const char* name;  ///< as in `urocectl show users` and in refusals
  const char* knob;  ///< of the configuration that limits it for each user; nullptr: none
  std::uint64_t Usage::*amount;
  bool for_each_user_only = false;  ///< all users together may have more than there is
};

// clang-format off
inline constexpr Resource kResources[] = {
    {"sessions", "limits.user_sessions", &Usage::sessions},
    {"qps", "limits.user_qps", &Usage::qps},
    {"cqs", "limits.user_cqs", &Usage::cqs},
    {"srqs", "limits.user_srqs", &Usage::srqs},
    {"mrs", "limits.user_mrs", &Usage::mrs},
    {"pds", "limits.user_pds", &Usage::pds},
    {"ahs", "limits.user_ahs", &Usage::ahs},
    {"groups", "limits.user_groups", &Usage::groups},
    {"attachments", "limits.user_attachments", &Usage::attachments},
    {"flows", "limits.user_flows", &Usage::flows},
    {"cm_ids", "limits.user_cm_ids", &Usage::cm_ids},
    {"cm_ports", "limits.user_cm_ports", &Usage::cm_ports},
    {"cm_connections", "limits.user_cm_connections", &Usage::cm_connections},
    {"descriptors", "limits.user_descriptors", &Usage::descriptors},
    {"threads", "limits.user_threads", &Usage::threads},
    {"mappings", "limits.user_mappings", &Usage::mappings},
    {"queue_bytes", "limits.user_bytes", &Usage::queue_bytes},
    {"registered_bytes", "limits.user_registered_bytes", &Usage::registered_bytes, true},
};
// clang-format on
static_assert(sizeof(Usage) == std::size(kResources) * sizeof(std::uint64_t), "each amount has a row");

/// The capacity of the daemon: the sizes of its tables, and the limits that the kernel sets for the process.
Usage capacity_of(const DaemonConfig& config, std::uint32_t workers);

class Quotas {
 public:
  struct Account {
    uid_t user = 0;
    bool privileged = false;
    Usage usage;
    std::uint64_t charges = 0;   ///< the account ends with the last one
    std::uint64_t refusals = 0;  ///< since then
  };

  /// Part of a user's usage; ends with the object.
  class Charge {
   public:
    Charge() = default;
    Charge(Charge&& other) noexcept { swap(other); }
    Charge& operator=(Charge&& other) noexcept {
      swap(other);
      return *this;
    }
    ~Charge() { end(); }
    explicit operator bool() const { return owner_ != nullptr; }
    const Usage& amount() const { return amount_; }
    /// Adds to a valid charge. False: it would exceed a limit.
    bool grow(const Usage& more);
    /// Returns a part of it.
    void shrink(const Usage& less);

   private:
    friend class Quotas;
    Charge(Quotas& owner, Account& account, const Usage& amount)
        : owner_(&owner), account_(&account), amount_(amount) {}
    void end();
    void swap(Charge& other) noexcept {
      std::swap(owner_, other.owner_), std::swap(account_, other.account_), std::swap(amount_, other.amount_);
    }

    Quotas* owner_ = nullptr;
    Account* account_ = nullptr;
    Usage amount_;
  };

  /// `limits`: of each user; 0: half of `capacity`. Of everything, 1/16 is kept for privileged users, which
  /// only `capacity` limits.
  Quotas(const Usage& limits, const Usage& capacity) : limits_(limits), capacity_(capacity) {}
  Quotas(const Quotas&) = delete;
  Quotas& operator=(const Quotas&) = delete;

  /// An invalid charge if it would exceed a limit, which the log and last_refusal() name.
  Charge charge(uid_t user, const Usage& more);
  /// What is taken already, whatever the limits.
  Charge record(uid_t user, const Usage& taken);
  /// Whether charge() would succeed.
  bool has_room(uid_t user, const Usage& more) const;
  /// Counts a refusal for another reason than a limit; `text` is the next last_refusal().
  void refuse(std::string text);
  const std::string& last_refusal() const { return last_refusal_; }
  std::uint64_t refusals() const { return refusals_; }

  std::uint64_t limit(const Resource& resource, bool privileged) const;
  /// As in the constructor. What users hold already stays theirs.
  void set_limits(const Usage& limits) { limits_ = limits; }
  /// What all users together hold.
  const Usage& total() const { return total_; }
  const std::map<uid_t, Account>& users() const { return accounts_; }

 private:
  /// A limit that an account would exceed.
  struct Excess {
    const Resource* resource = nullptr;  ///< nullptr: none
    std::uint64_t limit = 0;
    bool of_all_users = false;
  };
  Account& account_of(uid_t user);
  Excess excess(const Account& account, const Usage& more) const;
  bool admit(Account& account, const Usage& more);
  void refund(Account& account, const Usage& less);

  Usage limits_, capacity_, total_;
  std::map<uid_t, Account> accounts_;
  std::string last_refusal_;
  std::uint64_t refusals_ = 0;
};

using Charge = Quotas::Charge;

/// The mappings of a session.
class ChargedMemory : public mapping::MemoryBudget {
 public:
  explicit ChargedMemory(Charge charge) : charge_(std::move(charge)) {}
  bool take(std::size_t mappings, std::uint64_t queue_bytes) override {
    return charge_.grow({.mappings = mappings, .queue_bytes = queue_bytes});
  }
  void give_back(std::size_t mappings, std::uint64_t queue_bytes) override {
    charge_.shrink({.mappings = mappings, .queue_bytes = queue_bytes});
  }

 private:
  Charge charge_;
};

}  // namespace uroce::control
