/* A function that costs next to nothing, under a name that the recorder knows. Each variant is a copy of this library:
   a probe belongs to a file. Built with frame pointers, so that the first instruction is a push, which the kernel
   emulates, as in the library itself. */

#include <stddef.h>

__attribute__((noinline)) int ncclAllReduce(const void *send, void *receive, size_t count, int type, int reduction,
                                            void *communicator, void *stream) {
    __asm__ volatile("" : : "r"(send), "r"(receive), "r"(count), "r"(communicator), "r"(stream) : "memory");
    return type - reduction;
}
