// uroce-ping: the tests of krping in user space, over librdmacm.
#include <cstdio>
#include <cstring>
#include <string>

#include "base/version.h"
#include "buffers.h"
#include "connection.h"
#include "options.h"
#include "report.h"
#include "tests.h"

namespace uroce::ping {
namespace {

constexpr char kHelp[] = R"(uroce-ping [--json] OPTION[,OPTION]...

Moves data to the server and back over RDMA: the client SENDs the address of its source buffer, the server READs it
and answers; the client SENDs the address of its sink buffer, the server WRITEs the data there and answers. Or
measures latency or bandwidth. The options are those of krping.

  server, client       the end to run; give both ends the same size, test and mem_mode
  addr=A, addr6=A      the server's address; a server without one listens on all addresses
  port=N               port of the server (default: 9999)
  count=N              rounds (default: until interrupted; 1000 for a measurement)
  size=N               bytes, at most 134217728 (default: 64)
  validate, verbose    compare the data that returned; print it
  mem_mode=dma         one region for all buffers (default); mr: one region per buffer; fastreg or reg: a new key
                       for each use by fast registration (uroce/dv.h), at the server also for its local buffer. On
                       a device without fast registration, and with window on any device, the client's keys are
                       those of a type 2 memory window, and a line reports this
  server_inv           with fastreg or window: the server invalidates the client's key with its SEND
  read_inv             with fastreg: the server invalidates its local key in the same chain of work requests as its
                       READ, not after it
  rlat, wlat, bw       latency of READs, of WRITEs (half a round trip); bandwidth of WRITEs
  duplex               with bw: both ends write
  poll                 poll for completions instead of sleeping
  txdepth=N            with bw: outstanding WRITEs (default: 64)

  --json               print the result as one JSON object
  --version            print the version
  -h, --help           this text

  uroce-run -d uroce0 uroce-ping server,addr=192.0.2.1,size=4096,validate
  uroce-run -d uroce1 uroce-ping client,addr=192.0.2.1,size=4096,validate,count=100

Exit status: 0; 1 no connection, an error or corrupt data; 2 wrong usage.
)";

int run_test(const Options& options, bool json) {
  Result result;
  {
    Connection connection(options);
    connection.prepare();
    Buffers buffers(connection, options);
    buffers.post_receive();
    connection.establish();
    result = run(connection, buffers, options);
    if (options.role == Role::kServer && !interrupted()) {
      connection.wait_for_end();
    } else {
      connection.disconnect();
    }
  }
  std::fputs(report(options, result, json).c_str(), stdout);
  return result.corrupt == 0 ? 0 : 1;
}

}  // namespace
}  // namespace uroce::ping

int main(int argc, char** argv) {
  using namespace uroce::ping;
  bool json = false;
  std::string text;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) {
      json = true;
    } else if (std::strcmp(argv[i], "-h") == 0 || std::strcmp(argv[i], "--help") == 0) {
      std::fputs(kHelp, stdout);
      return 0;
    } else if (std::strcmp(argv[i], "--version") == 0) {
      std::puts("uroce-ping " UROCE_VERSION);
      return 0;
    } else {
      text += (text.empty() ? "" : ",") + std::string(argv[i]);
    }
  }
  std::string error;
  const auto options = parse(text, error);
  if (!options) {
    std::fprintf(stderr, "uroce-ping: %s\n", error.c_str());
    return 2;
  }
  catch_interrupts();
  try {
    return run_test(*options, json);
  } catch (const Failure& failure) {
    std::fprintf(stderr, "uroce-ping: %s\n", failure.what());
  } catch (const Disconnected&) {
    std::fprintf(stderr, "uroce-ping: the peer disconnected\n");
  } catch (const Interrupted&) {
    return 0;
  }
  return 1;
}
