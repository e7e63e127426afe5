"""Functions of the C library that a test replaces in nginx, by LD_PRELOAD."""

import os
import subprocess

import gateway

# a clock that is ahead by the seconds in the file "ahead"

CLOCK = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

int
gettimeofday(struct timeval *tv, void *tz)
{
    int    rc, ahead;
    FILE  *f;

    rc = syscall(SYS_gettimeofday, tv, tz);

    f = fopen(DIR "/ahead", "r");

    if (f) {
        if (fscanf(f, "%d", &ahead) == 1) {
            tv->tv_sec += ahead;
        }

        fclose(f);
    }

    return rc;
}
"""

# threads that wait from the file "hold" on until there is a file "release"

THREADS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct {
    void  *(*run)(void *data);
    void   *data;
} start_t;

typedef int (*create_pt)(pthread_t *, const pthread_attr_t *,
    void *(*)(void *), void *);

static void *
held(void *data)
{
    start_t  start = *(start_t *) data;

    free(data);

    while (access(DIR "/release", F_OK) != 0) {
        usleep(50000);
    }

    return start.run(start.data);
}

int
pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *),
    void *data)
{
    start_t    *start;
    create_pt   create = (create_pt) dlsym(RTLD_NEXT, "pthread_create");

    if (access(DIR "/hold", F_OK) != 0) {
        return create(t, attr, run, data);
    }

    start = malloc(sizeof(start_t));
    start->run = run;
    start->data = data;

    return create(t, attr, held, start);
}
"""


class Shim:
    """What is in the C source asks for files in a directory, DIR."""

    def __init__(self, path, source, monkeypatch):
        self.path = str(path)
        os.mkdir(self.path)
        library = os.path.join(self.path, "shim.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-o", library,
                        '-DDIR="%s"' % self.path, "-"], input=source,
                       text=True, check=True)
        preload = [library]
        if gateway.ASAN:            # which must be the first
            preload.insert(0, subprocess.run(
                ["cc", "-print-file-name=libasan.so"], check=True,
                capture_output=True, text=True).stdout.strip())
        monkeypatch.setenv("LD_PRELOAD", ":".join(preload))

    def set(self, name, text=""):
        new = os.path.join(self.path, "new")
        with open(new, "w") as f:
            f.write(text)
        os.rename(new, os.path.join(self.path, name))

    def clear(self, name):
        os.unlink(os.path.join(self.path, name))
