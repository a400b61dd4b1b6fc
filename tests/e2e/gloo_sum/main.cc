// gloo_sum RANK SIZE FOLDER DEVICE: SIZE processes add up vectors over Gloo's ibverbs transport, and each compares
// all sums. They find each other by files in the folder.
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const int rank = std::atoi(argv[1]), size = std::atoi(argv[2]);
  auto device = gloo::transport::ibverbs::CreateDevice(gloo::transport::ibverbs::attr{argv[4], 1, 0});
  gloo::rendezvous::FileStore store(argv[3]);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
  context->connectFullMesh(store, device);
  std::vector<float> values(100'000);
  gloo::AllreduceRingChunked<float> sum(context, {values.data()}, static_cast<int>(values.size()));
  const float wanted = static_cast<float>(size) * static_cast<float>(size + 1) / 2;
  for (int round = 0; round < 20; ++round) {
    std::fill(values.begin(), values.end(), static_cast<float>(rank + 1));
    sum.run();
    if (std::count(values.begin(), values.end(), wanted) != static_cast<long>(values.size())) return 1;
  }
  std::printf("rank %d of %d: all sums are right\n", rank, size);
  std::fflush(stdout);
  // Gloo's destructors throw while a peer has not acknowledged the last message.
  ::usleep(500'000);
  ::_exit(0);
}
