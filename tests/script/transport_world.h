// The transport of one worker with one or more QPs; the script is their peer.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/script/packet_text.h"
#include "tests/script/world.h"
#include "tests/unit/proto/pair.h"

namespace uroce::script {

class TransportWorld : public World {
 public:
  static constexpr std::uint8_t kLocalHost = 1, kPeerHost = 2;
  static constexpr std::size_t kFrames = 32;  ///< in one call of transmit()

  Role role(const Line& line) const override;
  void input(const Line& line) override;
  void check(const Line& line) override;
  Channel channel(const Line& line) const override;
  std::vector<Field> implied(const Line& line) const override;
  std::string name(const Line& line) const override;
  std::uint64_t value(const Field& field) const override;
  std::string text(const Field& field, std::uint64_t value) const override;
  void turn() override;
  void advance() override { transport().advance(now); }
  Nanos next_timeout() const override { return transport().next_timeout(); }

 private:
  struct LocalQp {
    std::string name;
    std::unique_ptr<proto::test::End> end;
    proto::test::Remote remote;
  };
  struct MemoryKey {
    Key key, old;
    bool window = false;
  };

  proto::Transport& transport() const { return *qps_.front().end->transport; }
  /// The QP that the line names by qp=, or the first.
  LocalQp& qp_of(const Line& line);
  const LocalQp& qp_of(const Line& line) const { return const_cast<TransportWorld*>(this)->qp_of(line); }
  proto::test::End& end_of(const Line& line) { return *qp_of(line).end; }
  wire::Service service_of(const Line& line) const;
  /// The value of the field, or `otherwise`.
  std::uint64_t get(const Line& line, std::string_view name, std::uint64_t otherwise = 0) const;

  // Statements (transport_statements.cc).
  void make_qp(const Line& line);
  void receive(const Line& line);
  void post(const Line& line);
  proto::test::Work work_of(const Line& line, std::uint8_t opcode);
  void post_recv(const Line& line);
  void modify(const Line& line);
  void register_memory(const Line& line);
  void deregister(const Line& line);
  void make_window(const Line& line);
  void make_fast_mr(const Line& line);
  void set_memory(const Line& line);
  void attach(const Line& line);
  void destroy(const Line& line);
  void set_link(const Line& line);
  void set_srq_limit(const Line& line);
  void query(const Line& line);
  void counter(const Line& line);
  void check_memory(const Line& line);
  std::byte* local(const Line& line, std::uint64_t bytes);
  const MemoryKey& key_named(const std::string& name) const;

  using Statement = void (TransportWorld::*)(const Line&);
  struct Row {
    std::string_view word;
    Role role;
    Statement execute;  ///< nullptr: an expectation, or the runner's own
  };
  static const std::vector<Row>& rows();
  static const Row& row_of(const Line& line);

  void take_packets();
  void take_completions(LocalQp& qp);
  void take_events();

  std::vector<LocalQp> qps_;
  std::map<std::string, MemoryKey> keys_;
  std::uint32_t frame_bytes_ = 4096 + wire::kMaxOverhead;
  std::size_t room_ = ~std::size_t{0};  ///< frames that the port still takes
};

}  // namespace uroce::script
