#include "apps/urocectl/metrics_http.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>
#include <thread>

#include "base/owned_fd.h"

namespace uroce::ctl {
namespace {

std::string answer(const std::string& request, std::optional<std::string> text = "a 1\n# EOF\n") {
  return http_response(request, [&] { return text; });
}

TEST(MetricsHttp, GivesTheTextWithItsLengthAndType) {
  for (const char* const request : {"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "GET /metrics HTTP/1.0\n\n",
                                    "GET /metrics?collect=all HTTP/1.1\r\n\r\n"}) {
    EXPECT_EQ(answer(request),
              "HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"
              "Content-Length: 10\r\nConnection: close\r\n\r\na 1\n# EOF\n")
        << request;
  }
}

TEST(MetricsHttp, AHeadHasNoBody) {
  const std::string got = answer("HEAD /metrics HTTP/1.1\r\n\r\n");
  EXPECT_NE(got.find("Content-Length: 10\r\n"), std::string::npos);
  EXPECT_TRUE(got.ends_with("\r\n\r\n")) << got;
}

TEST(MetricsHttp, SaysWhatItDoesNotHave) {
  const struct {
    const char *request, *status;
  } cases[] = {{"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 404 "},
               {"GET /metrics/.. HTTP/1.1\r\n\r\n", "HTTP/1.1 404 "},
               {"GET http://host/metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 404 "},
               {"POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405 "},
               {"GET /metrics\r\n\r\n", "HTTP/1.1 400 "},
               {"GET /metrics HTTP/2.0\r\n\r\n", "HTTP/1.1 400 "},
               {"GET /metrics HTTP/1.1 x\r\n\r\n", "HTTP/1.1 400 "},
               {"\r\n\r\n", "HTTP/1.1 400 "},
               {"\x16\x03\x01\x02\r\n\r\n", "HTTP/1.1 400 "}};
  for (const auto& each : cases) EXPECT_TRUE(answer(each.request).starts_with(each.status)) << each.request;
  EXPECT_NE(answer("PUT /metrics HTTP/1.1\r\n\r\n").find("\r\nAllow: GET, HEAD\r\n"), std::string::npos);
  EXPECT_TRUE(answer("GET /metrics HTTP/1.1\r\n\r\n", std::nullopt).starts_with("HTTP/1.1 503 "));
}

class Request : public ::testing::Test {
 protected:
  Request() { EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0); }
  ~Request() override {
    if (ends[0] >= 0) ::close(ends[0]);
    ::close(ends[1]);
  }
  void send(const std::string& text) {
    EXPECT_EQ(::send(ends[0], text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  void end() { ::close(std::exchange(ends[0], -1)); }
  std::array<int, 2> ends{-1, -1};
};

TEST_F(Request, IsReadInPiecesUpToTheEmptyLine) {
  std::thread client([this] {
    for (const char* const piece : {"GET /metrics HTT", "P/1.1\r\nHost: x\r", "\n\r", "\n"}) send(piece);
  });
  EXPECT_EQ(read_request(ends[1]), "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  client.join();
}

TEST_F(Request, IsNoneIfTheClientEndsOrSendsTooMuch) {
  send("GET /metrics HTTP/1.1\r\n");
  end();
  EXPECT_EQ(read_request(ends[1]), std::nullopt);
}

TEST_F(Request, HasALimit) {
  std::thread client([this] {
    const std::string line(1000, 'x');
    for (int i = 0; i < 9; ++i) ::send(ends[0], line.data(), line.size(), MSG_NOSIGNAL);
  });
  EXPECT_EQ(read_request(ends[1]), std::nullopt);
  client.join();
}

TEST_F(Request, AClientThatSendsNothingIsGivenUp) {
  send("GET /");
  EXPECT_EQ(read_request(ends[1], std::chrono::milliseconds(20)), std::nullopt);
}

TEST_F(Request, AResponseThatIsNotTakenFails) {
  end();
  EXPECT_FALSE(write_all(ends[1], std::string(1 << 20, 'x')));
}

}  // namespace
}  // namespace uroce::ctl
