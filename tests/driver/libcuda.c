/* SPDX-License-Identifier: Apache-2.0 */
/* libcuda.c - a stand-in for the NVIDIA driver, for tests: it counts as many GPUs as STAND_IN_GPUS says, all of the compute
 * capability STAND_IN_CAPABILITY (10 times it; 90 unless said), and can do nothing with them. STAND_IN_BROKEN: it does not
 * start. */
#include <stdio.h>
#include <stdlib.h>

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

int cuInit(unsigned flags);
int cuDeviceGetCount(int *n);
int cuDeviceGet(int *device, int ordinal);
int cuDeviceGetName(char *name, int size, int device);
int cuDeviceGetAttribute(int *value, int which, int device);

int cuInit(unsigned flags) { return flags != 0 || getenv("STAND_IN_BROKEN"); }

int cuDeviceGetCount(int *n)
{
    *n = number("STAND_IN_GPUS", 0);
    return 0;
}

int cuDeviceGet(int *device, int ordinal)
{
    *device = 7 + ordinal; /* a handle is no ordinal */
    return ordinal < 0 || ordinal >= number("STAND_IN_GPUS", 0);
}

int cuDeviceGetName(char *name, int size, int device)
{
    snprintf(name, (size_t)size, "Stand-in %d", device - 7);
    return 0;
}

int cuDeviceGetAttribute(int *value, int which, int device)
{
    int capability = number("STAND_IN_CAPABILITY", 90);

    *value = which == 75 ? capability / 10 : capability % 10;
    return device < 7 || (which != 75 && which != 76);
}
