#include "tests/script/world.h"

#include "tests/script/cm_world.h"
#include "tests/script/transport_world.h"

namespace uroce::script {

std::unique_ptr<World> make_world(const Line& first) {
  if (first.statement() == "qp") return std::make_unique<TransportWorld>();
  if (first.statement() == "cm") return std::make_unique<CmWorld>();
  throw SyntaxError("'" + first.statement() + "' does not begin a script; allowed: qp, cm");
}

}  // namespace uroce::script
