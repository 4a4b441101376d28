/* SPDX-License-Identifier: Apache-2.0 */
/* A tool that draws a time line, as NVTX loads one (NVTX_INJECTION64_PATH): it writes the name of every range into the file
 * that RANGES names, indented by how many are open. */
#if __has_include(<nvtx3/nvToolsExt.h>) /* toolkits come without it; ranges.sh looks for the name of the entry */
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>

static FILE *out;
static int open_ranges;

static int NVTX_API push(const char *name)
{
    fprintf(out, "%*s%s\n", open_ranges, "", name);
    return open_ranges++;
}

static int NVTX_API pop(void)
{
    return --open_ranges;
}

static void finish(void)
{
    fprintf(out, "%d left open\n", open_ranges);
    fclose(out);
}

/* The name that NVTX looks for; 1: this tool listens. */
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table_of);
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table_of)
{
    const NvtxExportTableCallbacks *callbacks = table_of(NVTX_ETID_CALLBACKS);
    const char *path = getenv("RANGES");
    NvtxFunctionTable core;
    unsigned int n = 0;

    if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &core, &n)) return 0;
    if (n <= NVTX_CBID_CORE_RangePop) return 0;
    if (!path || !(out = fopen(path, "w"))) return 0;
    *core[NVTX_CBID_CORE_RangePushA] = (NvtxFunctionPointer)push;
    *core[NVTX_CBID_CORE_RangePop] = (NvtxFunctionPointer)pop;
    atexit(finish);
    return 1;
}
#else
typedef int no_header;
#endif
