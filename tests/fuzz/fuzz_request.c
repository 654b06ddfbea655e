/* fuzz_request.c - any bytes as an HTTP head, as chunks, as a request's JSON, and as a text with tool calls.
 *
 * The first byte chooses. Heads and chunks are read whole and a byte at a time, texts in pieces of two sizes: both must say
 * the same. Fields of a request that is taken are within their ranges. */
#include "fuzz.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/arena.h"
#include "server/body.h"
#include "server/head.h"
#include "server/text.h"
#include "server/tools.h"

static void try_head(const char *p, size_t n)
{
    const char *why = NULL;
    Head whole, part;
    const int status = head_parse(p, n, &whole, &why);

    if (status > 1 && (!why || !*why))
        fuzz_bug("refused without a reason");
    if (status)
        return;
    if (whole.bytes > n || (whole.chunked && whole.has_length))
        fuzz_bug("a head of %zu bytes of %zu, or two lengths", whole.bytes, n);
    if (head_parse(p, whole.bytes, &part, &why) != 0 || head_parse(p, whole.bytes - 1, &part, &why) != 1)
        fuzz_bug("a head ends elsewhere without what follows it");
}

/* The data of chunks in pieces of `step` bytes; false: refused. */
static bool read_chunks(const char *p, size_t n, size_t step, Text *out, size_t *end)
{
    Chunks c = {0};
    char piece[4096];

    for (*end = 0; *end < n && c.state != CHUNK_DONE;) {
        const size_t take = n - *end < step ? n - *end : step;
        size_t data, used;

        memcpy(piece, p + *end, take);
        if (!chunks_read(&c, piece, take, 1 << 20, &data, &used))
            return false;
        text_add(out, piece, data);
        *end += used;
    }
    return c.state == CHUNK_DONE;
}

static void try_chunks(const char *p, size_t n)
{
    Text a = {0}, b = {0};
    size_t end, other;
    const bool whole = read_chunks(p, n, 4096, &a, &end), bytes = read_chunks(p, n, 1, &b, &other);

    if (whole != bytes || (whole && (end != other || a.n != b.n || (a.n && memcmp(a.at, b.at, a.n) != 0))))
        fuzz_bug("chunks depend on the pieces in which they arrive");
    text_free(&a);
    text_free(&b);
}

static void try_body(const char *p, size_t n)
{
    FtxModelInfo info = {.vocab = 1000, .sequences = 16, .context = 1024};
    FtxRequest q = {.temperature = 1.0f, .top_p = 1.0f, .repetition_penalty = 1.0f};
    Lists lists;
    Fault f = {0};
    json_t *root = body_parse(p, n, &f);

    if (root && body_request(root, &info, &q, &lists, &f)) {
        if (!(q.temperature >= 0.0f && q.temperature <= 2.0f) || !(q.top_p > 0.0f && q.top_p <= 1.0f) || q.top_k < 0 ||
            q.top_k > 1024 || q.stop_count > MOST_STOPS || q.bias_count > MOST_BIAS ||
            q.stop_ids_count > MOST_STOP_IDS || !(fabsf(q.presence_penalty) <= 2.0f))
            fuzz_bug("a field is outside of its range");
    } else if (!f.status || !*f.why) {
        fuzz_bug("refused without a reason");
    }
    json_decref(root);
}

typedef struct Found {
    Text text;
    int kind;
} Found;

static void take(void *user, Piece piece, const char *text, size_t bytes)
{
    Found *f = user;

    if (f->kind < 0 && piece == PIECE_ARGS)
        fuzz_bug("arguments of no call");
    if (f->kind != (int)piece || piece == PIECE_CALL)
        text_printf(&f->text, "\n%d", (int)piece);
    f->kind = (int)piece;
    text_add(&f->text, text, bytes);
}

static Found parse(ToolStyle style, const char *p, size_t n, size_t step)
{
    Found f = {.kind = -1};
    Parser parser;

    parser_open(&parser, style, true, false);
    for (size_t at = 0; at < n; at += step)
        parser_feed(&parser, p + at, n - at < step ? n - at : step, false, take, &f);
    parser_feed(&parser, "", 0, true, take, &f);
    parser_close(&parser);
    return f;
}

static void try_tools(ToolStyle style, const char *p, size_t n)
{
    Found a = parse(style, p, n, 1), b = parse(style, p, n, 7);

    if (a.text.n != b.text.n || (a.text.n && memcmp(a.text.at, b.text.at, a.text.n) != 0))
        fuzz_bug("calls depend on the pieces in which the text arrives: %s, and %s", a.text.n ? a.text.at : "",
                 b.text.n ? b.text.at : "");
    text_free(&a.text);
    text_free(&b.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *p = (const char *)data + 1;

    if (!size || size > 5000)
        return 0;
    switch (data[0] % 6) {
    case 0: try_head(p, size - 1); break;
    case 1: try_chunks(p, size - 1); break;
    case 2: try_body(p, size - 1); break;
    default: try_tools((ToolStyle)(data[0] % 6 - 2), p, size - 1); break;
    }
    return 0;
}

void fuzz_seeds(void)
{
    FUZZ_SEED("head", "\0POST /v1/x?a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nConnection: close, x\r\n\r\nabc");
    FUZZ_SEED("head10", "\0GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n");
    FUZZ_SEED("chunks", "\1"
                        "3\r\nabc\r\n0A\r\n0123456789\r\n0\r\n\r\n");
    FUZZ_SEED("body",
              "\2{\"temperature\": 1, \"top_p\": 0.5, \"top_k\": -1, \"stop\": [\"a\"], \"seed\": -3, \"n\": null}");
    FUZZ_SEED("lists", "\2{\"logit_bias\": {\"5\": 1.5}, \"stop_token_ids\": [1, 2], \"early_stopping\": \"never\"}");
    FUZZ_SEED("hermes", "\3<think>a</think>b<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1]}}</tool_call>");
    FUZZ_SEED("llama", "\4{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\"} <|python_tag|>");
    FUZZ_SEED("mistral", "\5[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": \"{}\"}, {}] [TOOL_CALLS]f[ARGS]{\"a\": 1}");
}
