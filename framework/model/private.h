/* SPDX-License-Identifier: Apache-2.0 */
/* model/private.h - what the files of this room share.
 *
 * A model is a list of parts. A part is one configured plugin instance (a layer of a stack, the position, the
 * encoder, a head) or the host itself; it owns weights. Stacks hold layers. All device memory lies in a few blocks;
 * while planning the blocks have fake addresses, so the same code measures and runs. */
#ifndef ST_MODEL_PRIVATE_H
#define ST_MODEL_PRIVATE_H
#include "model/model.h"
#include "parallel/groups.h"
#include <strata/encoder.h>
#include <strata/position.h>

#define MODEL_ALIGN ((size_t)256)
#define MODEL_AHEAD 2                  /* rows on their way to the device */
#define MODEL_STAGING ((size_t)1 << 20) /* bytes of one host copy; the block itself may hold a packed row too */
#define MODEL_SLOTS 32
#define MODEL_HEADS 16            /* sections [head.NAME] with the one for the pattern's depths */
#define MODEL_DEPTHS (1 + ST_PATTERN_DEPTHS)          /* the trunk, then mtp depths */
#define MODEL_CELLS (ST_S_INV_COUNT + MODEL_DEPTHS)   /* ST_S_* and 1/count of every depth */
#define MODEL_ROTARY_VIEW 1000000 /* table id inside a nested stack with a view of its own */

/* ---- keys of the spec (keys.c) ---- */
typedef struct run_keys { int32_t precision; const char *backend; int64_t device; int32_t poison, graph; } run_keys;
typedef struct stack_keys {
    const char *pattern, *linear, *full, *mlp;
    int64_t blocks, cadence, mtp_depths, hidden, vocab;
    int32_t norm, tie_embeddings, family;
    double norm_eps;
} stack_keys;
typedef struct parallel_keys { int64_t tensor, context, expert, pipeline, zero; } parallel_keys;
typedef struct batch_keys { int64_t tokens, rows, sequences, max_len, images, patches, logits; int32_t patch_values;
                           } batch_keys;
typedef struct recompute_keys { const char *full, *drop; } recompute_keys;
typedef struct decay_keys { double weight_decay; const char *decay, *no_decay; } decay_keys;
typedef struct init_keys { int32_t rule; double std; } init_keys;
typedef struct part_keys { int32_t freeze; double lr_scale; int64_t last_blocks; } part_keys;
enum { PRECISION_AUTO = 0, PRECISION_F64, PRECISION_F32, PRECISION_BF16 };
enum { FAMILY_NONE = 0, FAMILY_QWEN35 };
enum { INIT_HF = 0, INIT_FAN_IN, INIT_MEGATRON_SCALED };
int model_bind_run(st_model *, st_diags *);
int model_choose_device(st_model *, int count, const char **from, st_error *); /* -> m->ordinal, and who said so */
void model_look_at_backend(st_model *, st_diags *); /* when [run] has other mistakes */
int model_bind_backend(st_model *, st_diags *); /* choose.c: behind it facts, ops and types are known */
int model_bind_keys(st_model *, st_diags *);
int model_bind_part(st_model *, const char *section, part_keys *, st_diags *);

/* ---- parts, weights, stacks ---- */
typedef struct model_stack model_stack;
enum { NORM_NONE = 0, NORM_WEIGHT, NORM_BIAS };
typedef struct model_part {
    int32_t id, kind;              /* index in st_model.parts; ST_KIND_*, 0: the host                        */
    const char *path;              /* "layers.3"; the host's is ""                                           */
    const char *section;           /* for messages                                                           */
    const char *trains_as;         /* what [part.NAME] calls its weights unless they say otherwise            */
    const st_instance *proto;      /* plugin, manifest and kernels; NULL: the host                           */
    void *self;
    const st_slot *slots; int32_t n_slots;
    const st_map *maps; int32_t n_maps;
    /* layers */
    st_layer_ops layer;
    model_stack *stack;
    int32_t index, block, ordinal; /* ordinal: among the stack's layers of its symbol                        */
    int32_t norm, norm_bias;       /* weights in front; norm_bias -1: none                                   */
    uint32_t drop;                 /* bit per slot that is not kept                                          */
    int32_t full;                  /* recompute the whole forward                                            */
    int32_t trained;               /* some weight of it (norm included) is trained                           */
    uint64_t seed;
    double flops;                  /* counted by planning                                                    */
    const char *range[4];          /* names for tools, by MODEL_*; NULL: not asked for yet                    */
} model_part;

typedef struct model_weight {
    st_model_weight pub;           /* must be first: handed out */
    const char *name, *raw;        /* "0.fc", and as declared "{n}.fc"                                       */
    model_part *part;
    int32_t norm;                  /* NORM_*: the host's norm in front of a layer                            */
    int32_t index;                 /* of "{n}"                                                               */
    st_weight decl;                /* init, a, b, fill                                                       */
    int32_t trains;                /* has a gradient in this run                                             */
    int32_t group, bucket;         /* of the optimizer; -1: none                                             */
    int64_t offset;                /* elements into its bucket                                               */
    int32_t owner;                 /* rank of group data that updates it as a matrix                         */
    size_t at, grad_at;            /* bytes into the blocks                                                  */
    size_t master_at;              /* into state_block, when model_has_master()                              */
    size_t state_at[4];
    int32_t per_micro, done;       /* contributions: planned per micro-batch; so far in this step            */
    int32_t order;                 /* place of its first contribution in a backward pass; -1: none           */
} model_weight;

typedef struct model_sum { size_t at, total_at; int64_t n; } model_sum; /* accumulators that one call sums */
typedef struct frame { st_tensor slot[MODEL_SLOTS], r, rstd, mean; size_t keep_mark; } frame;
typedef struct stack_call { frame *frames; st_tensor last, rstd, mean; size_t keep_end; st_wid norm; } stack_call;
struct model_stack {
    const char *path;              /* "layers", "encoder.blocks"                                             */
    model_part *owner, **layers; int32_t n;
    char *symbols;
    int32_t instances[128];        /* layers of each symbol                                                  */
    int64_t hidden, rows;
    int32_t kind, depth, part, max_segments;
    int32_t rotary_dim;            /* head size of the view's tables; 0: no layer rotates by them             */
    model_part *rotary_by;         /* the layer that asked first                                             */
    double eps;
    const st_map *maps; int32_t n_maps;
    int32_t first;                 /* lowest layer whose backward is needed; n: none                         */
    int32_t input;                 /* the gradient at its entry is needed                                    */
    model_sum sum;                 /* when its forward ends                                                  */
    stack_call **calls; int32_t n_calls, cap_calls;
};

typedef struct model_table { int32_t head_dim, dim; size_t at; } model_table;             /* rotary */
typedef struct model_accum {
    model_part *part; model_stack *stack;
    st_accum decl; const char *name;
    size_t at, total_at;
} model_accum;
typedef struct model_metric { model_part *part; st_metric decl; const char *shown, *pooled; size_t at; } model_metric;

/* Weights with one update rule are a group, and lie side by side in every block as buckets of it: one of all, or from
 * zero = 2 on one of each layer and one of the rest. So the optimizer sees one flat range per bucket. */
typedef struct opt_group { st_opt_class class_; double decay, lr_scale; int32_t dtype; size_t hyper_at; } opt_group;
typedef struct opt_bucket {
    int32_t group;
    model_part *part;              /* the layer; of its gradients, or weights too, only the share stays; NULL */
    int64_t count, share, first;   /* elements with padding; of them this rank updates [first, first + share) */
    size_t at, grad_at, master_at, state_at[4];
    char *weights, *grads;         /* the layer's whole, while it runs; NULL                                 */
    st_opt_unit unit;              /* the share: one update where the class says flat, and sums              */
} opt_bucket;
typedef struct matrix_unit { st_opt_unit unit; st_weight_info info; } matrix_unit; /* one section of one weight */

/* ---- memory (memory.c) ---- */
typedef struct mem_block { char *base; size_t bytes; uint32_t kind; } mem_block;
typedef struct bump { char *base; size_t used, high, cap; const char *name; } bump;

typedef struct context {           /* who is running; saved on entry of a nested call                        */
    model_part *part;
    frame *frame;
    const st_row *row;
    const st_rotary *rotary;     /* of a nested stack's view */
    const void *kernels;
    size_t scratch;
    uint64_t seed;
    int32_t layer, depth, train, dry, muted, range; /* range: one was opened for tools            */
    uint32_t drop;
} context;

enum { PLAN_NO = 0, PLAN_COUNT, PLAN_PEAKS, PLAN_TRIAL /* of a setting that is not the spec's */ };
enum { MODEL_CALLS = ST_ALL_TO_ALL + 2 }; /* collectives by number, then st_exchange */
typedef struct model_traffic { int64_t calls; double bytes; } model_traffic;
typedef struct model_run {         /* the step that runs */
    st_step s;                     /* must be first: callbacks get st_step * */
    st_model *m;
    context now;
    int32_t planning;
    const char *launch;            /* name of the launch in progress                                          */
    size_t op_mark; int32_t op_open; /* workspace of the op in progress                                       */
    int32_t lanes;                 /* side lanes entered since the last join                                 */
    int32_t order;                 /* contributions seen in this backward pass                               */
    st_tensor features, d_features;
    int32_t loss_cell[MODEL_DEPTHS]; /* metric that holds the loss of a depth; -1: the host's own cell          */
} model_run;

#define MODEL_GRAPHS 17               /* evaluation, then rows of a step; more rows than that are not replayed */
typedef struct model_graph {
    st_graph *graph;
    int32_t passes, micros;        /* eager passes so far; rows of a step it was made for                       */
    int32_t loss_cell[MODEL_DEPTHS];
} model_graph;

typedef struct row_way { const st_packed_row *row; st_event *landed, *taken; } row_way; /* row: waits there; NULL: none */
typedef struct row_ahead {
    mem_block pinned, landing;     /* a row for each way; 0 bytes: rows are written where they belong            */
    row_way way[MODEL_AHEAD]; int32_t next;
    st_next_row_fn next_row; void *ctx;
} row_ahead;

typedef struct run_queue { st_queue q; model_run *run; } run_queue; /* q first: the backend's callbacks get it */

/* ---- the model ---- */
struct st_model {
    st_base *base; st_spec *spec; st_registry *registry; st_arena *arena;
    int32_t train, ranks;          /* ranks: to plan for; 0: those of a run                                      */
    run_keys run_keys; stack_keys stack_keys; batch_keys batch_keys; recompute_keys recompute; decay_keys decay;
    init_keys init; parallel_keys parallel;
    int32_t dtype, acc_dtype;

    st_instance backend, comm, position, encoder, optimizer;
    st_backend_ops be; st_ops ops; st_comm_ops comm_ops; st_position_ops position_ops; st_encoder_ops encoder_ops;
    st_optimizer_ops optimizer_ops;
    st_facts facts;
    st_instance *heads; st_head_ops *head_ops; model_part **head_parts; int32_t n_heads;
    st_instance *symbols[128];     /* bound layer plugins by symbol */
    char refused[128];             /* configure of this symbol failed: worded once */

    char *pattern; st_pattern parts_of_pattern;
    st_row_shape shape;
    model_part **parts; int32_t n_parts, cap_parts;
    model_weight **weights; int32_t n_weights, cap_weights;
    int32_t *by_path; uint32_t path_slots; /* weight + 1 by the hash of its path, 0: free; twice as many as weights */
    const st_model_weight **weight_list;
    model_stack **stacks; int32_t n_stacks, cap_stacks;
    model_table *tables; int32_t n_tables, cap_tables;
    model_accum *accums; int32_t n_accums, cap_accums;
    model_sum step_sum;
    model_metric *metrics; int32_t n_metrics, cap_metrics;
    opt_group *groups; int32_t n_groups, cap_groups;
    opt_bucket *buckets; int32_t n_buckets, cap_buckets;
    const st_opt_unit **units; matrix_unit *matrices; int32_t n_units, n_matrices;
    st_model_layer *layer_list; int32_t n_layer_list;
    frame encoder_frame;
    model_part *host, *position_part, *encoder_part, *optimizer_part;
    model_stack *trunk;
    int32_t embed, lm_head, final_norm, final_norm_bias;
    int32_t embed_input;           /* something below the trunk is trained */
    int32_t encoder_trained;
    st_state_tensor *states; int32_t n_states; struct state_place { int32_t weight, state; } *state_places;

    mem_block weight_block, grad_block, state_block, row_block, cell_block, staging;
    bump keep, scratch;
    size_t peak_keep, peak_scratch;
    /* offsets into cell_block */
    size_t scalars_at, loss_at, metric_at, metric_bytes, accum_at, accum_bytes, muted_at, sumsq_at,
        fault_at, hyper_at;
    size_t nll_at, best_at;        /* into row_block */
    size_t row_bytes;              /* uploaded part of row_block */
    size_t media_payload_at, media_meta_at;
    size_t row_at[16], tile_at[8];
    st_row row; st_media_batch batch;
    row_ahead ahead;

    model_run run;
    run_queue queues[ST_LANES];
    st_event *lane_event[ST_LANES];
    model_graph graphs[MODEL_GRAPHS];
    st_device *device; char device_words[512]; int32_t ordinal;
    const char *choice;              /* backend and precision in words */
    int64_t free_at_start;         /* bytes of the device before anything was taken; -1: it does not say        */
    st_mesh mesh;                  /* of the run or the plan; what can be opened has one rank                  */
    st_groups *groups_open;
    st_error error;
    int32_t planned, allocated, opened;

    double flops, gemm_flops; int32_t counting;
    double trial_flops; int64_t trial_launches; /* of a PLAN_TRIAL, all that is launched                          */
    model_traffic traffic[2][ST_G_COUNT][MODEL_CALLS]; /* of a row, and of the end of a step                     */
    model_traffic (*traffic_now)[MODEL_CALLS];         /* what planning adds to; NULL: it does not count         */
    const char **launches; int32_t n_launches, cap_launches; /* names that planning met                          */
    st_op_time *times; struct model_place *places; int32_t n_times, cap_times, cap_places, profile;
    int32_t next_time;             /* where the next launch is looked for first                                  */
    int64_t pass;                  /* of a row, counted on: places of a pass are numbered from its start         */
    struct model_timer *timers; int32_t n_timers; /* launches of which no time was added yet */
    st_probe_fn probe; void *probe_ctx; double *probe_values; int64_t probe_cap;
    st_metric_value *metric_values; double *metric_cells, *sums; int32_t n_metric_values;
    char nonfinite[256];           /* what the search for the first bad value found */
    int32_t searching;
};

/* build.c, parts.c */
/* Room for one more behind n: list is the address of the pointer to them. false: no memory, and nothing has changed. */
bool model_grow(st_arena *, void *list, int32_t n, int32_t *cap, size_t size);
model_part *model_add_part(st_model *, int32_t kind, const char *path, const char *section, const st_instance *,
                           void *self);
int model_add_stack(st_model *, model_part *owner, const st_stack_def *, const char *path, const char *symbols,
                    model_stack **, st_diags *);
int model_check_pattern(st_model *, st_diags *);
int model_bind_recompute(st_model *, st_diags *);
int model_set_recompute(st_model *, const recompute_keys *, st_diags *); /* instead of what was set */
int model_check_symbols(st_model *, st_diags *);
void model_look_at_symbols(st_model *, const char *const *sections, int n, st_diags *);
int model_make_layers(st_model *);
bool model_in_pattern(const st_model *, const model_part *);

/* mesh.c */
int model_take_mesh(st_model *, st_diags *);
int model_check_mesh(st_model *, st_diags *); /* may every part run on it? */
bool model_has_experts(const st_model *, const st_instance *); /* NULL: any */

/* rules.c */
int model_check_keys(st_model *, st_diags *);  /* before anything is bound */
int model_check_rules(st_model *, st_diags *); /* between parts, when all are bound */

/* env.c */
int model_configure(st_model *, model_part *, int (*configure)(void *, st_env *), st_diags *);
int model_configure_layer(st_model *, model_part *, st_diags *);
int model_capacity(st_model *, model_part *, st_diags *);
void model_env(st_model *, model_part *, st_env *); /* what a part is told: anew for every call */

/* weights.c */
st_wid model_declare(st_model *, model_part *, const st_weight *, st_error *);
int model_declare_norms(st_model *, model_part *, st_error *);
int model_declare_host(st_model *, st_error *);
st_tensor model_weight_tensor(const st_model *, const model_weight *);
bool model_group_has_masters(const st_model *, const opt_group *); /* trained in a type narrower than acc: bf16 runs */
bool model_has_master(const st_model *, const model_weight *);
st_tensor model_master_tensor(const st_model *, const model_weight *); /* the weight itself without a master */
int model_round_master(st_model *, const model_weight *, const float *master, st_error *);
int model_write_weight(st_model *, const model_weight *, int64_t first, const double *in, int64_t n, st_error *);
int model_read_tensor(st_model *, st_tensor, double *out, int64_t n, st_error *);
int model_write_tensor(st_model *, st_tensor, const double *in, int64_t n, st_error *);
st_tensor model_grad_tensor(const st_model *, const model_weight *);
int model_check_init(st_model *, st_diags *);
int model_fill_constants(st_model *, st_error *);
/* path patterns, separated by commas or blanks */
bool model_listed(const char *list, const char *path, const char *name);

/* optim.c */
int model_assign_parts(st_model *, st_diags *);
int model_classify(st_model *, st_diags *);
int model_hyper(st_model *, const st_schedule *, st_error *);

/* units.c */
int model_make_units(st_model *);
/* What the optimizer is told of a weight (section -1) or of one of its sections; -> how many matrices it is. */
int32_t model_weight_infos(const model_weight *, int32_t section, st_weight_info *);

/* memory.c */
int model_layout(st_model *);
int model_alloc(st_model *, st_error *);
void model_free(st_model *);
void *bump_take(bump *, size_t bytes);
int model_to_device(st_model *, void *device, size_t bytes, st_error *);
int model_from_device(st_model *, const void *device, size_t bytes, st_error *);
int model_upload(st_model *, void *device, const void *host, size_t bytes, st_error *);
int model_download(st_model *, void *host, const void *device, size_t bytes, st_error *);
st_tensor model_memory(st_step *, int32_t slot, uint32_t flags, int32_t dtype, int64_t rows, int64_t cols);
st_tensor model_keep(st_model *, int32_t dtype, int64_t rows, int64_t cols);
st_tensor model_scratch(st_model *, int32_t dtype, int64_t rows, int64_t cols);
int model_zero(st_model *, void *device, size_t bytes);
static inline size_t model_round(size_t n) { return (n + MODEL_ALIGN - 1) / MODEL_ALIGN * MODEL_ALIGN; }

/* graph.c */
int model_pass(st_model *, int32_t micro, int32_t micros);
void model_graph_free(st_model *, model_graph *);

/* timer.c */
bool model_is_product(const char *launch);
int model_note_launch(st_model *, const char *name);
int model_timer_begin(st_model *, const char *name);
void model_timer_work(st_model *, double flops, double bytes); /* of the launch that was begun last */
int model_timer_end(st_model *);
int model_timers_end(st_model *);

/* step_api.c, linear.c */
const st_step_api *model_step_api(void);
enum { MODEL_FORWARD, MODEL_BACKWARD, MODEL_LOSS, MODEL_UPDATE }; /* why a part is entered */
void model_enter(st_model *, model_part *, int32_t why, frame *, context *saved);
void model_leave(st_model *, const context *saved);
int model_fail(st_model *, int code, const char *fmt, ...) ST_PRINTF(3, 4);
int model_linear(st_step *, const st_linear_args *);
int model_linear_bwd(st_step *, const st_linear_args *);
st_tensor model_weight_of(st_step *, st_wid);
st_tensor model_grad_of(st_step *, st_wid, float *beta);
st_tensor model_cell(const st_model *, size_t at, int64_t n);
st_tensor model_flat(char *at, int32_t dtype, int64_t n); /* one dimension */
void model_words(const st_model *, const model_part *, char *out, size_t n); /* "layer 3 (G, gated_delta_net)" */
void model_queues(st_model *);

/* collective.c */
int model_collective(st_step *, uint32_t what, uint32_t group, const st_tensor *send, const st_tensor *recv);
int model_exchange(st_step *, uint32_t group, const st_blocks *);
/* The host's own: all-gather and reduce-scatter may be in place, the rank's block where it lies in the whole. */
int model_collect(st_step *, uint32_t what, uint32_t group, const st_tensor *send, const st_tensor *recv);

/* shares.c */
int model_check_zero(st_model *, st_diags *);
int model_make_buckets(st_model *);               /* of all groups, cut, and the weights' places in them */
bool model_gathers(const st_model *, const opt_bucket *); /* its weights are whole only while the layer runs */
bool model_updates(const st_model *, const model_weight *); /* is this rank's to update, of a group of matrices */
/* Around a layer: what only shares stay of is made whole, in scratch memory that the caller gives back by its mark. */
int model_open_part(st_model *, const model_part *, int backward);
int model_close_part(st_model *, const model_part *);
int model_sum_gradients(st_model *);
int model_sum_squares(st_model *);
int model_gather_weights(st_model *);

/* services.c */
int model_embed(st_step *, int32_t depth, const st_tensor *out);
int model_embed_bwd(st_step *, int32_t depth, const st_tensor *dout);
int model_lm_loss(st_step *, int32_t depth, double weight, int32_t metric, const st_tensor *h, const st_tensor *dh);
int model_tables(st_model *);
int model_accum_total(st_model *, model_stack *);

/* stack.c */
int model_stack_forward(st_model *, model_stack *, const st_view *, const st_tensor *u, st_wid norm,
                        const st_tensor *out);
int model_stack_backward(st_model *, model_stack *, const st_view *, const st_tensor *dout, const st_tensor *du);
int model_call_forward(st_model *, model_part *, frame *, const st_tensor *x, const st_tensor *y, int dry, int muted);
int model_stack_api(st_step *, int32_t id, const st_view *, const st_tensor *u, st_wid norm, const st_tensor *out);
int model_stack_bwd_api(st_step *, int32_t id, const st_view *, const st_tensor *dout, const st_tensor *du);

/* rows.c */
void model_row_layout(st_model *, size_t *at);
void model_row_tensors(st_model *);
int model_row_upload(st_model *, const st_packed_row *, st_error *);
int model_row_fill(const st_model *, const st_packed_row *, char *to, st_error *); /* as it lies on the device */

/* ahead.c */
void model_ahead_layout(st_model *);
int model_row_ahead(st_model *, const st_packed_row *, st_error *);  /* sends it; the main lane computes on */
int model_row_arrive(st_model *, const st_packed_row *, st_error *); /* sends it if it was not; passes then see it */
int model_ask_ahead(st_model *, st_error *); /* the step is enqueued: sends what the next begins with */

/* step.c, guard.c, plan.c */
void model_start(st_model *);                      /* a public call begins: no error, no status */
int model_end(st_model *, st_error *);             /* its status, with the error handed out */
int model_begin_step(st_model *, int mode, int32_t micros);
int model_micro(st_model *, int mode, int32_t micro);
int model_finish_step(st_model *);                 /* totals, finish_step of layers, norm's sums, update */
int model_sums(st_model *);
int model_update(st_model *);
void model_look_slots(st_model *, const model_part *, const frame *);
void model_look(st_model *, const char *name, int32_t layer, const st_tensor *);
int model_read_cells(st_model *, size_t at, int64_t n, double *out, st_error *);
int model_write_cells(st_model *, size_t at, int64_t n, const double *in, st_error *);
int model_norm(st_model *, double *norm, int32_t *finite, st_error *);
int model_fault(st_model *, char out[256], st_error *); /* 1: a kernel raised one */
int model_plan_trial(st_model *, st_error *); /* a step as parts are set now: peaks of the arenas, work */
int model_find_bad(st_model *, const st_packed_row *const *, int32_t micros, double loss, char out[256], st_error *);
#endif
