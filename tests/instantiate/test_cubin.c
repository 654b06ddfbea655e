/* test_cubin.c - cubins made by hand: each lie in their tables, and instructions that are counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "compiler/instantiate/cubin.h"

enum { SECTIONS = 6, DATA = 64 + SECTIONS * 64, NAMES = 1, SYMBOLS, STRINGS, TEXT, INFO };

typedef struct Elf {
    unsigned char at[2048];
    size_t n;
} Elf;

static void put(Elf *e, size_t at, uint64_t value, size_t bytes)
{
    memcpy(e->at + at, &value, bytes);
}

/* Adds a section with these bytes; its name begins at `name` in the table of names. */
static void add(Elf *e, int section, uint32_t name, const void *data, size_t bytes)
{
    const size_t head = 64 + 64 * (size_t)section;

    put(e, head, name, 4);
    put(e, head + 4, 1, 4);
    put(e, head + 24, e->n, 8);
    put(e, head + 32, bytes, 8);
    put(e, head + 40, section == SYMBOLS ? STRINGS : 0, 4);
    memcpy(e->at + e->n, data, bytes);
    e->n += bytes;
}

static const char names[] = "\0.text.k\0.shstrtab\0.symtab\0.strtab\0.nv.info";
enum { AT_TEXT = 1, AT_NAMES = 9, AT_SYMBOLS = 19, AT_STRINGS = 27, AT_INFO = 35 };

/* A kernel k of these instructions, which needs 77 registers. */
static Elf make(const uint16_t *code, size_t n)
{
    static const uint32_t symbols[] = {0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0}; /* two: the second is k */
    static const unsigned char info[] = {4, 0x2f, 8, 0, 1, 0, 0, 0, 77, 0, 0, 0};
    unsigned char text[160] = {0};
    Elf e = {.n = DATA};

    memcpy(e.at, "\177ELF\2\1\0\0\x8", 9);
    put(&e, 18, 190, 2);
    put(&e, 40, 64, 8);
    put(&e, 48, 90 << 8, 4);
    put(&e, 58, 64, 2);
    put(&e, 60, SECTIONS, 2);
    put(&e, 62, NAMES, 2);
    for (size_t i = 0; i < n; i++)
        memcpy(text + 16 * i, &code[i], 2);
    add(&e, NAMES, AT_NAMES, names, sizeof names);
    add(&e, SYMBOLS, AT_SYMBOLS, symbols, sizeof symbols);
    add(&e, STRINGS, AT_STRINGS, "\0k", 3);
    add(&e, TEXT, AT_TEXT, text, 16 * n);
    add(&e, INFO, AT_INFO, info, sizeof info);
    return e;
}

static void set_bytes(Elf *e, int section, uint64_t bytes)
{
    put(e, 64 + 64 * (size_t)section + 32, bytes, 8);
}

static bool read_it(const Elf *e, Resources *r)
{
    char *exact = malloc(e->n); /* so that AddressSanitizer sees what is read behind it */
    bool ok;

    assert_non_null(exact);
    memcpy(exact, e->at, e->n);
    ok = cubin_resources((Bytes){exact, e->n}, "k", r);
    free(exact);
    return ok;
}

static const uint16_t plain[] = {0x981, 0x986, 0x947};

static void whole(void **state)
{
    const Elf e = make(plain, 3);
    Resources r;

    (void)state;
    assert_true(read_it(&e, &r));
    assert_int_equal(r.registers, 77);
    assert_int_equal(r.instructions, 3);
    assert_int_equal(r.code[CODE_LOAD], 1);
    assert_int_equal(r.code[CODE_STORE], 1);
}

static void lies(void **state)
{
    Resources r;
    Elf e = make(plain, 3);

    (void)state;
    set_bytes(&e, NAMES, sizeof names - 1); /* ".nv.info" has no end in its table */
    assert_true(read_it(&e, &r));
    assert_int_equal(r.registers, 0);

    e = make(plain, 3);
    set_bytes(&e, NAMES, UINT64_MAX - DATA + 9); /* place and size together are 8 */
    assert_false(read_it(&e, &r));

    e = make(plain, 3);
    set_bytes(&e, SYMBOLS, 24); /* the table ends before k */
    assert_true(read_it(&e, &r));
    assert_int_equal(r.registers, 0);

    e = make(plain, 3);
    set_bytes(&e, INFO, 4096); /* the section ends behind the file */
    assert_true(read_it(&e, &r));
    assert_int_equal(r.registers, 0);

    e = make(plain, 3);
    set_bytes(&e, INFO, 8); /* the record ends before its value */
    assert_true(read_it(&e, &r));
    assert_int_equal(r.registers, 0);
}

static void instructions(void **state)
{
    static const uint16_t moves[] = {0x9f0, 0x2ca, 0x9f0, 0x9f0, 0x947, 0x2ca, 0x9f0, 0x2ca, 0x9f0};
    Resources r;
    Elf e = make(plain, 3);
    uint32_t sum = 0;

    (void)state;
    set_bytes(&e, TEXT, 40); /* two and a half */
    assert_true(read_it(&e, &r));
    for (int c = 0; c < CODE_COUNT; c++)
        sum += r.code[c];
    assert_int_equal(r.instructions, 2);
    assert_int_equal(sum, 2);

    e = make(moves, sizeof moves / sizeof *moves); /* each R2UR counts once, and not across a branch */
    assert_true(read_it(&e, &r));
    assert_int_equal(r.operand_moves, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole),
        cmocka_unit_test(lies),
        cmocka_unit_test(instructions),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
