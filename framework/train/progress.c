/* SPDX-License-Identifier: Apache-2.0 */
/* train/progress.c - step, loss, speed and time left: redrawn in place on a terminal, else a line every few seconds. */
#include "config.h"

#include "train/train.h"
#include <stdlib.h>
#include <unistd.h>

struct st_progress {
    FILE *file;
    int64_t first, steps, tokens;
    double start, shown;   /* times of the clock */
    double trained, speed; /* seconds in steps; seconds per step, smoothed over about 20 */
    int terminal, drawn;
};

st_progress *st_progress_open(FILE *file, int64_t first, int64_t steps)
{
    st_progress *p = calloc(1, sizeof *p);

    if (!p) return NULL;
    p->file = file;
    p->first = first;
    p->steps = steps;
    p->start = st_clock();
    p->terminal = isatty(fileno(file));
    return p;
}

static int time_text(double seconds, char *out, size_t n)
{
    long s = seconds > 0 ? (long)(seconds + 0.5) : 0;

    if (s >= 3600) return snprintf(out, n, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    return snprintf(out, n, "%ld:%02ld", s / 60, s % 60);
}

int st_progress_text(const st_progress_view *v, char *out, size_t n)
{
    char left[48];

    time_text(v->seconds_left, left, sizeof left);
    return snprintf(out, n, "step %lld/%lld  loss %.4f  lr %.2e  norm %.2f  %.0f tokens/s  %s left", (long long)v->step,
                    (long long)v->steps, v->loss, v->lr, v->grad_norm, v->tokens_per_second, left);
}

void st_progress_step(st_progress *p, int64_t step, const st_step_result *s, double lr, double seconds)
{
    const double every = p->terminal ? 0.1 : 5.0, now = st_clock();
    char text[256];

    p->tokens += s->tokens;
    p->trained += seconds;
    p->speed = p->speed == 0 ? seconds : p->speed + 0.05 * (seconds - p->speed);
    if (now - p->shown < every && step != p->steps && step != p->first + 1) return;
    p->shown = now;
    st_progress_view v = {.step = step, .steps = p->steps, .loss = s->loss, .lr = lr, .grad_norm = s->grad_norm};
    v.tokens_per_second = st_progress_rate(p);
    v.seconds_left = p->speed * (double)(p->steps - step);
    st_progress_text(&v, text, sizeof text);
    if (p->terminal) fprintf(p->file, "\r\033[K%s", text);
    else fprintf(p->file, "%s\n", text);
    p->drawn = p->terminal;
    fflush(p->file);
}

void st_progress_clear(st_progress *p)
{
    if (p->drawn) fputc('\n', p->file);
    p->drawn = 0;
}

int64_t st_progress_tokens(const st_progress *p) { return p->tokens; }

double st_progress_seconds(const st_progress *p) { return st_clock() - p->start; }

double st_progress_rate(const st_progress *p) { return p->trained > 0 ? (double)p->tokens / p->trained : 0; }

void st_progress_close(st_progress *p)
{
    if (!p) return;
    st_progress_clear(p);
    free(p);
}
