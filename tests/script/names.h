// Numbers that have names in scripts, one table for each field.
#pragma once

#include <string>
#include <string_view>

#include "tests/script/world.h"

namespace uroce::script {

extern const Names kStatuses;     ///< uroce_wc_status: "SUCCESS", "REM_ACCESS_ERR"
extern const Names kWcOpcodes;    ///< uroce_wc_opcode: "SEND", "RECV_RDMA_WITH_IMM"
extern const Names kOperations;   ///< uroce_wr_opcode: "write_imm"
extern const Names kSendFlags;    ///< uroce_send_flag
extern const Names kAccess;       ///< memory::Access
extern const Names kQpTypes;      ///< proto::QpType
extern const Names kQpStates;     ///< proto::QpState
extern const Names kAsyncEvents;  ///< proto::AsyncEvent
extern const Names kErrnos;

/// The names that values of this field have; empty: only numbers.
Names names_of(std::string_view field);

/// One name, or several joined by commas for flags and rights. SyntaxError lists what is allowed.
std::uint64_t named_value(const Field& field, Names names);

/// Throws Mismatch unless `actual` is equal to, below or above `expected`, as the field demands.
void compare(const Field& field, std::uint64_t expected, std::uint64_t actual, Names names = {});

/// "TITLE name=value ...": every field of the output, for messages.
std::string text_of_values(std::string title, const Output& output);

}  // namespace uroce::script
