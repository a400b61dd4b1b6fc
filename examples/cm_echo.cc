// cm_echo: a server that sends back what it receives, and its client, over connections of librdmacm (rdma_cm(7)).
//
//   cm_echo                     the server: one connection, then it ends
//   cm_echo ADDRESS [TEXT]      the client; ADDRESS is an address of the server's RDMA device
//
// rdma_create_ep(3) resolves the address and the route and creates the QP; the calls of <rdma/rdma_verbs.h> post to
// it.
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace {

constexpr const char* kPort = "7471";
using Buffer = std::array<char, 1024>;

struct Destroy {
  void operator()(rdma_addrinfo* info) const { rdma_freeaddrinfo(info); }
  void operator()(rdma_cm_id* id) const { rdma_destroy_ep(id); }
  void operator()(ibv_mr* mr) const { rdma_dereg_mr(mr); }
};
template <class T>
using Owned = std::unique_ptr<T, Destroy>;

/// The calls of librdmacm return -1 and set errno.
void check(int status, const char* what) {
  if (status < 0) throw std::system_error(errno, std::generic_category(), what);
}

/// A listening endpoint if `address` is null; otherwise one that can be connected to it.
Owned<rdma_cm_id> make_endpoint(const char* address) {
  rdma_addrinfo hints{};
  hints.ai_port_space = RDMA_PS_TCP;
  hints.ai_flags = address == nullptr ? RAI_PASSIVE : 0;
  rdma_addrinfo* found = nullptr;
  check(rdma_getaddrinfo(address, kPort, &hints, &found), "rdma_getaddrinfo");
  const Owned<rdma_addrinfo> info(found);

  ibv_qp_init_attr attr{};
  attr.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  attr.sq_sig_all = 1;
  rdma_cm_id* id = nullptr;
  check(rdma_create_ep(&id, info.get(), nullptr, &attr), "rdma_create_ep");
  return Owned<rdma_cm_id>(id);
}

Owned<ibv_mr> register_buffer(rdma_cm_id* id, Buffer& buffer) {
  Owned<ibv_mr> mr(rdma_reg_msgs(id, buffer.data(), buffer.size()));
  if (mr == nullptr) check(-1, "rdma_reg_msgs");
  return mr;
}

void post_receive(rdma_cm_id* id, Buffer& buffer, ibv_mr* mr) {
  check(rdma_post_recv(id, nullptr, buffer.data(), buffer.size(), mr), "rdma_post_recv");
}

/// Waits for the one completion that is due; the bytes received.
std::size_t await(int (*next)(rdma_cm_id*, ibv_wc*), rdma_cm_id* id) {
  ibv_wc completion{};
  check(next(id, &completion), "waiting for a completion");
  if (completion.status != IBV_WC_SUCCESS) throw std::runtime_error(ibv_wc_status_str(completion.status));
  return completion.byte_len;
}

void send(rdma_cm_id* id, Buffer& buffer, std::size_t bytes, ibv_mr* mr) {
  check(rdma_post_send(id, nullptr, buffer.data(), bytes, mr, 0), "rdma_post_send");
  await(rdma_get_send_comp, id);
}

void serve() {
  const Owned<rdma_cm_id> listener = make_endpoint(nullptr);
  check(rdma_listen(listener.get(), 1), "rdma_listen");
  rdma_cm_id* request = nullptr;
  check(rdma_get_request(listener.get(), &request), "rdma_get_request");
  const Owned<rdma_cm_id> id(request);

  Buffer buffer{};
  const Owned<ibv_mr> mr = register_buffer(id.get(), buffer);
  post_receive(id.get(), buffer, mr.get());  // before the peer can send
  check(rdma_accept(id.get(), nullptr), "rdma_accept");
  const std::size_t bytes = await(rdma_get_recv_comp, id.get());
  std::printf("echoing: %.*s\n", static_cast<int>(bytes), buffer.data());
  send(id.get(), buffer, bytes, mr.get());
  check(rdma_disconnect(id.get()), "rdma_disconnect");
}

void ask(const char* address, std::string_view text) {
  const Owned<rdma_cm_id> id = make_endpoint(address);
  Buffer outgoing{}, incoming{};
  const Owned<ibv_mr> out = register_buffer(id.get(), outgoing), in = register_buffer(id.get(), incoming);
  post_receive(id.get(), incoming, in.get());
  check(rdma_connect(id.get(), nullptr), "rdma_connect");
  send(id.get(), outgoing, text.copy(outgoing.data(), outgoing.size()), out.get());
  const std::size_t bytes = await(rdma_get_recv_comp, id.get());
  std::printf("answer: %.*s\n", static_cast<int>(bytes), incoming.data());
  check(rdma_disconnect(id.get()), "rdma_disconnect");
}

}  // namespace

int main(int argc, char* argv[]) {
  try {
    if (argc < 2) {
      serve();
    } else {
      ask(argv[1], argc > 2 ? argv[2] : "hello over RDMA");
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cm_echo: %s\n", error.what());
    return 1;
  }
}
