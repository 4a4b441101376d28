/* SPDX-License-Identifier: Apache-2.0 */
/* train/stop.c - signals that ask a run to save and end. They stay blocked and are looked for between pieces of work,
 * so no handler and no global is needed. */
#include "config.h"

#include "train/train.h"
#include <pthread.h>
#include <signal.h>
#include <time.h>

static void stop_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
}

void st_stop_block(void)
{
    sigset_t set;

    stop_signals(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

bool st_stop_asked(st_stop *stop)
{
    const struct timespec now = {0, 0};
    sigset_t set;
    int sig;

    if (!stop || stop->signal) return stop != NULL;
    stop_signals(&set);
    sig = sigtimedwait(&set, NULL, &now);
    if (sig <= 0) return false;
    stop->signal = sig;
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    return true;
}
