/* SPDX-License-Identifier: Apache-2.0 */
/* train/stop.c - signals that ask a run to save and end. They stay blocked and are looked for between pieces of work,
 * so no handler and no global is needed. */
#include "config.h"

#include "train/train.h"
#include <pthread.h>
#include <signal.h>
#include <time.h>

static const struct {
    int number;
    const char *name;
} stop_signals[] = {{SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"}, {SIGHUP, "SIGHUP"}};

/* A blocked signal waits even where it is ignored, and nohup ignores SIGHUP for a run that is to outlive its terminal. */
static void fill(sigset_t *set)
{
    struct sigaction hangup;

    sigemptyset(set);
    for (size_t i = 0; i < ST_COUNT(stop_signals); i++) sigaddset(set, stop_signals[i].number);
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler == SIG_IGN) sigdelset(set, SIGHUP);
}

const char *st_stop_name(const st_stop *stop)
{
    for (size_t i = 0; i < ST_COUNT(stop_signals); i++)
        if (stop_signals[i].number == stop->signal) return stop_signals[i].name;
    return "nothing";
}

void st_stop_block(void)
{
    sigset_t set;

    fill(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

bool st_stop_asked(st_stop *stop)
{
    const struct timespec now = {0, 0};
    sigset_t set;
    int sig;

    if (!stop || stop->signal) return stop != NULL;
    fill(&set);
    sig = sigtimedwait(&set, NULL, &now);
    if (sig <= 0) return false;
    stop->signal = sig;
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    return true;
}
