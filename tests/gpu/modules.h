/* SPDX-License-Identifier: Apache-2.0 */
/* modules.h - modules for the programs of this folder, and the host that they see. */
#ifndef GPU_MODULES_H
#define GPU_MODULES_H
#include <strata/backend.h>

/* A module's entry: "cuda", "st_plugin_v1"; from the folder ST_MODULES, or from that of the build folder ST_BUILDDIR. NULL: *why,
 * valid until the next call. Modules stay open. */
void *module_entry(const char *module, const char *symbol, const char **why);
const st_plugin *module_plugin(const char *module, const char **why);
const st_kernels *module_kernels(const char *plugin, const char *backend, const char **why);
extern const st_host module_host; /* errors go into st_error.message, what is logged of errors and warnings to stderr */
#endif
