// What `urocectl web` lets in: other sites, other users and malformed requests are refused.
#include "apps/uroce-web/web_requests.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace uroce::ctl {
namespace {

constexpr const char* kToken = "0123456789abcdef0123456789abcdef";

Listen at(const std::string& text) {
  Listen listen;
  EXPECT_EQ(parse_listen(text, listen), "") << text;
  return listen;
}

RequestFacts good_post() {
  RequestFacts facts;
  facts.method = "POST";
  facts.path = "/fault";
  facts.host = "127.0.0.1:8470";
  facts.origin = "http://127.0.0.1:8470";
  facts.has_origin = true;
  facts.token = kToken;
  facts.content_type = "application/json; charset=utf-8";
  facts.length = "20";
  return facts;
}

Refusal check(const RequestFacts& facts, const std::string& listen = "127.0.0.1:8470") {
  return check_request(facts, at(listen), kToken);
}

TEST(WebRequests, AddressesAreNumericAndOfOneInterface) {
  EXPECT_EQ(at("127.0.0.1:0").authority(), "127.0.0.1:0");
  EXPECT_TRUE(at("127.9.9.9:80").loopback);
  EXPECT_EQ(at("[::1]:8470").authority(), "[::1]:8470");
  EXPECT_TRUE(at("[::1]:8470").loopback);
  EXPECT_EQ(at("[2001:DB8:0:0::1]:80").authority(), "[2001:db8::1]:80") << "as a browser writes it";
  EXPECT_FALSE(at("192.0.2.1:8470").loopback);
  for (const char* const text :
       {"", "8470", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:80x", ":8470",
        "::1:8470", "localhost:8470", "0.0.0.0:8470", "[::]:8470", "[::ffff:0.0.0.0]:1", "[127.0.0.1]:1"}) {
    Listen listen;
    const std::string problem = parse_listen(text, listen);
    EXPECT_NE(problem.find(std::string("--listen ") + text), std::string::npos) << text;
    EXPECT_NE(problem.find("such as 127.0.0.1:8470"), std::string::npos) << text;
  }
}

TEST(WebRequests, TokensAreLongAndDiffer) {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) seen.insert(new_token());
  EXPECT_EQ(seen.size(), 100u);
  for (const std::string& token : seen) {
    EXPECT_EQ(token.size(), 32u);
    EXPECT_EQ(token.find_first_not_of("0123456789abcdef"), std::string::npos);
  }
  EXPECT_TRUE(same_secret("ab", "ab"));
  EXPECT_FALSE(same_secret("ab", "abc"));
  EXPECT_FALSE(same_secret("ab", "aB"));
  EXPECT_FALSE(same_secret("", "a"));
}

TEST(WebRequests, ThePageNeedsNoToken) {
  RequestFacts facts;
  facts.method = "GET";
  facts.path = "/";
  facts.host = "127.0.0.1:8470";
  EXPECT_EQ(check(facts).status, 0);
  EXPECT_FALSE(check(facts).token_is_right);
  facts.path = "/events";
  EXPECT_EQ(check(facts).status, 403);
  facts.token = kToken;
  EXPECT_EQ(check(facts).status, 0);
  EXPECT_TRUE(check(facts).token_is_right);
}

TEST(WebRequests, PartsOfThePageAreNotServed) {
  RequestFacts facts;
  facts.method = "GET";
  facts.path = "/";
  facts.host = "127.0.0.1:8470";
  facts.has_range = true;
  EXPECT_EQ(check(facts).status, 416);
}

TEST(WebRequests, HostNamesTheAddressThatIsServed) {
  RequestFacts facts = good_post();
  EXPECT_EQ(check(facts).status, 0);
  for (const char* const host : {"", "127.0.0.1", "127.0.0.1:1", "evil.example", "evil.example:8470",
                                 "127.0.0.1:8470.evil.example", "localhost"}) {
    facts.host = host;
    facts.origin = std::string("http://") + host;
    EXPECT_EQ(check(facts).status, 403) << host;
    EXPECT_FALSE(check(facts).token_is_right) << host;
  }
  facts.host = "localhost:8470";
  facts.origin = "http://localhost:8470";
  EXPECT_EQ(check(facts).status, 0);
  EXPECT_EQ(check(facts, "192.0.2.1:8470").status, 403) << "localhost is not that address";
  facts.host = "127.0.0.1";
  facts.origin = "http://127.0.0.1";
  EXPECT_EQ(check(facts, "127.0.0.1:80").status, 0) << "browsers leave out port 80";
}

TEST(WebRequests, OtherSitesChangeNothing) {
  RequestFacts facts = good_post();
  for (const char* const origin : {"", "null", "http://evil.example", "https://127.0.0.1:8470",
                                   "http://localhost:8470", "http://127.0.0.1:8471", "http://127.0.0.1:8470/"}) {
    facts.origin = origin;
    EXPECT_EQ(check(facts).status, 403) << origin;
  }
  facts.has_origin = false;
  EXPECT_EQ(check(facts).status, 403) << "each browser sends Origin with a POST";
}

TEST(WebRequests, APostIsShortJsonWithTheToken) {
  RequestFacts facts = good_post();
  for (const char* const type :
       {"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp"}) {
    facts.content_type = type;
    EXPECT_EQ(check(facts).status, 415) << type;
  }
  facts = good_post();
  facts.has_encoding = true;
  EXPECT_EQ(check(facts).status, 415);
  facts = good_post();
  for (const char* const length : {"", "-1", "1 1", "0x10", "99999999999999999999999"}) {
    facts.length = length;
    EXPECT_EQ(check(facts).status, 411) << length;
  }
  facts.length = "4097";
  EXPECT_EQ(check(facts).status, 413);
  facts.length = "4096";
  EXPECT_EQ(check(facts).status, 0);
  for (const char* const token : {"", "0123456789abcdef0123456789abcdee", "0123456789abcdef0123456789abcdef0"}) {
    facts.token = token;
    EXPECT_EQ(check(facts).status, 403) << token;
  }
}

TEST(WebRequests, OtherMethodsAndPathsAreRefused) {
  RequestFacts facts = good_post();
  for (const char* const method : {"GET", "PUT", "HEAD", "OPTIONS", "DELETE"}) {
    facts.method = method;
    EXPECT_EQ(check(facts).status, 405) << method;
  }
  facts.method = "POST";
  facts.path = "/events";
  EXPECT_EQ(check(facts).status, 405);
  for (const char* const path : {"", "/fault/", "/etc/passwd", "/../", "//fault"}) {
    facts.path = path;
    EXPECT_EQ(check(facts).status, 404) << path;
  }
}

std::string asked(const std::string& path, const std::string& body) {
  std::string device;
  Json out;
  const std::string problem = request_of(path, body, {"uroce0", "uroce1"}, 7, device, out);
  return problem.empty() ? device + " " + out.dump() : problem;
}

TEST(WebRequests, ABodyBecomesARequestToADevice) {
  EXPECT_EQ(asked("/fault", R"({"device":"uroce0","rule":"drop=0.01"})"),
            R"(uroce0 {"command":"fault","add":"name=web-7,drop=0.01"})");
  EXPECT_EQ(asked("/fault", R"({"device":"uroce1","rule":"drop=1,name=cut"})"),
            R"(uroce1 {"command":"fault","add":"drop=1,name=cut"})");
  EXPECT_EQ(asked("/fault", R"({"device":"uroce1","off":"cut"})"), R"(uroce1 {"command":"fault","remove":"cut"})");
  EXPECT_EQ(asked("/verbs", R"({"device":"uroce0","rule":"op=WRITE"})"),
            R"(uroce0 {"command":"fault","verbs":{"add":"op=WRITE"}})");
  EXPECT_EQ(asked("/verbs", R"({"device":"uroce0","off":3})"),
            R"(uroce0 {"command":"fault","verbs":{"remove":3}})");
  EXPECT_EQ(asked("/link", R"({"device":"uroce0","link":"down"})"),
            R"(uroce0 {"command":"link","address":"","change":"down"})");
  EXPECT_EQ(asked("/latency", R"({"device":"uroce0","latency":"on"})"),
            R"(uroce0 {"command":"latency","set":"on"})");
}

TEST(WebRequests, ABodyThatIsNotOneIsExplained) {
  for (const char* const body : {"", "[]", "7", "{", "\"uroce0\""})
    EXPECT_EQ(asked("/fault", body), "the body is not a JSON object");
  for (const char* const device : {"", "uroce2", "../uroce0", "uroce0.sock"}) {
    EXPECT_EQ(asked("/fault", std::string(R"({"rule":"drop=1","device":")") + device + "\"}"),
              std::string("\"") + device + "\" is not a device that this page shows");
  }
  EXPECT_EQ(asked("/fault", R"({"device":["uroce0"],"rule":"drop=1"})"),
            "\"\" is not a device that this page shows");
  for (const char* const rest : {"", R"(,"rule":7)", R"(,"rule":"a","off":"b")", R"(,"off":7)"}) {
    EXPECT_EQ(asked("/fault", std::string(R"({"device":"uroce0")") + rest + "}").rfind("give \"rule\"", 0), 0u)
        << rest;
  }
  EXPECT_EQ(asked("/verbs", R"({"device":"uroce0","off":-1})").rfind("give \"rule\"", 0), 0u);
  EXPECT_EQ(asked("/link", R"({"device":"uroce0","link":"mtu"})"), "give \"link\": \"up\" or \"down\"");
  EXPECT_EQ(asked("/latency", R"({"device":"uroce0"})"), "give \"latency\": \"on\" or \"off\"");
}

}  // namespace
}  // namespace uroce::ctl
