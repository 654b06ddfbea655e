/* test_trailer.c - an artifact behind a program: found where it is, and no end of a file is believed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <elf.h>
#include <string.h>

#include "runtime/artifact/trailer.h"

enum { PROGRAM = FTX_TRAILER_ALIGN, MODEL = 100, END = PROGRAM + MODEL, ALL = END + sizeof(FtxTrailer) };

/* A program that ends before its page does, and a model of 100 bytes. */
static unsigned char file[ALL + 64];

static void build(void)
{
    const FtxTrailer t = trailer_make(PROGRAM, MODEL);
    Elf64_Ehdr h = {.e_shoff = 1000, .e_shnum = 3, .e_shentsize = sizeof(Elf64_Shdr)};

    memset(file, 7, sizeof file);
    memcpy(h.e_ident, ELFMAG, SELFMAG);
    memcpy(file, &h, sizeof h);
    memcpy(file + END, &t, sizeof t);
}

static FtxStatus find(size_t bytes, FileMap *found)
{
    FtxError err = {0};
    const FtxStatus s = trailer_find((FileMap){file, bytes}, found, &err);

    assert_int_equal(!s, !err.text[0]);
    return s;
}

static void test_found(void **state)
{
    FileMap found;
    (void)state;

    build();
    assert_int_equal(find(ALL, &found), FTX_OK);
    assert_ptr_equal(found.at, file + PROGRAM);
    assert_int_equal(found.bytes, MODEL);
}

static void test_no_program(void **state)
{
    FileMap found;
    (void)state;

    build();
    file[0] = 'F'; /* what it is, others say */
    for (size_t n = 0; n <= ALL; n++) {
        assert_int_equal(find(n, &found), FTX_OK);
        assert_ptr_equal(found.at, file);
        assert_int_equal(found.bytes, n);
    }
}

static void test_every_length(void **state)
{
    FileMap found;
    (void)state;

    build();
    for (size_t n = sizeof(Elf64_Ehdr); n <= sizeof file; n++)
        if (n != ALL)
            assert_int_equal(find(n, &found), FTX_EFORMAT);
}

static void test_every_bit(void **state)
{
    FileMap found;
    (void)state;

    build();
    for (size_t i = END; i < ALL; i++)
        for (int bit = 0; bit < 8; bit++) {
            file[i] ^= (unsigned char)(1 << bit);
            assert_int_equal(find(ALL, &found), FTX_EFORMAT);
            file[i] ^= (unsigned char)(1 << bit);
        }
    assert_int_equal(find(ALL, &found), FTX_OK);
}

/* Trailers whose checksum is right and whose words are not. */
static void test_hostile(void **state)
{
    static const uint64_t words[] = {
        0,          1,         MODEL - 1,         MODEL + 1,          PROGRAM,         PROGRAM * 2, ALL,
        UINT64_MAX, INT64_MAX, (uint64_t)1 << 63, -(uint64_t)PROGRAM, -(uint64_t)MODEL};
    FileMap found;
    (void)state;

    build();
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
            const FtxTrailer t = trailer_make(words[i], words[k]);
            const bool inside = words[i] % FTX_TRAILER_ALIGN == 0 && words[i] <= END && words[k] == END - words[i];

            memcpy(file + END, &t, sizeof t);
            assert_int_equal(!find(ALL, &found), inside);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found),     cmocka_unit_test(test_no_program), cmocka_unit_test(test_every_length),
        cmocka_unit_test(test_every_bit), cmocka_unit_test(test_hostile),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
