/* SPDX-License-Identifier: Apache-2.0 */
/* team.c - helpers that share the pieces of a launch with its caller.
 *
 * A step is some hundred launches of 10 to 1000 microseconds, so the hand-over has to be cheap, and it must stay cheap
 * when other processes want the same cores. Two rules follow. A launch ends when its pieces are done, not when every
 * helper has taken part: one that the system does not run delays nothing. And whoever waits spins only for some tens of
 * microseconds, then offers its core to others, then sleeps: a waiter never keeps the one it waits for from running.
 * Which thread takes which piece changes no result, because pieces are cut by size alone. */
#include "team.h"
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

enum { SPINS = 1000, YIELDS = 100, LINE = 64 };

struct cpu_team {
    st_cpu_pool pool; /* first: run() gets its address */
    int32_t helpers;
    pthread_t *thread;
    pthread_mutex_t lock; /* for sleeping and waking only */
    pthread_cond_t work, finished;
    bool stop;
    /* one launch; written only when no piece of the last one is left */
    void (*fn)(void *arg, int64_t i);
    void *arg;
    int64_t n;
    _Atomic int busy;                        /* a launch is running: another one from inside it stays serial */
    _Alignas(LINE) _Atomic int64_t left;     /* pieces that nobody has taken                                 */
    _Alignas(LINE) _Atomic int64_t done;     /* pieces that are finished                                     */
    _Alignas(LINE) _Atomic int32_t sleepers; /* helpers that need waking                                     */
    _Atomic int32_t waiting;                 /* the caller sleeps until done = n                             */
};

static inline void spin_once(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Takes pieces until none is left. A piece taken keeps its launch from ending, so fn, arg and n are of that launch. */
static void take_pieces(cpu_team *t)
{
    int64_t left = atomic_load_explicit(&t->left, memory_order_acquire), mine = 0;
    while (left > 0) {
        if (!atomic_compare_exchange_weak_explicit(&t->left, &left, left - 1, memory_order_acquire,
                                                   memory_order_acquire))
            continue;
        t->fn(t->arg, t->n - left);
        mine++;
        left = atomic_load_explicit(&t->left, memory_order_acquire);
    }
    if (!mine) return;
    int64_t n = t->n; /* may change as soon as `done` says that all is finished */
    if (atomic_fetch_add(&t->done, mine) + mine == n && atomic_load(&t->waiting)) {
        pthread_mutex_lock(&t->lock);
        pthread_cond_signal(&t->finished);
        pthread_mutex_unlock(&t->lock);
    }
}

/* The part of a wait that does not sleep: until *value is at least `least`. */
static bool came_soon(_Atomic int64_t *value, int64_t least)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(value, memory_order_acquire) >= least) return true;
        spin_once();
    }
    for (int i = 0; i < YIELDS; i++) {
        if (atomic_load_explicit(value, memory_order_acquire) >= least) return true;
        sched_yield();
    }
    return false;
}

/* The sleeper announces itself, then looks again; the other side acts, then looks for sleepers. All four accesses are
 * sequentially consistent, so one of the two sees the other. */
static bool wait_for_work(cpu_team *t)
{
    bool stop;
    if (came_soon(&t->left, 1)) return true;
    pthread_mutex_lock(&t->lock);
    atomic_fetch_add(&t->sleepers, 1);
    while (!t->stop && atomic_load(&t->left) < 1) pthread_cond_wait(&t->work, &t->lock);
    atomic_fetch_sub(&t->sleepers, 1);
    stop = t->stop;
    pthread_mutex_unlock(&t->lock);
    return !stop;
}

static void wait_for_end(cpu_team *t)
{
    if (came_soon(&t->done, t->n)) return;
    pthread_mutex_lock(&t->lock);
    atomic_store(&t->waiting, 1);
    while (atomic_load(&t->done) < t->n) pthread_cond_wait(&t->finished, &t->lock);
    atomic_store(&t->waiting, 0);
    pthread_mutex_unlock(&t->lock);
}

static void *help(void *team)
{
    cpu_team *t = team;
    omp_set_num_threads(1); /* an OpenBLAS built with OpenMP asks each calling thread, not openblas_set_num_threads */
    while (wait_for_work(t)) take_pieces(t);
    return NULL;
}

static void run(const st_cpu_pool *pool, int64_t n, void (*fn)(void *arg, int64_t i), void *arg)
{
    cpu_team *t = (cpu_team *)(uintptr_t)pool;
    if (n <= 1 || !t->helpers || atomic_exchange(&t->busy, 1)) {
        for (int64_t i = 0; i < n; i++) fn(arg, i);
        return;
    }
    t->fn = fn;
    t->arg = arg;
    t->n = n;
    atomic_store_explicit(&t->done, 0, memory_order_relaxed);
    atomic_store(&t->left, n);
    int32_t sleepers = atomic_load(&t->sleepers);
    if (sleepers) {
        pthread_mutex_lock(&t->lock);
        for (int64_t i = 0; i < sleepers && i < n - 1; i++) pthread_cond_signal(&t->work);
        pthread_mutex_unlock(&t->lock);
    }
    take_pieces(t);
    wait_for_end(t);
    atomic_store(&t->busy, 0);
}

st_cpu_pool *cpu_team_pool(cpu_team *t) { return &t->pool; }

cpu_team *cpu_team_create(int32_t threads)
{
    cpu_team *t = aligned_alloc(LINE, (sizeof *t + LINE - 1) / LINE * LINE);
    sigset_t all, before;
    if (!t) return NULL;
    *t = (cpu_team){.pool = {.threads = threads, .run = run}};
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->work, NULL);
    pthread_cond_init(&t->finished, NULL);
    t->thread = calloc((size_t)threads, sizeof *t->thread);
    sigfillset(&all); /* signals are the host's: helpers take none */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (t->thread && t->helpers < threads - 1 && !pthread_create(&t->thread[t->helpers], NULL, help, t))
        t->helpers++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (t->thread && t->helpers == threads - 1) return t;
    cpu_team_destroy(t);
    return NULL;
}

void cpu_team_destroy(cpu_team *t)
{
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_cond_broadcast(&t->work);
    pthread_mutex_unlock(&t->lock);
    for (int32_t i = 0; i < t->helpers; i++) pthread_join(t->thread[i], NULL);
    pthread_cond_destroy(&t->finished);
    pthread_cond_destroy(&t->work);
    pthread_mutex_destroy(&t->lock);
    free(t->thread);
    free(t);
}
