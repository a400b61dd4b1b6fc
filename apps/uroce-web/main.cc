// uroce-web: what `urocectl web` becomes, with the same arguments.
#include "urocectl/options.h"
#include "web.h"

int main(int argc, char** argv) {
  using namespace uroce::ctl;
  const Options options = parse_options(argc, argv);
  if (options.command != "web") fail(2, "uroce-web is a part of urocectl: give `urocectl web`");
  return web(options);
}
