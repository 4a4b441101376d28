/* SPDX-License-Identifier: Apache-2.0 */
/* base/arena.c - bump allocation in growing blocks, freed as a whole. Not for use by two threads at once. */
#include "base/base.h"
#include <stdlib.h>
#include <string.h>

#define ALIGN ((size_t)64)
#define FIRST_BLOCK ((size_t)16 << 10)
#define LARGEST_BLOCK ((size_t)4 << 20) /* larger requests get a block of their own size */

typedef struct block {
    struct block *next;
    char *data;
    size_t size, used;
} block;

struct st_arena {
    block *first, *current; /* blocks after `current` are empty: kept by a reset */
    size_t limit, used, next_size;
};

st_arena *st_arena_create(size_t limit)
{
    st_arena *a = calloc(1, sizeof *a);
    if (!a) return NULL;
    a->limit = limit;
    a->next_size = FIRST_BLOCK;
    return a;
}

void st_arena_destroy(st_arena *a)
{
    if (!a) return;
    for (block *b = a->first, *next; b; b = next) {
        next = b->next;
        free(b->data);
        free(b);
    }
    free(a);
}

void st_arena_reset(st_arena *a)
{
    for (block *b = a->first; b; b = b->next) b->used = 0;
    a->current = a->first;
    a->used = 0;
}

static block *block_create(size_t size)
{
    block *b = malloc(sizeof *b);
    if (!b) return NULL;
    b->data = aligned_alloc(ALIGN, size);
    if (!b->data) {
        free(b);
        return NULL;
    }
    b->size = size;
    b->used = 0;
    b->next = NULL;
    return b;
}

/* The block that has room for n bytes: the current one, a kept later one, or a new one. */
static block *block_with_room(st_arena *a, size_t n)
{
    block *last = a->current;
    for (block *b = a->current; b; b = b->next) {
        last = b;
        if (b->size - b->used >= n) return b;
    }
    size_t size = a->next_size > n ? a->next_size : n;
    block *b = block_create(size);
    if (!b) return NULL;
    if (last) last->next = b;
    else a->first = b;
    if (a->next_size < LARGEST_BLOCK) a->next_size *= 2;
    return b;
}

void *st_arena_alloc(st_arena *a, size_t bytes)
{
    if (!a || bytes > SIZE_MAX / 2) return NULL;
    size_t n = (bytes + ALIGN - 1) & ~(ALIGN - 1);
    if (n == 0) n = ALIGN;
    if (a->limit && (n > a->limit || a->used > a->limit - n)) return NULL;
    block *b = block_with_room(a, n);
    if (!b) return NULL;
    void *p = b->data + b->used;
    b->used += n;
    a->current = b;
    a->used += n;
    return memset(p, 0, n);
}

char *st_arena_strndup(st_arena *a, const char *text, size_t n)
{
    if (!text) return NULL;
    char *p = n < SIZE_MAX ? st_arena_alloc(a, n + 1) : NULL;
    if (p) memcpy(p, text, n);
    return p;
}

char *st_arena_strdup(st_arena *a, const char *text)
{
    return text ? st_arena_strndup(a, text, strlen(text)) : NULL;
}

char *st_arena_printf(st_arena *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = n >= 0 ? st_arena_alloc(a, (size_t)n + 1) : NULL;
    if (!p) return NULL;
    va_start(ap, fmt);
    vsnprintf(p, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return p;
}
