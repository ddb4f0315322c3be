/* Calls ncclAllReduce as often as it is told to.

   caller CPU            pinned to a processor: reads a number from each line of its input, makes that many calls, prints
                         the CPU time of the thread for them in ns, until the input ends
   caller - RANKS CALLS  RANKS processes make CALLS calls each as fast as they can */

#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int ncclAllReduce(const void *, void *, size_t, int, int, void *, void *);

static char buffer[64], communicator[64];

static void calls(unsigned long count) {
    for (unsigned long i = 0; i < count; i++)
        ncclAllReduce(buffer, buffer, 1 + i % 7, 7, 0, communicator, 0);
}

static uint64_t thread_time(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Also called from Python, which finds it by its name. */
int measure(int processor) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    if (sched_setaffinity(0, sizeof set, &set)) {
        perror("sched_setaffinity");
        return 2;
    }
    /* Without the privilege the numbers are noisier, not wrong. */
    sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 1});
    unsigned long count;
    while (scanf("%lu", &count) == 1) {
        calls(count / 10);
        uint64_t start = thread_time();
        calls(count);
        printf("%llu\n", (unsigned long long)(thread_time() - start));
        fflush(stdout);
    }
    return 0;
}

static int flood(int ranks, unsigned long count) {
    for (int rank = 0; rank < ranks; rank++) {
        pid_t child = fork();
        if (child < 0) {
            perror("fork");
            return 2;
        }
        if (child == 0) {
            calls(count);
            _exit(0);
        }
    }
    int status, failed = 0;
    while (wait(&status) > 0)
        failed |= status != 0;
    return failed;
}

int main(int argc, char **argv) {
    if (argc == 2)
        return measure(atoi(argv[1]));
    if (argc == 4)
        return flood(atoi(argv[2]), strtoul(argv[3], NULL, 10));
    fprintf(stderr, "usage: caller CPU | caller - RANKS CALLS\n");
    return 2;
}
