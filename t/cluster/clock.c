
/*
 * A clock that is off, for a process: preloaded, it adds so many seconds as the
 * file MODELGW_CLOCK has, as an int64_t, to what the wall clock says.  The file
 * is mapped: a change is seen at once by all processes.  Other clocks, and
 * waits, are as they were, as with a machine whose time is set.
 *
 *     cc -shared -fPIC -o clock.so clock.c
 */


#define _GNU_SOURCE

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>


static volatile int64_t  *clock_off;


static void __attribute__((constructor))
clock_init(void)
{
    int    fd;
    char  *path;
    void  *p;

    path = getenv("MODELGW_CLOCK");
    if (path == NULL) {
        return;
    }

    fd = open(path, O_RDONLY|O_CLOEXEC);
    if (fd == -1) {
        abort();
    }

    p = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        abort();
    }

    (void) close(fd);

    clock_off = p;
}


int
clock_gettime(clockid_t clock, struct timespec *ts)
{
    int  rc;

    rc = (int) syscall(SYS_clock_gettime, clock, ts);

    if (rc == 0 && clock_off != NULL
        && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    {
        ts->tv_sec += *clock_off;
    }

    return rc;
}


int
gettimeofday(struct timeval *tv, void *tz)
{
    struct timespec  ts;

    (void) tz;
    (void) clock_gettime(CLOCK_REALTIME, &ts);

    tv->tv_sec = ts.tv_sec;
    tv->tv_usec = ts.tv_nsec / 1000;

    return 0;
}


time_t
time(time_t *t)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_REALTIME, &ts);

    if (t != NULL) {
        *t = ts.tv_sec;
    }

    return ts.tv_sec;
}
