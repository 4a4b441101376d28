/* SPDX-License-Identifier: Apache-2.0 */
/* team.h - the threads of one device. Any number of pieces is shared out among the caller and its helpers. */
#ifndef CPU_TEAM_H
#define CPU_TEAM_H
#include <strata/cpu.h>

typedef struct cpu_team cpu_team;
/* threads >= 1, the caller included. NULL: no memory, or the system gives no more threads. */
cpu_team *cpu_team_create(int32_t threads);
void cpu_team_destroy(cpu_team *);
st_cpu_pool *cpu_team_pool(cpu_team *); /* as long as the team */
#endif
