/* What an interposer costs at least: two clocks and a record of 128 bytes in memory, no call site. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

struct record {
    uint64_t words[16];
};

enum { SLOTS = 1 << 16 };
static struct record *records;
static uint64_t next;
static int (*inner)(const void *, void *, size_t, int, int, void *, void *);

__attribute__((constructor)) static void prepare(void) {
    records = calloc(SLOTS, sizeof *records);
    *(void **)&inner = dlsym(RTLD_NEXT, "ncclAllReduce");
    if (!records || !inner)
        abort();
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

int ncclAllReduce(const void *send, void *receive, size_t count, int type, int reduction, void *communicator,
                  void *stream) {
    struct record *record = &records[next % SLOTS];
    uint64_t enter = now();
    int result = inner(send, receive, count, type, reduction, communicator, stream);
    *record = (struct record){{next, enter, now(), (uint64_t)send, (uint64_t)receive, count, (uint64_t)type,
                               (uint64_t)reduction, (uint64_t)communicator, (uint64_t)stream, (uint64_t)result,
                               (uint64_t)__builtin_return_address(0)}};
    next++;
    return result;
}
