/* commands/doctor.c - ftxc doctor: what of this machine ftxc can use, what is missing, and how to get it.
 *
 * A row is OK, a NOTE (something is absent that nothing here needs) or MISSING (something here cannot be used).
 * One MISSING makes the exit code 1. */
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "command.h"
#include "../instantiate/instantiate.h"
#include "../../kernels/cpu/cpu.h"
#include "../../runner/json.h"
#include "../../runner/options.h"
#include "../../runtime/base/arena.h"
#include "../../runtime/base/env.h"
#include "../../runtime/base/file.h"
#include "../../runtime/base/team.h"
#include "../../runtime/device/device.h"

typedef struct Options {
    bool help, json;
} Options;

static const Option table[] = {
    {"--json", 0, OPT_FLAG, NULL, "one object: version, ok, and the rows with name, state, text and advice",
     offsetof(Options, json), 0},
    {"--help", 'h', OPT_FLAG, NULL, "this text", offsetof(Options, help), 0},
};

typedef enum State { OK, NOTE, MISSING } State;
static const char *const state_names[] = {"ok", "note", "missing"};

typedef struct Row {
    const char *name;
    State state;
    char text[1200];
    const char *advice; /* NULL: none is needed */
} Row;

enum { MAX_ROWS = 20, MAX_GPUS = 8, OLDEST_GPU = 800 };

typedef struct Report {
    Row row[MAX_ROWS];
    size_t n;
    bool gpu; /* a GPU is in this machine, usable or not */
} Report;

static const char get_driver[] =
    "install NVIDIA's driver, version 550 or newer; in a container, start it with the GPU (--gpus all)";
static const char get_nvrtc[] =
    "install the CUDA toolkit 12.4 or newer, or the Python package nvidia-cuda-nvrtc; FTX_NVRTC names the folder";
static const char get_cublaslt[] =
    "install the CUDA toolkit 12.4 or newer, or the Python package nvidia-cublas; FTX_CUDA names the folder";
static const char get_nccl[] =
    "for GPUs of several processes: install the package libnccl2, or the Python package nvidia-nccl-cu13";
static const char get_cupti[] = "install the CUDA toolkit 12 or newer, or the Python package nvidia-cuda-cupti";

static void add(Report *r, const char *name, State state, const char *advice, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
static void add(Report *r, const char *name, State state, const char *advice, const char *format, ...)
{
    Row *row = &r->row[r->n++];
    va_list ap;

    *row = (Row){.name = name, .state = state, .advice = advice};
    va_start(ap, format);
    vsnprintf(row->text, sizeof row->text, format, ap);
    va_end(ap);
}

/* The first line of a small file that begins with `key`, without the key; false: there is none. */
static bool read_line(const char *path, const char *key, char *out, size_t bytes)
{
    FILE *f = fopen(path, "re");
    char line[400];
    bool found = false;

    while (f && !found && fgets(line, sizeof line, f))
        found = strncmp(line, key, strlen(key)) == 0;
    if (f)
        fclose(f);
    if (found) {
        const char *value = line + strlen(key);

        value += strspn(value, " \t:");
        snprintf(out, bytes, "%.*s", (int)strcspn(value, "\n"), value);
    }
    return found;
}

/* --- the host ----------------------------------------------------------------------------------------- */

static void check_cpu(Report *r)
{
    char model[200];
    const bool slow = strcmp(cpu_features(), "SSE2") == 0 && !env_text(ENV_FTX_CPU);

    if (!read_line("/proc/cpuinfo", "model name", model, sizeof model))
        snprintf(model, sizeof model, "processor of unknown name");
    if (!cpu_asked_known())
        add(r, "cpu", MISSING, "unset FTX_CPU", "FTX_CPU is \"%s\": expected " CPU_LEVEL_NAMES, env_text(ENV_FTX_CPU));
    else
        add(r, "cpu", slow ? NOTE : OK, slow ? "a processor with AVX2 is several times faster" : NULL,
            "%s; %d CPUs for this process; kernels for %s", model, team_default_threads(), cpu_features());
}

static void check_memory(Report *r)
{
    uint64_t all, available;

    memory_machine(&all, &available);

    const bool little = available < 1000000000;

    add(r, "memory", little ? NOTE : OK,
        little ? "models of a billion weights in bf16 need 2 GB and more, and their engine" : NULL,
        "%.1f GB, available %.1f GB", (double)all * 1e-9, (double)available * 1e-9);
}

static void count_files(const char *folder, size_t *files, double *bytes)
{
    DIR *dir = opendir(folder);
    const struct dirent *e;

    while (dir && (e = readdir(dir))) {
        struct stat st;

        if (fstatat(dirfd(dir), e->d_name, &st, 0) == 0 && S_ISREG(st.st_mode)) {
            ++*files;
            *bytes += (double)st.st_size;
        }
    }
    if (dir)
        closedir(dir);
}

static void check_cache(Report *r, Arena *keep)
{
    const char *folder = cache_folder(keep);
    struct statvfs disk;
    FtxError err;
    FileOut *probe;
    size_t files = 0;
    double bytes = 0.0;

    if (!folder) {
        add(r, "cache", NOTE, "let FTX_CACHE name a folder, or set HOME",
            "none, so kernels are compiled anew by every ftxc compile");
        return;
    }
    if (file_make_dirs(folder, &err) || file_create(arena_printf(keep, "%s/doctor", folder), &probe, &err)) {
        add(r, "cache", MISSING, "make the folder writable, or let FTX_CACHE name another one; 0: keep none", "%s",
            err.text);
        return;
    }
    file_abort(probe);
    count_files(folder, &files, &bytes);
    add(r, "cache", OK, NULL, "%s: %zu compiled kernels, %.1f MB; %.1f GB free", folder, files, bytes * 1e-6,
        statvfs(folder, &disk) == 0 ? (double)disk.f_bavail * (double)disk.f_frsize * 1e-9 : 0.0);
}

/* --- GPUs --------------------------------------------------------------------------------------------- */

/* Whether a display controller of NVIDIA is on the PCI bus, whatever drivers say. */
static bool has_nvidia_card(Arena *keep)
{
    DIR *dir = opendir("/sys/bus/pci/devices");
    const struct dirent *e;
    bool found = false;

    while (dir && !found && (e = readdir(dir))) {
        char vendor[32], class[32];

        found = read_line(arena_printf(keep, "/sys/bus/pci/devices/%s/vendor", e->d_name), "0x10de", vendor,
                          sizeof vendor) &&
                read_line(arena_printf(keep, "/sys/bus/pci/devices/%s/class", e->d_name), "0x03", class, sizeof class);
    }
    if (dir)
        closedir(dir);
    return found;
}

static void add_gpu(Report *r, int ordinal, const CudaFacts *f)
{
    const bool old = f->target < OLDEST_GPU;

    add(r, "gpu", old ? MISSING : OK, old ? "a GPU of compute capability 8.0 (Ampere) or newer is needed" : NULL,
        "cuda:%d, %s (sm_%u%s), %.1f GB, free %.1f GB", ordinal, f->name, f->target / 10, f->target % 10 ? "a" : "",
        (double)f->memory * 1e-9, (double)f->memory_free * 1e-9);
}

static void check_gpus(Report *r, Arena *keep)
{
    const char *asked = env_text(ENV_FTX_CUDA);
    CudaFacts f = {.gpus = 1};
    FtxError err;

    r->gpu = !(asked && strcmp(asked, "0") == 0) && has_nvidia_card(keep);
    for (int i = 0; i < f.gpus && i < MAX_GPUS; i++) {
        const FtxStatus s = device_cuda_facts(i, &f, &err);

        if (s) { /* without a GPU the rest of ftxc works, on the CPU */
            add(r, i ? "gpu" : "driver", r->gpu || i ? MISSING : NOTE, get_driver, "%s", err.text);
            return;
        }
        if (i == 0)
            add(r, "driver", OK, NULL, "for CUDA %d.%d", f.driver / 1000, f.driver / 10 % 100);
        r->gpu = true;
        add_gpu(r, i, &f);
    }
}

static void check_libraries(Report *r)
{
    const State absent = r->gpu ? MISSING : NOTE;
    FtxError err;
    size_t version;
    int nccl;

    if (nvrtc_version())
        add(r, "nvrtc", OK, NULL, "%s, which compiles for GPUs", nvrtc_version());
    else
        add(r, "nvrtc", absent, get_nvrtc, "%s", nvrtc_missing());
    if (device_cuda_blas(&version, &err))
        add(r, "cublaslt", absent, get_cublaslt, "%s", err.text);
    else
        add(r, "cublaslt", OK, NULL, "%zu.%zu, for large matrix products on GPUs", version / 10000,
            version / 100 % 100);
    if (device_cuda_nccl(&nccl, &err)) /* GPUs of one process do without it */
        add(r, "nccl", NOTE, r->gpu ? get_nccl : NULL, "%s", err.text);
    else
        add(r, "nccl", OK, NULL, "%d.%d.%d, for GPUs of several processes", nccl / 10000, nccl / 100 % 100, nccl % 100);
    if (device_cuda_cupti(&err)) /* without it a trace is measured by events */
        add(r, "cupti", NOTE, r->gpu ? get_cupti : NULL, "%s", err.text);
    else
        add(r, "cupti", OK, NULL, "for --trace: when each kernel began and ended");
}

/* --- the report --------------------------------------------------------------------------------------- */

static void print_text(const Report *r)
{
    printf("ftxc %d.%d\n", FTX_VERSION_MAJOR, FTX_VERSION_MINOR);
    for (size_t i = 0; i < r->n; i++) {
        const Row *row = &r->row[i];

        printf("  %-8s %-9s %s\n", state_names[row->state], row->name, row->text);
        if (row->advice)
            printf("  %-8s %-9s -> %s\n", "", "", row->advice);
    }
}

static void print_json(const Report *r, bool ok)
{
    json_t *rows = json_array();
    char version[32];

    for (size_t i = 0; i < r->n; i++) {
        const Row *row = &r->row[i];

        json_array_append_new(rows,
                              json_pack("{ss,ss,so,ss?}", "name", row->name, "state", state_names[row->state], "text",
                                        runner_json_text(row->text, strlen(row->text)), "advice", row->advice));
    }
    snprintf(version, sizeof version, "%d.%d", FTX_VERSION_MAJOR, FTX_VERSION_MINOR);
    runner_json_print(json_pack("{ss,sb,so}", "version", version, "ok", ok, "rows", rows));
}

int command_doctor(int argc, char **argv)
{
    Options o = {0};
    TextList rest = {0};
    Report r = {0};
    char error[300];
    bool ok = true;
    Arena *keep;

    if (!options_parse(table, LEN(table), argc, argv, &o, &rest, error, sizeof error))
        return command_mistake("doctor", "%s", error);
    if (o.help) {
        printf("ftxc doctor [options]\n\n"
               "Says what of this machine ftxc can use, what is missing, and how to get it. Exit code 1 if something\n"
               "that is here cannot be used, such as a GPU without its driver or without NVRTC.\n\n");
        options_help(table, LEN(table));
        printf("\nExamples:\n  ftxc doctor\n  ftxc doctor --json\n");
        return EXIT_DONE;
    }
    if (rest.n)
        return command_mistake("doctor", "it takes no arguments, found \"%s\"", rest.at[0]);
    keep = arena_open();
    check_cpu(&r);
    check_memory(&r);
    check_gpus(&r, keep);
    check_libraries(&r);
    check_cache(&r, keep);
    arena_close(keep);
    for (size_t i = 0; i < r.n; i++)
        ok = ok && r.row[i].state != MISSING;
    if (o.json)
        print_json(&r, ok);
    else
        print_text(&r);
    return ok ? EXIT_DONE : EXIT_FAILED;
}
