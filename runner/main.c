/* main.c - ftx-run: the runtime as a program. `ftxc compile --exe` puts an artifact behind it, and
 * then it is that model: `./story "Once upon a time"`. Alone it runs `ftx-run FILE.ftx "..."`. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "run.h"
#include "../runtime/base/file.h"
#include "../runtime/ftx.h"
#include "../runtime/artifact/trailer.h"

int main(int argc, char **argv)
{
    static char self[4096];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    const char *name = argc > 0 && strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argc > 0 ? argv[0] : "ftx-run";
    FtxError err;
    bool alone;
    int code;

    command_program = name;
    if (n < 0) {
        command_say("/proc is not there, so this program cannot look into itself");
        return EXIT_FAILED;
    }
    if (trailer_alone(self, &alone, &err)) {
        command_say(err.text);
        return EXIT_FAILED;
    }
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
