/* report.c - the text of a finding: the check, the thread, the kernel with its schedule and seed, and the source
 * lines with their inlined callers. */
#include <dlfcn.h>
#include <stdarg.h>

#include "parts.h"

enum { MAX_REPORTS = 24, MAX_TEXT = 6000 };

typedef struct Finding {
    SimtReport report;
    char *text;
    const void *pc[2];
} Finding;
static Finding findings[MAX_REPORTS];
static size_t n_findings, n_named;
static unsigned muted;

void simt_mute(unsigned checks)
{
    muted = checks;
}

const char *simt_check_name(SimtCheck c)
{
    static const char *const names[SIMT_CHECKS] = {
        [SIMT_RACE] = "race",           [SIMT_BOUNDS] = "out of bounds",  [SIMT_ALIGN] = "misaligned",
        [SIMT_UNWRITTEN] = "unwritten", [SIMT_IN_FLIGHT] = "in flight",   [SIMT_CONSTANT] = "constant",
        [SIMT_BARRIER] = "barrier",     [SIMT_MBARRIER] = "mbarrier",     [SIMT_FENCE] = "fence",
        [SIMT_EARLY] = "early",         [SIMT_COLLECTIVE] = "collective", [SIMT_HANG] = "hang",
        [SIMT_HOST] = "host",
    };

    return names[c];
}

const char *simt_schedule_name(SimtSchedule s)
{
    static const char *const names[SIMT_SCHEDULES] = {"round-robin", "random", "lifo", "starve-cta", "starve-warp"};

    return names[s];
}

const char *report_who(const Fiber *f)
{
    static char text[2][80];
    static int turn;
    char *t = text[turn ^= 1];
    const unsigned *b = f->block->index;

    snprintf(t, sizeof text[0], "block %u,%u,%u warp %u lane %u", b[0], b[1], b[2], f->tid / WARP, f->tid % WARP);
    return t;
}

static char *say(char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static char *say(char *text, const char *format, ...)
{
    char line[1000], *more;
    const size_t n = strlen(text);
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n + strlen(line) + 1 > MAX_TEXT)
        return text;
    more = realloc(text, n + strlen(line) + 1);
    if (!more)
        abort();
    strcpy(more + n, line);
    return more;
}

void report(SimtCheck c, const void *pc, const void *pc2, const char *format, ...)
{
    char line[1000];
    Finding *f = &findings[n_findings];
    va_list args;

    if (muted >> c & 1)
        return;
    for (size_t i = 0; i < n_findings; i++)
        if (findings[i].report.check == c && findings[i].pc[0] == pc && pc)
            return; /* reported already */
    if (n_findings == MAX_REPORTS)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    *f = (Finding){.report.check = c, .text = strdup(""), .pc = {pc, pc2}};
    f->text = say(f->text, "%s: %s", simt_check_name(c), line);
    if (run.current && run.current != &fiber_main)
        f->text = say(f->text, "\n    by %s", report_who(run.current));
    if (run.launch)
        f->text = say(f->text, "\n    in %s, schedule %s, seed %llu", run.launch->kernel->name,
                      simt_schedule_name(run.schedule), (unsigned long long)run.seed);
    f->report.text = f->text;
    n_findings++;
}

/* --- places ------------------------------------------------------------------------------------- */

/* The source line of a program address and those it was inlined into, innermost first:
 * "linear.cuh:140 < linear.cuh:201". */
static char *find_place(const void *pc)
{
    char command[4400], line[1200], *text = strdup("");
    Dl_info info;
    FILE *p;

    if (!dladdr(pc, &info) || !info.dli_fname)
        return say(text, " %p", pc);
    snprintf(command, sizeof command, "addr2line -i -e '%s' %#zx 2>/dev/null", info.dli_fname,
             (size_t)((const char *)pc - 1 - (const char *)info.dli_fbase));
    p = popen(command, "r");
    for (bool first = true; p && fgets(line, sizeof line, p); first = false) {
        const char *name = strrchr(line, '/');

        line[strcspn(line, "\n ")] = 0;
        text = say(text, "%s %s", first ? "" : " <", name ? name + 1 : line);
    }
    if (p)
        pclose(p);
    return text;
}

/* A cache of source lines: the same ones are needed often, and each run of addr2line reads the whole object. */
static char *name_place(char *text, const void *pc)
{
    enum { PLACES = 1024 };
    static struct {
        const void *pc;
        char *text;
    } places[PLACES];
    size_t i = (uintptr_t)pc % PLACES;

    if (!pc)
        return text;
    if (places[i].pc != pc) {
        free(places[i].text);
        places[i].text = find_place(pc);
        places[i].pc = pc;
    }
    return say(text, "\n    at%s", places[i].text);
}

void report_finish(void)
{
    for (; n_named < n_findings; n_named++) {
        Finding *f = &findings[n_named];

        for (int i = 0; i < 2; i++)
            f->text = name_place(f->text, f->pc[i]);
        f->report.text = f->text;
    }
}

size_t simt_reports(void)
{
    return n_findings;
}

const SimtReport *simt_report(size_t i)
{
    return &findings[i].report;
}

void simt_clear(void)
{
    for (size_t i = 0; i < n_findings; i++)
        free(findings[i].text);
    n_findings = n_named = 0;
}

/* --- hangs -------------------------------------------------------------------------------------- */

static void describe(const Fiber *f, char *to, size_t n)
{
    const Barrier *b = f->object;
    const Mbarrier *m = f->object;
    const Warp *w = f->warp;
    const Cluster *c = f->object;

    switch (f->wait) {
    case WAIT_BARRIER:
        snprintf(to, n, "barrier %u: %u of %u threads are there", f->value, b->arrived, b->expected);
        break;
    case WAIT_MBARRIER:
        snprintf(to, n, "mbarrier at %u, parity %u: %u phases complete, %u of %u arrivals and %lld bytes missing",
                 (unsigned)(m->at - f->block->shared) + SHARED_BASE, f->value, m->phase, m->pending, m->count,
                 (long long)m->bytes);
        break;
    case WAIT_WARP:
        snprintf(to, n, "the other lanes of the warp: %u are there, %u have ended", w->arrived, w->left);
        break;
    case WAIT_CLUSTER: snprintf(to, n, "the cluster: %u threads arrived", c->arrived); break;
    case WAIT_POLL: snprintf(to, n, "a word in memory to change"); break;
    case WAIT_NONE: snprintf(to, n, "nothing: it was about to run"); break;
    }
}

void report_hang(Fiber *const *fibers, size_t n)
{
    Finding *f = &findings[n_findings];

    report(SIMT_HANG, NULL, NULL, "%zu threads cannot go on", n);
    if (f == &findings[n_findings])
        return;
    for (size_t i = 0; i < n;) { /* one line for neighbouring threads that wait for the same thing */
        const Fiber *x = fibers[i];
        char what[300];
        size_t j = i + 1;

        while (j < n && fibers[j]->block == x->block && fibers[j]->wait == x->wait && fibers[j]->pc == x->pc &&
               fibers[j]->object == x->object && fibers[j]->value == x->value)
            j++;
        describe(x, what, sizeof what);
        f->text = say(f->text, "\n  block %u,%u threads %u to %u wait for %s", x->block->index[0], x->block->index[1],
                      x->tid, fibers[j - 1]->tid, what);
        f->text = name_place(f->text, x->pc);
        i = j;
    }
    f->report.text = f->text;
}
