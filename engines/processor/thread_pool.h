/* Threads that work on one job at a time, together with the caller. Waiting threads read ahead, spin, then sleep. */

#ifndef PROCESSOR_THREAD_POOL_H
#define PROCESSOR_THREAD_POOL_H

#include <immintrin.h>

#include "job_queue.h"
#include "read_ahead.h"

/* Turns of some 15 ns that a thread spins before it sleeps: as long as the work between two products takes. */
#define SPIN_TURNS 4000

static _Atomic int sleepers;
static pthread_cond_t job_started = PTHREAD_COND_INITIALIZER;
static int helpers; /* threads besides the caller's */

static void *run_helper(void *index) {
    int thread = (int)(intptr_t)index;
    for (;;) {
        read_ahead(thread);
        for (int i = 0; i < SPIN_TURNS && !has_untaken_pieces(); i++) _mm_pause();
        if (!has_untaken_pieces()) {
            pthread_mutex_lock(&sleep_lock);
            atomic_fetch_add(&sleepers, 1);
            while (!has_untaken_pieces()) pthread_cond_wait(&job_started, &sleep_lock);
            atomic_fetch_sub(&sleepers, 1);
            pthread_mutex_unlock(&sleep_lock);
        }
        run_pieces(thread);
    }
    return NULL;
}

/* In the child of a fork only the calling thread exists: start again without helpers. */
static inline void reset_pool_after_fork(void) {
    helpers = 0;
    forget_all_weights();
    atomic_store(&sleepers, 0);
    atomic_store(&caller_sleeps, 0);
    atomic_store(&untaken, 0);
    for (int i = 0; i < MAX_THREADS; i++) atomic_store(&shares[i].untaken, 0);
    pthread_mutex_init(&sleep_lock, NULL);
    pthread_mutex_init(&job_lock, NULL);
    pthread_cond_init(&job_started, NULL);
    pthread_cond_init(&job_finished, NULL);
}

/* Start helpers until there are `wanted`; fewer if the system refuses. */
static void start_helpers(int wanted) {
    pthread_attr_t detached;
    if (helpers >= wanted || pthread_attr_init(&detached)) return;
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    while (helpers < wanted && !pthread_create(&thread, &detached, run_helper, (void *)(intptr_t)(helpers + 1)))
        helpers++;
    pthread_attr_destroy(&detached);
}

/* Largest number of threads that may take part in a job for `threads`: helpers of earlier jobs do, too. */
static inline int count_possible_threads(int threads) {
    int wanted = threads < MAX_THREADS ? threads : MAX_THREADS;
    return wanted > helpers + 1 ? wanted : helpers + 1;
}

/* Run every piece, in parallel if `threads` is more than 1. Needs job_lock. */
static inline void run_job(PieceFunction *run_piece, int pieces, int threads) {
    if (threads == 1 || pieces == 1) {
        for (int i = 0; i < pieces; i++) run_piece(i, 0);
        return;
    }
    threads = threads < MAX_THREADS ? threads : MAX_THREADS;
    start_helpers(threads - 1);
    job = (Job){run_piece, pieces, (pieces + threads - 1) / threads};
    atomic_store(&unfinished, pieces);
    atomic_store(&untaken, pieces);
    atomic_store(&share_count, threads);
    for (int i = 0, rest = pieces; i < threads && rest > 0; i++, rest -= job.pieces_per_share)
        atomic_store(&shares[i].untaken, rest < job.pieces_per_share ? rest : job.pieces_per_share);
    if (atomic_load(&sleepers)) {
        pthread_mutex_lock(&sleep_lock);
        pthread_cond_broadcast(&job_started);
        pthread_mutex_unlock(&sleep_lock);
    }
    run_pieces(0);
    for (int i = 0; i < SPIN_TURNS && atomic_load_explicit(&unfinished, memory_order_acquire); i++) _mm_pause();
    if (!atomic_load(&unfinished)) return;
    pthread_mutex_lock(&sleep_lock); /* sleep: the last thread may be waiting for this core */
    atomic_store(&caller_sleeps, 1);
    while (atomic_load(&unfinished)) pthread_cond_wait(&job_finished, &sleep_lock);
    atomic_store(&caller_sleeps, 0);
    pthread_mutex_unlock(&sleep_lock);
}

#endif
