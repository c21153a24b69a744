/* Threads that work on one job at a time: each takes the next piece when it is done with one.

   A job is cut into more pieces than there are threads. Each thread begins with a share of its own, of pieces that
   lie one behind the other, as memory is read fastest; then it takes what is left of the others. So where somebody
   else takes a core, the other threads do what its thread would have done. The caller works as well; a thread that
   never wakes up in time costs nothing, because a job is done when its pieces are.

   Whoever takes a piece pins the job, since run() returns only when every piece is done: so it is read after a
   piece was taken, and never before. What is read earlier (share_count) may be of another job: that job's further
   shares are empty. */

#include <pthread.h>
#include <stdatomic.h>

#define SPIN 4000 /* turns, of some 15 ns, in which a thread waits awake: as long as what lies between two products */
#define MOST_THREADS 256

typedef struct {
    void (*piece)(int number, int thread); /* does one piece of what `current` of its file describes */
    int pieces, each; /* in all, and of a share: the last one may have fewer */
} Work;

typedef struct {
    _Alignas(64) _Atomic int untaken; /* pieces; 0 or less when there is none */
} Share;

static Work work;
static Share shares[MOST_THREADS];
static _Atomic int share_count, untaken, undone; /* pieces of all shares */
static _Atomic int sleepers, caller_sleeps;
static pthread_mutex_t sleep_lock = PTHREAD_MUTEX_INITIALIZER, job_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t begun = PTHREAD_COND_INITIALIZER, ended = PTHREAD_COND_INITIALIZER;
static int helpers; /* threads beside the caller's */

static int is_open(void) { return atomic_load_explicit(&untaken, memory_order_acquire) > 0; }

/* Return the number of the next piece of a share, -1 where none is left. */
static int take_piece(int share) {
    _Atomic int *left = &shares[share].untaken;
    if (atomic_load_explicit(left, memory_order_acquire) <= 0) return -1;
    int before = atomic_fetch_sub(left, 1);
    if (before <= 0) return -1;
    atomic_fetch_sub(&untaken, 1);
    int first = share * work.each, rest = work.pieces - first;
    return first + (rest < work.each ? rest : work.each) - before;
}

/* Do the pieces of the thread's own share, then what is left of the others. */
static void take_pieces(int thread) {
    for (int count = atomic_load(&share_count), i = 0, number; i < count;) {
        if ((number = take_piece((thread + i) % count)) < 0) {
            i++;
            continue;
        }
        work.piece(number, thread);
        if (atomic_fetch_sub(&undone, 1) == 1 && atomic_load(&caller_sleeps)) {
            pthread_mutex_lock(&sleep_lock);
            pthread_cond_signal(&ended);
            pthread_mutex_unlock(&sleep_lock);
        }
    }
}

#include "_next.h"

static void *help(void *number) {
    int thread = (int)(intptr_t)number;
    for (;;) {
        read_ahead(thread);
        for (int i = 0; i < SPIN && !is_open(); i++) _mm_pause();
        if (!is_open()) {
            pthread_mutex_lock(&sleep_lock);
            atomic_fetch_add(&sleepers, 1);
            while (!is_open()) pthread_cond_wait(&begun, &sleep_lock);
            atomic_fetch_sub(&sleepers, 1);
            pthread_mutex_unlock(&sleep_lock);
        }
        take_pieces(thread);
    }
    return NULL;
}

/* In the child of a fork no thread is left but the caller's: it begins anew. */
static void forget_helpers(void) {
    helpers = 0;
    forget_all();
    atomic_store(&sleepers, 0);
    atomic_store(&caller_sleeps, 0);
    atomic_store(&untaken, 0);
    for (int i = 0; i < MOST_THREADS; i++) atomic_store(&shares[i].untaken, 0);
    pthread_mutex_init(&sleep_lock, NULL);
    pthread_mutex_init(&job_lock, NULL);
    pthread_cond_init(&begun, NULL);
    pthread_cond_init(&ended, NULL);
}

/* Have so many helpers at least; fewer where the system gives no more. */
static void gather_helpers(int wanted) {
    pthread_attr_t apart;
    if (helpers >= wanted || pthread_attr_init(&apart)) return;
    pthread_attr_setdetachstate(&apart, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    while (helpers < wanted && !pthread_create(&thread, &apart, help, (void *)(intptr_t)(helpers + 1))) helpers++;
    pthread_attr_destroy(&apart);
}

/* Return how many threads may take part in a job for so many: those of an earlier one do, too. */
static int most_threads(int threads) {
    int wanted = threads < MOST_THREADS ? threads : MOST_THREADS;
    return wanted > helpers + 1 ? wanted : helpers + 1;
}

/* Do every piece, with the help of other threads where `threads` is more than one. Needs job_lock. */
static void run(void (*piece)(int, int), int pieces, int threads) {
    if (threads == 1 || pieces == 1) {
        for (int i = 0; i < pieces; i++) piece(i, 0);
        return;
    }
    threads = threads < MOST_THREADS ? threads : MOST_THREADS;
    gather_helpers(threads - 1);
    work = (Work){piece, pieces, (pieces + threads - 1) / threads};
    atomic_store(&undone, pieces);
    atomic_store(&untaken, pieces);
    atomic_store(&share_count, threads);
    for (int i = 0, rest = pieces; i < threads && rest > 0; i++, rest -= work.each)
        atomic_store(&shares[i].untaken, rest < work.each ? rest : work.each);
    if (atomic_load(&sleepers)) {
        pthread_mutex_lock(&sleep_lock);
        pthread_cond_broadcast(&begun);
        pthread_mutex_unlock(&sleep_lock);
    }
    take_pieces(0);
    for (int i = 0; i < SPIN && atomic_load_explicit(&undone, memory_order_acquire); i++) _mm_pause();
    if (!atomic_load(&undone)) return;
    pthread_mutex_lock(&sleep_lock); /* the core that is left may be what the last thread waits for */
    atomic_store(&caller_sleeps, 1);
    while (atomic_load(&undone)) pthread_cond_wait(&ended, &sleep_lock);
    atomic_store(&caller_sleeps, 0);
    pthread_mutex_unlock(&sleep_lock);
}
