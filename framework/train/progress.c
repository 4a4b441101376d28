/* SPDX-License-Identifier: Apache-2.0 */
/* train/progress.c - step, loss, speed and time left: redrawn in place on a terminal, else a line every few seconds. */
#include "config.h"
#include "train/train.h"
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct st_progress_line {
    FILE *file;
    int64_t first, steps, tokens, step;
    double start, shown, speed; /* speed: seconds per step, smoothed over about 20 steps */
    double last;
    int terminal, drawn;
};

double st_clock(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

st_progress_line *st_progress_open(FILE *file, int64_t first, int64_t steps)
{
    st_progress_line *p = calloc(1, sizeof *p);

    if (!p) return NULL;
    p->file = file;
    p->first = p->step = first;
    p->steps = steps;
    p->start = p->last = st_clock();
    p->terminal = isatty(fileno(file));
    return p;
}

static void write_time(FILE *f, double seconds)
{
    long s = (long)(seconds + 0.5);

    if (s >= 3600) fprintf(f, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else fprintf(f, "%ld:%02ld", s / 60, s % 60);
}

void st_progress_step(st_progress_line *p, int64_t step, double loss, double lr, double grad_norm, int64_t tokens)
{
    double now = st_clock(), took = now - p->last;
    double every = p->terminal ? 0.1 : 5.0;

    p->tokens += tokens;
    p->step = step;
    p->last = now;
    p->speed = p->speed == 0 ? took : p->speed + 0.05 * (took - p->speed);
    if (now - p->shown < every && step != p->steps && step != p->first + 1) return;
    p->shown = now;
    if (p->terminal) fputs("\r\033[K", p->file);
    fprintf(p->file, "step %lld/%lld  loss %.4f  lr %.2e  norm %.2f  %.0f tokens/s  ", (long long)step, (long long)p->steps,
            loss, lr, grad_norm, st_progress_rate(p));
    write_time(p->file, p->speed * (double)(p->steps - step));
    fputs(" left", p->file);
    if (!p->terminal) fputc('\n', p->file);
    p->drawn = p->terminal;
    fflush(p->file);
}

void st_progress_clear(st_progress_line *p)
{
    if (p->drawn) fputc('\n', p->file);
    p->drawn = 0;
}

double st_progress_seconds(const st_progress_line *p) { return st_clock() - p->start; }

double st_progress_rate(const st_progress_line *p)
{
    double t = p->last - p->start;

    return t > 0 ? (double)p->tokens / t : 0;
}

void st_progress_close(st_progress_line *p)
{
    if (!p) return;
    st_progress_clear(p);
    free(p);
}
