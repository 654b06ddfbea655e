/* files.h - small checkpoints written by the tests of this folder. */
#ifndef TESTS_WEIGHTS_FILES_H
#define TESTS_WEIGHTS_FILES_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compiler/weights/weights.h"
#include "tests/temp.h"

/* u64 length | header | data */
static inline void write_safetensors(const char *path, const char *header, const void *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");
    uint64_t n = strlen(header);

    assert_non_null(f);
    assert_int_equal(fwrite(&n, 8, 1, f), 1);
    assert_int_equal(fwrite(header, 1, n, f), n);
    if (bytes)
        assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

static inline void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static inline Id add_value(Graph *g, Op op, Id a, Id b, Id c, int64_t rows, int64_t columns)
{
    const Id args[IR_MAX_ARGS] = {a, b, c};
    const Shape s = ir_shape(columns ? 2 : 1, ir_const(rows), ir_const(columns), ir_const(0));

    return ir_value_add(g, op, args, s, DT_FP32, (Loc){"model.lua", 7});
}

static inline Id add_weight(Graph *g, const char *name, int64_t rows, int64_t columns)
{
    const Id id = add_value(g, OP_WEIGHT, 0, 0, 0, rows, columns);

    ir_attr_word(g, id, "name", name);
    return id;
}

#endif
