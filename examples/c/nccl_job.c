/* A small training loop over the NCCL API with one fault, or none. The program forks its ranks itself.
 *
 * Every step makes an all-reduce in train_step, a broadcast and a reduce in gen_backward, and waits for its stream; every fourth step also
 * validates. Counts, types, operators and roots follow from the seed and the step and are equal on all ranks. At step --at, rank --rank does
 * what its case says. Calls return at once: a rank that hangs sits in wait_step. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "job.h"
#include "nccl_wrap.h"

static struct options options;
static struct comm world, half, copy;
static cpucclStream_t stream;

enum { MAX_COUNT = 1 << 18, USUAL_COUNT = 5000, ELEMENT = 8 };
static char in[MAX_COUNT * ELEMENT], out[MAX_COUNT * ELEMENT];

static int is_case(const char* name) { return strcmp(options.name, name) == 0; }

/* Whether this rank has to do the wrong thing now. */
static int faulty(const char* name, int step) {
  return !options.healthy && world.rank == options.rank && step == options.at && is_case(name);
}

static struct type step_type(int step) {
  const struct type types[] = {TYPE(ncclInt32), TYPE(ncclFloat32), TYPE(ncclFloat64), TYPE(ncclBfloat16)};
  return types[choose(options.seed, step, 0, 4)];
}

static struct op step_op(int step) {
  const struct op ops[] = {OP(ncclSum), OP(ncclMax), OP(ncclAvg)};
  return ops[choose(options.seed, step, 1, 3)];
}

static size_t step_count(int step) { return 1 + choose(options.seed, step, 2, USUAL_COUNT); }

SITE void wait_step(void) { check(cpucclStreamSynchronize(stream), "cpucclStreamSynchronize"); }

SITE void train_step(int step) {
  size_t count = step_count(step);
  struct type type = step_type(step);
  struct op op = step_op(step);
  /* The equal-size fault needs a type of four bytes on both sides. */
  if (is_case("dtype") && step == options.at) type = TYPE(ncclFloat32);
  if (faulty("dtype", step)) type = TYPE(ncclInt32);
  if (faulty("redop", step)) op = op.value == ncclSum ? OP(ncclMax) : OP(ncclSum);
  if (faulty("count", step)) count += MAX_COUNT / 2;   /* more chunks than the others send: a hang */
  if (faulty("off_by_one", step)) count += 1;           /* as many chunks: a wrong result */
  all_reduce(in, out, count, type, op, world, stream);
}

SITE void gen_backward(int step) {
  int root = (int)choose(options.seed, step, 3, (uint32_t)world.ranks), used = root;
  if (step == options.at) {
    /* In the broadcast's chain the faulty rank comes last, or first. */
    if (is_case("root")) used = (options.rank + 1) % world.ranks;
    if (is_case("root_hang")) used = options.rank;
    /* Taking itself for the root it waits for nobody: a wrong result. Taking the next one for the root it waits for the rank before. */
    if (faulty("root", step)) used = world.rank;
    if (faulty("root_hang", step)) used = (world.rank + 1) % world.ranks;
  }
  bcast(in, step_count(step + 1), step_type(step + 1), used, world, stream);
  reduce(in, out, step_count(step + 2), step_type(step + 2), OP(ncclSum), root, world, stream);
}

SITE void validate(int step) {
  float score = (float)step, *scores = zeroed((size_t)world.ranks * sizeof *scores);
  all_reduce(&score, &score, 1, TYPE(ncclFloat32), OP(ncclSum), world, stream);
  all_gather(&score, scores, 1, TYPE(ncclFloat32), world, stream);
  wait_step();
  free(scores);
}

/* The ring of a pipeline: send to the next rank, receive from the one before. */
SITE void exchange_activations(int step) {
  int next = (world.rank + 1) % world.ranks, before = (world.rank + world.ranks - 1) % world.ranks;
  int grouped = !(is_case("ungrouped") && !options.healthy && step == options.at);
  size_t count = MAX_COUNT / 2;
  if (grouped) check(ncclGroupStart(), "ncclGroupStart");
  send_to(in, count, TYPE(ncclFloat32), next, world, stream);
  /* The receiver expects more than is sent. */
  recv_from(out, faulty("send_recv", step) ? MAX_COUNT : count, TYPE(ncclFloat32), before, world, stream);
  if (faulty("group", step)) recv_from(out, count, TYPE(ncclFloat32), next, world, stream);
  if (grouped) check(ncclGroupEnd(), "ncclGroupEnd");
}

SITE void make_halves(int step) {
  if (faulty("split", step)) return;
  half = split(world, world.rank % 2, -world.rank, world.rank % 2 ? "odd" : "even");
  all_reduce(in, out, 64, TYPE(ncclFloat32), OP(ncclSum), half, stream);
  wait_step();
  destroy(half);
}

/* Two communicators with the same members on one stream: the order counts. */
SITE void sync_groups(int step) {
  int crossed = faulty("comm_order", step);
  all_reduce(in, out, 64, TYPE(ncclFloat32), OP(ncclSum), crossed ? copy : world, stream);
  all_reduce(in, out, 64, TYPE(ncclFloat32), OP(ncclSum), crossed ? world : copy, stream);
}

SITE void leave(int step) {
  if (faulty("early_exit", step)) _exit(0);
  if (faulty("killed", step)) raise(SIGKILL);
}

static int run_steps(void) {
  int exchanges = is_case("group") || is_case("send_recv") || is_case("ungrouped");
  if (is_case("comm_order")) copy = split(world, 0, world.rank, "copy");
  for (int step = 0; step < options.iters; step++) {
    leave(step);
    if (!faulty("missing", step)) train_step(step);
    gen_backward(step);
    if (exchanges) exchange_activations(step);
    if (is_case("split")) make_halves(step);
    if (is_case("comm_order")) sync_groups(step);
    /* The faulty rank begins another step where the others validate. */
    if (faulty("op", step)) gen_backward(step + 1);
    else if (step % 4 == 3 || step == options.at) validate(step);
    wait_step();
  }
  if (is_case("comm_order")) destroy(copy);
  return 0;
}

/* Every collective once a step, on two streams, in place where that is allowed. */
SITE int all_kinds(void) {
  int wrong = 0, ranks = world.ranks;
  cpucclStream_t side;
  check(cpucclStreamCreate(&side), "cpucclStreamCreate");
  for (int i = 0; i < options.iters; i++) {
    size_t block = 64 * sizeof(int);
    int *own = zeroed(block), *back = zeroed(block), *all = zeroed(block * ranks), *swapped = zeroed(block * ranks);
    for (int k = 0; k < 64; k++) own[k] = world.rank + 1;
    all_gather(own, all, 64, TYPE(ncclInt32), world, stream);
    all_to_all(all, swapped, 64, TYPE(ncclInt32), world, stream);
    reduce_scatter(all, back, 64, TYPE(ncclInt32), OP(ncclMax), world, stream);
    wait_step();
    wrong |= all[64 * ranks - 1] != ranks || swapped[0] != world.rank + 1 || back[0] != world.rank + 1;
    gather(own, all, 64, TYPE(ncclInt32), i % ranks, world, side);
    scatter(all, back, 64, TYPE(ncclInt32), i % ranks, world, side);
    all_reduce(own, own, 64, TYPE(ncclInt32), OP(ncclSum), world, side);
    broadcast(own, back, 64, TYPE(ncclInt32), i % ranks, world, side);
    while (cpucclStreamQuery(side) == ncclInProgress) usleep(100);
    wrong |= own[63] != ranks * (ranks + 1) / 2 || back[63] != own[63];
    free(own), free(back), free(all), free(swapped);
  }
  check(cpucclStreamDestroy(side), "cpucclStreamDestroy");
  return wrong;
}

SITE int premulsum(void) {
  int wrong = 0;
  float factor = 0.5F;
  struct op op = {ncclSum, "dynamic"};
  for (int i = 0; i < options.iters; i++) {
    float value = (float)(world.rank + 1);
    check(ncclRedOpCreatePreMulSum(&op.value, &factor, ncclFloat32, ncclScalarHostImmediate, world.handle), "ncclRedOpCreatePreMulSum");
    all_reduce(&value, &value, 1, TYPE(ncclFloat32), op, world, stream);
    check(ncclRedOpDestroy(op.value, world.handle), "ncclRedOpDestroy");
    wait_step();
    wrong |= value != (float)(world.ranks * (world.ranks + 1)) / 4;
  }
  return wrong;
}

/* A second thread with a communicator and a stream of its own, like a prefetcher or an autograd thread. */
SITE void* prefetch(void* result) {
  cpucclStream_t own;
  float value = 1;
  check(cpucclStreamCreate(&own), "cpucclStreamCreate");
  for (int i = 0; i < 2 * options.iters; i++) {
    all_reduce(&value, &value, 1, TYPE(ncclFloat32), OP(ncclMax), copy, own);
    check(cpucclStreamSynchronize(own), "cpucclStreamSynchronize");
  }
  *(int*)result = value != 1;
  check(cpucclStreamDestroy(own), "cpucclStreamDestroy");
  return NULL;
}

SITE int threads(void) {
  int wrong = 0;
  pthread_t thread;
  copy = split(world, 0, world.rank, "copy");
  if (pthread_create(&thread, NULL, prefetch, &wrong) != 0) return 1;
  for (int step = 0; step < options.iters; step++) {
    train_step(step);
    wait_step();
  }
  pthread_join(thread, NULL);
  destroy(copy);
  return wrong;
}

static const struct {
  const char* name;
  int (*job)(void);
} cases[] = {
    {"op", run_steps},
    {"count", run_steps},
    {"off_by_one", run_steps},
    {"dtype", run_steps},
    {"redop", run_steps},
    {"root", run_steps},
    {"root_hang", run_steps},
    {"missing", run_steps},
    {"early_exit", run_steps},
    {"killed", run_steps},
    {"group", run_steps},
    {"send_recv", run_steps},
    {"ungrouped", run_steps},
    {"split", run_steps},
    {"comm_order", run_steps},
    {"plain", run_steps},
    {"all_kinds", all_kinds},
    {"premulsum", premulsum},
    {"threads", threads},
};
enum { CASES = sizeof cases / sizeof *cases };

static int run_rank(int (*job)(void), ncclUniqueId id, int rank) {
  /* A rank that hangs must not outlive the job. */
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  open_log(rank);
  world = init_rank(options.ranks, id, rank, "world");
  check(cpucclStreamCreate(&stream), "cpucclStreamCreate");
  int status = job();
  destroy(world);
  return status;
}

int main(int argc, char** argv) {
  options = parse_options(argc, argv);
  int (*job)(void) = NULL;
  const char* names[CASES + 1] = {NULL};
  for (int i = 0; i < CASES; i++) {
    names[i] = cases[i].name;
    if (is_case(cases[i].name)) job = cases[i].job;
  }
  if (job == NULL) unknown_case(options.name, names);
  ncclUniqueId id;
  check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  pid_t* children = zeroed((size_t)options.ranks * sizeof *children);
  for (int rank = 0; rank < options.ranks; rank++) {
    children[rank] = fork();
    if (children[rank] < 0) {
      perror("fork");
      return 1;
    }
    if (children[rank] == 0) exit(run_rank(job, id, rank));
  }
  int first = 0;
  for (int rank = 0; rank < options.ranks; rank++) {
    int status = 0;
    waitpid(children[rank], &status, 0);
    int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (first == 0) first = code;
  }
  free(children);
  return first;
}
