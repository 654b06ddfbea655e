/* test_house.c - the rules of the house: who may include whom, and that every file says what it is.
 *
 * Runs in the source tree's root and reads the files themselves, so a rule holds for what is not
 * compiled, too. A rule is a row below; what breaks one is printed with its line. */
#include <ctype.h>
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_BYTES = 1000, LINE_BYTES = 4000 };

/* Patterns are paths in which one star stands for anything; several stand apart by blanks. */
typedef struct Rule {
    const char *who;    /* files of which it speaks */
    const char *but;    /* and of which it does not */
    const char *what;   /* includes that ... */
    const char *except; /* ... but for these ... */
    const char *why;    /* ... are wrong, and why */
} Rule;

static const Rule rules[] = {
    {"runtime/* kernels/*", "", "compiler/*", "", "the runtime and the kernels know nothing of the compiler"},
    {"runtime/* kernels/*", "", "runner/*", "", "the runtime knows nothing of the command line"},
    {"runner/*", "", "compiler/*", "", "a program with a model inside has no compiler"},
    {"runner/*", "", "runtime/*", "runtime/ftx.h runtime/decode.def runtime/base/* runtime/artifact/trailer.h",
     "programs stand on ftx.h"},
    {"server/*", "", "compiler/*", "", "the server has no compiler"},
    {"server/*", "", "runtime/*", "runtime/ftx.h runtime/decode.def runtime/base/*", "the server stands on ftx.h"},
    {"runtime/* kernels/* runner/*", "", "server/*", "", "nothing below the server knows of it"},
    {"runtime/base/*", "", "runtime/*", "runtime/base/* runtime/ftx.h", "the ground stands on nothing above it"},
    {"runtime/artifact/*", "", "runtime/*", "runtime/artifact/* runtime/base/* runtime/ftx.h runtime/decode.def",
     "the file and its checks stand on the ground alone"},
    {"runtime/tokenizer/*", "", "runtime/*", "runtime/tokenizer/* runtime/base/* runtime/ftx.h",
     "the tokenizer stands on the ground alone"},
    {"runtime/chat/*", "", "runtime/*", "runtime/chat/* runtime/base/* runtime/ftx.h",
     "chat templates stand on the ground alone"},
    {"runtime/device/*", "", "runtime/*", "runtime/device/* runtime/artifact/* runtime/base/* runtime/ftx.h",
     "a device knows plans, not requests"},
    {"runtime/device/cpu/*", "", "runtime/device/cuda/*", "", "one device knows nothing of another"},
    {"runtime/device/cuda/*", "", "runtime/device/cpu/*", "", "one device knows nothing of another"},
    {"runtime/engine/*", "", "runtime/device/*",
     "runtime/device/device.h runtime/device/random.h runtime/device/trace.h",
     "the engine sees devices through their table"},
    {"compiler/* runtime/* kernels/*", "compiler/spec/*", "lua.h lauxlib.h lualib.h", "",
     "only compiler/spec sees Lua"},
    {"compiler/* runtime/* kernels/*", "compiler/instantiate/nvrtc.c", "nvrtc.h", "", "only nvrtc.c sees NVRTC"},
    {"compiler/* runtime/* kernels/*",
     "runtime/device/cuda/driver.h runtime/device/cuda/cublaslt_table.h runtime/device/cuda/cupti_table.h",
     "cuda.h cuda_runtime.h cublasLt.h cupti.h", "", "the driver, cuBLASLt and CUPTI stand behind their tables"},
    {"compiler/* runtime/*", "runtime/device/cuda/*", "runtime/device/cuda/*", "",
     "the driver's tables are the CUDA device's own"},
    {"compiler/* runtime/* runner/* kernels/*", "runtime/ftx_all.c", "*.c", "", "no file includes another's code"},
    {"kernels/*.cuh", "kernels/body/* kernels/device/*", "*", "kernels/device/* kernels/body/*",
     "a family includes device/ and body/, never another family"},
    {"kernels/body/*", "", "*", "kernels/device/* kernels/body/*", "what families share stands on device/ alone"},
    {"kernels/device/*", "", "*", "kernels/device/*", "the vocabulary includes nothing"},
    {"kernels/cpu/*", "", "kernels/ref/* runtime/*", "", "kernels of the CPU stand alone"},
    {"templates/*", "", "*", "kernels/*", "an instance is a kernel and its constants"},
    {"compiler/passes/*", "", "compiler/passes/*",
     "compiler/passes/pass.h compiler/passes/lower.h compiler/passes/rewrite.h compiler/passes/planner.h "
     "compiler/passes/passes.def",
     "a pass includes no other pass"},
};

/* CUDA's words that belong to the vocabulary, where the host has a meaning for them: kernels elsewhere use
 * its names. One that ends in a star stands for all that begin so. */
static const char words[] =
    "asm __shared__ __sync* __shfl* __ballot* __any* __all* __match* __reduce* __activemask __bar* __threadfence* "
    "__nanosleep __ld* __st* __fdividef __expf __exp10f __logf __log2f __log10f __powf __sinf __cosf __tanhf __fsqrt* "
    "__frsqrt* __frcp* __cvta* atomicA* atomicC* atomicE* atomicM* atomicO* atomicS* atomicX* clock* "
    "cooperative_groups "
    "cuda __pipeline* __half* __nv* __ushort* __dp* __byte_perm volatile";
static const char word_files[] = "kernels/*.cuh templates/*";
static const char word_rooms[] = "kernels/device/*";

/* What other rooms may include of a room of the compiler: its door. */
static const char doors[] =
    "compiler/compile.h compiler/embed.h compiler/targets.h compiler/targets.def compiler/spec/spec.h compiler/ir/ir.h "
    "compiler/passes/pass.h "
    "compiler/passes/passes.def compiler/catalog/catalog.h compiler/catalog/tuning.h compiler/tune/tune.h "
    "compiler/weights/weights.h compiler/gguf/gguf.h "
    "compiler/tokenizer/tokenizer.h compiler/chat/chat.h compiler/instantiate/instantiate.h "
    "compiler/instantiate/cubin.h "
    "compiler/artifact/artifact.h "
    "compiler/explain/explain.h compiler/commands/command.h";

/* Known exceptions: who looks through a window, and at what. */
static const struct {
    const char *who, *what;
} windows[] = {
    {"compiler/passes/*", "compiler/catalog/contract.h"}, /* select decides by contracts */
};

/* Rooms, and which includes which. A folder is a room; of the files at the top of compiler/ and runtime/ each is one,
 * with the header of its name. */
enum { MOST_ROOMS = 100 };
static const char whole[] = "compiler/* runtime/* runner/* server/* kernels/*"; /* among these there is no circle */
static const char tops[] = "compiler runtime";
static char rooms[MOST_ROOMS][100];
static int n_rooms;
static struct Arrow {
    char file[200]; /* the first that includes something of the other room; "": none does */
    int line;
} arrows[MOST_ROOMS][MOST_ROOMS];

static int files, includes, mistakes;

/* --- names ------------------------------------------------------------------------------------------ */

static void mistake(const char *file, int line, const char *what, const char *why)
{
    printf("%s:%d: %s: %s\n", file, line, what, why);
    mistakes++;
}

static bool ends(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);

    return n >= m && strcmp(s + n - m, end) == 0;
}

/* One pattern of n bytes: a name, in which one star stands for anything. */
static bool matches_one(const char *path, const char *pattern, size_t n)
{
    const char *star = memchr(pattern, '*', n);
    char tail[100];

    if (!star)
        return strlen(path) == n && strncmp(path, pattern, n) == 0;
    snprintf(tail, sizeof tail, "%.*s", (int)(pattern + n - star - 1), star + 1);
    return strncmp(path, pattern, (size_t)(star - pattern)) == 0 && ends(path, tail);
}

static bool matches(const char *path, const char *patterns)
{
    while (*patterns) {
        const size_t n = strcspn(patterns, " ");

        if (n && matches_one(path, patterns, n))
            return true;
        patterns += n + (patterns[n] == ' ');
    }
    return false;
}

/* a/b/../c to a/c, in place. */
static void normalize(char *path)
{
    char *up;

    while ((up = strstr(path, "/../"))) {
        char *from = up;

        while (from > path && from[-1] != '/')
            from--;
        memmove(from, up + 4, strlen(up + 4) + 1);
    }
}

static bool exists(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0;
}

/* The file that an include means: beside the includer, in the root, among the kernels; else as is. */
static void resolve(const char *file, const char *name, char *out)
{
    const char *slash = strrchr(file, '/');
    const char *const folders[] = {"", "kernels/", "runtime/"};

    if (snprintf(out, PATH_BYTES, "%.*s%s", (int)(slash ? slash + 1 - file : 0), file, name) >= PATH_BYTES)
        mistake(file, 0, name, "the path is too long");
    normalize(out);
    if (exists(out))
        return;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(out, PATH_BYTES, "%s%s", folders[i], name);
        if (exists(out))
            return;
    }
    snprintf(out, PATH_BYTES, "%s", name);
}

/* --- rooms ------------------------------------------------------------------------------------------ */

static int room_of(const char *path)
{
    const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
    char room[100];

    snprintf(room, sizeof room, "%.*s", (int)(slash - path), path);
    if (matches(room, tops))
        snprintf(room, sizeof room, "%.*s", (int)(dot - path), path);
    for (int i = 0; i < n_rooms; i++)
        if (strcmp(rooms[i], room) == 0)
            return i;
    if (n_rooms == MOST_ROOMS) {
        mistake(path, 0, "too many rooms", "raise MOST_ROOMS");
        return 0;
    }
    snprintf(rooms[n_rooms], sizeof rooms[n_rooms], "%s", room);
    return n_rooms++;
}

static void add_arrow(const char *file, int line, const char *target)
{
    struct Arrow *a;

    if (!matches(file, whole) || !matches(target, whole))
        return;
    a = &arrows[room_of(file)][room_of(target)];
    if (!a->file[0])
        snprintf(a->file, sizeof a->file, "%s", file);
    a->line = a->line ? a->line : line;
}

/* Follows the arrows from a room; seen: 1 on the way here, 2 done. */
static void find_circles(int room, char *seen)
{
    seen[room] = 1;
    for (int next = 0; next < n_rooms; next++) {
        const struct Arrow *a = &arrows[room][next];

        if (!a->file[0] || next == room)
            continue;
        if (seen[next] == 1)
            mistake(a->file, a->line, rooms[next],
                    "closes a circle: that room includes this one, perhaps by way of others");
        else if (!seen[next])
            find_circles(next, seen);
    }
    seen[room] = 2;
}

/* --- the rules -------------------------------------------------------------------------------------- */

static size_t room_bytes(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? (size_t)(slash - path) : 0;
}

static void check_door(const char *file, int line, const char *target)
{
    const size_t room = room_bytes(target);

    if (!matches(target, "compiler/*") || matches(file, "tests/*") || matches(target, doors) ||
        (room == room_bytes(file) && strncmp(file, target, room) == 0))
        return;
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
        if (matches(file, windows[i].who) && matches(target, windows[i].what))
            return;
    mistake(file, line, target, "it is no door of that room");
}

static void check_include(const char *file, int line, const char *name, bool quoted)
{
    char target[PATH_BYTES];

    if (quoted)
        resolve(file, name, target);
    else
        snprintf(target, sizeof target, "%s", name);
    includes++;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const Rule *r = &rules[i];

        if (matches(file, r->who) && !matches(file, r->but) && matches(target, r->what) && !matches(target, r->except))
            mistake(file, line, target, r->why);
    }
    check_door(file, line, target);
    add_arrow(file, line, target);
}

static bool is_word(int c)
{
    return isalnum(c) || c == '_';
}

/* The words of a line, its comment aside, against those of the vocabulary. */
static void check_words(const char *file, int line, const char *text)
{
    const size_t end = strstr(text, "//") ? (size_t)(strstr(text, "//") - text) : strlen(text);
    char word[LINE_BYTES];

    if (!matches(file, word_files) || matches(file, word_rooms))
        return;
    for (size_t at = 0, n; at < end; at += n ? n : 1) {
        for (n = 0; at + n < end && is_word((unsigned char)text[at + n]);)
            n++;
        snprintf(word, sizeof word, "%.*s", (int)n, text + at);
        if (n && matches(word, words))
            mistake(file, line, word, "a word of kernels/device/ (the vocabulary), which has a name for it");
    }
}

/* The opening: "NAME - what it is", on the first line, or the second of a script. */
static void check_head(const char *file, const char *first, const char *second)
{
    const char *slash = strrchr(file, '/');
    char head[PATH_BYTES];

    snprintf(head, sizeof head, "%s - ", slash ? slash + 1 : file);
    if (!strstr(first, head) && !(strncmp(first, "#!", 2) == 0 && strstr(second, head)))
        mistake(file, 1, head, "a file opens with its name and a sentence");
}

static void read_file(const char *file)
{
    char line[LINE_BYTES], first[LINE_BYTES] = "", second[LINE_BYTES] = "";
    FILE *f = fopen(file, "r");

    if (!f) {
        mistake(file, 0, "it", "cannot be read");
        return;
    }
    files++;
    for (int n = 1; fgets(line, sizeof line, f); n++) {
        const char *p = line + strspn(line, " \t");
        char name[PATH_BYTES], open;

        if (n <= 2)
            strcpy(n == 1 ? first : second, line);
        if (sscanf(p, "#%*[ \t]include %c%999[^\">]", &open, name) == 2 ||
            sscanf(p, "#include %c%999[^\">]", &open, name) == 2)
            check_include(file, n, name, open == '"');
        else
            check_words(file, n, line);
    }
    fclose(f);
    check_head(file, first, second);
}

/* --- the tree --------------------------------------------------------------------------------------- */

static bool is_source(const char *path)
{
    static const char *const kinds[] = {".c", ".h", ".cu", ".cuh", ".def", ".lua", ".cmake", ".sh"};

    if (matches(path, "tests/spec/good/* tests/spec/bad/* tests/fuzz/seeds/* tests/fuzz/crashes/*"))
        return false; /* inputs */
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (ends(path, kinds[i]))
            return true;
    return matches(path, "scripts/*") && !matches(path, "scripts/*.txt scripts/*.cfg");
}

static void walk(const char *path)
{
    struct dirent **list = NULL;
    const int n = scandir(path, &list, NULL, alphasort);

    for (int i = 0; i < n; i++) {
        char child[PATH_BYTES];
        struct stat st;

        snprintf(child, sizeof child, "%s/%.500s", path, list[i]->d_name);
        if (list[i]->d_name[0] != '.' && stat(child, &st) == 0) {
            if (S_ISDIR(st.st_mode))
                walk(child);
            else if (is_source(child))
                read_file(child);
        }
        free(list[i]);
    }
    free(list);
}

int main(void)
{
    char seen[MOST_ROOMS] = {0};
    static const char *const roots[] = {"compiler",  "runtime", "runner",  "server", "kernels",
                                        "templates", "specs",   "scripts", "cmake",  "tests"};

    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++)
        walk(roots[i]);
    for (int i = 0; i < n_rooms; i++)
        if (!seen[i])
            find_circles(i, seen);
    printf("%d files in %d rooms, %d includes, %d mistakes\n", files, n_rooms, includes, mistakes);
    return mistakes || files < 200 || includes < 1000 || n_rooms < 20 ? 1 : 0;
}
