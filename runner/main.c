/* main.c - ftx-run: the runtime as a program. `ftxc compile --exe` appends an artifact to it, and then it runs that
 * model: `./story "Once upon a time"`. Without one it takes an artifact: `ftx-run FILE.ftx "..."`. */
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "command.h"
#include "run.h"
#include "../runtime/base/file.h"
#include "../runtime/ftx.h"
#include "../runtime/artifact/trailer.h"

/* The path of this program's file. Without /proc it is the path that execve was given. */
static const char *find_self(void)
{
    static char self[4096];

    return readlink("/proc/self/exe", self, sizeof self - 1) > 0 ? self : (const char *)getauxval(AT_EXECFN);
}

int main(int argc, char **argv)
{
    const char *const self = find_self();
    const char *name = argc > 0 && strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argc > 0 ? argv[0] : "ftx-run";
    FtxError err;
    bool alone;
    int code;

    command_program = name;
    if (!self) {
        command_say("neither /proc nor the kernel names this program's file, so the model in it cannot be read");
        return EXIT_FAILED;
    }
    if (trailer_alone(self, &alone, &err))
        return command_failed(&err);
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("%s: ftx-run %d.%d\n", name, FTX_VERSION_MAJOR, FTX_VERSION_MINOR);
        return EXIT_DONE;
    }
    code = run(alone ? NULL : self, argc > 0 ? argc - 1 : 0, argv + (argc > 0));
    if (fflush(stdout) || ferror(stdout)) {
        command_say("standard output could not be written");
        return EXIT_FAILED;
    }
    return code;
}
