/* Makes one call from a thread that Python knows nothing of, as autograd's workers are. */
#include <pthread.h>
#include <stddef.h>

typedef int reduce(const void *, void *, size_t, int, int, void *, void *);

struct work {
    reduce *function;
    void *buffer;
    size_t count;
    void *comm;
};

static void *run(void *argument)
{
    struct work *work = argument;
    pthread_setname_np(pthread_self(), "native_worker");
    work->function(work->buffer, work->buffer, work->count, 7, 0, work->comm, NULL);
    return NULL;
}

int call_in_thread(reduce *function, void *buffer, size_t count, void *comm)
{
    struct work work = {function, buffer, count, comm};
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, &work) != 0) {
        return 1;
    }
    return pthread_join(thread, NULL);
}
