/* SPDX-License-Identifier: Apache-2.0 */
/* base/threads.c - a fixed pool. A run hands out indices one by one; the caller works too.
 *
 * The pool does one run at a time. A run asked for while another is going on (from inside a piece of work, or from
 * another thread) is done by its caller alone, so nesting cannot deadlock. Results must not depend on who does what. */
#include "config.h"
#include "base/base.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

struct st_threads {
    int n;                /* callers included: n - 1 threads are created */
    pthread_t *thread;
    pthread_mutex_t busy; /* held during a run */
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t wake, done;
    uint64_t run;         /* counts runs; a worker sleeps until it changes */
    int working;          /* workers that have not finished the present run */
    int stop;
    void (*fn)(void *, int64_t);
    void *arg;
    int64_t count;
    _Atomic int64_t next;
};

static void work(st_threads *t, void (*fn)(void *, int64_t), void *arg, int64_t count)
{
    for (int64_t i; (i = atomic_fetch_add(&t->next, 1)) < count;) fn(arg, i);
}

static void *worker(void *self)
{
    st_threads *t = self;
    uint64_t seen = 0;
    pthread_mutex_lock(&t->lock);
    for (;;) {
        while (t->run == seen && !t->stop) pthread_cond_wait(&t->wake, &t->lock);
        if (t->stop) break;
        seen = t->run;
        void (*fn)(void *, int64_t) = t->fn;
        void *arg = t->arg;
        int64_t count = t->count;
        pthread_mutex_unlock(&t->lock);
        work(t, fn, arg, count);
        pthread_mutex_lock(&t->lock);
        if (--t->working == 0) pthread_cond_signal(&t->done);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

static int cores_of_process(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return n > 0 ? n : 1;
}

st_threads *st_threads_create(int n)
{
    sigset_t all, old;
    st_threads *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    if (n <= 0) n = cores_of_process();
    t->thread = calloc((size_t)n, sizeof *t->thread);
    if (!t->thread) {
        free(t);
        return NULL;
    }
    pthread_mutex_init(&t->busy, NULL);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    pthread_cond_init(&t->done, NULL);
    sigfillset(&all); /* signals belong to the main thread */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (t->n = 1; t->n < n; t->n++)
        if (pthread_create(&t->thread[t->n - 1], NULL, worker, t) != 0) break; /* fewer threads do the same work */
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return t;
}

int st_threads_count(const st_threads *t)
{
    return t ? t->n : 1;
}

void st_threads_run(st_threads *t, int64_t n, void (*fn)(void *, int64_t), void *arg)
{
    if (!t || t->n == 1 || n <= 1 || pthread_mutex_trylock(&t->busy) != 0) {
        for (int64_t i = 0; i < n; i++) fn(arg, i);
        return;
    }
    pthread_mutex_lock(&t->lock);
    t->fn = fn;
    t->arg = arg;
    t->count = n;
    atomic_store(&t->next, 0);
    t->working = t->n - 1;
    t->run++;
    pthread_cond_broadcast(&t->wake);
    pthread_mutex_unlock(&t->lock);
    work(t, fn, arg, n);
    pthread_mutex_lock(&t->lock);
    while (t->working > 0) pthread_cond_wait(&t->done, &t->lock);
    pthread_mutex_unlock(&t->lock);
    pthread_mutex_unlock(&t->busy);
}

void st_threads_destroy(st_threads *t)
{
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    t->stop = 1;
    pthread_cond_broadcast(&t->wake);
    pthread_mutex_unlock(&t->lock);
    for (int i = 0; i + 1 < t->n; i++) pthread_join(t->thread[i], NULL);
    pthread_cond_destroy(&t->done);
    pthread_cond_destroy(&t->wake);
    pthread_mutex_destroy(&t->lock);
    pthread_mutex_destroy(&t->busy);
    free(t->thread);
    free(t);
}
