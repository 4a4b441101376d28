/* SPDX-License-Identifier: Apache-2.0 */
/* strata/weight.h - configure time: what a model part is told (st_env) and what it declares.
 *
 * configure() is pure: no device, file or clock. It runs many times (check, plan, inspect, train) and declares the same things
 * in the same order for the same env and parameters. All shapes are FULL shapes; the host cuts. */
#ifndef STRATA_WEIGHT_H
#define STRATA_WEIGHT_H
#include <strata/plugin.h>

typedef int32_t st_wid; /* a weight of the declaring instance; -1 = none */
enum { ST_G_NONE = 0, ST_G_DATA, ST_G_CONTEXT, ST_G_TENSOR,
       ST_G_EXPERT,  /* ranks that divide the experts: a cut of all ranks that hold different rows of a ST_SHARD layer */
       ST_G_MEDIA,   /* context x tensor: ranks that share one row and divide its images                              */
       ST_G_TOKENS,  /* all ranks that hold different tokens of the step                                              */
       ST_G_COUNT };
typedef struct st_axis { int32_t size, rank; } st_axis; /* never grows */

/* A section: a named run of one dimension that is cut, resharded, mapped to files and optimised on its own (q | k | v | z).
 * unit: smallest run that stays together, e.g. the rows of one head. cut 1: of n / unit units, rank r of g holds
 * [r*u/g, (r+1)*u/g); if g is a multiple of u, g/u neighbours hold the same unit and the host sums their gradients.
 * The local tensor is the local parts of its sections in order. Never grows. */
typedef struct st_section { const char *name; int64_t n, unit; uint32_t cut, reserved; } st_section;

enum { ST_INIT_ZERO = 1, ST_INIT_ONE, ST_INIT_NORMAL /* a: deviation, 0 = [init] std */, ST_INIT_UNIFORM /* a .. b */,
       ST_INIT_OUT /* NORMAL for projections into the residual, scaled by depth if [stack] says so */,
       ST_INIT_LN_UNIFORM /* ln U(a, b) */,
       ST_INIT_CALL /* fill(): element i depends on the full index and the seed only, which is the run's and the path's */,
       ST_INIT_SOFTPLUS_INV /* x with softplus(x) log-uniform in a .. b: step sizes of recurrences */ };
enum { ST_W_ACC = 1,       /* env->acc_dtype, f32 also in bf16 runs (A_log, dt_bias); others: the run's type           */
       ST_W_NO_DECAY = 2,  /* default: decay iff nd >= 2                                                              */
       ST_W_STATE = 4,     /* not trained, saved; changed only in finish_step (router bias)                           */
       ST_W_CONST = 8,     /* not trained, not saved; filled at start (frequency tables)                              */
       ST_W_BETA = 16,     /* matrices: gradient is written as beta * old + new, so the host need not zero it         */
       ST_W_TABLE = 32,    /* rows are looked up; matrix optimizers and adapters leave it alone                       */
       ST_W_APART = 64 };  /* no map between hidden states, for all its dimensions: the output matrix, kernels of a
                            * convolution, a matrix from pixels; matrix optimizers leave it alone                     */

/* The gradient of a weight is summed over micro-batches and over every group in which the weight is not cut - data, context
 * AND tensor. That is right for every layer, because it either sees all rows and gives partial y and dx, or sees a shard. */
typedef struct st_weight {
    uint32_t size, flags;
    const char *name;                    /* unique in the instance, [a-z0-9_.]; "{n}" becomes index                   */
    const char *part;                    /* (optional) what [part.NAME] freezes and scales: "merger"; NULL: the kind's
                                          * (encoders "vision", all others "language")                               */
    int32_t index, nd;
    int64_t dim[ST_DIMS], unit[ST_DIMS]; /* unit 0 = 1                                                                */
    uint32_t cut[ST_DIMS];               /* ST_G_NONE, ST_G_TENSOR or ST_G_EXPERT                                     */
    int32_t sec_dim, n_sec;              /* sections of dimension sec_dim; its cut applies to sections with cut = 1   */
    const st_section *sec;               /* copied by declare                                                         */
    int32_t init;
    double a, b;
    int (*fill)(const void *self, uint64_t seed, int64_t first, int64_t n, double *out);
} st_weight;

/* Names in files: a static table. Several rows may serve one weight (by sections); rows with the same weight and different
 * alt != 0 are alternatives: a load takes the lowest alt that the file has, a save the lowest. Shapes are compared by element
 * count and first dimension ([D,3,2,16,16] = [D,1536]). "{n}" stands for the same number on both sides. Never grows.
 * In tables of encoders and heads a row without a weight ("") is the prefix of all their names, stacks included. */
enum { ST_MAP_PLAIN = 0, ST_MAP_EACH /* "{i}" in file runs over dim 0, by full index */, ST_MAP_ROWS /* ops->map_row */ };
typedef struct st_map {
    const char *layout, *weight, *file;  /* "hf" or "gpt"; name as declared; name below the part's prefix             */
    int16_t sec0, n_sec, how, alt;       /* n_sec 0: the whole weight                                                 */
} st_map;

/* Device cells of env->acc_dtype that parts add to and read back summed. All accumulators of a stack are summed in one call. */
enum { ST_EACH_MICRO = 1, ST_EACH_STEP, ST_AT_FORWARD_END, ST_AT_STEP_END };
typedef struct st_accum {
    uint32_t size, pool;  /* pool 1: one for all layers of the same symbol in the same stack                          */
    const char *name;
    int64_t n;
    uint32_t reset, sum;  /* ST_EACH_*; ST_AT_FORWARD_END: when the stack's forward ends st_total becomes the sum over
                           * ST_G_TOKENS, for its backward and finish_step; ST_AT_STEP_END: for finish_step only      */
} st_accum;
enum { ST_METRIC_RATIO = 1 /* sum of cell 0 / sum of cell 1 */, ST_METRIC_SUM,
       ST_METRIC_MAX /* largest cell 0 of those whose cell 1 is not 0 */ };
typedef struct st_metric { uint32_t size, kind; const char *name, *unit; } st_metric; /* shown per instance and per plugin */
enum { ST_TILES_LOCAL = 1 /* over this rank's piece of the row */, ST_TILES_TIME /* over the whole row in time order */ };

/* A nested stack: the host's loop (norm, residual, recompute, sharding, profile) over a pattern of layers, run by a head or an
 * encoder. The trunk, each mtp depth and an encoder's blocks are all stacks. */
typedef struct st_stack_def {
    uint32_t size;
    int32_t part;               /* k >= 1: part k of the main pattern with its width, norm and groups; 0: see below   */
    const char *name, *pattern; /* name: path in checkpoints and logs                                                 */
    int64_t hidden, rows;       /* width, row capacity                                                                */
    int32_t norm, alone;        /* ST_NORM_*; alone 1: every rank has rows of its own, so nothing inside is cut       */
    double eps;
    const st_map *maps;         /* weights "mixer_norm", "channel_norm", with "_bias"; "": prefix of block {block},
                                 * where {n} is `part`                                                                */
    int32_t n_maps, max_spans;
} st_stack_def;

/* Per rank and row, for encoders: units (patches), items, spans (frames) come from [batch]; the encoder derives the rest.
 * Never grows. */
typedef struct st_media_caps {
    int64_t payload, units, rows, meta /* int32s */;
    int32_t items, spans;
    int32_t values, pad; /* values 1: items may come as ready f64 patch values (st_media.patches), payload must hold them  */
} st_media_caps;

typedef struct st_env st_env;
typedef struct st_env_api { /* sticky: the first failure is kept in env->status, later calls return -1 */
    uint32_t size;
    st_wid (*declare)(st_env *, const st_weight *);       /* checks that every cut divides, naming the key's value    */
    st_wid (*shared)(st_env *, const char *host_weight);  /* "embed", "lm_head" (maybe the same weight), "final_norm" */
    int (*tiles)(st_env *, int32_t tile, uint32_t which); /* work list over segments -> id for st_tiles               */
    int (*rotary)(st_env *, int32_t head_dim);            /* tables of the bound position plugin -> id; -1: none      */
    int (*accum)(st_env *, const st_accum *);
    int (*metric)(st_env *, const st_metric *);
    int (*stack)(st_env *, const st_stack_def *);         /* heads and encoders -> id for st_stack                    */
    int (*fail)(st_env *, int code, const char *file, int line, const char *fmt, ...) ST_PRINTF(5, 6);
    /* The same, shown at a key of the part's own section, when the spec gives it; a key that its table lacks: of [stack]. */
    int (*fail_key)(st_env *, const char *key, int code, const char *file, int line, const char *fmt, ...) ST_PRINTF(6, 7);
    /* Head size that the layers of an own nested stack asked rotary() for: the view's tables serve it. 0: none asked. */
    int (*stack_rotary_dim)(st_env *, int32_t stack);
} st_env_api;

struct st_env { /* read-only; valid during configure, capacity and cost */
    uint32_t size;
    int32_t status;
    const st_env_api *api;
    const st_host *host;
    int64_t hidden, vocab;
    double norm_eps;
    int32_t layers, layer, ordinal, instances; /* symbols in this stack; own index; own index and count of this symbol */
    int32_t depth, depths, train;              /* 0 trunk, k mtp; mtp depths; 1: will train                           */
    int32_t dtype, acc_dtype;                  /* activations: ST_F64, ST_F32, ST_BF16; statistics, gradients, masters: ST_F64 in
                                                * f64 runs, else ST_F32. Public headers say "acc" for the latter.       */
    int32_t axes, max_segments;                /* position ids per token; segments per row                            */
    int64_t rows, tokens, tokens_time;         /* capacities: rows of x for this part; this rank's piece; whole row   */
    const st_media_caps *media_caps;           /* encoders; NULL otherwise                                            */
    st_axis data, context, tensor, expert, media;
    int32_t norm, pad;                         /* ST_NORM_* of the stack, with norm_eps                               */
};
#define ST_ENV_FAIL(env, code, ...) ((env)->api->fail((env), (code), __FILE__, __LINE__, __VA_ARGS__))
#define ST_ENV_FAIL_KEY(env, key, code, ...) \
    ((env)->api->fail_key((env), (key), (code), __FILE__, __LINE__, __VA_ARGS__))

/* Inline forms of the calls above; structs get their size here. */
ST_FN int st_tiles_id(st_env *e, int32_t tile, uint32_t which) { return e->api->tiles(e, tile, which); }
ST_FN int st_rotary_id(st_env *e, int32_t head_dim) { return e->api->rotary(e, head_dim); }
ST_FN int st_accum_id(st_env *e, st_accum a) { a.size = (uint32_t)sizeof a; return e->api->accum(e, &a); }
ST_FN int st_metric_id(st_env *e, st_metric m) { m.size = (uint32_t)sizeof m; return e->api->metric(e, &m); }
ST_FN int st_stack_id(st_env *e, st_stack_def d) { d.size = (uint32_t)sizeof d; return e->api->stack(e, &d); }
ST_FN int st_stack_rotary_dim(st_env *e, int32_t stack) { return e->api->stack_rotary_dim(e, stack); }
ST_FN st_wid st_declare(st_env *e, st_weight w) { w.size = (uint32_t)sizeof w; return e->api->declare(e, &w); }

/* [out, in] without bias. ROWS: out cut over tensor. COLS: in cut, so y is this rank's part of a sum. */
enum { ST_CUT_ROWS = 1, ST_CUT_COLS, ST_CUT_NONE };
ST_FN st_wid st_matrix(st_env *e, const char *name, int64_t out, int64_t in, int cut)
{
    st_weight w = {0, ST_W_BETA, NULL, NULL, 0, 2, {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, 0, 0, NULL, ST_INIT_NORMAL,
                   0, 0, NULL};
    w.name = name; w.dim[0] = out; w.dim[1] = in;
    if (cut == ST_CUT_ROWS) w.cut[0] = ST_G_TENSOR;
    if (cut == ST_CUT_COLS) { w.cut[1] = ST_G_TENSOR; w.init = ST_INIT_OUT; }
    return st_declare(e, w);
}
#endif
