/* Threads that work on one job at a time: each takes the next piece when it is done with one.

   A job is cut into more pieces than there are threads, and nothing is dealt out beforehand: where somebody else
   takes a core, the other threads take the pieces that its thread would have taken. The caller works as well; a
   thread that never wakes up in time costs nothing, because a job is done when its pieces are.

   Whoever takes a piece pins the job, since run() returns only when every piece is done: so it is read after a
   piece was taken, and never before. */

#include <pthread.h>
#include <stdatomic.h>

#define SPIN 4000 /* turns, of some 15 ns, in which a thread waits awake: as long as what lies between two products */
#define MOST_THREADS 256

typedef struct {
    void (*piece)(int number); /* does one piece of what `current` of its file describes */
    int pieces;
} Work;

static Work work;
static _Atomic int untaken, undone; /* pieces */
static _Atomic int sleepers, caller_sleeps;
static pthread_mutex_t sleep_lock = PTHREAD_MUTEX_INITIALIZER, job_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t begun = PTHREAD_COND_INITIALIZER, ended = PTHREAD_COND_INITIALIZER;
static int helpers; /* threads beside the caller's */

static int is_open(void) { return atomic_load_explicit(&untaken, memory_order_acquire) > 0; }

static void take_pieces(void) {
    int left;
    while (is_open() && (left = atomic_fetch_sub(&untaken, 1)) > 0) {
        work.piece(work.pieces - left);
        if (atomic_fetch_sub(&undone, 1) == 1 && atomic_load(&caller_sleeps)) {
            pthread_mutex_lock(&sleep_lock);
            pthread_cond_signal(&ended);
            pthread_mutex_unlock(&sleep_lock);
        }
    }
}

static void *help(void *unused) {
    (void)unused;
    for (;;) {
        for (int i = 0; i < SPIN && !is_open(); i++) _mm_pause();
        if (!is_open()) {
            pthread_mutex_lock(&sleep_lock);
            atomic_fetch_add(&sleepers, 1);
            while (!is_open()) pthread_cond_wait(&begun, &sleep_lock);
            atomic_fetch_sub(&sleepers, 1);
            pthread_mutex_unlock(&sleep_lock);
        }
        take_pieces();
    }
    return NULL;
}

/* In the child of a fork no thread is left but the caller's: it begins anew. */
static void forget_helpers(void) {
    helpers = 0;
    atomic_store(&sleepers, 0);
    atomic_store(&untaken, 0);
    pthread_mutex_init(&sleep_lock, NULL);
    pthread_mutex_init(&job_lock, NULL);
    pthread_cond_init(&begun, NULL);
}

/* Have so many helpers at least; fewer where the system gives no more. */
static void gather_helpers(int wanted) {
    pthread_attr_t apart;
    if (helpers >= wanted || pthread_attr_init(&apart)) return;
    pthread_attr_setdetachstate(&apart, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    while (helpers < wanted && !pthread_create(&thread, &apart, help, NULL)) helpers++;
    pthread_attr_destroy(&apart);
}

/* Do every piece, with the help of other threads where `threads` is more than one. Needs job_lock. */
static void run(void (*piece)(int), int pieces, int threads) {
    if (threads == 1 || pieces == 1) {
        for (int i = 0; i < pieces; i++) piece(i);
        return;
    }
    gather_helpers((threads < MOST_THREADS ? threads : MOST_THREADS) - 1);
    work = (Work){piece, pieces};
    atomic_store(&undone, pieces);
    atomic_store(&untaken, pieces);
    if (atomic_load(&sleepers)) {
        pthread_mutex_lock(&sleep_lock);
        pthread_cond_broadcast(&begun);
        pthread_mutex_unlock(&sleep_lock);
    }
    take_pieces();
    for (int i = 0; i < SPIN && atomic_load_explicit(&undone, memory_order_acquire); i++) _mm_pause();
    if (!atomic_load(&undone)) return;
    pthread_mutex_lock(&sleep_lock); /* the core that is left may be what the last thread waits for */
    atomic_store(&caller_sleeps, 1);
    while (atomic_load(&undone)) pthread_cond_wait(&ended, &sleep_lock);
    atomic_store(&caller_sleeps, 0);
    pthread_mutex_unlock(&sleep_lock);
}
