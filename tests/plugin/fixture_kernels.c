/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel module of the fixture plugin, also built with one thing wrong. */
#include <strata/plugin.h>

#ifndef FIX_VERSION
#define FIX_VERSION "0.1"
#endif
#ifndef FIX_TABLE_SIZE
#define FIX_TABLE_SIZE sizeof(int)
#endif
#ifndef FIX_TOOLCHAIN
#define FIX_TOOLCHAIN ""
#endif
#ifndef FIX_INIT
#define FIX_INIT NULL
#endif
#ifndef FIX_IFACE
#define FIX_IFACE 3
#endif
#ifndef FIX_ARCHS
#define FIX_ARCHS ""
#endif
#ifndef FIX_MAGIC
#define FIX_MAGIC ST_KERNEL_MAGIC
#endif

static int table = 42; /* counts up with every start */
__attribute__((unused)) static int count(const st_host *host, int ordinal) { return table++, ST_OK; }
__attribute__((unused)) static int fail(const st_host *host, int ordinal) { return ST_E_DEVICE; }

ST_EXPORT const st_kernels *st_kernels_v1(void);
ST_EXPORT const st_kernels *st_kernels_v1(void)
{
    static const st_kernels k = {
        FIX_MAGIC,   ST_ABI_MAJOR, ST_ABI_MINOR, sizeof k, FIX_IFACE, FIX_TABLE_SIZE, "fixture", "cpu",
        FIX_VERSION, FIX_TOOLCHAIN, FIX_ARCHS,   &table,   FIX_INIT};
    return &k;
}
