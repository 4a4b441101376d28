/* SPDX-License-Identifier: Apache-2.0 */
/* plugin/private.h - what the files of this room share. */
#ifndef ST_PLUGIN_PRIVATE_H
#define ST_PLUGIN_PRIVATE_H
#include "plugin/registry.h"

typedef struct loaded { /* a module that was opened and found good */
    const char *path;
    const st_plugin *plugin;   /* the host's copy; one of the two */
    const st_kernels *kernels;
    uint64_t started;          /* kernels: bit per device */
} loaded;

struct st_registry {
    st_arena *arena;
    const st_base *base;
    st_searched *searched; int32_t n_searched;
    const st_manifest **list; int32_t n_list;
    loaded *loaded; int32_t n_loaded;
    int32_t set_aside;
};

/* malloc'd arrays that grow by one; returns the new zeroed element, NULL without memory */
void *st_grow(void *array_pointer, int32_t *n, size_t size);

/* What a name may be in and was not looked for: folders that a user named, manifests set aside. Empty: nothing. */
void st_registry_left_out(const st_registry *, st_buf *);

/* manifest.c: *out NULL without error: the file is no manifest */
int st_manifest_read(st_registry *, const char *path, const char *dir, st_manifest **out, st_diags *);
/* access.c: NULL, or why code from there is not trusted */
const char *st_access_directory(st_arena *, const char *path);
const char *st_access_module(st_arena *, const char *path);
/* elf.c: refuses a file that the loader would crash on; *odd: what is wrong with it in our words, NULL: nothing */
int st_elf_check(const char *path, const char **odd, st_error *);

/* Fields that differ, all of them, for one message. */
typedef struct st_differences { char text[sizeof ((st_error *)0)->detail]; int32_t n; } st_differences;
void st_differ(st_differences *, const char *fmt, ...) ST_PRINTF(2, 3);

/* contract.c: what a descriptor promises is there: texts, operations, slots, maps, parameters */
int st_contract_check(const st_plugin *, const char *path, st_error *);
int st_contract_params(const st_plugin *, const char *path, st_error *);
#endif
