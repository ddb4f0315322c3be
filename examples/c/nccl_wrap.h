/* NCCL calls that the job logs itself. Wrappers are inlined, so that the call site is the function that uses them. */
#ifndef NCCL_WRAP_H_
#define NCCL_WRAP_H_

#include <cpuccl.h>
#include <stdio.h>
#include <stdlib.h>

#include "job.h"

struct comm {
  ncclComm_t handle;
  const char* name;
  int rank, ranks;
};
struct type {
  ncclDataType_t value;
  const char* name;
};
struct op {
  ncclRedOp_t value;
  const char* name;
};

#define TYPE(name) ((struct type){name, #name})
#define OP(name) ((struct op){name, #name})

/* Ends the rank with 1 on an error that the library reports. */
WRAPPER void check(ncclResult_t result, const char* function) {
  if (result == ncclSuccess) return;
  fprintf(stderr, "%s: %s: %s\n", function, ncclGetErrorString(result), ncclGetLastError(NULL));
  exit(1);
}

WRAPPER void all_reduce(const void* in, void* out, size_t count, struct type type, struct op op, struct comm comm,
                        cpucclStream_t stream) {
  log_call("ncclAllReduce", comm.name, count, type.name, NO_ROOT, op.name);
  check(ncclAllReduce(in, out, count, type.value, op.value, comm.handle, stream), "ncclAllReduce");
}

WRAPPER void broadcast(const void* in, void* out, size_t count, struct type type, int root, struct comm comm, cpucclStream_t stream) {
  log_call("ncclBroadcast", comm.name, count, type.name, root, NULL);
  check(ncclBroadcast(in, out, count, type.value, root, comm.handle, stream), "ncclBroadcast");
}

WRAPPER void bcast(void* data, size_t count, struct type type, int root, struct comm comm, cpucclStream_t stream) {
  log_call("ncclBcast", comm.name, count, type.name, root, NULL);
  check(ncclBcast(data, count, type.value, root, comm.handle, stream), "ncclBcast");
}

WRAPPER void reduce(const void* in, void* out, size_t count, struct type type, struct op op, int root, struct comm comm,
                    cpucclStream_t stream) {
  log_call("ncclReduce", comm.name, count, type.name, root, op.name);
  check(ncclReduce(in, out, count, type.value, op.value, root, comm.handle, stream), "ncclReduce");
}

WRAPPER void all_gather(const void* in, void* out, size_t count, struct type type, struct comm comm, cpucclStream_t stream) {
  log_call("ncclAllGather", comm.name, count, type.name, NO_ROOT, NULL);
  check(ncclAllGather(in, out, count, type.value, comm.handle, stream), "ncclAllGather");
}

WRAPPER void reduce_scatter(const void* in, void* out, size_t count, struct type type, struct op op, struct comm comm,
                            cpucclStream_t stream) {
  log_call("ncclReduceScatter", comm.name, count, type.name, NO_ROOT, op.name);
  check(ncclReduceScatter(in, out, count, type.value, op.value, comm.handle, stream), "ncclReduceScatter");
}

WRAPPER void all_to_all(const void* in, void* out, size_t count, struct type type, struct comm comm, cpucclStream_t stream) {
  log_call("ncclAlltoAll", comm.name, count, type.name, NO_ROOT, NULL);
  check(ncclAlltoAll(in, out, count, type.value, comm.handle, stream), "ncclAlltoAll");
}

WRAPPER void gather(const void* in, void* out, size_t count, struct type type, int root, struct comm comm, cpucclStream_t stream) {
  log_call("ncclGather", comm.name, count, type.name, root, NULL);
  check(ncclGather(in, out, count, type.value, root, comm.handle, stream), "ncclGather");
}

WRAPPER void scatter(const void* in, void* out, size_t count, struct type type, int root, struct comm comm, cpucclStream_t stream) {
  log_call("ncclScatter", comm.name, count, type.name, root, NULL);
  check(ncclScatter(in, out, count, type.value, root, comm.handle, stream), "ncclScatter");
}

WRAPPER void send_to(const void* data, size_t count, struct type type, int peer, struct comm comm, cpucclStream_t stream) {
  log_call("ncclSend", comm.name, count, type.name, peer, NULL);
  check(ncclSend(data, count, type.value, peer, comm.handle, stream), "ncclSend");
}

WRAPPER void recv_from(void* data, size_t count, struct type type, int peer, struct comm comm, cpucclStream_t stream) {
  log_call("ncclRecv", comm.name, count, type.name, peer, NULL);
  check(ncclRecv(data, count, type.value, peer, comm.handle, stream), "ncclRecv");
}

/* Fills in the communicator's own rank and size, from the library. */
WRAPPER struct comm describe(ncclComm_t handle, const char* name) {
  struct comm comm = {handle, name, -1, 0};
  if (handle == NULL) return comm;
  check(ncclCommUserRank(handle, &comm.rank), "ncclCommUserRank");
  check(ncclCommCount(handle, &comm.ranks), "ncclCommCount");
  return comm;
}

WRAPPER struct comm init_rank(int ranks, ncclUniqueId id, int rank, const char* name) {
  ncclComm_t handle = NULL;
  log_call("ncclCommInitRank", name, NO_COUNT, NULL, NO_ROOT, NULL);
  check(ncclCommInitRank(&handle, ranks, id, rank), "ncclCommInitRank");
  return describe(handle, name);
}

WRAPPER struct comm split(struct comm parent, int colour, int key, const char* name) {
  ncclComm_t handle = NULL;
  log_call("ncclCommSplit", parent.name, NO_COUNT, NULL, NO_ROOT, NULL);
  check(ncclCommSplit(parent.handle, colour, key, &handle, NULL), "ncclCommSplit");
  return describe(handle, name);
}

WRAPPER void destroy(struct comm comm) {
  log_call("ncclCommDestroy", comm.name, NO_COUNT, NULL, NO_ROOT, NULL);
  check(ncclCommDestroy(comm.handle), "ncclCommDestroy");
}

#endif
