/* SPDX-License-Identifier: Apache-2.0 */
/* plugin/registry.h - manifests, search paths, modules, instances. Listing opens no module.
 *
 * Where is searched, in this order: --plugin-path, the spec's [plugins] path, $STRATA_PLUGIN_PATH,
 * $XDG_DATA_HOME/strata (or ~/.local/share/strata), the installed directories. A program that runs from its build
 * tree takes the source tree's manifests and the build tree's modules in place of the installed ones.
 * $STRATA_PLUGIN_PATH_ONLY replaces all but the first two. Plugins are code: no directory or module that everybody
 * may write to is used, and nothing is searched in the current directory. */
#ifndef ST_REGISTRY_H
#define ST_REGISTRY_H
#include "spec/spec.h"

typedef struct st_registry st_registry;
typedef struct st_manifest {
    const char *name, *summary, *file, *dir; /* file: the manifest; dir: the search directory                  */
    const char *module;              /* path; a name without '/' when it was found nowhere                     */
    const char *version;
    int32_t kind, abi;
    char symbol;                     /* 0: none                                                                */
    int32_t n_kernels;
    struct { const char *backend, *module; } kernels[8]; /* module as above                                    */
    int32_t wins;                    /* 0: shadowed by `shadowed_by`                                           */
    const struct st_manifest *shadowed_by;
} st_manifest;
typedef struct st_search {           /* in this order: given, spec, environment, user, installed               */
    const char *const *given; int32_t n_given;   /* --plugin-path                                              */
    const char *const *spec; int32_t n_spec;     /* [plugins] path, absolute or relative to the current directory */
} st_search;
typedef struct st_searched {         /* for `strata plugins`                                                   */
    const char *dir, *source;        /* source: "--plugin-path", "STRATA_PLUGIN_PATH" ...                      */
    const char *why_not;             /* NULL: it was searched                                                  */
    bool asked, listed;              /* asked: a user named it; listed: it is above, too                       */
    int32_t manifests, set_aside;    /* set aside: with mistakes, each told as a warning                       */
} st_searched;

/* A manifest with mistakes is set aside and told as a warning; all others stay usable. */
int st_registry_open(const st_base *, const st_search *, st_registry **, st_diags *);
/* The same for a spec: binds its [plugins] section. spec NULL: none. */
int st_registry_open_for(const st_base *, const char *const *given, int32_t n_given, st_spec *, st_registry **,
                         st_diags *);
void st_registry_close(st_registry *); /* modules stay loaded */
int st_registry_list(const st_registry *, const st_manifest *const **);
int st_registry_searched(const st_registry *, const st_searched **);
const st_manifest *st_registry_find(const st_registry *, int kind, const char *name); /* the winner */
/* The layer that claims a symbol, or the head that claims '/'. NULL and error when none or two claim it. */
const st_manifest *st_registry_symbol(const st_registry *, char symbol, st_error *);
const char *st_kind_name(int kind);   /* "layer" */
int st_kind_of(const char *name);     /* 0: unknown */

/* Keys of specs, and of manifests, that this room reads, for `strata inspect --spec`; -> how many. */
int st_plugin_key_tables(const st_key_table **);
int st_manifest_key_tables(const st_key_table **);
/* NULL, or what a plugin's name, or a layer's symbol, must be. */
const char *st_plugin_name_refused(const char *name);
const char *st_symbol_refused(const char *symbol);

/* Opens (once), checks magic, ABI, size, kind, name, required ops, parameters. Errors name file, both values,
 * remedy. */
int st_module_open(st_registry *, const st_manifest *, const st_plugin **, st_error *);
/* The same without a manifest to compare with. */
int st_module_open_file(st_registry *, const char *path, const st_plugin **, st_error *);
/* *out NULL: the plugin needs no kernel module. */
int st_kernels_open(st_registry *, const st_manifest *, const st_plugin *, const char *backend, const st_kernels **,
                    st_error *);
/* What kernels are opened for: a device of a running backend. kernels: its own, NULL: it has none. */
typedef struct st_kernels_for {
    const char *backend;
    const st_kernels *kernels;
    const st_host *host;
    const struct st_backend_ops *ops; /* NULL: nothing is known of the device */
    const void *self;
    int ordinal;
} st_kernels_for;
/* Does the device run what the module was built for? The backend decides and words it; path: of the module. */
int st_kernels_accepted(const st_kernels *, const st_kernels_for *, const char *path, st_error *);
/* Where an opened kernel module lies. */
const char *st_kernels_path(const st_registry *, const st_kernels *);
/* Runs init() of an opened kernel module: once for each device, however often it is asked for. */
int st_kernels_start(st_registry *, const st_kernels *, const st_host *, int ordinal, st_error *);
/* Two kernel modules share one device runtime: name and major of their toolchains must be equal. path: of the first. */
int st_kernels_together(const st_kernels *, const st_kernels *backend, const char *path, st_error *);
/* Copies a plugin's ops struct into a zeroed struct of the host's size. */
void st_ops_copy(const st_plugin *, void *out, size_t size);

typedef struct st_instance {
    const st_manifest *manifest;
    const st_plugin *plugin;
    void *self;                      /* host-owned, zeroed, bound from `section`; lives as long as the spec     */
    const void *kernels;             /* table for the running backend, NULL before st_instance_kernels          */
    const char *section;
    char symbol;
} st_instance;
/* name NULL: taken from the section's `plugin` key. Mistakes go to diags. */
int st_instance_create(st_registry *, st_spec *, int kind, const char *name, const char *section, st_instance *,
                       st_diags *);
/* Opens the instance's kernel module if it has one, checks its toolchain against the backend's own kernels and that the
 * device runs it, starts it for the device. */
int st_instance_kernels(st_registry *, st_instance *, const st_kernels_for *, st_error *);
#endif
