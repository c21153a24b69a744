/* Idle threads read the weights of the next product ahead, because memory would rest while the caller does what lies
   between two products. The next product is most likely the one that followed this one last time.

   Weights are read by loads, which the hardware prefetcher follows; prefetch instructions reach a third of that speed.
   So the memory must be there: weights live until forget_weights(), and an entry that threads may be reading is changed
   only when no thread reads. */

#ifndef PROCESSOR_READ_AHEAD_H
#define PROCESSOR_READ_AHEAD_H

#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "job_queue.h"

#define READ_AHEAD_BYTES 1048576 /* per thread: what the private cache of a core holds */
#define MAX_SUCCESSORS 4096

typedef struct {
    const char *weights;
    size_t size, share; /* bytes in total, and of the share of one thread */
} WeightRange;

typedef struct {
    const void *weights;
    WeightRange next;
} Successor;

static Successor successors[MAX_SUCCESSORS];           /* changed under job_lock, by change_successor() */
static const void *last_multiplied;                    /* guarded by job_lock */
static _Atomic(const Successor *) current_successor;   /* of the matrix multiplied now or last; NULL: unknown */
static _Atomic int readers;                            /* threads that may be reading `current_successor` */

static Successor *find_successor(const void *weights) {
    return &successors[(uint64_t)(uintptr_t)weights * 0x9E3779B97F4A7C15u >> 52];
}

static void change_successor(Successor *entry, Successor value) {
    atomic_store(&current_successor, NULL);
    while (atomic_load(&readers)) sched_yield();
    *entry = value;
}

/* Record that `range` followed the previous matrix, and announce what followed it last time. Needs job_lock. */
static inline void expect_next(WeightRange range) {
    Successor *last = find_successor(last_multiplied), *now = find_successor(range.weights);
    WeightRange *next = &last->next;
    int is_same = last->weights == last_multiplied && next->weights == range.weights && next->size == range.size;
    if (last_multiplied && !(is_same && next->share == range.share))
        change_successor(last, (Successor){last_multiplied, range});
    last_multiplied = range.weights;
    atomic_store(&current_successor, now->weights == range.weights ? now : NULL);
}

/* Stop reading these weights from now on. Needs job_lock. */
static inline void forget_weights(const void *weights) {
    const Successor none = {NULL, {NULL, 0, 0}};
    for (Successor *entry = successors; entry < successors + MAX_SUCCESSORS; entry++)
        if (weights && (entry->weights == weights || entry->next.weights == weights)) change_successor(entry, none);
    if (last_multiplied == weights) last_multiplied = NULL;
}

/* In the child of a fork no reading thread exists; an entry that the parent was changing may be incomplete. */
static inline void forget_all_weights(void) {
    atomic_store(&readers, 0);
    atomic_store(&current_successor, NULL);
    last_multiplied = NULL;
    memset(successors, 0, sizeof successors);
}

/* Read the start of this thread's share of the next product, until there is work. */
static inline void read_ahead(int thread) {
    atomic_fetch_add(&readers, 1);
    const Successor *successor = atomic_load(&current_successor);
    if (successor) {
        WeightRange next = successor->next;
        size_t from = next.share * (size_t)thread, end = from + next.share < next.size ? from + next.share : next.size;
        if (end > from + READ_AHEAD_BYTES) end = from + READ_AHEAD_BYTES;
        for (; from + 256 <= end && !has_untaken_pieces() &&
               atomic_load_explicit(&current_successor, memory_order_relaxed) == successor;
             from += 256)
            for (size_t line = 0; line < 256; line += 64) (void)*(const volatile char *)(next.weights + from + line);
    }
    atomic_fetch_sub(&readers, 1);
}

#endif
