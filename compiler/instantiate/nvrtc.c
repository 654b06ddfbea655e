/* nvrtc.c - CUDA text to a cubin with NVRTC, the compiler library of the CUDA toolkit.
 *
 * The library is loaded when it is first needed: without it ftxc does everything but compile for a GPU. Nothing is read
 * from disk while compiling: headers are passed as text. */
#include "parts.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t nvrtc_flags(Target t, const char *flags[NVRTC_MAX_FLAGS], char architecture[64])
{
    char name[32];
    size_t n = 0;

    text_architecture(t, name);
    snprintf(architecture, 64, "--gpu-architecture=%s", name);
    flags[n++] = architecture;
    flags[n++] = "--std=c++17";
    flags[n++] = "--minimal"; /* without NVRTC's built-in headers: a third of the time */
    return n;
}

#ifdef FTX_HAVE_CUDA
#include <dlfcn.h>
#include <nvrtc.h>
#include <unistd.h>

#include "../../runtime/base/env.h"

enum { OLDEST_MAJOR = 12, OLDEST_MINOR = 4, MAX_UP = 5 };

/* The functions of NVRTC that are called here; each becomes a field with the type of the header's declaration. */
#define NVRTC_FUNCTIONS(F) \
    F(nvrtcVersion) \
    F(nvrtcGetErrorString) \
    F(nvrtcCreateProgram) \
    F(nvrtcDestroyProgram) \
    F(nvrtcCompileProgram) \
    F(nvrtcGetCUBINSize) \
    F(nvrtcGetCUBIN) \
    F(nvrtcGetPTXSize) \
    F(nvrtcGetPTX) \
    F(nvrtcGetProgramLogSize) \
    F(nvrtcGetProgramLog)

static struct Nvrtc {
    bool tried;
    void *library, *builtins; /* never closed */
    char version[32], missing[1200];
#define F(name) __typeof__(&name) name;
    NVRTC_FUNCTIONS(F)
#undef F
} nvrtc;

/* Adds a library that was tried to the text of nvrtc_missing. */
static void note(const char *path, const char *why)
{
    const size_t n = strlen(nvrtc.missing);

    snprintf(nvrtc.missing + n, sizeof nvrtc.missing - n, "%s%s (%s)", n ? ", " : "", path, why);
}

/* NVRTC itself loads libnvrtc-builtins by its plain name when it compiles. If the folder is not in the system's search
 * path, as with wheels, that fails, unless the library has been loaded before. */
static void load_builtins(const char *path, int major, int minor)
{
    const char *slash = strrchr(path, '/');
    char file[PATH_MAX + 64];

    if (!slash)
        return;
    snprintf(file, sizeof file, "%.*slibnvrtc-builtins.so.%d.%d", (int)(slash + 1 - path), path, major, minor);
    if (access(file, R_OK) == 0)
        nvrtc.builtins = dlopen(file, RTLD_NOW | RTLD_LOCAL);
}

/* Tries one library; false: it cannot be used, and `missing` says why. A plain name is searched by the system's linker. A
 * path that does not exist is passed over silently. */
static bool try_library(const char *path)
{
    int major = 0, minor = 0;

    if (strchr(path, '/') && access(path, R_OK))
        return false;
    nvrtc.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!nvrtc.library) {
        note(path, strchr(path, '/') ? dlerror() : "not found");
        return false;
    }
    bool whole = true;
#define F(name) \
    *(void **)&nvrtc.name = dlsym(nvrtc.library, #name); \
    whole = whole && nvrtc.name;
    NVRTC_FUNCTIONS(F)
#undef F
    if (nvrtc.nvrtcVersion)
        nvrtc.nvrtcVersion(&major, &minor);
    snprintf(nvrtc.version, sizeof nvrtc.version, "%d.%d", major, minor);
    if (whole && (major > OLDEST_MAJOR || (major == OLDEST_MAJOR && minor >= OLDEST_MINOR))) {
        load_builtins(path, major, minor);
        return true;
    }
    note(path, whole ? nvrtc.version : "not an NVRTC library");
    dlclose(nvrtc.library);
    nvrtc.library = NULL;
    nvrtc.version[0] = '\0';
    return false;
}

static bool try_folder(const char *folder)
{
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
    char path[PATH_MAX + 64];

    for (size_t i = 0; i < LEN(names); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (try_library(path))
            return true;
    }
    return false;
}

/* In the folder of the program, in the lib folder beside or above it, and in .deps of the source tree around it. */
static bool try_near_program(void)
{
    char folder[PATH_MAX], path[PATH_MAX + 32];
    const ssize_t n = readlink("/proc/self/exe", folder, sizeof folder - 1);

    if (n <= 0)
        return false;
    folder[n] = '\0';
    for (int up = 0; up < MAX_UP; up++) {
        char *slash = strrchr(folder, '/');

        if (!slash || slash == folder)
            return false;
        *slash = '\0';
        snprintf(path, sizeof path, "%s/lib", folder);
        if ((up == 0 && try_folder(folder)) || (up <= 1 && try_folder(path)))
            return true;
        snprintf(path, sizeof path, "%s/.deps/cuda/lib", folder);
        if (try_folder(path))
            return true;
    }
    return false;
}

static bool load(void)
{
    const char *asked = env_text(ENV_FTX_NVRTC);

    if (nvrtc.tried)
        return nvrtc.library != NULL;
    nvrtc.tried = true;
    if (asked) {
        if (try_library(asked) || try_folder(asked))
            return true;
        if (!nvrtc.missing[0])
            note(asked, "not found; FTX_NVRTC names it");
        return false;
    }
    return try_near_program() || try_library("libnvrtc.so.13") || try_library("libnvrtc.so.12") ||
           try_library("libnvrtc.so") || try_folder("/usr/local/cuda/lib64") || try_folder("/usr/local/cuda/lib");
}

const char *nvrtc_version(void)
{
    return load() ? nvrtc.version : NULL;
}

const char *nvrtc_missing(void)
{
    static char text[sizeof nvrtc.missing + 300];

    if (load())
        return NULL;
    snprintf(
        text, sizeof text,
        "compiling for a GPU needs NVRTC %d.%d or newer, a part of the CUDA toolkit (`ftxc doctor` says how to get "
        "it; FTX_NVRTC names its file or folder); tried %s",
        OLDEST_MAJOR, OLDEST_MINOR, nvrtc.missing);
    return text;
}

static char *program_log(nvrtcProgram p, nvrtcResult r)
{
    size_t n = 0;
    char *log = NULL;

    if (nvrtc.nvrtcGetProgramLogSize(p, &n) == NVRTC_SUCCESS && n > 1) {
        log = calloc(1, n + 1);
        if (log)
            nvrtc.nvrtcGetProgramLog(p, log);
    }
    return log ? log : strdup(nvrtc.nvrtcGetErrorString(r));
}

static bool take_code(nvrtcProgram p, bool ptx, Bytes *out)
{
    size_t n = 0;

    if ((ptx ? nvrtc.nvrtcGetPTXSize(p, &n) : nvrtc.nvrtcGetCUBINSize(p, &n)) != NVRTC_SUCCESS || n == 0)
        return false;
    char *code = calloc(1, n);
    if (!code)
        die("no memory");
    *out = (Bytes){code, n};
    return (ptx ? nvrtc.nvrtcGetPTX(p, code) : nvrtc.nvrtcGetCUBIN(p, code)) == NVRTC_SUCCESS;
}

bool nvrtc_compile(const char *text, Target t, Bytes *out)
{
    const char *const *names, *const *texts, *flags[NVRTC_MAX_FLAGS];
    const size_t n_headers = catalog_headers(&names, &texts);
    char architecture[64];
    const size_t n_flags = nvrtc_flags(t, flags, architecture);
    nvrtcProgram p = NULL;

    *out = (Bytes){0};
    if (!load())
        die("nvrtc_compile was called without NVRTC");
    nvrtcResult r = nvrtc.nvrtcCreateProgram(&p, text, "kernel.cu", (int)n_headers, texts, names);
    if (r == NVRTC_SUCCESS)
        r = nvrtc.nvrtcCompileProgram(p, (int)n_flags, flags);
    const bool ok = r == NVRTC_SUCCESS && take_code(p, target_is_ptx(t), out);
    if (!ok) {
        free((void *)(uintptr_t)out->at);
        char *log = p ? program_log(p, r) : strdup(nvrtc.nvrtcGetErrorString(r));
        *out = (Bytes){log, log ? strlen(log) + 1 : 0};
    }
    if (p)
        nvrtc.nvrtcDestroyProgram(&p);
    return ok;
}

#else /* built without nvrtc.h */

const char *nvrtc_version(void)
{
    return NULL;
}

const char *nvrtc_missing(void)
{
    return "this ftxc was built without the CUDA parts and compiles for the CPU only";
}

bool nvrtc_compile(const char *text, Target t, Bytes *out)
{
    (void)text, (void)t, (void)out;
    die("%s", nvrtc_missing());
}
#endif
