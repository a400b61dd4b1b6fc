#include <gtest/gtest.h>
#include <rdma/rdma_cma.h>

#include <set>
#include <string>

namespace {

TEST(EventNames, every_event_has_its_own_name) {
  std::set<std::string> names;
  for (int event = RDMA_CM_EVENT_ADDR_RESOLVED; event <= RDMA_CM_EVENT_TIMEWAIT_EXIT; ++event) {
    names.insert(rdma_event_str(static_cast<rdma_cm_event_type>(event)));
  }
  EXPECT_EQ(names.size(), 16u);
  EXPECT_STREQ(rdma_event_str(RDMA_CM_EVENT_UNREACHABLE), "RDMA_CM_EVENT_UNREACHABLE");
}

}  // namespace
