/* Jobs that look unusual and are right: a checker must stay silent on each. Every one repeats its calls --iters times. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpi_wrap.h"

#if MPI_VERSION < 4 && defined(OPEN_MPI)
#include <mpi-ext.h>
#endif

static int rank_in(struct comm comm) {
  int rank;
  MPI_Comm_rank(comm.handle, &rank);
  return rank;
}

static int size_of(struct comm comm) {
  int size;
  MPI_Comm_size(comm.handle, &size);
  return size;
}

/* What a sum of (rank + 1) over the communicator must be. */
static int triangle(int ranks) { return ranks * (ranks + 1) / 2; }

SITE int plain(void) {
  int own = rank_in(world) + 1, sum = 0, wrong = 0;
  for (int i = 0; i < options.iters; i++) {
    allreduce(&own, &sum, 1, TYPE(MPI_INT), OP(MPI_SUM), world);
    wrong |= sum != triangle(size_of(world));
    bcast(&sum, 1, TYPE(MPI_INT), i % size_of(world), world);
    barrier(world);
  }
  return wrong;
}

SITE int in_place(void) {
  int ranks = size_of(world), rank = rank_in(world), wrong = 0;
  int* all = zeroed((size_t)ranks * sizeof *all);
  for (int i = 0; i < options.iters; i++) {
    int sum = rank + 1;
    allreduce(MPI_IN_PLACE, &sum, 1, TYPE(MPI_INT), OP(MPI_SUM), world);
    wrong |= sum != triangle(ranks);
    all[rank] = rank;
    log_call("MPI_Allgather", world.name, 1, "MPI_INT", NO_ROOT, NULL);
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, 1, MPI_INT, world.handle);
    wrong |= all[ranks - 1] != ranks - 1;
    int root = i % ranks;
    const void* own = rank == root ? MPI_IN_PLACE : (const void*)&rank;
    gather(own, 1, TYPE(MPI_INT), all, 1, MPI_INT, root, world);
    sum = rank + 1;
    int total = sum;
    reduce(rank == root ? MPI_IN_PLACE : (const void*)&sum, &total, 1, TYPE(MPI_INT), OP(MPI_SUM), root, world);
    wrong |= rank == root && total != triangle(ranks);
  }
  free(all);
  return wrong;
}

/* Rank i sends j + 1 elements to rank j: every vector differs, the matrix agrees. */
SITE int vforms(void) {
  int ranks = size_of(world), rank = rank_in(world), wrong = 0;
  size_t cells = (size_t)ranks * (size_t)(ranks + 1);
  int *in = zeroed(cells * sizeof *in), *out = zeroed(cells * sizeof *out);
  int *in_counts = zeroed(cells * sizeof *in), *in_places = zeroed(cells * sizeof *in);
  int *out_counts = zeroed(cells * sizeof *in), *out_places = zeroed(cells * sizeof *in);
  for (int i = 0; i < ranks; i++) {
    in_counts[i] = i + 1;
    in_places[i] = triangle(i);
    out_counts[i] = rank + 1;
    out_places[i] = i * (rank + 1);
  }
  for (int i = 0; i < triangle(ranks); i++) in[i] = rank;
  for (int i = 0; i < options.iters; i++) {
    alltoallv(in, in_counts, in_places, out, out_counts, out_places, TYPE(MPI_INT), ranks, world);
    wrong |= out[out_places[ranks - 1]] != ranks - 1;
    gatherv(in, rank + 1, TYPE(MPI_INT), out, in_counts, in_places, i % ranks, world);
    scatterv(in, in_counts, in_places, out, rank + 1, TYPE(MPI_INT), i % ranks, world);
    wrong |= out[rank] != i % ranks;
  }
  free(in), free(out), free(in_counts), free(in_places), free(out_counts), free(out_places);
  return wrong;
}

/* Off the root, a gather's receive side means nothing and may hold anything. */
SITE int insignificant(void) {
  int ranks = size_of(world), rank = rank_in(world), wrong = 0;
  int* all = zeroed((size_t)ranks * sizeof *all);
  for (int i = 0; i < options.iters; i++) {
    int root = i % ranks;
    if (rank == root) gather(&rank, 1, TYPE(MPI_INT), all, 1, MPI_INT, root, world);
    else gather(&rank, 1, TYPE(MPI_INT), NULL, -1, MPI_DATATYPE_NULL, root, world);
    wrong |= rank == root && all[ranks - 1] != ranks - 1;
  }
  free(all);
  return wrong;
}

/* Halves by parity work on their own, with as many calls as they like. */
SITE int split_halves(void) {
  int rank = rank_in(world), odd = rank % 2, wrong = 0;
  struct comm half = split(world, odd, -rank, odd ? "odd" : "even");
  struct comm none = split(world, rank == 0 ? 0 : MPI_UNDEFINED, 0, "alone");
  for (int i = 0; i < options.iters * (1 + odd); i++) {
    int one = 1, sum = 0;
    allreduce(&one, &sum, 1, TYPE(MPI_INT), OP(MPI_SUM), half);
    wrong |= sum != size_of(half);
  }
  barrier(world);
  if (none.handle != MPI_COMM_NULL) free_comm(none);
  free_comm(half);
  return wrong;
}

SITE int dup_world(void) {
  struct comm copy = dup(world, "copy");
  int wrong = 0;
  for (int i = 0; i < options.iters; i++) {
    int one = 1, sum = 0;
    barrier(i % 2 ? world : copy);
    allreduce(&one, &sum, 1, TYPE(MPI_INT), OP(MPI_SUM), i % 2 ? copy : world);
    wrong |= sum != size_of(world);
  }
  free_comm(copy);
  return wrong;
}

/* A broadcast between groups: the root says MPI_ROOT, its neighbours MPI_PROC_NULL, the other side the root's rank. */
SITE int intercomm(void) {
  if (size_of(world) < 2) return 0;
  int rank = rank_in(world), right = rank % 2, wrong = 0;
  struct comm side = split(world, right, rank, right ? "right" : "left");
  struct comm between = {MPI_COMM_NULL, "between"};
  log_call("MPI_Intercomm_create", side.name, NO_COUNT, NULL, NO_ROOT, NULL);
  MPI_Intercomm_create(side.handle, 0, MPI_COMM_WORLD, 1 - right, 5, &between.handle);
  for (int i = 0; i < options.iters; i++) {
    int value = right ? -1 : i;
    int root = right ? 0 : rank_in(side) == 0 ? MPI_ROOT : MPI_PROC_NULL;
    bcast(&value, 1, TYPE(MPI_INT), root, between);
    wrong |= value != i;
    barrier(between);
  }
  free_comm(between);
  free_comm(side);
  return wrong;
}

static void keep_greater_magnitude(void* in, void* inout, int* len, MPI_Datatype* type) {
  (void)type;
  for (int i = 0; i < *len; i++) {
    int a = ((int*)in)[i], *b = (int*)inout + i;
    if (abs(a) > abs(*b)) *b = a;
  }
}

SITE int userop(void) {
  struct op op = {MPI_OP_NULL, "magnitude"};
  int ranks = size_of(world), own = -rank_in(world), wrong = 0;
  MPI_Op_create(keep_greater_magnitude, 1, &op.handle);
  for (int i = 0; i < options.iters; i++) {
    int greatest = 0;
    allreduce(&own, &greatest, 1, TYPE(MPI_INT), op, world);
    wrong |= greatest != -(ranks - 1);
  }
  MPI_Op_free(&op.handle);
  return wrong;
}

SITE int zero(void) {
  for (int i = 0; i < options.iters; i++) {
    bcast(NULL, 0, TYPE(MPI_INT), 0, world);
    allreduce(NULL, NULL, 0, TYPE(MPI_DOUBLE), OP(MPI_SUM), world);
    allgather(NULL, NULL, 0, TYPE(MPI_INT), world);
  }
  barrier(world);
  return 0;
}

/* Several calls under way at once, waited for in another order than they began. */
SITE int nonblocking(void) {
  int ranks = size_of(world), own = rank_in(world) + 1, wrong = 0;
  for (int i = 0; i < options.iters; i++) {
    int sum = 0, value = own == 1 ? i : -1;
    MPI_Request requests[3];
    MPI_Status statuses[3]; /* MPI_STATUSES_IGNORE draws a false warning from gcc with MPICH's prototypes */
    log_call("MPI_Iallreduce", world.name, 1, "MPI_INT", NO_ROOT, "MPI_SUM");
    MPI_Iallreduce(&own, &sum, 1, MPI_INT, MPI_SUM, world.handle, &requests[0]);
    log_call("MPI_Ibcast", world.name, 1, "MPI_INT", 0, NULL);
    MPI_Ibcast(&value, 1, MPI_INT, 0, world.handle, &requests[1]);
    log_call("MPI_Ibarrier", world.name, NO_COUNT, NULL, NO_ROOT, NULL);
    MPI_Ibarrier(world.handle, &requests[2]);
    MPI_Wait(&requests[own % 3], MPI_STATUS_IGNORE);
    MPI_Waitall(3, requests, statuses);
    wrong |= sum != triangle(ranks) || value != i;
  }
  return wrong;
}

/* Persistent collectives where the library has them (MPI 4, or Open MPI's extension), else a persistent ring of sends and receives. Logged
 * when started. */
SITE int persistent(void) {
  int own = rank_in(world) + 1, ranks = size_of(world), wrong = 0, sum = 0;
#if MPI_VERSION >= 4 || defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
  MPI_Request request;
#if MPI_VERSION >= 4
  MPI_Allreduce_init(&own, &sum, 1, MPI_INT, MPI_SUM, world.handle, MPI_INFO_NULL, &request);
#else
  MPIX_Allreduce_init(&own, &sum, 1, MPI_INT, MPI_SUM, world.handle, MPI_INFO_NULL, &request);
#endif
  for (int i = 0; i < options.iters; i++) {
    log_call("MPI_Allreduce", world.name, 1, "MPI_INT", NO_ROOT, "MPI_SUM");
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    wrong |= sum != triangle(ranks);
  }
  MPI_Request_free(&request);
#else
  MPI_Request requests[2];
  MPI_Status statuses[2];
  MPI_Send_init(&own, 1, MPI_INT, own % ranks, 0, world.handle, &requests[0]);
  MPI_Recv_init(&sum, 1, MPI_INT, (own + ranks - 2) % ranks, 0, world.handle, &requests[1]);
  for (int i = 0; i < options.iters; i++) {
    MPI_Startall(2, requests);
    MPI_Waitall(2, requests, statuses);
    wrong |= sum != (own + ranks - 2) % ranks + 1;
  }
  MPI_Request_free(&requests[0]);
  MPI_Request_free(&requests[1]);
#endif
  barrier(world);
  return wrong;
}

/* The root sends one element of a type made of six integers, every other column of a row; the others receive six integers. */
SITE int derived(void) {
  struct type every_other = {MPI_DATATYPE_NULL, "every_other"};
  int wrong = 0;
  MPI_Type_vector(6, 1, 2, MPI_INT, &every_other.handle);
  MPI_Type_commit(&every_other.handle);
  for (int i = 0; i < options.iters; i++) {
    int row[12], root = i % size_of(world);
    for (int k = 0; k < 12; k++) row[k] = k;
    if (rank_in(world) == root) {
      bcast(row, 1, every_other, root, world);
    } else {
      bcast(row, 6, TYPE(MPI_INT), root, world);
      wrong |= row[5] != 10;
    }
  }
  MPI_Type_free(&every_other.handle);
  return wrong;
}

/* Only the members of the group take part in the creation. */
SITE int create_group(void) {
  int rank = rank_in(world), members = (size_of(world) + 1) / 2, wrong = 0;
  if (rank < members) {
    struct comm lower = {MPI_COMM_NULL, "lower"};
    MPI_Group all, part;
    int range[1][3] = {{0, members - 1, 1}};
    MPI_Comm_group(world.handle, &all);
    MPI_Group_range_incl(all, 1, range, &part);
    log_call("MPI_Comm_create_group", world.name, NO_COUNT, NULL, NO_ROOT, NULL);
    MPI_Comm_create_group(world.handle, part, 9, &lower.handle);
    for (int i = 0; i < options.iters; i++) {
      int one = 1, sum = 0;
      allreduce(&one, &sum, 1, TYPE(MPI_INT), OP(MPI_SUM), lower);
      wrong |= sum != members;
    }
    MPI_Group_free(&part);
    MPI_Group_free(&all);
    free_comm(lower);
  }
  barrier(world);
  return wrong;
}

/* A ring with wrap-around: each rank hears from both neighbours. */
SITE int cart(void) {
  int ranks = size_of(world), periodic = 1, wrong = 0, before, after;
  struct comm ring = {MPI_COMM_NULL, "ring"};
  log_call("MPI_Cart_create", world.name, NO_COUNT, NULL, NO_ROOT, NULL);
  MPI_Cart_create(world.handle, 1, &ranks, &periodic, 0, &ring.handle);
  MPI_Cart_shift(ring.handle, 0, 1, &before, &after);
  int rank = rank_in(ring);
  for (int i = 0; i < options.iters; i++) {
    int heard[2] = {-1, -1};
    log_call("MPI_Neighbor_allgather", ring.name, 1, "MPI_INT", NO_ROOT, NULL);
    MPI_Neighbor_allgather(&rank, 1, MPI_INT, heard, 1, MPI_INT, ring.handle);
    wrong |= heard[0] != before || heard[1] != after;
  }
  free_comm(ring);
  return wrong;
}

static const struct {
  const char* name;
  healthy_job job;
} jobs[] = {
    {"plain", plain},
    {"in_place", in_place},
    {"vforms", vforms},
    {"insignificant", insignificant},
    {"split", split_halves},
    {"dup", dup_world},
    {"intercomm", intercomm},
    {"userop", userop},
    {"zero", zero},
    {"nonblocking", nonblocking},
    {"persistent", persistent},
    {"derived", derived},
    {"create_group", create_group},
    {"cart", cart},
};

healthy_job find_healthy(const char* name) {
  for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
    if (strcmp(jobs[i].name, name) == 0) return jobs[i].job;
  return NULL;
}

void name_healthy(void) {
  for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) fprintf(stderr, " %s", jobs[i].name);
}
