/* SPDX-License-Identifier: Apache-2.0 */
/* plugin/elf.c - a look at a module's file before the system's loader gets it.
 *
 * The loader refuses most files that are no module, in its own words. Two things it does badly: its words for a file
 * made for another machine are poor, and a library cut short is mapped all the same, so that touching the missing
 * part kills the process. Both are found here from the file's headers. */
#include "config.h"
#include "plugin/private.h"
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static ElfW(Half) own_machine(void)
{
    ElfW(Ehdr) own;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    bool ok = fd >= 0 && pread(fd, &own, sizeof own, 0) == (ssize_t)sizeof own;

    if (fd >= 0) close(fd);
    return ok ? own.e_machine : EM_NONE;
}

/* NULL, or what makes the loader refuse it: then its words can be asked for. */
static const char *look(const ElfW(Ehdr) * h, ssize_t n)
{
    if (n == 0) return "is an empty file";
    if (n < SELFMAG || memcmp(h->e_ident, ELFMAG, SELFMAG)) return "is not a shared object";
    if (n < (ssize_t)sizeof *h) return "is a shared object cut short";
    if (h->e_ident[EI_CLASS] != (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32))
        return "is built for another word size";
    ElfW(Half) own = own_machine();
    if (own != EM_NONE && h->e_machine != own) return "is built for another processor";
    if (h->e_type != ET_DYN) return "is not a shared object, but another kind of ELF file";
    return NULL;
}

/* Every part that is to be mapped must lie inside the file. */
static int check_length(int fd, const char *path, const ElfW(Ehdr) * h, uint64_t size, st_error *e)
{
    for (unsigned i = 0; i < h->e_phnum; i++) {
        ElfW(Phdr) p;
        uint64_t at = h->e_phoff + (uint64_t)i * sizeof p, end;
        bool cut =
            h->e_phentsize != sizeof p || at < h->e_phoff || pread(fd, &p, sizeof p, (off_t)at) != (ssize_t)sizeof p;
        if (!cut && p.p_type != PT_LOAD) continue;
        if (!cut) cut = __builtin_add_overflow((uint64_t)p.p_offset, (uint64_t)p.p_filesz, &end) || end > size;
        if (!cut) continue;
        st_fail_at(e, ST_E_ABI, path, 0, 0,
                   "this module is a shared object cut short: its parts reach behind its %llu bytes",
                   (unsigned long long)size);
        st_error_hint(e, "copy or build it again");
        return ST_E_ABI;
    }
    return ST_OK;
}

int st_elf_check(const char *path, const char **odd, st_error *e)
{
    ElfW(Ehdr) h;
    struct stat s;
    int rc = ST_OK, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    *odd = NULL;
    if (fd < 0 || fstat(fd, &s)) rc = st_fail_errno(e, path, "open");
    else {
        ssize_t n = pread(fd, &h, sizeof h, 0);
        *odd = n < 0 ? "cannot be read" : look(&h, n);
        if (!*odd) rc = check_length(fd, path, &h, (uint64_t)s.st_size, e);
    }
    if (fd >= 0) close(fd);
    return rc;
}
