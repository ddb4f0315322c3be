/* What the jobs share: options, a random source that is equal on all ranks, and the job's own log of its calls. */
#ifndef JOB_H_
#define JOB_H_

#include <stddef.h>
#include <stdint.h>

/* A function that a call site is named after; it must stay a function of its own. */
#define SITE __attribute__((noinline, noclone))
/* A wrapper that must not become a frame between such a function and the library. */
#define WRAPPER static inline __attribute__((always_inline))

struct options {
  const char* name; /* the case */
  int healthy;      /* the same job without its fault */
  int iters;        /* steps */
  int rank;         /* the faulty rank */
  int at;           /* the faulty step */
  int ranks;        /* processes, for jobs that fork them themselves */
  uint64_t seed;    /* of counts, types, operators and roots */
};

/* Reads CASE [--healthy] [--iters N] [--rank R] [--at STEP] [--seed S] [--ranks N]. Ends the program with 2 on anything else. */
struct options parse_options(int argc, char** argv);

/* Ends the program with 2 after naming the cases. */
_Noreturn void unknown_case(const char* name, const char* const* known);

/* A number below `end` for the `draw`-th choice of `step`: the same on every rank. */
uint32_t choose(uint64_t seed, int step, int draw, uint32_t end);

/* Opens rank-N.log in the folder that RANKDIFF_JOB_LOG names, if it does. */
void open_log(int rank);

/* Writes one line before a call: thread (0 is the first that calls), its ordinal, function, communicator, count, type, root or peer,
 * operator. What a call does not have is NO_COUNT, NO_ROOT or NULL, and a dash in the log. */
void log_call(const char* function, const char* comm, uint64_t count, const char* type, int root, const char* op);

#define NO_COUNT UINT64_MAX
#define NO_ROOT INT32_MIN

/* Memory that is zero, or the end of the program. */
void* zeroed(size_t bytes);

#endif
