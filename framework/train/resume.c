/* SPDX-License-Identifier: Apache-2.0 */
/* train/resume.c - where a run writes, and whether it may begin or go on there. */
#include "config.h"

#include "train/run.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the folder ---- */

/* The folder itself, or what would be its nearest parent that is there, can be written to. */
static int check_writable(const char *path, st_arena *arena, st_error *e)
{
    struct stat info;

    while (stat(path, &info) != 0) {
        const char *parent = st_path_dir(arena, path);
        if (!parent) return st_fail(e, ST_E_NOMEM, "no memory for a path");
        if (strcmp(parent, path) == 0) break;
        path = parent;
    }
    if (!S_ISDIR(info.st_mode)) errno = ENOTDIR;
    else if (access(path, W_OK | X_OK) == 0) return ST_OK;
    (void)st_fail_errno(e, path, "write into the folder");
    st_error_hint(e, "choose another folder by --output DIR");
    return e->code;
}

static int check_new(st_run *r, st_error *e)
{
    char *latest, *metrics = st_path_join(r->arena, r->output, "metrics.jsonl");

    if (!metrics) return st_fail(e, ST_E_NOMEM, "no memory for a path");
    ST_TRY(st_checkpoint_latest(r->output, r->arena, &latest, e));
    if (!latest && !st_path_exists(metrics)) return ST_OK;
    st_fail(e, ST_E_CONFIG, "the output folder %s already holds a run", r->output);
    st_error_hint(e, latest
                         ? "go on with it by --resume, or choose another folder by --output DIR"
                         : "it has no checkpoint to go on from: remove it, or choose another folder by --output DIR");
    return ST_E_CONFIG;
}

/* ---- one run at a time ---- */

static int fail_in_use(const st_run *r, pid_t holder, st_error *e)
{
    if (holder > 0) st_fail(e, ST_E_CONFIG, "the output folder %s is in use by process %ld", r->output, (long)holder);
    else
        st_fail(e, ST_E_CONFIG, "the output folder %s is in use by a process of another machine or container",
                r->output);
    st_error_hint(e, "wait for its end or stop it, or choose another folder by --output DIR");
    return ST_E_CONFIG;
}

/* The lock is this process's until it ends, however it ends; the file has nothing in it and stays, because one that
 * was removed and made anew could be locked twice. Where the file system has no locks the run goes on without. */
static int lock_file(st_run *r, const char *path, st_error *e)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET}, held;

    while (fcntl(fileno(r->lock), F_SETLK, &whole) != 0) {
        bool other = errno == EACCES || errno == EAGAIN;
        held = whole;
        if (!other || fcntl(fileno(r->lock), F_GETLK, &held) != 0) {
            st_log_write(r->base->log, 2, "train", "%s cannot be locked (%s): see that no other run writes there", path,
                         strerror(errno));
            return ST_OK;
        }
        if (held.l_type != F_UNLCK) return fail_in_use(r, held.l_pid, e); /* else it ended between the two calls */
    }
    return ST_OK;
}

/* mode "r+e": only a lock file that is there; "ae": makes it. */
static int lock_folder(st_run *r, const char *mode, st_error *e)
{
    char *path = st_path_join(r->arena, r->output, "lock");

    if (!path) return st_fail(e, ST_E_NOMEM, "no memory for a path");
    r->lock = fopen(path, mode);
    if (r->lock) return lock_file(r, path, e);
    return errno == ENOENT ? ST_OK : st_fail_errno(e, path, "open");
}

int st_run_take_folder(st_run *r, st_error *e)
{
    ST_TRY(st_make_dirs(st_path_join(r->arena, r->output, "checkpoints"), e));
    if (r->lock) return ST_OK;
    ST_TRY(lock_folder(r, "ae", e));
    return r->resumed ? ST_OK : check_new(r, e); /* another may have begun, and ended, since the folder was looked at */
}

/* ---- the checkpoint to go on from ---- */

static int find_checkpoint(st_run *r, st_error *e)
{
    char *latest;

    ST_TRY(st_checkpoint_latest(r->output, r->arena, &latest, e));
    r->resumed = latest;
    if (latest) return ST_OK;
    st_fail(e, ST_E_NOTFOUND, "%s holds no checkpoint to resume from", r->output);
    st_error_hint(e, st_path_exists(r->output) ? "remove it and start without --resume"
                                               : "start without --resume, or name the run's folder by --output DIR");
    return ST_E_NOTFOUND;
}

/* ---- the same model as in the checkpoint ---- */

typedef struct comparison {
    const st_run *run;
    st_error *error;
} comparison;

static int refuse_difference(void *ctx, const st_difference *x)
{
    const comparison *c = ctx;
    const st_value *at = x->at && x->at->file ? x->at : NULL;

    if (!x->fixed) return ST_OK;
    st_fail_at(c->error, ST_E_CONFIG, at ? at->file : st_spec_path(c->run->spec), at ? at->line : 0,
               at ? at->column : 0, "[%s] %s is %s, but the checkpoint was made with %s", x->section, x->key,
               x->now ? x->now : "not given", x->before ? x->before : "none");
    return ST_E_CONFIG;
}

static int log_difference(void *ctx, const st_difference *x)
{
    const comparison *c = ctx;

    st_log_write(c->run->base->log, 3, "train", "since the checkpoint: [%s] %s = %s, was %s", x->section, x->key,
                 x->now ? x->now : "(not given)", x->before ? x->before : "(not given)");
    return ST_OK;
}

static int compare_pattern(st_run *r, st_error *e)
{
    const char *now = st_model_pattern(r->model);
    const st_value *at = st_spec_get(r->spec, "stack", "pattern");

    if (!at) at = st_spec_get(r->spec, "stack", "blocks");
    if (strcmp(now, r->at.pattern) == 0) return ST_OK;
    return st_fail_at(e, ST_E_CONFIG, at ? at->file : st_spec_path(r->spec), at ? at->line : 0, at ? at->column : 0,
                      "[stack] pattern is %s, but the checkpoint was made with %s", now, r->at.pattern);
}

/* Other token ids would make the stored weights mean other texts. */
static int compare_tokenizer(st_run *r, st_error *e)
{
    char *path = st_path_join(r->arena, r->resumed, "tokenizer.json"), *text;
    size_t n;

    if (!r->texts.tokenizer || !st_path_exists(path)) return ST_OK;
    ST_TRY(st_file_read(path, r->arena, &text, &n, e));
    if (n == r->texts.n_tokenizer && memcmp(text, r->texts.tokenizer, n) == 0) return ST_OK;
    return st_fail(e, ST_E_CONFIG, "[tokenizer] path: the file is not the one the checkpoint was made with (%s)", path);
}

static int compare_specs(st_run *r, st_error *e)
{
    comparison c = {r, e};
    st_diags d = {0};
    st_spec *then = NULL;
    int rc = st_checkpoint_spec(r->resumed, NULL, 0, &then, &d);

    if (rc != ST_OK) {
        *e = d.item[0].error;
        return rc;
    }
    rc = st_spec_compare(r->spec, then, refuse_difference, &c);
    if (rc == ST_OK) rc = st_spec_compare(r->spec, then, log_difference, &c);
    st_spec_destroy(then);
    return rc;
}

int st_run_damaged(const st_run *r, int rc, st_error *e)
{
    bool unread = rc == ST_E_IO;

    if (rc != ST_E_DATA && rc != ST_E_NOTFOUND && !unread) return rc; /* nothing is wrong with the files */
    e->hint[0] = '\0'; /* of a reader that does not know whose file it is */
    st_error_hint(e, "%sremove %s to go on from an older checkpoint", unread ? "make it readable, or " : "", r->resumed);
    return rc;
}

/* Settings may change between two parts of a run and are told; what decides the model may not. */
static int check_resume(st_run *r, st_error *e)
{
    uint64_t hash = r->at.spec_hash;
    int rc;

    ST_TRY(find_checkpoint(r, e));
    rc = st_checkpoint_read_state(r->resumed, r->arena, &r->at, e);
    if (rc == ST_OK) rc = st_run_mark_timing(r, r->at.timing, e);
    if (rc == ST_OK) rc = compare_pattern(r, e);
    if (rc == ST_OK) rc = compare_specs(r, e);
    if (rc == ST_OK) rc = compare_tokenizer(r, e);
    if (rc == ST_E_CONFIG) {
        st_error_detail(e, "%s", r->resumed);
        st_error_hint(e, "resume with the spec that began the run, or start a new one with [checkpoint] from");
    }
    if (rc != ST_OK) return st_run_damaged(r, rc, e);
    r->saved_step = r->at.step;
    r->at.seed = (uint64_t)r->config.run.seed;
    r->at.spec_hash = hash;
    if (r->at.step <= r->config.run.steps) return ST_OK;
    return st_fail(e, ST_E_CONFIG, "[run] steps = %lld, but %lld steps are already done",
                   (long long)r->config.run.steps, (long long)r->at.step);
}

static int find_output(st_run *r, st_error *e)
{
    r->output = r->options->output ? r->options->output : r->config.run.output;
    if (!r->output) r->output = st_arena_printf(r->arena, "runs/%s", r->config.run.name);
    if (r->output && !r->output[0]) return st_fail(e, ST_E_CONFIG, "--output names no folder");
    return r->output ? ST_OK : st_fail(e, ST_E_NOMEM, "no memory for a path");
}

/* A checkpoint that cannot be read is told of by st_run_place. */
void st_run_keep_precision(st_run *r)
{
    const st_value *now = st_spec_get(r->spec, "run", "precision"), *then = NULL;
    st_diags d = {0};
    st_error e = {0};
    st_spec *stored = NULL;
    char *latest = NULL;

    if (!r->options->resume || (now && strcmp(now->text, "auto")) || find_output(r, &e) != ST_OK) return;
    if (st_checkpoint_latest(r->output, r->arena, &latest, &e) != ST_OK || !latest) return;
    if (st_checkpoint_spec(latest, NULL, 0, &stored, &d) != ST_OK) return;
    then = st_spec_get(stored, "run", "precision");
    if (then) (void)st_spec_put(r->spec, "run", "precision", then->text, ST_FROM_DEFAULT, now);
    st_spec_destroy(stored);
}

int st_run_place(st_run *r, st_diags *d)
{
    st_error e = {0};
    int rc;

    rc = find_output(r, &e);
    if (rc == ST_OK) rc = check_writable(r->output, r->arena, &e);
    if (rc == ST_OK) rc = lock_folder(r, "r+e", &e);
    if (rc == ST_OK) rc = r->options->resume ? check_resume(r, &e) : check_new(r, &e);
    return rc == ST_OK ? ST_OK : st_diags_add(d, &e, NULL, false);
}
