/* SPDX-License-Identifier: Apache-2.0 */
/* cli/inspect.h - one plugin in the forms of `strata inspect`. */
#ifndef ST_INSPECT_H
#define ST_INSPECT_H
#include "plugin/registry.h"

typedef struct st_inspected {
    const st_plugin *plugin;
    const st_manifest *manifest; /* NULL: opened as a file */
    const char *module;
} st_inspected;
void inspect_text(const st_inspected *, FILE *);
void inspect_markdown(const st_inspected *, FILE *);
int inspect_json(const st_inspected *, FILE *); /* ST_E_NOMEM */
#endif
