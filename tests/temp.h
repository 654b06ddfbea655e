/* temp.h - files of a test: in a folder of the process's own, which goes with it. */
#ifndef TESTS_TEMP_H
#define TESTS_TEMP_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char temp_folder[32];

static inline void temp_remove(void)
{
    DIR *d = opendir(temp_folder);
    char path[600];

    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", temp_folder, e->d_name);
        if (e->d_name[0] != '.')
            unlink(path);
    }
    if (d)
        closedir(d);
    rmdir(temp_folder);
}

/* One of four paths in turn: the fourth call from now overwrites it. */
static inline const char *temp_path(const char *name)
{
    static char paths[4][256];
    static int turn;

    if (!*temp_folder) {
        strcpy(temp_folder, "/tmp/ftx-test-XXXXXX");
        if (!mkdtemp(temp_folder))
            abort();
        atexit(temp_remove);
    }
    turn = (turn + 1) % 4;
    snprintf(paths[turn], sizeof paths[turn], "%s/%s", temp_folder, name);
    return paths[turn];
}

#endif
