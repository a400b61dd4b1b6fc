// mpi_exchange BYTES: a ring, MPI_Alltoall from 8 to BYTES, Put, Get and Accumulate. All data is compared. The test
// compiles it with mpicc.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { WINDOW = 4096, SUMMED = 8 };

static int rank, ranks, wrong;

static void pass_a_token_around(void) {
  const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
  int token = 1;
  if (rank == 0) MPI_Send(&token, 1, MPI_INT, next, 0, MPI_COMM_WORLD);
  MPI_Recv(&token, 1, MPI_INT, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  const int expected = rank == 0 ? ranks : rank;
  wrong |= token != expected;
  ++token;
  if (rank != 0) MPI_Send(&token, 1, MPI_INT, next, 0, MPI_COMM_WORLD);
}

static int value(int from, int to, int at) { return from * 1000003 + to * 1009 + at; }

static void exchange_all(int bytes) {
  const int words = bytes / (int)sizeof(int);
  int* const out = malloc((size_t)bytes * (size_t)ranks);
  int* const in = malloc((size_t)bytes * (size_t)ranks);
  for (int peer = 0; peer < ranks; ++peer)
    for (int i = 0; i < words; ++i) out[peer * words + i] = value(rank, peer, i);
  MPI_Alltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD);
  for (int peer = 0; peer < ranks; ++peer)
    for (int i = 0; i < words; ++i) wrong |= in[peer * words + i] != value(peer, rank, i);
  free(out);
  free(in);
}

// The first half of each window is written by the rank before; all ranks add to the first words of the second half.
static void use_windows(void) {
  const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks, half = WINDOW / 2;
  static int put[WINDOW / 2], got[WINDOW / 2], ones[SUMMED];
  int* window;
  MPI_Win handle;
  MPI_Win_allocate(WINDOW * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &window, &handle);
  for (int i = 0; i < WINDOW; ++i) window[i] = 0;
  for (int i = 0; i < half; ++i) put[i] = value(rank, next, i);
  for (int i = 0; i < SUMMED; ++i) ones[i] = 1;
  MPI_Win_fence(0, handle);
  MPI_Put(put, half, MPI_INT, next, 0, half, MPI_INT, handle);
  MPI_Win_fence(0, handle);
  MPI_Get(got, half, MPI_INT, next, 0, half, MPI_INT, handle);
  for (int peer = 0; peer < ranks; ++peer)
    MPI_Accumulate(ones, SUMMED, MPI_INT, peer, half, SUMMED, MPI_INT, MPI_SUM, handle);
  MPI_Win_fence(0, handle);
  for (int i = 0; i < half; ++i) wrong |= got[i] != put[i] || window[i] != value(before, rank, i);
  for (int i = 0; i < SUMMED; ++i) wrong |= window[half + i] != ranks;
  MPI_Win_free(&handle);
}

int main(int count, char** words) {
  MPI_Init(&count, &words);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int most = count > 1 ? atoi(words[1]) : 1 << 20;
  pass_a_token_around();
  for (int bytes = 8; bytes <= most; bytes *= 8) exchange_all(bytes);
  use_windows();
  int any = 0;
  MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (rank == 0) printf("%d ranks: %s\n", ranks, any ? "WRONG DATA" : "all data as sent");
  MPI_Finalize();
  return any;
}
