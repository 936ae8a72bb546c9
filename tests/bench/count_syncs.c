/* Counts fsync and fdatasync of the program into which LD_PRELOAD loads it, in the 8-byte file that BENCH_SYNCS names. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static _Atomic long *count;
static int (*next_fsync)(int), (*next_fdatasync)(int);

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("BENCH_SYNCS");
    next_fsync = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    next_fdatasync = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED)
        count = mapped;
}

static int counted(int (*next)(int), int file)
{
    if (count)
        atomic_fetch_add(count, 1);
    return next(file);
}

int fsync(int file) { return counted(next_fsync, file); }
int fdatasync(int file) { return counted(next_fdatasync, file); }
