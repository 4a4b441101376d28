/* SPDX-License-Identifier: Apache-2.0 */
/* strata/params.h - the parameter table: one master for parsing, errors, `strata inspect` and the reference pages.
 *
 * The host parses the plugin's spec section by this table and writes the values into the instance at `offset` before
 * configure() is called. A plugin only checks rules between fields; it never asks for a value by name. */
#ifndef STRATA_PARAMS_H
#define STRATA_PARAMS_H
#include <strata/status.h>

enum {                /* field type in the instance                          text form                                */
    ST_P_BOOL = 1,    /* int32_t 0 or 1                                      yes no true false on off 1 0             */
    ST_P_INT = 2,     /* int64_t, ST_UNSET_INT when not given                -12, 4k = 4096                           */
    ST_P_FLOAT = 3,   /* double, NaN when not given                          1e-6                                     */
    ST_P_SIZE = 4,    /* int64_t bytes                                       512MiB                                   */
    ST_P_STRING = 5,  /* const char *, lives as long as the instance; NULL when not given                             */
    ST_P_ENUM = 6,    /* int32_t index into choices "a|b|c", -1 when not given                                        */
    ST_P_INTS = 7,    /* st_ints                                             11,11,10                                 */
    ST_P_PATH = 8,    /* as STRING; relative to the spec's folder                                                     */
    ST_P_FLOATS = 9   /* st_floats                                           0.5,0.5,0.5                              */
};
enum {
    ST_PF_REQUIRED = 1,   /* no default                                                                               */
    ST_PF_FIXED = 2,      /* stored with the checkpoint; a resume with another value is refused by name               */
    ST_PF_SHARED = 4,     /* when not given, inherits the same key of [stack]                                         */
    ST_PF_DEPRECATED = 8, /* works, warns                                                                             */
    ST_PF_OBSOLETE = 16,  /* refused, with its help text as the remedy                                                */
    ST_PF_EXPERT = 32,    /* left out of the short listing                                                            */
    ST_PF_LOCAL = 64,     /* says where, how fast or by which kernels: not stored with checkpoints, not hashed        */
    ST_PF_TIMING = 128    /* not at its default, a run measures speed and its weights mean nothing: marked wherever the
                             run is told of, and in its checkpoints                                                   */
};
#define ST_UNSET_INT INT64_MIN
typedef struct st_ints { int32_t n, v[15]; } st_ints;
typedef struct st_floats { int64_t n; double v[15]; } st_floats;

/* All strings static UTF-8. Read with stride st_plugin.param_size, so members may be appended. */
typedef struct st_param {
    const char *key, *def, *unit, *choices, *help; /* def: parsed like user text, NULL = stays unset; unit "" = none  */
    const char *alias, *since;                     /* old name of the key or NULL; plugin version or NULL             */
    double min, max;                               /* inclusive; both 0 = unbounded                                   */
    uint32_t type, flags, offset, size;            /* field in the instance; size is checked against the type         */
} st_param;

#define ST_PARAM(T, field, type, def, lo, hi, unit, choices, flags, help) \
    { #field, def, unit, choices, help, NULL, NULL, lo, hi, type, flags, \
      (uint32_t)offsetof(T, field), (uint32_t)sizeof(((T *)0)->field) }
#define ST_INT(T, f, def, lo, hi, unit, flags, help) ST_PARAM(T, f, ST_P_INT, def, lo, hi, unit, NULL, flags, help)
#define ST_FLOAT(T, f, def, lo, hi, unit, flags, help) ST_PARAM(T, f, ST_P_FLOAT, def, lo, hi, unit, NULL, flags, help)
#define ST_BOOL(T, f, def, flags, help) ST_PARAM(T, f, ST_P_BOOL, def, 0, 1, "", NULL, flags, help)
#define ST_CHOICE(T, f, def, choices, flags, help) ST_PARAM(T, f, ST_P_ENUM, def, 0, 0, "", choices, flags, help)
#define ST_INTS(T, f, def, lo, hi, flags, help) ST_PARAM(T, f, ST_P_INTS, def, lo, hi, "", NULL, flags, help)
#define ST_FLOATS(T, f, def, lo, hi, flags, help) ST_PARAM(T, f, ST_P_FLOATS, def, lo, hi, "", NULL, flags, help)
#define ST_STR(T, f, def, flags, help) ST_PARAM(T, f, ST_P_STRING, def, 0, 0, "", NULL, flags, help)
#endif
