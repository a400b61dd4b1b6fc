#include <gtest/gtest.h>
#include <rdma/rdma_cma.h>

#include <cstring>
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

TEST(EventNames, a_number_that_is_no_event_is_said_to_be_unknown) {
  int number = RDMA_CM_EVENT_TIMEWAIT_EXIT + 1;
  rdma_cm_event_type event{};
  std::memcpy(&event, &number, sizeof(event));
  EXPECT_STREQ(rdma_event_str(event), "UNKNOWN EVENT");
}

}  // namespace
