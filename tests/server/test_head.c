/* test_head.c - heads of requests and chunks of bodies: what is read, and what is refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/base/arena.h"
#include "server/head.h"
#include "server/text.h"

static int parse(const char *text, Head *head)
{
    const char *why = NULL;
    const int status = head_parse(text, strlen(text), head, &why);

    if (status > 1)
        assert_true(why && *why);
    return status;
}

static void heads_are_read(void **state)
{
    static const char text[] =
        "POST /v1/x?y=1 HTTP/1.1\r\nHost: a\r\nCONTENT-LENGTH:  12 \r\nAuthorization: Bearer k\t\r\n"
        "Connection: Upgrade, close\r\nexpect: 100-Continue\r\nX-Request-Id: me\r\n\r\nbody";
    Head h;

    (void)state;
    assert_int_equal(parse(text, &h), 0);
    assert_int_equal(h.bytes, strlen(text) - 4);
    assert_true(slice_is(h.method, "POST") && slice_is(h.path, "/v1/x") && slice_is(h.request_id, "me"));
    assert_true(slice_is(h.authorization, "Bearer k"));
    assert_true(h.has_length && h.length == 12 && h.minor == 1 && h.expects && !h.keep_alive && !h.chunked);
    for (size_t n = 0; n < h.bytes; n++) {
        const char *why;
        Head part;

        assert_int_equal(head_parse(text, n, &part, &why), 1);
    }
    assert_int_equal(parse("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", &h), 0);
    assert_true(h.keep_alive && h.minor == 0);
    assert_int_equal(parse("GET / HTTP/1.0\r\n\r\n", &h), 0);
    assert_false(h.keep_alive);
    assert_int_equal(parse("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n", &h), 0);
    assert_true(h.chunked && h.keep_alive && !h.has_length);
}

static void heads_are_refused(void **state)
{
    static const struct {
        int status;
        const char *text;
    } all[] = {
        {400, "GET / HTTP/1.1\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"},
        {400, "GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n"},
        {400, "GET  / HTTP/1.1\r\nHost: a\r\n\r\n"},
        {400, "GET / HTTP/1.1 \r\nHost: a\r\n\r\n"},
        {400, "GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n"},
        {400, "GET x HTTP/1.1\r\nHost: a\r\n\r\n"},
        {400, " GET / HTTP/1.1\r\nHost: a\r\n\r\n"},
        {400, "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"},
        {505, "GET / HTTP/1.2\r\nHost: a\r\n\r\n"},
        {400, "GET / http/1.1\r\nHost: a\r\n\r\n"},
        {400, "GET / HTTP/1.1\nHost: a\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\nX: 1\r\n\r\n"}, /* read as "Host:" if an LF ended the line */
        {400, "GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost : a\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\x01\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: a\r\nAuthorization: b\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1 1\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1234567890123456\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"},
        {400, "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"},
        {501, "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n"},
        {417, "GET / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n"},
        {415, "GET / HTTP/1.1\r\nHost: a\r\nContent-Encoding: br\r\n\r\n"},
    };
    Text lines = {0};
    Head h;

    (void)state;
    for (size_t i = 0; i < LEN(all); i++)
        if (parse(all[i].text, &h) != all[i].status)
            fail_msg("%s: not %d", all[i].text, all[i].status);
    text_put(&lines, "GET / HTTP/1.1\r\nHost: a\r\n");
    for (int i = 0; i < HEAD_LINES - 1; i++)
        text_put(&lines, "X: 1\r\n");
    text_put(&lines, "\r\n");
    assert_int_equal(parse(lines.at, &h), 0);
    lines.n -= 2;
    text_put(&lines, "X: 1\r\n\r\n");
    assert_int_equal(parse(lines.at, &h), 431);
    lines.n = 0;
    text_put(&lines, "GET / HTTP/1.1\r\nHost: a\r\nX: ");
    while (lines.n < HEAD_BYTES)
        text_put(&lines, "a");
    assert_int_equal(parse(lines.at, &h), 431);
    text_free(&lines);
}

/* The data of chunks that arrive in pieces of `step` bytes; NULL: refused. The caller frees it. */
static char *read_chunks(const char *text, size_t step, size_t most, bool *whole)
{
    Chunks c = {0};
    Text out = {0};

    for (size_t at = 0; at < strlen(text) && c.state != CHUNK_DONE;) {
        char piece[256];
        const size_t n = strlen(text) - at < step ? strlen(text) - at : step;
        size_t data, used;

        memcpy(piece, text + at, n);
        if (!chunks_read(&c, piece, n, most, &data, &used)) {
            text_free(&out);
            return NULL;
        }
        text_add(&out, piece, data);
        at += used;
    }
    *whole = c.state == CHUNK_DONE;
    text_put(&out, "");
    return out.at;
}

static void chunks_are_read(void **state)
{
    static const char text[] = "3\r\nabc\r\n0A\r\n0123456789\r\n1\r\n\r\r\n0\r\n\r\nnext";
    static const char *const bad[] = {"x\r\n",          "\r\n",          "3\nabc\r\n",        "3\r\nabcd\r\n",
                                      "3;a\r\nabc\r\n", "3 \r\nabc\r\n", "0\r\nX: 1\r\n\r\n", "3\r\nabc\r\r\n",
                                      "000000003\r\n",  "FFFFFFFF\r\n",  "3\r\nabc0\r\n\r\n"};
    bool whole = false;

    (void)state;
    for (size_t step = 1; step <= sizeof text; step++) {
        char *data = read_chunks(text, step, 100, &whole);

        assert_non_null(data);
        assert_string_equal(data, "abc0123456789\r");
        assert_true(whole);
        free(data);
    }
    for (size_t i = 0; i < LEN(bad); i++)
        for (size_t step = 1; step < 9; step++)
            if (read_chunks(bad[i], step, 100, &whole))
                fail_msg("%s is read", bad[i]);
    assert_null(read_chunks("5\r\nabcde\r\n", 20, 4, &whole));
}

static void texts_are_json(void **state)
{
    Text t = {0};

    (void)state;
    text_json(&t, "a\"\\\n\t\x7f\xff\xc3\xa4\0", 10);
    assert_string_equal(t.at, "\"a\\\"\\\\\\n\\u0009\\u007f\xef\xbf\xbd\xc3\xa4\\u0000\"");
    t.n = 0;
    text_json_number(&t, -1.5);
    text_put(&t, " ");
    text_json_number(&t, (double)INFINITY);
    assert_string_equal(t.at, "-1.5 null");
    text_drop(&t, 5);
    assert_string_equal(t.at, "null");
    text_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_are_read),
        cmocka_unit_test(heads_are_refused),
        cmocka_unit_test(chunks_are_read),
        cmocka_unit_test(texts_are_json),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
