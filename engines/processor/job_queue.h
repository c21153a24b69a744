/* Pieces of one job, shared by threads: each takes the next piece when it has finished one.

   A job has more pieces than there are threads. Each thread starts with its own share of consecutive pieces, because
   memory is read fastest in order, and then takes what is left of the other shares. If another program occupies a
   core, the other threads do the work of the thread that is stuck there. A thread that does not wake up in time costs
   nothing: the job ends when its pieces are done.

   Taking a piece pins the job, because run_job() returns only when every piece is done. So `job` is read after a piece
   was taken and never before. What is read earlier (share_count) may belong to another job: the extra shares of that
   one are empty. */

#ifndef PROCESSOR_JOB_QUEUE_H
#define PROCESSOR_JOB_QUEUE_H

#include <pthread.h>
#include <stdatomic.h>

#define MAX_THREADS 256

typedef void PieceFunction(int piece, int thread);

typedef struct {
    PieceFunction *run_piece;  /* does one piece of the current task of its file */
    int pieces, pieces_per_share; /* the last share may have fewer */
} Job;

typedef struct {
    _Alignas(64) _Atomic int untaken; /* pieces; 0 or less: none */
} Share;

static Job job;
static Share shares[MAX_THREADS];
static _Atomic int share_count, untaken, unfinished; /* the latter two: pieces of all shares */
static _Atomic int caller_sleeps;
static pthread_mutex_t sleep_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t job_lock = PTHREAD_MUTEX_INITIALIZER; /* held by the caller for a whole job */
static pthread_cond_t job_finished = PTHREAD_COND_INITIALIZER;

static inline int has_untaken_pieces(void) { return atomic_load_explicit(&untaken, memory_order_acquire) > 0; }

/* Take the next piece of a share: its index, or -1 if none is left. */
static int take_piece(int share) {
    _Atomic int *left = &shares[share].untaken;
    if (atomic_load_explicit(left, memory_order_acquire) <= 0) return -1;
    int before = atomic_fetch_sub(left, 1);
    if (before <= 0) return -1;
    atomic_fetch_sub(&untaken, 1);
    int first = share * job.pieces_per_share, rest = job.pieces - first;
    return first + (rest < job.pieces_per_share ? rest : job.pieces_per_share) - before;
}

/* Run the pieces of the thread's own share, then what is left of the others. */
static inline void run_pieces(int thread) {
    for (int count = atomic_load(&share_count), i = 0, piece; i < count;) {
        if ((piece = take_piece((thread + i) % count)) < 0) {
            i++;
            continue;
        }
        job.run_piece(piece, thread);
        if (atomic_fetch_sub(&unfinished, 1) == 1 && atomic_load(&caller_sleeps)) {
            pthread_mutex_lock(&sleep_lock);
            pthread_cond_signal(&job_finished);
            pthread_mutex_unlock(&sleep_lock);
        }
    }
}

#endif
