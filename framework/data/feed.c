/* SPDX-License-Identifier: Apache-2.0 */
/* data/feed.c - see feed.h. One background thread at most; between st_feed_ahead and the next call it alone touches
 * the queue and the store, and every entry point waits for it first. */
#include "data/feed.h"
#include "config.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

typedef struct slot {
    int64_t record;
    st_kept_sample *sample;
    int32_t kept;
} slot; /* kept 1: owned by the store */

struct st_feed {
    const st_preparer *preparer;
    st_feed_settings set;
    uint64_t epoch;
    int64_t next;            /* the place: what peek gives                                    */
    uint64_t order_epoch[2]; /* epoch + 1 of the permutations held; 0: none                   */
    int64_t *order[2];
    st_kept_sample **store; /* [count]; NULL: not kept                                       */
    int64_t stored;         /* bytes                                                         */
    slot *queue;
    int32_t n, room; /* samples at the place and behind it                            */
    pthread_t thread;
    int32_t has_thread;
    pthread_mutex_t lock;
    pthread_cond_t wake, idle;
    int32_t asked, stop; /* asked > 0: the thread is at work on so many                   */
};

/* ---- order ---- */

static int64_t *order_of(st_feed *f, uint64_t epoch)
{
    int k = (int)(epoch & 1);
    if (f->order_epoch[k] == epoch + 1) return f->order[k];
    if (!f->order[k]) f->order[k] = malloc(sizeof **f->order * (size_t)f->set.count);
    if (!f->order[k]) return NULL;
    st_permutation(f->set.seed, epoch, f->set.count, f->order[k]);
    f->order_epoch[k] = epoch + 1;
    return f->order[k];
}

/* The record `ahead` places on; -1: behind the end, -2: no memory */
static int64_t record_at(st_feed *f, int32_t ahead)
{
    int64_t at = f->next + ahead;
    if (!f->set.shuffle) return at < f->set.count ? at : -1;
    const int64_t *order = order_of(f, f->epoch + (uint64_t)(at / f->set.count));
    return order ? order[at % f->set.count] : -2;
}

/* ---- preparing ---- */

typedef struct batch {
    st_feed *feed;
    int32_t *job;
} batch; /* slots of the queue that have no sample yet */

static void prepare_one(void *arg, int64_t i)
{
    batch *b = arg;
    slot *s = &b->feed->queue[b->job[i]];
    s->sample = st_prepare_kept(b->feed->preparer, s->record);
}

static bool keepable(const st_kept_sample *s) { return s->code == ST_OK || s->code == ST_E_DATA; }

/* Kept as long as there is room; what is kept stays, since every epoch asks for every record once. */
static void keep(st_feed *f, slot *s)
{
    if (!s->sample || s->kept || f->store[s->record] || !keepable(s->sample)) return;
    if (f->stored + (int64_t)s->sample->bytes > f->set.cache) return;
    f->stored += (int64_t)s->sample->bytes;
    f->store[s->record] = s->sample;
    s->kept = 1;
}

static bool queue_room(st_feed *f, int32_t n)
{
    if (n <= f->room) return true;
    int32_t room = n < 64 ? 64 : 2 * n;
    slot *more = realloc(f->queue, sizeof *more * (size_t)room);
    if (!more) return false;
    f->queue = more;
    f->room = room;
    return true;
}

static void fill(st_feed *f, int32_t n) /* the queue holds n samples, or all there are */
{
    int32_t jobs = 0, *job = malloc(sizeof *job * (size_t)(n > 0 ? n : 1));
    batch b = {f, job};
    if (!job || !queue_room(f, n)) {
        free(job);
        return;
    }
    for (; f->n < n; f->n++) {
        int64_t record = record_at(f, f->n);
        if (record < 0) break;
        f->queue[f->n] = (slot){record, f->store[record], f->store[record] != NULL};
        if (!f->store[record]) job[jobs++] = f->n;
    }
    st_threads_run(f->set.threads, jobs, prepare_one, &b);
    for (int32_t i = 0; i < jobs; i++) keep(f, &f->queue[job[i]]);
    free(job);
}

/* ---- the background thread ---- */

static void *background(void *self)
{
    st_feed *f = self;
    pthread_mutex_lock(&f->lock);
    for (;;) {
        while (f->asked == 0 && !f->stop) pthread_cond_wait(&f->wake, &f->lock);
        if (f->asked == 0) break;
        int32_t n = f->asked;
        pthread_mutex_unlock(&f->lock);
        fill(f, n);
        pthread_mutex_lock(&f->lock);
        f->asked = 0;
        pthread_cond_signal(&f->idle);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

static void settle(st_feed *f)
{
    if (!f->has_thread) return;
    pthread_mutex_lock(&f->lock);
    while (f->asked > 0) pthread_cond_wait(&f->idle, &f->lock);
    pthread_mutex_unlock(&f->lock);
}

static void start_thread(st_feed *f)
{
    sigset_t all, old;
    sigfillset(&all); /* signals belong to the main thread */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    f->has_thread = pthread_create(&f->thread, NULL, background, f) == 0; /* without one nothing is done ahead */
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void st_feed_ahead(st_feed *f, int32_t n)
{
    settle(f);
    if (!f->set.background || n <= f->n) return;
    if (!f->has_thread) start_thread(f);
    if (!f->has_thread) return;
    pthread_mutex_lock(&f->lock);
    f->asked = n;
    pthread_cond_signal(&f->wake);
    pthread_mutex_unlock(&f->lock);
}

/* ---- use ---- */

static void drop_slot(slot *s)
{
    if (!s->kept) free(s->sample);
}

static void drop_queue(st_feed *f)
{
    for (int32_t i = 0; i < f->n; i++) drop_slot(&f->queue[i]);
    f->n = 0;
}

int st_feed_open(const st_preparer *p, const st_feed_settings *set, st_feed **out, st_error *e)
{
    st_feed *f = calloc(1, sizeof *f);
    *out = NULL;
    if (!f) return st_fail(e, ST_E_NOMEM, "no memory for the order of records");
    f->preparer = p;
    f->set = *set;
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->wake, NULL);
    pthread_cond_init(&f->idle, NULL);
    f->store = calloc((size_t)set->count, sizeof *f->store);
    if (!f->store) {
        st_feed_close(f);
        return st_fail(e, ST_E_NOMEM, "no memory for a list of %lld records", (long long)set->count);
    }
    *out = f;
    return ST_OK;
}

void st_feed_close(st_feed *f)
{
    if (!f) return;
    settle(f);
    if (f->has_thread) {
        pthread_mutex_lock(&f->lock);
        f->stop = 1;
        pthread_cond_signal(&f->wake);
        pthread_mutex_unlock(&f->lock);
        pthread_join(f->thread, NULL);
    }
    drop_queue(f);
    for (int64_t i = 0; f->store && i < f->set.count; i++) free(f->store[i]);
    pthread_cond_destroy(&f->idle);
    pthread_cond_destroy(&f->wake);
    pthread_mutex_destroy(&f->lock);
    free(f->order[0]);
    free(f->order[1]);
    free(f->store);
    free(f->queue);
    free(f);
}

void st_feed_place(const st_feed *f, uint64_t *epoch, int64_t *next)
{
    *epoch = f->epoch;
    *next = f->next;
}

void st_feed_go(st_feed *f, uint64_t epoch, int64_t next)
{
    settle(f);
    if (epoch == f->epoch && next == f->next) return;
    drop_queue(f);
    f->epoch = epoch;
    f->next = next;
}

const st_kept_sample *st_feed_peek(st_feed *f, int32_t hint, int64_t *record, int *end)
{
    settle(f);
    *end = 0;
    if (f->n == 0) fill(f, hint > 0 ? hint : 1);
    if (f->n == 0) {
        *end = record_at(f, 0) == -1;
        return NULL;
    }
    *record = f->queue[0].record;
    return f->queue[0].sample;
}

void st_feed_pop(st_feed *f)
{
    settle(f);
    if (f->n == 0) return;
    drop_slot(&f->queue[0]);
    memmove(f->queue, f->queue + 1, sizeof *f->queue * (size_t)--f->n);
    if (++f->next == f->set.count && f->set.shuffle) {
        f->epoch++;
        f->next = 0;
    }
}

const st_kept_sample *st_feed_record(st_feed *f, int64_t record, st_kept_sample **owned)
{
    settle(f);
    slot s = {record, f->store[record], f->store[record] != NULL};
    if (!s.sample) s.sample = st_prepare_kept(f->preparer, record);
    keep(f, &s);
    *owned = s.kept ? NULL : s.sample;
    return s.sample;
}
