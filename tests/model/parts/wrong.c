/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: a layer that asks the host for one thing that it cannot have, y = x otherwise. */
#include <strata/layer.h>

enum {
    NONE,
    NO_NAME,
    BAD_NAME,
    TWICE,
    NO_DIMS,
    ZERO_DIM,
    SECTION_DIM,
    SECTION_SUM,
    CUT_GROUP,
    INIT,
    CALL,
    CONSTANT,
    SHARED,
    TILES,
    MANY_TILES,
    ROTARY,
    ACCUM,
    STACK,
    STACK_ROTARY,
    SILENT, /* in configure */
    WEIGHT,
    SECTION,
    SLOT,
    MEMORY,
    MARK,
    LANE,
    LANE_CALL,
    SCALAR,
    TILES_ID,
    ROTARY_ID,
    ACCUM_ID,
    TOTAL_ID,
    METRIC_ID,
    COPY,
    OWN, /* in a step, seen while planning */
    LAUNCH,
    UNPLANNED,
    LANE_MEMORY,
    CONTRIBUTION,
    FAULT_OWN,
    FAULT_FULL,
    FAULT_ODD /* only when it runs */
};

typedef struct wrong {
    int32_t fault;
    st_wid w;
} wrong;

static const st_section sections[] = {{.name = "a", .n = 4, .unit = 1}, {.name = "b", .n = 1, .unit = 1}};

static void declare(wrong *m, st_env *e)
{
    st_weight w = {.name = "w", .nd = 2, .dim = {8, e->hidden}, .init = ST_INIT_NORMAL};

    switch (m->fault) {
    case NO_NAME: w.name = NULL; break;
    case BAD_NAME: w.name = "W w"; break;
    case NO_DIMS: w.nd = 0; break;
    case ZERO_DIM: w.dim[1] = 0; break;
    case SECTION_DIM:
        w.n_sec = 2;
        w.sec = sections;
        w.sec_dim = 3;
        break;
    case SECTION_SUM:
        w.n_sec = 2;
        w.sec = sections;
        break;
    case CUT_GROUP: w.cut[0] = ST_G_DATA; break;
    case INIT: w.init = 99; break;
    case CALL: w.init = ST_INIT_CALL; break;
    case CONSTANT: w.flags = ST_W_CONST; break;
    default: break;
    }
    m->w = st_declare(e, w);
    if (m->fault == TWICE) (void)st_declare(e, w);
}

static int configure(void *self, st_env *e)
{
    wrong *m = self;

    declare(m, e);
    switch (m->fault) {
    case SHARED: (void)e->api->shared(e, "bias"); break;
    case TILES: (void)st_tiles_id(e, 0, ST_TILES_LOCAL); break;
    case MANY_TILES:
        for (int i = 1; i <= 9; i++) (void)st_tiles_id(e, i, ST_TILES_LOCAL);
        break;
    case ROTARY: (void)st_rotary_id(e, 0); break;
    case ACCUM: (void)st_accum_id(e, (st_accum){.name = "sums", .n = 0}); break;
    case STACK: (void)st_stack_id(e, (st_stack_def){.name = "blocks", .pattern = "-", .hidden = 8, .rows = 8}); break;
    case STACK_ROTARY: (void)st_stack_rotary_dim(e, 0); break;
    case SILENT: return ST_E_CONFIG;
    default: break;
    }
    return e->status;
}

/* As a kernel does. */
static void raise_fault(st_step *s, uint32_t code)
{
    if (!s->q->planning && !s->q->fault->code) *s->q->fault = (st_fault){code, s->q->layer, 3, 2};
}

/* What a side lane works on is not given back before it is joined. */
static void lane_memory(st_step *s, const st_tensor *x)
{
    size_t mark = st_mark(s);
    (void)st_lane(s, ST_LANE_ENTER, ST_LANE_SIDE);
    st_tensor own = st_scratch(s, s->dtype, x->dim[0], x->dim[1]);
    (void)ST_OP(s, copy, x, &own);
    (void)st_lane(s, ST_LANE_LEAVE, ST_LANE_SIDE);
    st_release(s, mark);
    if (st_mark(s) == mark) (void)ST_FAIL(s, ST_E_INTERNAL, "memory of a running lane is free");
    (void)st_lane(s, ST_LANE_JOIN, ST_LANE_SIDE);
    st_release(s, mark);
    if (st_mark(s) != mark) (void)ST_FAIL(s, ST_E_INTERNAL, "memory of a joined lane stays");
}

static void ask(const wrong *m, st_step *s)
{
    switch (m->fault) {
    case WEIGHT: (void)st_w(s, 900); break;
    case SECTION: (void)st_section_of(s, m->w, st_w(s, m->w), 7); break;
    case SLOT: (void)st_keep(s, 5, s->dtype, 1, 1); break;
    case MEMORY: (void)st_scratch(s, s->dtype, -1, 4); break;
    case MARK: st_release(s, (size_t)1 << 40); break;
    case LANE: (void)st_lane(s, ST_LANE_ENTER, 9); break;
    case LANE_CALL: (void)st_lane(s, 99, ST_LANE_SIDE); break;
    case SCALAR: (void)st_scalar(s, 900); break;
    case TILES_ID: (void)s->api->tiles(s, 5); break;
    case ROTARY_ID: (void)s->api->rotary(s, 5); break;
    case ACCUM_ID: (void)s->api->accum(s, 5); break;
    case TOTAL_ID: (void)s->api->total(s, 5); break;
    case METRIC_ID: (void)s->api->metric(s, 900); break;
    case OWN: (void)ST_FAIL(s, ST_E_UNSUPPORTED, "%d is too many", 3); break;
    case LAUNCH: (void)ST_LAUNCH(s, "wrong_launch", ST_E_DEVICE); break;
    case UNPLANNED:
        if (!s->q->planning) (void)st_scratch(s, s->dtype, 1 << 20, 1 << 4);
        break;
    case FAULT_OWN: raise_fault(s, ST_FAULT_USER); break;
    case FAULT_FULL: raise_fault(s, ST_FAULT_CAPACITY); break;
    case FAULT_ODD: raise_fault(s, ST_FAULT_USER + 1); break;
    default: break;
    }
}

static int forward(const void *self, st_step *s, const st_tensor *x, const st_tensor *y)
{
    const wrong *m = self;
    st_tensor other = st_rows(*y, 0, 1);

    ask(m, s);
    if (m->fault == LANE_MEMORY) lane_memory(s, x);
    (void)st_lane(s, ST_LANE_ENTER, ST_LANE_SIDE);
    (void)ST_OP(s, copy, x, m->fault == COPY ? &other : y);
    (void)st_lane(s, ST_LANE_LEAVE, ST_LANE_SIDE);
    return st_lane(s, ST_LANE_JOIN, ST_LANE_SIDE);
}

static int backward(const void *self, st_step *s, const st_tensor *x, const st_tensor *dy, const st_tensor *dx)
{
    const wrong *m = self;

    (void)st_grad(s, m->w, NULL);
    if (m->fault == CONTRIBUTION && !s->q->planning) (void)st_grad(s, m->w, NULL);
    return ST_OP(s, copy, dy, dx);
}

static const st_param params[] = {
    ST_CHOICE(
        wrong, fault, "none",
        "none|no_name|bad_name|twice|no_dims|zero_dim|section_dim|section_sum|cut_group|init|call|constant|shared|"
        "tiles|many_tiles|rotary|accum|stack|stack_rotary|silent|weight|section|slot|memory|mark|lane|lane_call|"
        "scalar|tiles_id|rotary_id|accum_id|total_id|metric_id|copy|own|launch|unplanned|lane_memory|contribution|"
        "fault_own|fault_full|fault_odd",
        0, "what is wrong"),
};
static const char *const faults[] = {"%lld wishes, of which %lld were heard"};
static const st_slot slots[] = {{.name = "kept"}};
static const st_layer_ops ops = {.size = sizeof ops,
                                 .role = ST_ROLE_CHANNEL,
                                 .tokens = ST_GATHERED,
                                 .n_slots = ST_COUNT(slots),
                                 .slots = slots,
                                 .configure = configure,
                                 .forward = forward,
                                 .backward = backward};

ST_PLUGIN_V1(ST_KIND_LAYER, wrong, ops, ST_PARAMS(params),
    .caps = ST_CAP_TRAIN,
    .faults = faults,
    .n_faults = ST_COUNT(faults),
    .name = "wrong",
    .version = "0.1",
    .license = "Apache-2.0",
    .author = "tests",
    .summary = "a layer with one thing wrong",
    .description = "")
