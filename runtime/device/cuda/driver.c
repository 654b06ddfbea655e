/* driver.c - the CUDA driver as a table of functions, loaded when first asked for. */
#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../../base/env.h"

enum { PATH_BYTES = 4096, MAX_UP = 5 };

/* One attempt; its reason is added to `why`, if that is not NULL. */
static void *try_open(const char *path, char *why, size_t why_bytes)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

    if (!library && why) {
        const size_t n = strlen(why);
        const char *reason = dlerror();

        snprintf(why + n, why_bytes - n, "%s%s", n ? "; " : "", reason ? reason : path);
    }
    return library;
}

static void *try_folder(const char *folder, const char *const *names, size_t n)
{
    char path[PATH_BYTES + 300];
    void *library = NULL;

    for (size_t i = 0; i < n && !library; i++) {
        snprintf(path, sizeof path, "%s/%.250s", folder, names[i]);
        library = try_open(path, NULL, 0);
    }
    return library;
}

/* Looks beside the program, in its lib, and in .deps of the source tree that holds its build folder. */
static void *try_near_program(const char *const *names, size_t n)
{
    char folder[PATH_BYTES], path[PATH_BYTES + 32];
    const ssize_t bytes = readlink("/proc/self/exe", folder, sizeof folder - 1);
    void *library = NULL;

    folder[bytes > 0 ? bytes : 0] = '\0';
    for (int up = 0; up < MAX_UP && !library; up++) {
        char *slash = strrchr(folder, '/');

        if (!slash || slash == folder)
            return NULL;
        *slash = '\0';
        if (up == 0)
            library = try_folder(folder, names, n);
        snprintf(path, sizeof path, "%s/lib", folder);
        if (up < 2 && !library)
            library = try_folder(path, names, n);
        snprintf(path, sizeof path, "%s/.deps/cuda/lib", folder);
        if (!library)
            library = try_folder(path, names, n);
    }
    return library;
}

void *cuda_library_open(const char *const *names, size_t n, char *why, size_t why_bytes)
{
    const char *asked = env_text(ENV_FTX_CUDA);
    void *library = asked && asked[0] == '/' ? try_folder(asked, names, n) : NULL;

    if (why)
        why[0] = '\0';
    for (size_t i = 0; i < n && !library; i++)
        library = try_open(names[i], why, why_bytes);
    if (!library)
        library = try_near_program(names, n);
    if (!library)
        library = try_folder("/usr/local/cuda/lib64", names, n);
    if (!library)
        library = try_folder("/usr/local/cuda/lib", names, n);
    return library ? library : try_folder("/usr/local/cuda/extras/CUPTI/lib64", names, n);
}

#ifdef FTX_HAVE_CUDA
#include <pthread.h>
#include <stdarg.h>

static struct {
    pthread_mutex_t lock;
    const CudaDriver *replaced;
    bool tried;
    FtxError why; /* status FTX_OK: the table is whole */
    CudaDriver table;
} driver = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* cuMemAlloc is cuMemAlloc_v2 in cuda.h, and in the library. */
#define NAME_OF_(name) #name
#define NAME_OF(name) NAME_OF_(name)

/* A driver older than our cuda.h may have a function only under its first name. */
static void *symbol(void *library, const char *name)
{
    static const char newer[] = "cuEventElapsedTime_v2"; /* same arguments and meaning as the first */
    void *f = dlsym(library, name);

    return f || strcmp(name, newer) != 0 ? f : dlsym(library, "cuEventElapsedTime");
}

static FtxStatus load(CudaDriver *cu, FtxError *err)
{
    static const char *const names[] = {"libcuda.so.1"};
    const char *asked = env_text(ENV_FTX_CUDA), *missing = NULL;
    char why[500];
    int version = 0;

    if (asked && !strcmp(asked, "0"))
        return ftx_fail(err, FTX_ENODEVICE, "the CUDA driver is not used, because FTX_CUDA is 0");
    void *library = cuda_library_open(names, 1, why, sizeof why);
    if (!library)
        return ftx_fail(err, FTX_ENODEVICE, "no CUDA driver on this machine: %s", why);
#define F(name) \
    *(void **)&cu->name = symbol(library, NAME_OF(name)); \
    if (!cu->name) \
        missing = NAME_OF(name);
    CUDA_FUNCTIONS(F)
#undef F
    if (cu->cuDriverGetVersion)
        cu->cuDriverGetVersion(&version);
    if (version >= CUDA_OLDEST_DRIVER && !missing)
        return FTX_OK; /* the library stays for as long as the process */
    dlclose(library);
    if (version < CUDA_OLDEST_DRIVER)
        return ftx_fail(err, FTX_ENODEVICE,
                        "the CUDA driver is too old: it is for CUDA %d.%d, needed is %d.%d (driver "
                        "550 or newer)",
                        version / 1000, version / 10 % 100, CUDA_OLDEST_DRIVER / 1000, CUDA_OLDEST_DRIVER / 10 % 100);
    return ftx_fail(err, FTX_ENODEVICE, "the CUDA driver (for CUDA %d.%d) has no %s", version / 1000,
                    version / 10 % 100, missing);
}

FtxStatus cuda_driver(const CudaDriver **out, FtxError *err)
{
    FtxStatus s = FTX_OK;

    pthread_mutex_lock(&driver.lock);
    *out = driver.replaced;
    if (!*out) {
        if (!driver.tried)
            driver.why.status = load(&driver.table, &driver.why);
        driver.tried = true;
        s = driver.why.status;
        if (s && err)
            *err = driver.why;
        *out = s ? NULL : &driver.table;
    }
    pthread_mutex_unlock(&driver.lock);
    return s;
}

void cuda_driver_replace(const CudaDriver *table)
{
    pthread_mutex_lock(&driver.lock);
    driver.replaced = table;
    pthread_mutex_unlock(&driver.lock);
}

FtxStatus cuda_check(const CudaDriver *cu, CUresult r, FtxError *err, const char *what, ...)
{
    const char *name = NULL, *text = NULL;
    char before[300];
    va_list ap;

    if (r == CUDA_SUCCESS)
        return FTX_OK;
    va_start(ap, what);
    vsnprintf(before, sizeof before, what, ap);
    va_end(ap);
    cu->cuGetErrorName(r, &name);
    cu->cuGetErrorString(r, &text);
    return ftx_fail(err, r == CUDA_ERROR_NO_DEVICE || r == CUDA_ERROR_NO_BINARY_FOR_GPU ? FTX_ENODEVICE : FTX_EDEVICE,
                    "%s: %s (%s)", before, name ? name : "CUDA error", text ? text : "no text");
}
#endif
