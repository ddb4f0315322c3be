#include "job.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE* log_file;
static atomic_int threads;
static __thread int thread = -1;
static __thread uint64_t ordinal;

static _Noreturn void usage(const char* program) {
  fprintf(stderr, "usage: %s CASE [--healthy] [--iters N] [--rank R] [--at STEP] [--seed S] [--ranks N]\n", program);
  exit(2);
}

static long number(const char* program, const char* text) {
  char* end = NULL;
  long value = text == NULL ? 0 : strtol(text, &end, 10);
  if (end == NULL || end == text || *end != '\0' || value < 0 || value > INT32_MAX) usage(program);
  return value;
}

struct options parse_options(int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') usage(argv[0]);
  struct options options = {.name = argv[1], .iters = 12, .rank = 1, .at = 7, .ranks = 4, .seed = 1};
  for (int i = 2; i < argc; i++) {
    const char* flag = argv[i];
    if (strcmp(flag, "--healthy") == 0) {
      options.healthy = 1;
      continue;
    }
    long value = number(argv[0], argv[++i]); /* argv ends with NULL */
    if (strcmp(flag, "--iters") == 0) options.iters = (int)value;
    else if (strcmp(flag, "--rank") == 0) options.rank = (int)value;
    else if (strcmp(flag, "--at") == 0) options.at = (int)value;
    else if (strcmp(flag, "--seed") == 0) options.seed = (uint64_t)value;
    else if (strcmp(flag, "--ranks") == 0) options.ranks = (int)value;
    else usage(argv[0]);
  }
  return options;
}

_Noreturn void unknown_case(const char* name, const char* const* known) {
  fprintf(stderr, "no case '%s'; there are:", name);
  for (; *known != NULL; known++) fprintf(stderr, " %s", *known);
  fprintf(stderr, "\n");
  exit(2);
}

uint32_t choose(uint64_t seed, int step, int draw, uint32_t end) {
  /* splitmix64 of the three numbers. */
  uint64_t x = seed * 0x9e3779b97f4a7c15u + ((uint64_t)(uint32_t)step << 16) + (uint32_t)draw;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return (uint32_t)((x ^ (x >> 31)) % end);
}

void open_log(int rank) {
  const char* folder = getenv("RANKDIFF_JOB_LOG");
  if (folder == NULL) return;
  char path[4096];
  snprintf(path, sizeof path, "%s/rank-%d.log", folder, rank);
  log_file = fopen(path, "w");
  if (log_file == NULL) {
    perror(path);
    exit(2);
  }
  /* A line must be in the file before its call: the process may not survive it. */
  setvbuf(log_file, NULL, _IOLBF, BUFSIZ);
}

void log_call(const char* function, const char* comm, uint64_t count, const char* type, int root, const char* op) {
  if (log_file == NULL) return;
  if (thread < 0) thread = atomic_fetch_add(&threads, 1);
  char count_text[24] = "-", root_text[16] = "-";
  if (count != NO_COUNT) snprintf(count_text, sizeof count_text, "%" PRIu64, count);
  if (root != NO_ROOT) snprintf(root_text, sizeof root_text, "%d", root);
  fprintf(log_file, "%d %" PRIu64 " %s %s %s %s %s %s\n", thread, ordinal++, function, comm, count_text, type == NULL ? "-" : type,
          root_text, op == NULL ? "-" : op);
}

void* zeroed(size_t bytes) {
  void* memory = calloc(1, bytes > 0 ? bytes : 1);
  if (memory == NULL) {
    fprintf(stderr, "out of memory\n");
    exit(2);
  }
  return memory;
}
