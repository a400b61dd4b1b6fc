// One connection manager (cm::Manager); the script is its peer and its consumer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cm/manager.h"
#include "tests/script/world.h"

namespace uroce::script {

class CmWorld : public World {
 public:
  Role role(const Line& line) const override { return row_of(line).role; }
  void input(const Line& line) override { (this->*row_of(line).execute)(line); }
  void check(const Line& line) override { (this->*row_of(line).execute)(line); }
  Channel channel(const Line& line) const override;
  std::string name(const Line& line) const override { return line.words[1]; }
  std::uint64_t value(const Field& field) const override;
  std::string text(const Field& field, std::uint64_t value) const override;
  void turn() override;
  void advance() override { manager().advance(now); }
  Nanos next_timeout() const override { return manager().next_timeout(); }

 private:
  using Statement = void (CmWorld::*)(const Line&);
  struct Row {
    std::string_view word;
    Role role;
    Statement execute;  ///< nullptr: an expectation, or the runner's own
  };
  static const std::vector<Row>& rows();
  static const Row& row_of(const Line& line);

  cm::Manager& manager() const { return *manager_; }
  std::uint64_t get(const Line& line, std::string_view name, std::uint64_t otherwise = 0) const;
  cm::ConnectionId id_of(const Line& line) const;

  void make_manager(const Line& line);
  void receive(const Line& line);
  void listen(const Line& line);
  void unlisten(const Line& line);
  void connect(const Line& line);
  void accept(const Line& line);
  void reject(const Line& line);
  void establish(const Line& line);
  void disconnect(const Line& line);
  void abandon(const Line& line);
  void sidr_request(const Line& line);
  void sidr_respond(const Line& line);
  void query(const Line& line);

  std::unique_ptr<cm::Manager> manager_;
};

}  // namespace uroce::script
