/* SPDX-License-Identifier: Apache-2.0 */
/* data/chat.c - see chat.h. */
#include "data/chat.h"

#include <string.h>

static const st_param params[] = {
    ST_STR(st_chat, system_begin, "<|im_start|>system\\n", 0, "text before a system turn"),
    ST_STR(st_chat, system_end, "<|im_end|>\\n", 0, "text behind a system turn"),
    ST_STR(st_chat, user_begin, "<|im_start|>user\\n", 0, "text before a user turn"),
    ST_STR(st_chat, user_end, "<|im_end|>\\n", 0, "text behind a user turn"),
    ST_STR(st_chat, assistant_begin, "<|im_start|>assistant\\n", 0, "text before an assistant turn"),
    ST_STR(st_chat, assistant_end, "<|im_end|>\\n", 0, "text behind an assistant turn; its first token is trained"),
    ST_STR(st_chat, think_begin, "<think>\\n", 0, "text that opens the think block"),
    ST_STR(st_chat, think_end, "\\n</think>\\n\\n", 0, "text that closes the think block"),
    ST_CHOICE(
        st_chat, think, "empty", "none|empty|keep", 0,
        "think block of assistant turns behind the last user turn: none, an empty one, or the sample's own reasoning"),
    ST_STR(st_chat, system, NULL, 0, "system turn for samples that have none"),
    ST_STR(st_chat, prompt, NULL, 0, "text of user turns that have none, behind the picture"),
};

/* ---- [chat] ---- */

int st_chat_key_tables(const st_key_table **out)
{
    static const st_key_table list[] = {
        {"chat",
         "How turns of a chat become one text. In these values \\n, \\t, \\r, \\s (a blank) and \\\\ stand for "
         "characters.",
         params, ST_COUNT(params), 0, NULL},
    };
    *out = list;
    return (int)ST_COUNT(list);
}

/* \n \t \r \s \\ -> characters. NULL and the column of the fault when it is none of these. */
static const char *unescape(st_arena *a, const char *text, int *column)
{
    char *out = st_arena_alloc(a, strlen(text) + 1), *to = out;
    *column = 0;
    if (!out) return NULL;
    for (const char *p = text; *p; p++) {
        static const char from[] = "ntrs\\", into[] = "\n\t\r \\";
        if (*p != '\\') {
            *to++ = *p;
            continue;
        }
        const char *at = p[1] ? strchr(from, p[1]) : NULL;
        if (!at) {
            *column = (int)(p - text);
            return NULL;
        }
        *to++ = into[at - from];
        p++;
    }
    return out;
}

/* "<|name|>" is meant as a token: as plain text it would fall apart into pieces without a word. */
static int check_tokens(st_spec *spec, const st_tokenizer *t, const st_value *v, const char *key, const char *text,
                        st_diags *d)
{
    for (const char *p = text; (p = strstr(p, "<|")); p += 2) {
        const char *end = strstr(p, "|>");
        char name[80];
        if (!end || (size_t)(end + 2 - p) >= sizeof name) continue;
        memcpy(name, p, (size_t)(end + 2 - p));
        name[end + 2 - p] = 0;
        if (st_tokenizer_id(t, name) >= 0) continue;
        const char *hint = v ? "use tokens that tokenizer.json has"
                             : "the default is Qwen's layout: set this key to what your tokenizer uses";
        if (v) return st_spec_fail(spec, d, v, hint, "[chat] %s: the tokenizer has no token '%s'", key, name);
        return st_spec_fail_section(spec, d, st_spec_has(spec, "chat") ? "chat" : "tokenizer", hint,
                                    "[chat] %s: the tokenizer has no token '%s'", key, name);
    }
    return ST_OK;
}

int st_chat_bind(st_spec *spec, const st_tokenizer *t, st_chat *c, st_diags *d)
{
    const st_table table = {params, ST_COUNT(params), sizeof params[0], "chat layout"};
    int first = st_spec_bind(spec, "chat", &table, c, NULL, d);
    for (size_t i = 0; i < ST_COUNT(params); i++) {
        const char **field = (const char **)((char *)c + params[i].offset);
        const st_value *v = st_spec_get(spec, "chat", params[i].key);
        int column, rc;
        if (params[i].type != ST_P_STRING || !*field) continue;
        const char *text = unescape(st_spec_arena(spec), *field, &column);
        if (text) rc = t ? check_tokens(spec, t, v, params[i].key, text, d) : ST_OK;
        else
            rc = st_spec_fail(spec, d, v, "\\n \\t \\r \\s and \\\\ are known",
                              "[chat] %s: unknown escape at character %d", params[i].key, column + 1);
        *field = text ? text : "";
        if (first == ST_OK) first = rc;
    }
    return first;
}

int32_t st_chat_end_of_turn(const st_chat *c, const st_tokenizer *t)
{
    st_arena *a = st_arena_create(0);
    st_tokens k = {0};
    st_error e = {0};
    int32_t id = -1;
    if (a && c->assistant_end &&
        st_tokenizer_encode(t, c->assistant_end, strlen(c->assistant_end), 1, a, &k, &e) == ST_OK && k.n > 0)
        id = k.ids[0];
    st_arena_destroy(a);
    return id;
}

/* ---- laying out ---- */

typedef struct builder {
    const st_tokenizer *t;
    const st_worker *w;
    st_laid *out;
    st_buf pending; /* layout text not yet tokenised                          */
    int32_t room, runs_room, item, trained;
    uint8_t train_pending, train_first; /* all of it, or its first token, is a target */
} builder;

static int no_memory(const builder *b) { return st_fail(b->w->error, ST_E_NOMEM, "no memory to lay out a sample"); }

static void *grown(const builder *b, const void *old, size_t n, size_t room)
{
    void *p = st_arena_alloc(b->w->arena, room);
    if (p && n) memcpy(p, old, n);
    return p;
}

static int reserve(builder *b, int64_t n)
{
    st_laid *o = b->out;
    int64_t need = (int64_t)o->n + n, room = b->room ? b->room : 256;
    if (need > INT32_MAX / 8) return st_fail(b->w->error, ST_E_DATA, "more than %d tokens", INT32_MAX / 8);
    if (need <= b->room) return ST_OK;
    while (room < need) room *= 2;
    o->ids = grown(b, o->ids, sizeof *o->ids * (size_t)o->n, sizeof *o->ids * (size_t)room);
    o->train = grown(b, o->train, (size_t)o->n, (size_t)room);
    o->content = grown(b, o->content, (size_t)o->n, (size_t)room);
    if (!o->ids || !o->train || !o->content) return no_memory(b);
    b->room = (int32_t)room;
    return ST_OK;
}

static void put(builder *b, int32_t id, int train, int content)
{
    b->out->ids[b->out->n] = id;
    b->out->train[b->out->n] = (uint8_t)train;
    b->out->content[b->out->n++] = (uint8_t)content;
}

static int flush(builder *b)
{
    st_tokens k;
    if (b->pending.failed) return no_memory(b);
    ST_TRY(st_tokenizer_encode(b->t, b->pending.data, b->pending.n, 1, b->w->arena, &k, b->w->error));
    ST_TRY(reserve(b, k.n));
    for (int32_t i = 0; i < k.n; i++) put(b, k.ids[i], b->train_pending || (i == 0 && b->train_first), 0);
    b->pending.n = 0;
    b->train_first = b->train_pending = 0;
    return ST_OK;
}

static int add_layout(builder *b, const char *text)
{
    st_buf_puts(&b->pending, text ? text : "");
    return ST_OK;
}

static int add_text(builder *b, const char *text, size_t n, int train, const st_text_mark *marks, int32_t n_marks)
{
    st_tokens k;
    int32_t m = 0;
    ST_TRY(flush(b));
    ST_TRY(st_tokenizer_encode(b->t, text, n, 0, b->w->arena, &k, b->w->error));
    ST_TRY(reserve(b, k.n));
    for (int32_t i = 0; i < k.n; i++) {
        while (m < n_marks && marks[m].first + marks[m].n <= k.begin[i]) m++;
        put(b, k.ids[i], train, m < n_marks && marks[m].first < k.end[i]);
    }
    if (train) b->trained += k.n;
    return ST_OK;
}

/* ---- the encoder's sink ---- */

static int sink_text(void *ctx, const char *text, size_t n)
{
    st_buf_add(&((builder *)ctx)->pending, text, n);
    return ST_OK;
}

static int sink_rows(void *ctx, const char *placeholder, const int32_t grid[3])
{
    builder *b = ctx;
    st_laid *o = b->out;
    int32_t id = st_tokenizer_id(b->t, placeholder);
    int64_t n = (int64_t)grid[0] * grid[1] * grid[2];
    if (id < 0)
        return st_fail(b->w->error, ST_E_CONFIG,
                       "the tokenizer has no token '%s', which the encoder puts for a picture", placeholder);
    if (grid[0] < 1 || grid[1] < 1 || grid[2] < 1 || n > INT32_MAX / 8)
        return st_fail(b->w->error, ST_E_INTERNAL, "the encoder asks for %d x %d x %d placeholders", grid[0], grid[1],
                       grid[2]);
    ST_TRY(flush(b));
    ST_TRY(reserve(b, n));
    if (o->n_runs == b->runs_room) {
        int32_t room = b->runs_room ? 2 * b->runs_room : 8;
        o->runs = grown(b, o->runs, sizeof *o->runs * (size_t)o->n_runs, sizeof *o->runs * (size_t)room);
        if (!o->runs) return no_memory(b);
        b->runs_room = room;
    }
    o->runs[o->n_runs++] = (st_media_run){o->n, (int32_t)n, ST_MEDIA_IMAGE, b->item, {grid[0], grid[1], grid[2]}, 0};
    for (int64_t i = 0; i < n; i++) put(b, id, 0, 0);
    return ST_OK;
}

static int add_media(builder *b, const st_chat_media *m)
{
    st_layout sink = {b, sink_text, sink_rows};
    int32_t before = b->out->n_runs;
    if (b->item >= m->n) return st_fail(b->w->error, ST_E_INTERNAL, "a picture that was not measured");
    int rc = m->ops->layout(m->self, b->w, &m->media[b->item], &m->plan[b->item], &sink);
    if (rc != ST_OK) return b->w->error->code ? rc : st_fail(b->w->error, rc, "the encoder cannot lay out a picture");
    if (b->out->n_runs == before)
        return st_fail(b->w->error, ST_E_INTERNAL, "the encoder put no placeholder for a picture");
    b->item++;
    return ST_OK;
}

/* ---- turns ---- */

typedef struct frame {
    const char *begin, *end;
    bool assistant, user;
} frame;

static int frame_of(const st_chat *c, const st_worker *w, const char *role, frame *out)
{
    if (role && strcmp(role, "system") == 0) *out = (frame){c->system_begin, c->system_end, false, false};
    else if (role && strcmp(role, "user") == 0) *out = (frame){c->user_begin, c->user_end, false, true};
    else if (role && strcmp(role, "assistant") == 0) *out = (frame){c->assistant_begin, c->assistant_end, true, false};
    else
        return st_fail(w->error, ST_E_DATA, "a turn of role '%.40s': system, user and assistant are known",
                       role ? role : "");
    return ST_OK;
}

static int add_think(builder *b, const st_chat *c, const st_turn *turn)
{
    bool own = c->think == ST_THINK_KEEP && turn->reasoning && turn->reasoning[0];
    if (c->think == ST_THINK_NONE) return ST_OK;
    ST_TRY(add_layout(b, c->think_begin));
    if (!own) return add_layout(b, c->think_end);
    ST_TRY(add_text(b, turn->reasoning, strlen(turn->reasoning), turn->train, NULL, 0));
    ST_TRY(add_layout(b, c->think_end));
    b->train_pending = turn->train != 0;
    return flush(b);
}

static int add_parts(builder *b, const st_turn *turn, const st_chat_media *m)
{
    for (int32_t i = 0; i < turn->n_parts; i++) {
        const st_part *p = &turn->parts[i];
        if (p->type == ST_PART_TEXT) ST_TRY(add_text(b, p->text, p->n_text, turn->train, p->marks, p->n_marks));
        else if (p->type == ST_PART_IMAGE) ST_TRY(add_media(b, m));
        else return st_fail(b->w->error, ST_E_DATA, "a part of type %d: text and pictures are known", p->type);
    }
    return ST_OK;
}

static bool has_text(const st_turn *turn)
{
    for (int32_t i = 0; i < turn->n_parts; i++)
        if (turn->parts[i].type == ST_PART_TEXT && turn->parts[i].n_text > 0) return true;
    return false;
}

static int add_turn(builder *b, const st_chat *c, const st_turn *turn, bool last_answer, const st_chat_media *m)
{
    frame f = {0};
    ST_TRY(frame_of(c, b->w, turn->role, &f));
    ST_TRY(add_layout(b, f.begin));
    if (f.assistant && last_answer) ST_TRY(add_think(b, c, turn));
    ST_TRY(add_parts(b, turn, m));
    if (f.user && !has_text(turn)) ST_TRY(add_layout(b, c->prompt));
    if (turn->train) ST_TRY(flush(b)); /* what follows begins with the turn's end */
    b->train_first = turn->train != 0 && f.end && f.end[0];
    return add_layout(b, f.end);
}

static int add_turns(builder *b, const st_chat *c, const st_sample *s, const st_chat_media *m)
{
    int32_t last_user = -1;
    for (int32_t i = 0; i < s->n_turns; i++)
        if (s->turns[i].role && strcmp(s->turns[i].role, "user") == 0) last_user = i;
    if (c->system && c->system[0] &&
        (s->n_turns == 0 || !s->turns[0].role || strcmp(s->turns[0].role, "system") != 0)) {
        ST_TRY(add_layout(b, c->system_begin));
        ST_TRY(add_layout(b, c->system));
        ST_TRY(add_layout(b, c->system_end));
    }
    for (int32_t i = 0; i < s->n_turns; i++) ST_TRY(add_turn(b, c, &s->turns[i], i > last_user, m));
    return flush(b);
}

static int take_ids(builder *b, const st_sample *s) /* ready tokens */
{
    ST_TRY(reserve(b, s->n_ids));
    for (int32_t i = 0; i < s->n_ids; i++) {
        put(b, s->ids[i], s->train && s->train[i], 0);
        b->trained += i > 0 && s->train && s->train[i];
    }
    return ST_OK;
}

static int find_answer(const st_worker *w, const st_sample *s,
                       st_laid *o) /* for display: the text of the first trained turn */
{
    size_t n = 0;
    const st_turn *turn = NULL;
    for (int32_t i = 0; i < s->n_turns && !turn; i++)
        if (s->turns[i].train) turn = &s->turns[i];
    for (int32_t i = 0; turn && i < turn->n_parts; i++)
        n += turn->parts[i].type == ST_PART_TEXT ? turn->parts[i].n_text : 0;
    char *text = st_arena_alloc(w->arena, n + 1);
    if (!text) return st_fail(w->error, ST_E_NOMEM, "no memory to lay out a sample");
    o->answer = text;
    o->n_answer = n;
    for (int32_t i = 0; turn && i < turn->n_parts; i++) {
        if (turn->parts[i].type != ST_PART_TEXT || turn->parts[i].n_text == 0) continue;
        memcpy(text, turn->parts[i].text, turn->parts[i].n_text);
        text += turn->parts[i].n_text;
    }
    return ST_OK;
}

int st_chat_layout(const st_chat *c, const st_tokenizer *t, const st_worker *w, const st_sample *s,
                   const st_chat_media *m, st_laid *out)
{
    builder b = {.t = t, .w = w, .out = out};
    memset(out, 0, sizeof *out);
    int rc = s->n_ids > 0 ? take_ids(&b, s) : add_turns(&b, c, s, m);
    st_buf_free(&b.pending);
    ST_TRY(rc);
    if (b.trained == 0) return st_fail(w->error, ST_E_DATA, "nothing to train on: the answer is empty");
    return find_answer(w, s, out);
}

int st_chat_check_media(const st_tokenizer *t, const st_worker *w, const st_encoder_ops *ops, const void *self)
{
    st_laid laid = {0};
    st_media media = {.size = sizeof media, .kind = ST_MEDIA_IMAGE, .width = 256, .height = 256, .frames = 1};
    st_media_plan plan = {.size = sizeof plan};
    st_chat_media m = {&media, &plan, 1, ops, self};
    builder b = {.t = t, .w = w, .out = &laid};
    int rc = ops->measure(self, w, &media, &plan);
    if (rc != ST_OK) return w->error->code ? rc : st_fail(w->error, rc, "the encoder cannot measure a picture");
    rc = add_media(&b, &m);
    if (rc == ST_OK) rc = flush(&b);
    st_buf_free(&b.pending);
    return rc;
}
