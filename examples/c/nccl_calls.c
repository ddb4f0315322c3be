/* Calls NCCL functions with random arguments and logs what it passed, to test how a tracer decodes them.
 *
 *   nccl_calls LIBRARY [--seed S] [--iters N]
 *
 * The communicator is always NULL: the library refuses the call, as an invalid argument or for want of a GPU, before it looks at anything
 * else. So neither a GPU nor a second rank is needed, while counts go beyond 32 bits and pointers, roots and operators are arbitrary. A call
 * that is not refused is a failure. */
#include <cpuccl.h>
#include <dlfcn.h>
#include <stdio.h>

#include "job.h"

enum { KINDS = 12 };

static void* library;

/* What one call is given. */
struct arguments {
  void *first, *second;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root;
  cpucclStream_t stream;
};

static uint64_t wide(uint64_t seed, int step, int draw) {
  return (uint64_t)choose(seed, step, draw, UINT32_MAX) << 32 | choose(seed, step, draw + 1, UINT32_MAX);
}

static struct arguments draw(uint64_t seed, int step) {
  return (struct arguments){
      .first = (void*)(wide(seed, step, 0) >> 16),
      .second = (void*)(wide(seed, step, 2) >> 16),
      /* Any width from one bit to 63. */
      .count = wide(seed, step, 4) >> (1 + choose(seed, step, 6, 63)),
      .type = (ncclDataType_t)choose(seed, step, 7, ncclNumTypes),
      .op = (ncclRedOp_t)choose(seed, step, 8, ncclNumOps + 4),
      .root = (int)choose(seed, step, 9, 1 << 20),
      .stream = (cpucclStream_t)(wide(seed, step, 10) >> 16),
  };
}

/* Logs the call and makes it, unless this release of the library has no such function. Types and operators are logged as the numbers that are
 * passed. */
#define CALL(name, root, op, ...)                                   \
  do {                                                              \
    __typeof__(name)* function = dlsym(library, #name);             \
    if (function == NULL) return ncclInvalidUsage;                  \
    log_call(#name, "null", a.count, type, root, op);               \
    return function(__VA_ARGS__);                                   \
  } while (0)

SITE ncclResult_t make_call(uint32_t kind, struct arguments a) {
  char type[12], op[12];
  snprintf(type, sizeof type, "%d", (int)a.type);
  snprintf(op, sizeof op, "%d", (int)a.op);
  switch (kind) {
    case 0: CALL(ncclAllReduce, NO_ROOT, op, a.first, a.second, a.count, a.type, a.op, NULL, a.stream);
    case 1: CALL(ncclBroadcast, a.root, NULL, a.first, a.second, a.count, a.type, a.root, NULL, a.stream);
    case 2: CALL(ncclBcast, a.root, NULL, a.first, a.count, a.type, a.root, NULL, a.stream);
    case 3: CALL(ncclReduce, a.root, op, a.first, a.second, a.count, a.type, a.op, a.root, NULL, a.stream);
    case 4: CALL(ncclAllGather, NO_ROOT, NULL, a.first, a.second, a.count, a.type, NULL, a.stream);
    case 5: CALL(ncclReduceScatter, NO_ROOT, op, a.first, a.second, a.count, a.type, a.op, NULL, a.stream);
    case 6: CALL(ncclAlltoAll, NO_ROOT, NULL, a.first, a.second, a.count, a.type, NULL, a.stream);
    case 7: CALL(ncclGather, a.root, NULL, a.first, a.second, a.count, a.type, a.root, NULL, a.stream);
    case 8: CALL(ncclScatter, a.root, NULL, a.first, a.second, a.count, a.type, a.root, NULL, a.stream);
    case 9: CALL(ncclSend, a.root, NULL, a.first, a.count, a.type, a.root, NULL, a.stream);
    case 10: CALL(ncclRecv, a.root, NULL, a.first, a.count, a.type, a.root, NULL, a.stream);
    default: {
      __typeof__(ncclCommSplit)* function = dlsym(library, "ncclCommSplit");
      if (function == NULL) return ncclInvalidUsage;
      /* Colour and key travel in the log's root and count. */
      log_call("ncclCommSplit", "null", (uint32_t)a.op, NULL, a.root, NULL);
      return function(NULL, a.root, (int)a.op, (ncclComm_t*)&a.first, NULL);
    }
  }
}

int main(int argc, char** argv) {
  struct options options = parse_options(argc, argv);
  library = dlopen(options.name, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  open_log(0);
  int accepted = 0;
  for (int i = 0; i < options.iters; i++) {
    struct arguments arguments = draw(options.seed, i);
    uint32_t kind = choose(options.seed, i, 15, KINDS);
    ncclResult_t result = make_call(kind, arguments);
    if (result == ncclSuccess) {
      fprintf(stderr, "call %d, kind %u: a NULL communicator was not refused\n", i, kind);
      accepted++;
    }
  }
  return accepted > 0;
}
