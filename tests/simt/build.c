/* build.c - compiles kernel texts for the host and links them into one shared object.
 *
 * Several texts are compiled as one translation unit. Every text calls its constants `Config`, so a macro renames
 * that word in each. The name of the shared object holds a hash of its sources and flags; a later run of an
 * unchanged test loads the same file. The hash ignores the text of comments but not their number of lines, since
 * reports name lines. */
#include "build.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compiler/catalog/catalog.h"
#include "compiler/instantiate/parts.h"
#include "runtime/base/file.h"
#include "runtime/base/hash.h"

#if SIMT_SANITIZED
#define CHECKS "-fsanitize=address,undefined -fno-sanitize-recover=undefined"
#define LINKS ""
#else
#define LINKS " -Wl,--wrap=memcpy,--wrap=memmove,--wrap=memset"
#define CHECKS "-fsanitize=thread,alignment"
#endif
#define FLAGS \
    "-x c++ -std=c++17 -O1 -g1 -fPIC -ffp-contract=off -fno-strict-aliasing -fno-exceptions " \
    "-fno-rtti -fno-stack-protector -w " CHECKS

enum { MAX_KERNELS = 1024, A_UNIT = 6, AT_ONCE = 2 };

typedef struct Text {
    const char *entry, *text;
    const SimtKernel *kernel;
} Text;

struct Build {
    Arena *keep;
    const char *dir, *cxx, *flags;
    Text at[MAX_KERNELS];
    size_t n;
    void *library;
};

static void must(FtxStatus s, const FtxError *err)
{
    if (s) {
        fprintf(stderr, "simt: %s\n", err->text);
        abort();
    }
}

static void write_file(const char *path, const char *text)
{
    FtxError err = {0};
    char *dir = strdup(path);

    *strrchr(dir, '/') = 0;
    must(file_make_dirs(dir, &err), &err);
    must(file_write_whole(path, text, strlen(text), &err), &err);
    free(dir);
}

/* NULL: the file does not exist. */
static char *read_file(Arena *keep, const char *path)
{
    FILE *f = fopen(path, "rb");
    char *text = NULL;

    if (!f)
        return NULL;
    fseek(f, 0, SEEK_END);
    const size_t n = (size_t)ftell(f);
    rewind(f);
    text = arena_alloc(keep, n + 1);
    text[fread(text, 1, n, f)] = 0;
    fclose(f);
    return text;
}

Build *build_open(const char *dir)
{
    Arena *keep = arena_open();
    Build *b = arena_alloc(keep, sizeof *b);

    memset(b, 0, sizeof *b);
    b->keep = keep;
    b->dir = arena_strdup(keep, dir);
    b->cxx = getenv("FTX_SIMT_CXX");
    if (!b->cxx)
        b->cxx = "g++";
    b->flags = FLAGS;
    /* By default clang omits the hook of a read that a write to the same place follows, and addr2line misreads the
     * file table of its DWARF 5. */
    if (!SIMT_SANITIZED && strstr(b->cxx, "clang"))
        b->flags = FLAGS " -mllvm -tsan-instrument-read-before-write=1 -fdebug-default-version=4";
    return b;
}

void build_close(Build *b)
{
    arena_close(b->keep); /* the shared object stays loaded: reports name source lines of it */
}

void build_add(Build *b, const char *entry, const char *text)
{
    for (size_t i = 0; i < b->n; i++)
        if (strcmp(b->at[i].entry, entry) == 0)
            return;
    if (b->n == MAX_KERNELS) {
        fprintf(stderr, "simt: over %d kernels in a build\n", MAX_KERNELS);
        abort();
    }
    b->at[b->n++] = (Text){arena_strdup(b->keep, entry), arena_strdup(b->keep, text), NULL};
}

size_t build_count(const Build *b)
{
    return b->n;
}

/* --- sources ------------------------------------------------------------------------------------ */

/* Writes the kernels' headers. A header of tests/simt/device replaces the one of the same name. */
static Hash128 write_headers(const Build *b)
{
    static const char *const own[] = {"kernel_text.h", "host.h", "kernel.h", "wgmma.cuh"};
    const char *const *names, *const *texts;
    const size_t n = catalog_headers(&names, &texts);
    char *all = NULL;
    size_t bytes = 0;
    FILE *sum = open_memstream(&all, &bytes);

    for (size_t i = 0; i < n + LEN(own); i++) {
        const char *name = i < n ? names[i] : arena_printf(b->keep, "device/%s", own[i - n]);
        const char *text = i < n ? texts[i] : NULL;
        const char *host = read_file(b->keep, arena_printf(b->keep, "tests/simt/%s", name));

        if (host)
            text = host;
        write_file(arena_printf(b->keep, "%s/include/%s", b->dir, name), text);
        fprintf(sum, "%s\n%s\n", name, catalog_strip(text, true, b->keep));
    }
    fclose(sum);
    const Hash128 h = hash128(all, bytes);
    free(all);
    return h;
}

/* The cluster size: the expression in CLUSTER(...) of a text, "1" if it has none. */
static const char *cluster_of(Arena *keep, const char *text)
{
    const char *p = strstr(text, " CLUSTER(");
    const char *end;
    int depth = 1;

    if (!p)
        return "1";
    p += strlen(" CLUSTER(");
    for (end = p; depth > 0; end++)
        depth += *end == '(' ? 1 : *end == ')' ? -1 : 0;
    return arena_strndup(keep, p, (size_t)(end - p - 1));
}

static const char *unit_text(const Build *b, size_t unit, size_t units)
{
    char *all = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&all, &bytes);

    for (size_t i = unit; i < b->n; i += units) {
        fprintf(f, "#define Config Config_%zu\n#line 1 \"%s.cu\"\n%s\n", i, b->at[i].entry, b->at[i].text);
        fprintf(f, "SIMT_KERNEL(%s, (%s))\n#undef Config\n", b->at[i].entry, cluster_of(b->keep, b->at[i].text));
    }
    fclose(f);
    char *text = arena_strndup(b->keep, all, bytes);
    free(all);
    return text;
}

/* --- compiling ---------------------------------------------------------------------------------- */

static void wait_for_one(void)
{
    int status;

    if (wait(&status) > 0 && status != 0) {
        fprintf(stderr, "simt: a kernel text does not compile for the host\n");
        abort();
    }
}

static void start(const char *command)
{
    const pid_t child = fork();

    if (child == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    if (child < 0)
        abort();
}

/* Starts the compiler on NAME.cpp with these options. */
static void start_compiler(const Build *b, const char *options, const char *name)
{
    start(arena_printf(b->keep,
                       "exec %s %s -I %s/include -include device/kernel_text.h -include device/types.cuh %s %s.cpp",
                       b->cxx, b->flags, b->dir, options, name));
}

static void compile(Build *b, const char *path)
{
    const size_t units = (b->n + A_UNIT - 1) / A_UNIT;
    char *objects = arena_strdup(b->keep, "");
    size_t running = 0;

    for (size_t u = 0; u < units; u++) {
        const char *name = arena_printf(b->keep, "%s/unit%zu", b->dir, u);

        write_file(arena_printf(b->keep, "%s.cpp", name), unit_text(b, u, units));
        if (running == AT_ONCE) {
            wait_for_one();
            running--;
        }
        start_compiler(b, arena_printf(b->keep, "-c -o %s.o", name), name);
        running++;
        objects = arena_printf(b->keep, "%s %s.o", objects, name);
    }
    while (running-- > 0)
        wait_for_one();
    start(arena_printf(b->keep, "exec %s -shared" LINKS " -o %s.part%s -lm", b->cxx, path, objects));
    wait_for_one();
    if (rename(arena_printf(b->keep, "%s.part", path), path) != 0)
        abort();
}

void build_run(Build *b)
{
    const Hash128 headers = write_headers(b);
    char *all = NULL;
    size_t bytes = 0;
    FILE *sum = open_memstream(&all, &bytes);

    fprintf(sum, "%s %s %s %llx%llx\n", b->cxx, b->flags, LINKS, (unsigned long long)headers.low,
            (unsigned long long)headers.high);
    for (size_t i = 0; i < b->n; i++)
        fprintf(sum, "%s\n%s\n", b->at[i].entry, catalog_strip(b->at[i].text, true, b->keep));
    fclose(sum);
    const Hash128 h = hash128(all, bytes);
    free(all);
    const char *path = arena_printf(b->keep, "%s/kernels-%016llx.so", b->dir, (unsigned long long)h.low);

    if (!file_exists(path))
        compile(b, path);
    b->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!b->library) {
        fprintf(stderr, "simt: %s\n", dlerror());
        abort();
    }
    for (size_t i = 0; i < b->n; i++) {
        b->at[i].kernel = dlsym(b->library, arena_printf(b->keep, "simt_kernel_%s", b->at[i].entry));
        if (!b->at[i].kernel) {
            fprintf(stderr, "simt: %s\n", dlerror());
            abort();
        }
    }
}

void build_headers(Build *b)
{
    const char *const *names, *const *texts;
    const char *name = arena_printf(b->keep, "%s/headers", b->dir);
    const char *all = "";

    for (int parts = 0; parts < 2; parts++) /* those of folders need those of kernels first */
        for (size_t i = 0, n = catalog_headers(&names, &texts); i < n; i++)
            if ((strchr(names[i], '/') != NULL) == parts)
                all = arena_printf(b->keep, "%s#include \"%s\"\n", all, names[i]);
    write_headers(b);
    write_file(arena_printf(b->keep, "%s.cpp", name), all);
    start_compiler(b, "-fsyntax-only", name);
    wait_for_one();
}

const SimtKernel *build_kernel(const Build *b, const char *entry)
{
    for (size_t i = 0; i < b->n; i++)
        if (strcmp(b->at[i].entry, entry) == 0)
            return b->at[i].kernel;
    return NULL;
}
