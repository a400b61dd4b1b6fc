// Extended CQs: ibv_start_poll, ibv_next_poll, ibv_end_poll, ibv_wc_read_*.
//
// The CQ's lock is held from a successful ibv_start_poll to ibv_end_poll. A single-threaded CQ has no lock.
#include "client/wall_clock.h"
#include "completion.h"
#include "domain.h"
#include "export.h"
#include "objects.h"

namespace uroce::verbs {
namespace {

constexpr std::uint64_t kWcFlags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM |
                                   IBV_WC_EX_WITH_SRC_QP | IBV_WC_EX_WITH_SLID | IBV_WC_EX_WITH_SL |
                                   IBV_WC_EX_WITH_DLID_PATH_BITS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                                   IBV_WC_EX_WITH_CVLAN | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK |
                                   IBV_WC_EX_WITH_FLOW_TAG | IBV_WC_EX_WITH_TM_INFO;

Cq& of(ibv_cq_ex* cq) { return *reinterpret_cast<Cq*>(cq); }
const uroce_cqe& entry_of(ibv_cq_ex* cq) { return *of(cq).current; }

bool advance(Cq& cq) {
  cq.current = cq.queue.front();
  if (cq.current == nullptr) return false;
  cq.ex.wr_id = cq.current->wr_id;
  cq.ex.status = static_cast<ibv_wc_status>(cq.current->status);
  return true;
}

int start_poll(ibv_cq_ex* ex, ibv_poll_cq_attr* attr) {
  if (attr->comp_mask != 0) return EINVAL;
  Cq& cq = of(ex);
  if (cq.queue.session().connection_state() == client::ConnectionState::kForked) return ENODEV;
  cq.queue.lock().lock();
  if (advance(cq)) return 0;
  cq.queue.lock().unlock();
  cq.queue.on_empty_poll();
  return ENOENT;
}

int next_poll(ibv_cq_ex* ex) {
  Cq& cq = of(ex);
  if (cq.current != nullptr) cq.queue.pop();
  return advance(cq) ? 0 : ENOENT;
}

void end_poll(ibv_cq_ex* ex) {
  Cq& cq = of(ex);
  if (cq.current != nullptr) cq.queue.pop();
  cq.current = nullptr;
  cq.queue.publish();
  cq.queue.lock().unlock();
}

ibv_wc_opcode read_opcode(ibv_cq_ex* cq) { return static_cast<ibv_wc_opcode>(entry_of(cq).opcode); }
std::uint32_t read_vendor_err(ibv_cq_ex* cq) { return entry_of(cq).vendor_err; }
std::uint32_t read_byte_len(ibv_cq_ex* cq) { return entry_of(cq).byte_len; }
__be32 read_imm_data(ibv_cq_ex* cq) { return entry_of(cq).imm_data; }
std::uint32_t read_qp_num(ibv_cq_ex* cq) { return entry_of(cq).qpn; }
std::uint32_t read_src_qp(ibv_cq_ex* cq) { return entry_of(cq).src_qp; }
unsigned read_wc_flags(ibv_cq_ex* cq) { return entry_of(cq).wc_flags; }
std::uint32_t read_slid(ibv_cq_ex*) { return 0; }
std::uint8_t read_sl(ibv_cq_ex* cq) { return entry_of(cq).sl; }
std::uint8_t read_dlid_path_bits(ibv_cq_ex*) { return 0; }
std::uint64_t read_completion_ts(ibv_cq_ex* cq) { return entry_of(cq).timestamp; }
std::uint16_t read_cvlan(ibv_cq_ex* cq) { return entry_of(cq).vlan_id; }
std::uint32_t read_flow_tag(ibv_cq_ex* cq) { return entry_of(cq).flow_tag; }
// Tag matching is not supported.
void read_tm_info(ibv_cq_ex*, ibv_wc_tm_info* info) { *info = {}; }

// The difference of the two clocks is that of now. If the wall clock was set after the completion, the result is
// wrong by that step.
std::uint64_t read_wallclock(ibv_cq_ex* cq) {
  static constinit client::WallClock clock;  // one for all CQs: their times can be compared
  return static_cast<std::uint64_t>(clock.at(entry_of(cq).timestamp, client::WallClock::read));
}

}  // namespace

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  const Verb verb("ibv_create_cq_ex");
  return guarded<ibv_cq_ex*>(nullptr, [&]() -> ibv_cq_ex* {
    if ((attr->wc_flags & ~kWcFlags) != 0) return null_with(EOPNOTSUPP);
    if ((attr->comp_mask & ~std::uint32_t{IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD}) != 0) {
      return null_with(EINVAL);
    }
    const bool has_flags = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0;
    constexpr std::uint32_t kFlags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
    if (has_flags && (attr->flags & ~kFlags) != 0) return null_with(EOPNOTSUPP);
    if (attr->cqe == 0 || attr->comp_vector >= static_cast<std::uint32_t>(context->num_comp_vectors)) {
      return null_with(EINVAL);
    }
    constexpr std::uint64_t kTimes =
        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
    const bool in_domain = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0;
    if (in_domain && (attr->parent_domain == nullptr || as_pd(attr->parent_domain)->parent == nullptr)) {
      return null_with(EINVAL);
    }
    uroce_create_cq_request shape{};
    shape.entries = attr->cqe;
    if (has_flags && (attr->flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) != 0) shape.flags = UROCE_CQ_IGNORE_OVERRUN;
    if ((attr->wc_flags & kTimes) != 0) shape.flags |= UROCE_CQ_TIMESTAMPS;
    ibv_cq* const made = create_cq(context, shape, attr->cq_context, attr->channel);
    if (made == nullptr) return nullptr;
    Cq& cq = *as_cq(made);
    const bool alone = has_flags && (attr->flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0;
    if (alone || (in_domain && unlocked(attr->parent_domain))) cq.queue.lock().turn_off();
    if (in_domain) {
      cq.domain = as_pd(attr->parent_domain);
      cq.domain->users.fetch_add(1);
    }
    ibv_cq_ex& ex = cq.ex;
    ex.start_poll = start_poll;
    ex.next_poll = next_poll;
    ex.end_poll = end_poll;
    ex.read_opcode = read_opcode;
    ex.read_vendor_err = read_vendor_err;
    ex.read_byte_len = read_byte_len;
    ex.read_imm_data = read_imm_data;
    ex.read_qp_num = read_qp_num;
    ex.read_src_qp = read_src_qp;
    ex.read_wc_flags = read_wc_flags;
    ex.read_slid = read_slid;
    ex.read_sl = read_sl;
    ex.read_dlid_path_bits = read_dlid_path_bits;
    ex.read_completion_ts = read_completion_ts;
    ex.read_cvlan = read_cvlan;
    ex.read_flow_tag = read_flow_tag;
    ex.read_tm_info = read_tm_info;
    ex.read_completion_wallclock_ns = read_wallclock;
    return &ex;
  });
}

}  // namespace uroce::verbs
