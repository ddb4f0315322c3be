/* MPI calls that the job logs itself. Wrappers are inlined, so that the call site is the function that uses them. */
#ifndef MPI_WRAP_H_
#define MPI_WRAP_H_

#include <mpi.h>

#include "job.h"

/* Handles with the names that the log shows; a handle's own value says nothing outside its process. */
struct comm {
  MPI_Comm handle;
  const char* name;
};
struct type {
  MPI_Datatype handle;
  const char* name;
};
struct op {
  MPI_Op handle;
  const char* name;
};

#define TYPE(name) ((struct type){name, #name})
#define OP(name) ((struct op){name, #name})

extern struct comm world;
extern struct options options;

/* The healthy jobs, by name; NULL if there is none. Each returns 0, or 1 if a result is wrong. */
typedef int (*healthy_job)(void);
healthy_job find_healthy(const char* name);
/* Writes their names to stderr. */
void name_healthy(void);

WRAPPER void barrier(struct comm comm) {
  log_call("MPI_Barrier", comm.name, NO_COUNT, NULL, NO_ROOT, NULL);
  MPI_Barrier(comm.handle);
}

WRAPPER void bcast(void* data, int count, struct type type, int root, struct comm comm) {
  log_call("MPI_Bcast", comm.name, count, type.name, root, NULL);
  MPI_Bcast(data, count, type.handle, root, comm.handle);
}

WRAPPER void allreduce(const void* in, void* out, int count, struct type type, struct op op, struct comm comm) {
  log_call("MPI_Allreduce", comm.name, count, type.name, NO_ROOT, op.name);
  MPI_Allreduce(in, out, count, type.handle, op.handle, comm.handle);
}

WRAPPER void reduce(const void* in, void* out, int count, struct type type, struct op op, int root, struct comm comm) {
  log_call("MPI_Reduce", comm.name, count, type.name, root, op.name);
  MPI_Reduce(in, out, count, type.handle, op.handle, root, comm.handle);
}

WRAPPER void allgather(const void* in, void* out, int count, struct type type, struct comm comm) {
  log_call("MPI_Allgather", comm.name, count, type.name, NO_ROOT, NULL);
  MPI_Allgather(in, count, type.handle, out, count, type.handle, comm.handle);
}

WRAPPER void gather(const void* in, int count, struct type type, void* out, int out_count, MPI_Datatype out_type, int root,
                    struct comm comm) {
  log_call("MPI_Gather", comm.name, count, type.name, root, NULL);
  MPI_Gather(in, count, type.handle, out, out_count, out_type, root, comm.handle);
}

WRAPPER void gatherv(const void* in, int count, struct type type, void* out, const int* counts, const int* places, int root,
                     struct comm comm) {
  log_call("MPI_Gatherv", comm.name, count, type.name, root, NULL);
  MPI_Gatherv(in, count, type.handle, out, counts, places, type.handle, root, comm.handle);
}

WRAPPER void scatterv(const void* in, const int* counts, const int* places, void* out, int count, struct type type, int root,
                      struct comm comm) {
  log_call("MPI_Scatterv", comm.name, count, type.name, root, NULL);
  MPI_Scatterv(in, counts, places, type.handle, out, count, type.handle, root, comm.handle);
}

/* For this one the log's count is what the rank sends to all peers together. */
WRAPPER void alltoallv(const void* in, const int* in_counts, const int* in_places, void* out, const int* out_counts,
                       const int* out_places, struct type type, int ranks, struct comm comm) {
  int total = 0;
  for (int i = 0; i < ranks; i++) total += in_counts[i];
  log_call("MPI_Alltoallv", comm.name, total, type.name, NO_ROOT, NULL);
  MPI_Alltoallv(in, in_counts, in_places, type.handle, out, out_counts, out_places, type.handle, comm.handle);
}

WRAPPER struct comm split(struct comm parent, int colour, int key, const char* name) {
  struct comm made = {MPI_COMM_NULL, name};
  log_call("MPI_Comm_split", parent.name, NO_COUNT, NULL, NO_ROOT, NULL);
  MPI_Comm_split(parent.handle, colour, key, &made.handle);
  return made;
}

WRAPPER struct comm dup(struct comm parent, const char* name) {
  struct comm made = {MPI_COMM_NULL, name};
  log_call("MPI_Comm_dup", parent.name, NO_COUNT, NULL, NO_ROOT, NULL);
  MPI_Comm_dup(parent.handle, &made.handle);
  return made;
}

WRAPPER void free_comm(struct comm comm) {
  log_call("MPI_Comm_free", comm.name, NO_COUNT, NULL, NO_ROOT, NULL);
  MPI_Comm_free(&comm.handle);
}

#endif
