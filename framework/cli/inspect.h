/* SPDX-License-Identifier: Apache-2.0 */
/* cli/inspect.h - one plugin, or the keys that the host reads, in the forms of `strata inspect`. */
#ifndef ST_INSPECT_H
#define ST_INSPECT_H
#include "plugin/registry.h"
#include <jansson.h>

typedef struct st_inspected {
    const st_plugin *plugin;
    const st_manifest *manifest; /* NULL: opened as a file */
    const char *module;
} st_inspected;
void inspect_text(const st_inspected *, FILE *);
void inspect_markdown(const st_inspected *, FILE *);
int inspect_json(const st_inspected *, FILE *); /* ST_E_NOMEM */

/* All sections of a spec and of a manifest. */
void inspect_spec_text(FILE *);
void inspect_spec_markdown(FILE *);
int inspect_spec_json(FILE *); /* ST_E_NOMEM */

/* One parameter, for both. */
void inspect_wrapped(const char *text, int indent, FILE *);
void inspect_param_text(const st_param *, FILE *);
void inspect_markdown_head(FILE *);
void inspect_param_markdown(const st_param *, FILE *);
json_t *inspect_param_json(const st_param *);
#endif
