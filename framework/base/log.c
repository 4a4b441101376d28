/* SPDX-License-Identifier: Apache-2.0 */
/* base/log.c - lines for people: to the screen, and with time stamps into a file. One call makes one line. */
#include "base/base.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LEVEL_INFO = 3, LEVELS = 6 };

struct st_log {
    FILE *screen, *file;
    uint32_t level;
    pthread_mutex_t lock;
};

st_log *st_log_create(FILE *screen, int level)
{
    st_log *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    l->screen = screen;
    l->level = level < 0 ? 0 : (uint32_t)level;
    pthread_mutex_init(&l->lock, NULL);
    return l;
}

int st_log_file(st_log *l, const char *path, st_error *e)
{
    FILE *f = fopen(path, "ae");
    if (!f) return st_fail_errno(e, path, "open");
    pthread_mutex_lock(&l->lock);
    FILE *old = l->file;
    l->file = f;
    pthread_mutex_unlock(&l->lock);
    if (old) fclose(old);
    return ST_OK;
}

void st_log_destroy(st_log *l)
{
    if (!l) return;
    if (l->file) fclose(l->file);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static const char *level_name(uint32_t level)
{
    static const char *const name[LEVELS] = {"error", "error", "warning", "info", "debug", "trace"};
    return name[level < LEVELS ? level : LEVELS - 1];
}

static void to_screen(FILE *f, uint32_t level, const char *who, const char *text)
{
    if (who && who[0]) fprintf(f, "%s: ", who);
    if (level != LEVEL_INFO) fprintf(f, "%s: ", level_name(level));
    fprintf(f, "%s\n", text);
    fflush(f);
}

static void to_file(FILE *f, uint32_t level, const char *who, const char *text)
{
    struct timespec now;
    struct tm t;
    char stamp[40];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &t);
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &t);
    fprintf(f, "%s.%03ldZ %-7s ", stamp, now.tv_nsec / 1000000, level_name(level));
    if (who && who[0]) fprintf(f, "%s: ", who);
    fprintf(f, "%s\n", text);
    fflush(f);
}

static void put_line(st_log *l, bool screen, bool file, uint32_t level, const char *who, const char *fmt, va_list ap)
{
    char small[1024], *text = small;
    va_list again;
    if (!screen && !file) return;
    va_copy(again, ap);
    int n = vsnprintf(small, sizeof small, fmt, ap);
    if (n >= (int)sizeof small) {
        char *large = malloc((size_t)n + 1);
        if (large) { /* without memory the line is shown cut */
            vsnprintf(large, (size_t)n + 1, fmt, again);
            text = large;
        }
    }
    va_end(again);
    for (size_t end = strlen(text); end > 0 && text[end - 1] == '\n'; end--) text[end - 1] = 0;
    st_make_printable(text);
    pthread_mutex_lock(&l->lock);
    if (screen) to_screen(l->screen, level, who, text);
    if (file && l->file) to_file(l->file, level, who, text);
    pthread_mutex_unlock(&l->lock);
    if (text != small) free(text);
}

void st_log_vwrite(st_log *l, uint32_t level, const char *who, const char *fmt, va_list ap)
{
    if (!l) return;
    put_line(l, l->screen && level <= l->level, level <= (l->level > LEVEL_INFO ? l->level : LEVEL_INFO), level, who,
             fmt, ap);
}

void st_log_record(st_log *l, uint32_t level, const char *who, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (l) put_line(l, false, true, level, who, fmt, ap);
    va_end(ap);
}

void st_log_write(st_log *l, uint32_t level, const char *who, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    st_log_vwrite(l, level, who, fmt, ap);
    va_end(ap);
}
