/* What is multiplied next is most likely what was the last time: threads without work read it ahead, because memory
   would rest while the caller does what lies between two products.

   It is read by loads, for which a processor itself fetches what follows; hints to fetch are followed at a third of
   that speed. So what is read must be there: weights live until forget_weights(), and an entry that threads may be
   reading is changed only when none of them is. */

#include <sched.h>
#include <string.h>

#define AHEAD_OF_JOB 1048576 /* bytes that a thread reads: what a core's own cache holds */
#define REMEMBERED 4096

typedef struct {
    const char *weights;
    size_t size, share; /* bytes in all, and of what one thread begins with */
} Matrix;

typedef struct {
    const void *before;
    Matrix next;
} Sequel;

static Sequel remembered[REMEMBERED]; /* changed under job_lock, by change_sequel() */
static const void *multiplied_last;   /* guarded by job_lock */
static _Atomic(const Sequel *) sequel; /* of what is multiplied now, or was last; NULL: unknown */
static _Atomic int readers;            /* threads that may be reading it */

static Sequel *place_of(const void *weights) {
    return &remembered[(uint64_t)(uintptr_t)weights * 0x9E3779B97F4A7C15u >> 52];
}

static void change_sequel(Sequel *place, Sequel to) {
    atomic_store(&sequel, NULL);
    while (atomic_load(&readers)) sched_yield();
    *place = to;
}

/* Remember what followed the matrix before, and say what followed this one the last time. Needs job_lock. */
static void expect_next(Matrix here) {
    Sequel *last = place_of(multiplied_last), *now = place_of(here.weights);
    Matrix *next = &last->next;
    int known = last->before == multiplied_last && next->weights == here.weights && next->size == here.size;
    if (multiplied_last && !(known && next->share == here.share)) change_sequel(last, (Sequel){multiplied_last, here});
    multiplied_last = here.weights;
    atomic_store(&sequel, now->before == here.weights ? now : NULL);
}

/* Read no more of these weights from now on. Needs job_lock. */
static void forget_weights(const void *weights) {
    const Sequel none = {NULL, {NULL, 0, 0}};
    for (Sequel *at = remembered; at < remembered + REMEMBERED; at++)
        if (weights && (at->before == weights || at->next.weights == weights)) change_sequel(at, none);
    if (multiplied_last == weights) multiplied_last = NULL;
}

/* In the child of a fork no thread is left that reads; what one of the parent's was changing may be in pieces. */
static void forget_all(void) {
    atomic_store(&readers, 0);
    atomic_store(&sequel, NULL);
    multiplied_last = NULL;
    memset(remembered, 0, sizeof remembered);
}

/* Read what one thread begins with in the next product, until there is work. */
static void read_ahead(int thread) {
    atomic_fetch_add(&readers, 1);
    const Sequel *here = atomic_load(&sequel);
    if (here) {
        Matrix next = here->next;
        size_t from = next.share * (size_t)thread, end = from + next.share < next.size ? from + next.share : next.size;
        if (end > from + AHEAD_OF_JOB) end = from + AHEAD_OF_JOB;
        for (; from + 256 <= end && !is_open() && atomic_load_explicit(&sequel, memory_order_relaxed) == here; from += 256)
            for (int line = 0; line < 256; line += 64) (void)*(const volatile char *)(next.weights + from + (size_t)line);
    }
    atomic_fetch_sub(&readers, 1);
}
