/* test_format_numbers.c - the structs of a file do not change without the number of its format. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include "runtime/artifact/ftx_format.h"
#include "runtime/base/file.h"
#include "runtime/base/hash.h"
#include "runtime/chat/format.h"
#include "runtime/tokenizer/format.h"

/* What a compiler reads of a C text: no comments, no blanks. */
static size_t bare(const char *text, size_t n, char *to)
{
    size_t out = 0;

    for (size_t i = 0; i < n; i++) {
        if (i + 1 < n && text[i] == '/' && text[i + 1] == '*') {
            for (i += 2; i + 1 < n && (text[i] != '*' || text[i + 1] != '/');)
                i++;
            i++;
        } else if (!strchr(" \n\t", text[i])) {
            to[out++] = text[i];
        }
    }
    return out;
}

/* The declarations of the file's structs, for each number of the format: they change together. If what is stored stays
 * the same (a new name, say), change the sum here; else raise the number as well. */
static void test_numbers(void **state)
{
    static const struct {
        const char *path;
        int format, number;
        uint64_t sum;
    } headers[] = {
        {"runtime/artifact/ftx_format.h", FTX_FORMAT, 17, 0x4a1f8e863ee1020b},
        {"runtime/chat/format.h", CHAT_FORMAT, 1, 0x9062cfb89d7e3290},
        {"runtime/chat/ops.def", CHAT_FORMAT, 1, 0x24ebca47ac229857},
        {"runtime/chat/names.def", CHAT_FORMAT, 1, 0xb68efcd58ae0aec9},
        {"runtime/tokenizer/format.h", TOK_FORMAT, 3, 0x2f0d25f5feefd7be},
    };

    (void)state;
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        char text[40000];
        FileMap map;
        FtxError err;
        uint64_t sum;

        if (file_map(headers[i].path, &map, &err))
            fail_msg("%s", err.text);
        assert_true(map.bytes < sizeof text);
        sum = hash64(text, bare(map.at, map.bytes, text));
        file_unmap(&map);
        if (headers[i].format != headers[i].number || sum != headers[i].sum)
            fail_msg("%s is of format %d, its sum 0x%016llx", headers[i].path, headers[i].format,
                     (unsigned long long)sum);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
