// verify [-d DEVICE] [-g GID] [-p PORT] [-s SEED] [-n BATCHES] [-m MTU] [-x MAX_BYTES]
//        [-k heap|stack|shared|file|hugetlb|shared-hugetlb|read-only]
//        [-P PSN] [-u TIMEOUT] [-o KINDS] [-f FLOW_LABEL] [-l HOP_LIMIT] [-a] [-e] [-F]
//        [HOST]
// Moves random data with all operations of reliable connections, and checks all bytes, completions and immediate
// values at both ends. Without HOST it is the server. -F: no operation is fenced.
#include <alloca.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "endpoint.h"

namespace uroce::verify {
namespace {

constexpr double kTimeout = 60;

Options parse(int argc, char** argv) {
  Options options;
  int option = 0;
  while ((option = getopt(argc, argv, "d:g:p:s:n:m:x:k:P:u:o:f:l:aeF")) != -1) {
    switch (option) {
      case 'd': options.device = optarg; break;
      case 'g': options.gid_index = std::atoi(optarg); break;
      case 'p': options.port = std::atoi(optarg); break;
      case 's': options.seed = std::strtoull(optarg, nullptr, 0); break;
      case 'n': options.batches = static_cast<std::uint32_t>(std::atoi(optarg)); break;
      case 'm': options.limits.mtu = static_cast<std::uint32_t>(std::atoi(optarg)); break;
      case 'x': options.limits.max_bytes = static_cast<std::uint32_t>(std::atoi(optarg)); break;
      case 'k': options.memory = optarg; break;
      case 'P': options.psn = std::strtol(optarg, nullptr, 0); break;
      case 'u': options.timeout = static_cast<std::uint8_t>(std::atoi(optarg)); break;
      case 'o': options.limits.kinds = optarg; break;
      case 'f': options.flow_label = static_cast<std::uint32_t>(std::strtoul(optarg, nullptr, 0)); break;
      case 'l': options.hop_limit = static_cast<std::uint8_t>(std::atoi(optarg)); break;
      case 'a': options.any_address = true; break;
      case 'e': options.events = true; break;
      case 'F': options.limits.fences = false; break;
      default: fail("wrong usage; see the head of main.cc");
    }
  }
  if (options.limits.kinds.find_first_not_of(kKindLetters) != std::string::npos) {
    fail("-o " + options.limits.kinds + ": give letters of " + kKindLetters);
  }
  // Without fences no two operations may touch the same bytes: there must be room for that.
  const Limits& limits = options.limits;
  if (const std::uint32_t most = limits.region_bytes / (2 * limits.batch);
      !limits.fences && limits.max_bytes > most) {
    fail("-F with -x " + std::to_string(limits.max_bytes) + ": give at most " + std::to_string(most));
  }
  if (optind < argc) options.host = argv[optind];
  return options;
}

std::string where(std::uint32_t batch, std::size_t i) {
  return "batch " + std::to_string(batch) + ", operation " + std::to_string(i) + ": ";
}

/// Describes the first byte that differs; empty if none does.
std::string difference(const std::byte* got, const std::byte* wanted, std::size_t bytes) {
  if (std::memcmp(got, wanted, bytes) == 0) return {};
  const std::size_t at = static_cast<std::size_t>(std::mismatch(got, got + bytes, wanted).first - got);
  return "byte " + std::to_string(at) + " of " + std::to_string(bytes) + " is " +
         std::to_string(static_cast<int>(got[at])) + ", expected " + std::to_string(static_cast<int>(wanted[at]));
}

/// `bytes` at `address` in `pieces` parts of uneven length.
int scatter(std::uint64_t address, std::uint32_t bytes, std::uint32_t pieces, std::uint32_t lkey, ibv_sge* out) {
  std::uint32_t left = bytes;
  for (std::uint32_t i = 0; i < pieces; ++i) {
    const std::uint32_t rest = pieces - 1 - i;
    const std::uint32_t part = rest == 0 ? left : 1 + (left - rest - 1) / 3;
    out[i] = {address, part, lkey};
    address += part;
    left -= part;
  }
  return static_cast<int>(pieces);
}

void check_guard(Endpoint& end, std::size_t i, std::uint32_t bytes, const std::string& place) {
  const std::byte* slot = end.slot(i);
  for (std::size_t at = bytes; at < end.stride(); at += at < bytes + 64 ? 1 : 4096) {
    if (slot[at] != std::byte{0xa5}) fail(place + "byte " + std::to_string(at) + " was written after the end");
  }
}

void post(Endpoint& end, const Operation& op, std::size_t i) {
  static constexpr ibv_wr_opcode kOpcodes[] = {
      IBV_WR_SEND,      IBV_WR_SEND_WITH_IMM,      IBV_WR_RDMA_WRITE,          IBV_WR_RDMA_WRITE_WITH_IMM,
      IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD};
  std::memset(end.slot(i), 0xa5, end.stride());
  if (!op.returns_data()) fill(op.pattern, end.slot(i), op.bytes);
  ibv_sge parts[4];
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = i;
  wr.sg_list = parts;
  const std::uint64_t address = op.returns_data() ? reinterpret_cast<std::uint64_t>(end.slot(i)) : end.source(i);
  wr.num_sge = scatter(address, op.bytes, op.pieces, op.returns_data() ? end.lkey() : end.source_lkey(), parts);
  wr.opcode = kOpcodes[static_cast<std::size_t>(op.kind)];
  wr.imm_data = op.immediate;
  if (op.signaled) wr.send_flags |= IBV_SEND_SIGNALED;
  if (op.fence) wr.send_flags |= IBV_SEND_FENCE;
  if (op.inlined && op.bytes <= end.max_inline()) wr.send_flags |= IBV_SEND_INLINE;
  if (op.is_atomic()) {
    wr.wr.atomic.remote_addr = end.peer().address + op.offset;
    wr.wr.atomic.rkey = end.peer().rkey;
    wr.wr.atomic.compare_add = op.kind == Kind::kFetchAdd ? op.value : op.compare;
    wr.wr.atomic.swap = op.value;
  } else {
    wr.wr.rdma.remote_addr = end.peer().address + op.offset;
    wr.wr.rdma.rkey = end.peer().rkey;
  }
  if (const int error = ibv_post_send(end.qp(), &wr, &bad); error != 0) {
    fail(std::string("ibv_post_send: ") + std::strerror(error));
  }
}

std::uint64_t run_client(Endpoint& end, const Options& options, Schedule& schedule) {
  std::uint64_t operations = 0;
  for (std::uint32_t batch = 0; batch < options.batches; ++batch) {
    const std::vector<Operation> ops = schedule.next_batch();
    end.await('R');
    for (std::size_t i = 0; i < ops.size(); ++i) post(end, ops[i], i);
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (!ops[i].signaled) continue;
      const ibv_wc wc = end.wait_completion(kTimeout);
      if (wc.status != IBV_WC_SUCCESS) fail(where(batch, i) + ibv_wc_status_str(wc.status));
      if (wc.wr_id != i) fail(where(batch, i) + "completion of " + std::to_string(wc.wr_id) + " came first");
    }
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const std::vector<std::byte> wanted = schedule.execute(ops[i]);
      const std::string wrong = difference(end.slot(i), wanted.data(), wanted.size());
      if (!wrong.empty()) fail(where(batch, i) + (ops[i].is_atomic() ? "atomic result: " : "READ: ") + wrong);
      check_guard(end, i, ops[i].bytes, where(batch, i));
    }
    operations += ops.size();
    end.tell('D');
  }
  return operations;
}

void post_receive(Endpoint& end, const Operation& op, std::size_t i) {
  std::memset(end.slot(i), 0xa5, end.stride());
  const bool takes_bytes = op.kind != Kind::kWriteImm;
  ibv_sge part{reinterpret_cast<std::uint64_t>(end.slot(i)), op.bytes, end.lkey()};
  ibv_recv_wr wr{}, *bad = nullptr;
  wr.wr_id = i;
  wr.sg_list = &part;
  wr.num_sge = takes_bytes && op.bytes > 0 ? 1 : 0;
  if (ibv_post_recv(end.qp(), &wr, &bad) != 0) fail("ibv_post_recv");
}

void check_receive(Endpoint& end, const Operation& op, std::size_t i, const std::string& place) {
  const ibv_wc wc = end.wait_completion(kTimeout);
  if (wc.status != IBV_WC_SUCCESS) fail(place + ibv_wc_status_str(wc.status));
  if (wc.wr_id != i) fail(place + "receive " + std::to_string(wc.wr_id) + " completed first");
  if (wc.byte_len != op.bytes) fail(place + "byte_len " + std::to_string(wc.byte_len));
  const bool has_immediate = op.kind != Kind::kSend;
  if (((wc.wc_flags & IBV_WC_WITH_IMM) != 0) != has_immediate) fail(place + "flag of the immediate value");
  if (has_immediate && wc.imm_data != op.immediate) fail(place + "immediate value");
  if (wc.opcode != (op.kind == Kind::kWriteImm ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV))
    fail(place + "wc.opcode");
  if (op.kind == Kind::kWriteImm) return check_guard(end, i, 0, place);
  std::vector<std::byte> wanted(op.bytes);
  fill(op.pattern, wanted.data(), wanted.size());
  const std::string wrong = difference(end.slot(i), wanted.data(), wanted.size());
  if (!wrong.empty()) fail(place + "SEND: " + wrong);
  check_guard(end, i, op.bytes, place);
}

std::uint64_t run_server(Endpoint& end, const Options& options, Schedule& schedule) {
  std::uint64_t operations = 0;
  std::memcpy(end.region(), schedule.image().data(), schedule.image().size());
  for (std::uint32_t batch = 0; batch < options.batches; ++batch) {
    const std::vector<Operation> ops = schedule.next_batch();
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (ops[i].takes_receive()) post_receive(end, ops[i], i);
    }
    end.tell('R');
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (ops[i].takes_receive()) check_receive(end, ops[i], i, where(batch, i));
      schedule.execute(ops[i]);
    }
    end.await('D');
    const std::string wrong = difference(end.region(), schedule.image().data(), schedule.image().size());
    if (!wrong.empty()) fail("after batch " + std::to_string(batch) + ": region: " + wrong);
    operations += ops.size();
  }
  return operations;
}

}  // namespace
}  // namespace uroce::verify

int main(int argc, char** argv) {
  using namespace uroce::verify;
  Options options = parse(argc, argv);
  if (options.memory == "stack") options.stack = alloca(Endpoint::memory_bytes(options.limits));
  Endpoint end(options);
  Schedule schedule(options.seed, options.limits);
  const std::uint64_t operations =
      options.host.empty() ? run_server(end, options, schedule) : run_client(end, options, schedule);
  std::printf("verify: %llu operations, every byte as expected\n", static_cast<unsigned long long>(operations));
  return 0;
}
