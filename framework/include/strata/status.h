/* SPDX-License-Identifier: Apache-2.0 */
/* strata/status.h - status codes, error records, early-return macros.
 *
 * Every fallible function returns int: ST_OK or one negative code below. The function that first decides an error
 * words it, once; callers only pass the code up. Nothing exits, aborts or prints. No global state. */
#ifndef STRATA_STATUS_H
#define STRATA_STATUS_H
#include <stddef.h>
#include <stdint.h>

#if defined(__cplusplus) /* the headers declare no functions except inline ones, so only exports need C linkage */
#define ST_EXPORT extern "C" __attribute__((visibility("default")))
#else
#define ST_EXPORT __attribute__((visibility("default")))
#endif
#define ST_PRINTF(fmt, first) __attribute__((format(printf, fmt, first))) /* gcc, clang and nvcc are the compilers        */
#define ST_FN static inline

enum { /* code               cause                                            remedy                                  */
    ST_OK = 0,
    ST_E_CONFIG = -1,      /* the spec is wrong                               change the named key                    */
    ST_E_ABI = -2,         /* module and host do not match                    rebuild the module or update the host   */
    ST_E_NOTFOUND = -3,    /* no such plugin, file, tensor                    see the listed search                   */
    ST_E_NOMEM = -4,       /* memory or an arena is exhausted                 smaller row, recompute, more ranks      */
    ST_E_UNSUPPORTED = -5, /* valid, but not offered by this backend          other backend or option                 */
    ST_E_SHAPE = -6,       /* a tensor has the wrong shape or type            bug in the caller named in the message  */
    ST_E_DEVICE = -7,      /* the accelerator reported an error               see the native code in the detail       */
    ST_E_COMM = -8,        /* a collective failed or timed out                see the rank in the detail              */
    ST_E_IO = -9,          /* a file or socket failed                         see the path in the detail              */
    ST_E_DATA = -10,       /* one sample is unusable                          it is set aside, counted and named      */
    ST_E_FAULT = -11,      /* a kernel reported a fault during the step       see st_fault and the plugin's text      */
    ST_E_INTERNAL = -12    /* a bug in strata or in a plugin                                                          */
};

/* Fixed for all time: owned by the caller, nothing allocated. The first error wins; context may be put in front. */
typedef struct st_error {
    int32_t code, line, column, layer; /* line, column: 1-based, 0 unknown; layer: index, -1 outside a stack          */
    char file[256];                    /* spec, manifest, module or source file                                       */
    char message[512];                 /* what is wrong: one sentence, no newline                                     */
    char detail[512];                  /* both values, native error text; may be empty                                */
    char hint[256];                    /* what to do; may be empty                                                    */
} st_error;

#define ST_TRY(expr) do { int st_rc_ = (expr); if (st_rc_ != ST_OK) return st_rc_; } while (0)
#define ST_TRY_GOTO(rc, expr, label) do { (rc) = (expr); if ((rc) != ST_OK) goto label; } while (0)
#endif
