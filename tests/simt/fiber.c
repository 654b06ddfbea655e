/* fiber.c - switches between the threads of a kernel, each of which has its own stack.
 *
 * On x86-64 a switch saves and restores the six callee-saved registers; elsewhere it is swapcontext. */
#include "parts.h"

#if SIMT_SANITIZED
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
static const void *main_stack;
static size_t main_bytes;
#endif

Fiber fiber_main;
enum { STACK_BYTES = SIMT_STACK };

static void (*body)(void);

/* An earlier thread may have ended on this stack without returning, so AddressSanitizer may still mark parts of it. */
static void clean(const Fiber *f)
{
#if SIMT_SANITIZED
    __asan_unpoison_memory_region(f->stack + 4096, STACK_BYTES - 4096);
#else
    (void)f;
#endif
}

static void after_switch(const Fiber *from)
{
#if SIMT_SANITIZED
    const void *bottom;
    size_t bytes;

    __sanitizer_finish_switch_fiber(run.current->fake, &bottom, &bytes);
    if (from == &fiber_main) {
        main_stack = bottom;
        main_bytes = bytes;
    }
#else
    (void)from;
#endif
}

#if defined(__x86_64__) && !defined(SIMT_UCONTEXT)

void simt_switch(void **save, void *to);
__asm__(".text\n.globl simt_switch\n.type simt_switch, @function\nsimt_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
        ".size simt_switch, .-simt_switch\n");

static Fiber *came_from;

static void first(void)
{
    after_switch(came_from);
    body();
    abort(); /* not reached: a thread's last switch is in run.c */
}

void fiber_start(Fiber *f, void (*entry)(void))
{
    void **sp = (void **)(void *)(f->stack + STACK_BYTES);

    clean(f);
    body = entry;
    *--sp = NULL; /* the return address of `first`; aligns the stack as after a call */
    *--sp = (void *)first;
    for (int i = 0; i < 6; i++)
        *--sp = NULL;
    f->sp = sp;
    f->fake = NULL;
}

static void switch_stacks(Fiber *from, Fiber *to)
{
    came_from = from;
    simt_switch(&from->sp, to->sp);
}

#else
#include <ucontext.h>

static Fiber *came_from;

static void first(void)
{
    after_switch(came_from);
    body();
    abort();
}

static ucontext_t *context_of(Fiber *f)
{
    static ucontext_t main_context;

    if (f == &fiber_main)
        return &main_context;
    if (!f->sp)
        f->sp = calloc(1, sizeof(ucontext_t));
    return f->sp;
}

void fiber_start(Fiber *f, void (*entry)(void))
{
    ucontext_t *c = context_of(f);

    clean(f);
    body = entry;
    getcontext(c);
    c->uc_stack.ss_sp = f->stack;
    c->uc_stack.ss_size = STACK_BYTES;
    c->uc_link = NULL;
    makecontext(c, first, 0);
    f->fake = NULL;
}

static void switch_stacks(Fiber *from, Fiber *to)
{
    came_from = from;
    swapcontext(context_of(from), context_of(to));
}
#endif

void fiber_switch(Fiber *from, Fiber *to, bool ends)
{
    run.current = to;
#if SIMT_SANITIZED
    if (to == &fiber_main)
        __sanitizer_start_switch_fiber(ends ? NULL : &from->fake, main_stack, main_bytes);
    else
        __sanitizer_start_switch_fiber(ends ? NULL : &from->fake, to->stack, STACK_BYTES);
#else
    (void)ends;
#endif
    switch_stacks(from, to);
    after_switch(came_from);
}
