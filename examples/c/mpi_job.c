/* A small training loop over MPI with one fault, or none.
 *
 * Every step makes an all-reduce in train_step and a broadcast and a reduce in gen_backward; every fourth step also validates with a barrier
 * and an all-gather. Counts, types, operators and roots follow from the seed and the step and are equal on all ranks. At step --at, rank
 * --rank does what its case says. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job.h"
#include "mpi_wrap.h"

struct comm world;
struct options options;

static int rank, ranks;
static struct comm first, second;

enum { MAX_COUNT = 20000, ELEMENT = 8 };
static char in[MAX_COUNT * ELEMENT], out[MAX_COUNT * ELEMENT];

static int is_case(const char* name) { return strcmp(options.name, name) == 0; }

/* Whether this rank has to do the wrong thing now. */
static int faulty(const char* name, int step) {
  return !options.healthy && rank == options.rank && step == options.at && is_case(name);
}

static struct type step_type(int step) {
  const struct type types[] = {TYPE(MPI_INT), TYPE(MPI_FLOAT), TYPE(MPI_DOUBLE), TYPE(MPI_LONG)};
  return types[choose(options.seed, step, 0, 4)];
}

static struct op step_op(int step) {
  const struct op ops[] = {OP(MPI_SUM), OP(MPI_MAX), OP(MPI_MIN)};
  return ops[choose(options.seed, step, 1, 3)];
}

static int step_count(int step) { return 1 + (int)choose(options.seed, step, 2, MAX_COUNT / 4); }

SITE void train_step(int step) {
  int count = step_count(step);
  struct type type = step_type(step);
  struct op op = step_op(step);
  /* The equal-size fault needs a type of four bytes on both sides. */
  if (is_case("dtype") && step == options.at) type = TYPE(MPI_INT);
  if (faulty("dtype", step)) type = TYPE(MPI_FLOAT);
  if (faulty("redop", step)) op = op.handle == MPI_SUM ? OP(MPI_MAX) : OP(MPI_SUM);
  if (faulty("count", step)) count += MAX_COUNT / 2;
  allreduce(in, out, count, type, op, world);
}

SITE void gen_backward(int step) {
  int root = (int)choose(options.seed, step, 3, (uint32_t)ranks);
  int wrong = faulty("root", step) ? (root + 1) % ranks : root;
  bcast(in, step_count(step + 1), step_type(step + 1), wrong, world);
  reduce(in, out, step_count(step + 2), step_type(step + 2), OP(MPI_SUM), root, world);
}

SITE void validate(int step) {
  if (faulty("blocking_vs_nonblocking", step)) {
    MPI_Request request;
    log_call("MPI_Ibarrier", world.name, NO_COUNT, NULL, NO_ROOT, NULL);
    MPI_Ibarrier(world.handle, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  } else {
    barrier(world);
  }
  int score = step;
  int* scores = zeroed((size_t)ranks * sizeof *scores);
  allgather(&score, scores, 1, TYPE(MPI_INT), world);
  free(scores);
}

/* Rank i contributes i + 1 elements; the faulty one sends one more than the root expects. */
SITE void collect_samples(int step) {
  int* counts = zeroed((size_t)ranks * sizeof *counts);
  int* places = zeroed((size_t)ranks * sizeof *places);
  for (int i = 0; i < ranks; i++) {
    counts[i] = i + 1;
    places[i] = i * (i + 1) / 2;
  }
  gatherv(in, rank + 1 + faulty("gatherv", step), TYPE(MPI_INT), out, counts, places, 0, world);
  free(counts);
  free(places);
}

/* Every pair exchanges two elements; the faulty rank sends three to the next rank, which expects two. */
SITE void exchange_tokens(int step) {
  int* counts = zeroed((size_t)ranks * sizeof *counts);
  int* sent = zeroed((size_t)ranks * sizeof *sent);
  int* places = zeroed((size_t)ranks * sizeof *places);
  for (int i = 0; i < ranks; i++) {
    sent[i] = counts[i] = 2;
    places[i] = 4 * i;
  }
  sent[(rank + 1) % ranks] += faulty("alltoallv", step);
  alltoallv(in, sent, places, out, counts, places, TYPE(MPI_INT), ranks, world);
  free(counts);
  free(sent);
  free(places);
}

/* Two communicators with the same members, used in turn. */
SITE void sync_groups(int step) {
  int crossed = faulty("comm_order", step);
  barrier(crossed ? second : first);
  barrier(crossed ? first : second);
}

/* A rank that leaves the job, in one way or another. */
SITE void leave(int step) {
  if (faulty("early_exit", step)) exit(0);
  if (faulty("early_finalize", step)) {
    MPI_Finalize();
    exit(0);
  }
  if (faulty("killed", step)) raise(SIGKILL);
  if (faulty("abort", step)) MPI_Abort(world.handle, 3);
}

static void run_steps(void) {
  if (is_case("comm_order")) {
    first = dup(world, "first");
    second = dup(world, "second");
  }
  for (int step = 0; step < options.iters; step++) {
    leave(step);
    if (!faulty("missing", step)) train_step(step);
    gen_backward(step);
    if (is_case("gatherv")) collect_samples(step);
    if (is_case("alltoallv")) exchange_tokens(step);
    if (is_case("comm_order")) sync_groups(step);
    /* The faulty rank begins another step where the others validate. */
    if (faulty("op", step)) train_step(step + 1);
    else if (step % 4 == 3 || step == options.at) validate(step);
  }
  if (is_case("comm_order")) {
    free_comm(second);
    free_comm(first);
  }
}

static const char* const faulty_names[] = {
    "op",     "root",  "redop",  "dtype",   "count",     "missing",    "early_exit",
    "killed", "abort", "gatherv", "alltoallv", "comm_order", "early_finalize", "blocking_vs_nonblocking",
    NULL};

static int is_faulty_case(void) {
  for (const char* const* name = faulty_names; *name != NULL; name++)
    if (is_case(*name)) return 1;
  return 0;
}

int main(int argc, char** argv) {
  options = parse_options(argc, argv);
  healthy_job job = find_healthy(options.name);
  if (job == NULL && !is_faulty_case()) {
    fprintf(stderr, "healthy:");
    name_healthy();
    fprintf(stderr, "\n");
    unknown_case(options.name, faulty_names);
  }
  MPI_Init(&argc, &argv);
  world = (struct comm){MPI_COMM_WORLD, "world"};
  MPI_Comm_rank(world.handle, &rank);
  MPI_Comm_size(world.handle, &ranks);
  open_log(rank);
  int status = 0;
  if (job != NULL) status = job();
  else run_steps();
  MPI_Finalize();
  return status;
}
