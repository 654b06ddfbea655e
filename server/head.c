/* head.c - the head of an HTTP/1.1 request and the chunks of its body: pure functions of bytes. */
#include "head.h"

#include <string.h>
#include <strings.h>

bool slice_is(Slice s, const char *text)
{
    return s.n == strlen(text) && strncmp(s.at, text, s.n) == 0;
}

static bool same_word(Slice s, const char *text)
{
    return s.n == strlen(text) && strncasecmp(s.at, text, s.n) == 0;
}

/* A character of a token, RFC 9110, 5.6.2. */
static bool is_token(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool all_token(Slice s)
{
    for (size_t i = 0; i < s.n; i++)
        if (!is_token(s.at[i]))
            return false;
    return s.n > 0;
}

/* Where the empty line ends; 0: it has not come yet. *bad: an LF stands alone (a CR is in no value). */
static size_t find_end(const char *p, size_t n, bool *bad)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '\n' && (i == 0 || p[i - 1] != '\r'))
            *bad = true;
        if (*bad)
            return 0;
        if (i >= 3 && p[i] == '\n' && p[i - 2] == '\n')
            return i + 1;
    }
    return 0;
}

static Slice cut(Slice *line, char at)
{
    const char *end = memchr(line->at, at, line->n);
    const Slice first = {line->at, end ? (size_t)(end - line->at) : line->n};

    line->at += first.n + (end != NULL);
    line->n -= first.n + (end != NULL);
    return first;
}

static int parse_request(Slice line, Head *h, const char **why)
{
    Slice target;

    h->method = cut(&line, ' ');
    target = cut(&line, ' ');
    *why = "the request line is no METHOD /PATH HTTP/1.1";
    if (!all_token(h->method) || !target.n || target.at[0] != '/')
        return 400;
    for (size_t i = 0; i < target.n; i++)
        if (target.at[i] <= ' ' || target.at[i] > '~')
            return 400;
    h->path = cut(&target, '?');
    if (line.n != 8 || strncmp(line.at, "HTTP/", 5) != 0)
        return 400;
    if (!slice_is(line, "HTTP/1.1") && !slice_is(line, "HTTP/1.0")) {
        *why = "only HTTP/1.1 and HTTP/1.0 are spoken here";
        return 505;
    }
    h->minor = line.at[7] - '0';
    h->keep_alive = h->minor == 1;
    return 0;
}

static bool parse_length(Slice v, size_t *length)
{
    *length = 0;
    for (size_t i = 0; i < v.n; i++) {
        if (v.at[i] < '0' || v.at[i] > '9')
            return false;
        *length = *length * 10 + (size_t)(v.at[i] - '0');
    }
    return v.n > 0 && v.n < 16;
}

/* The options of Connection, separated by commas. */
static void parse_connection(Slice v, Head *h)
{
    while (v.n) {
        Slice word = cut(&v, ',');

        while (word.n && word.at[0] == ' ')
            word.at++, word.n--;
        while (word.n && word.at[word.n - 1] == ' ')
            word.n--;
        if (same_word(word, "close"))
            h->keep_alive = false;
        else if (same_word(word, "keep-alive") && h->minor == 0)
            h->keep_alive = true;
    }
}

static int parse_field(Slice line, Head *h, int *hosts, const char **why)
{
    Slice name, v;

    *why = "a line of the head is no NAME: VALUE";
    if (!memchr(line.at, ':', line.n))
        return 400;
    name = cut(&line, ':');
    v = line;
    while (v.n && (v.at[0] == ' ' || v.at[0] == '\t'))
        v.at++, v.n--;
    while (v.n && (v.at[v.n - 1] == ' ' || v.at[v.n - 1] == '\t'))
        v.n--;
    if (!all_token(name))
        return 400;
    for (size_t i = 0; i < v.n; i++)
        if (((unsigned char)v.at[i] < ' ' && v.at[i] != '\t') || v.at[i] == 0x7f)
            return 400;
    if (same_word(name, "host")) {
        ++*hosts;
    } else if (same_word(name, "content-length")) {
        *why = "Content-Length must be given once, as digits";
        if (h->has_length || !parse_length(v, &h->length))
            return 400;
        h->has_length = true;
    } else if (same_word(name, "transfer-encoding")) {
        *why = "of the transfer codings only \"chunked\", once, is read";
        if (h->chunked || !same_word(v, "chunked"))
            return h->chunked ? 400 : 501;
        h->chunked = true;
    } else if (same_word(name, "connection")) {
        parse_connection(v, h);
    } else if (same_word(name, "expect")) {
        *why = "of the expectations only 100-continue is known";
        if (!same_word(v, "100-continue"))
            return 417;
        h->expects = h->minor == 1;
    } else if (same_word(name, "content-encoding")) {
        *why = "bodies are read without a content coding";
        if (!same_word(v, "identity"))
            return 415;
    } else if (same_word(name, "authorization")) {
        *why = "Authorization is given twice";
        if (h->authorization.n)
            return 400;
        h->authorization = v;
    } else if (same_word(name, "content-type")) {
        h->content_type = v;
    } else if (same_word(name, "x-request-id")) {
        h->request_id = v;
    } else if (same_word(name, "origin")) {
        h->origin = v;
    }
    return 0;
}

int head_parse(const char *p, size_t n, Head *head, const char **why)
{
    bool bad = false;
    const size_t end = find_end(p, n < HEAD_BYTES ? n : HEAD_BYTES, &bad);
    Slice text = {p, end ? end - 2 : 0};
    int status = 0, lines = 0, hosts = 0;

    *head = (Head){0};
    if (bad) {
        *why = "lines of the head must end in CR LF";
        return 400;
    }
    if (!end) {
        *why = "the head is longer than 16 KiB";
        return n < HEAD_BYTES ? 1 : 431;
    }
    head->bytes = end;
    for (; !status && text.n; lines++) {
        Slice line = cut(&text, '\n');

        line.n--; /* CR */
        if (lines > HEAD_LINES) {
            *why = "the head has more than 100 lines";
            return 431;
        }
        status = lines ? parse_field(line, head, &hosts, why) : parse_request(line, head, why);
    }
    if (status)
        return status;
    *why = "a request needs one Host, and a length or chunks, not both";
    if (!lines || hosts > 1 || (head->minor == 1 && hosts != 1) ||
        (head->chunked && (head->has_length || head->minor == 0)))
        return 400;
    return 0;
}

/* --- chunks -------------------------------------------------------------------------------------------- */

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One byte outside of data. */
static bool read_mark(Chunks *c, char byte)
{
    if (c->cr) { /* the second byte of CR LF */
        c->cr = false;
        if (byte != '\n')
            return false;
        if (c->state == CHUNK_SIZE)
            c->state = c->left ? CHUNK_DATA : CHUNK_LAST;
        else
            c->state = c->state == CHUNK_END ? CHUNK_SIZE : CHUNK_DONE;
        c->digits = 0;
        return true;
    }
    if (byte == '\r' && (c->state != CHUNK_SIZE || c->digits)) {
        c->cr = true;
        return true;
    }
    if (c->state != CHUNK_SIZE || hex(byte) < 0 || ++c->digits > 8)
        return false;
    c->left = c->left * 16 + (size_t)hex(byte);
    return true;
}

bool chunks_read(Chunks *c, char *p, size_t n, size_t most, size_t *data, size_t *used)
{
    *data = *used = 0;
    while (*used < n && c->state != CHUNK_DONE) {
        if (c->state == CHUNK_DATA) {
            const size_t take = c->left < n - *used ? c->left : n - *used;

            memmove(p + *data, p + *used, take);
            *data += take;
            *used += take;
            c->left -= take;
            c->state = c->left ? CHUNK_DATA : CHUNK_END;
        } else if (!read_mark(c, p[(*used)++]) || c->left > most) {
            return false;
        }
    }
    return *data <= most;
}
