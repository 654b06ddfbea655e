/* utf8.c - UTF-8 of unknown origin, by Unicode's table 3-7 of well-formed bytes. Ill-formed bytes are read by
 * "maximal subparts": each longest start of a character becomes one U+FFFD. */
#include "utf8.h"

#include <string.h>
#include <utf8proc.h>

Utf8Kind utf8_next(const unsigned char *p, size_t n, size_t *length, uint32_t *code)
{
    const unsigned char a = p[0];
    unsigned char low = 0x80, high = 0xbf;
    size_t more;

    *length = 1;
    *code = a;
    if (a < 0x80)
        return UTF8_CHARACTER;
    if (a < 0xc2 || a > 0xf4)
        return UTF8_INVALID;
    more = a < 0xe0 ? 1 : a < 0xf0 ? 2 : 3;
    *code = a & (0x3fu >> more);
    if (a == 0xe0)
        low = 0xa0; /* overlong forms are invalid */
    if (a == 0xed)
        high = 0x9f; /* no surrogates */
    if (a == 0xf0)
        low = 0x90;
    if (a == 0xf4)
        high = 0x8f; /* up to U+10FFFF */
    for (size_t i = 1; i <= more; i++) {
        if (i == n)
            return UTF8_CUT;
        if (p[i] < low || p[i] > high)
            return UTF8_INVALID;
        low = 0x80;
        high = 0xbf;
        *code = *code << 6 | (p[i] & 0x3fu);
        *length = i + 1;
    }
    return UTF8_CHARACTER;
}

enum { UTF8_WORD = 256 }; /* bytes of a word at most */

static bool is_blank(char c)
{
    return c == ' ' || c == '\n';
}

static bool is_inside(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

size_t utf8_end(const char *p, size_t n)
{
    size_t at = n;

    while (at && n - at < UTF8_WORD && !is_blank(p[at]))
        at--;
    if (at && n - at < UTF8_WORD)
        return at;
    for (at = n; at && is_inside(p[at]);)
        at--;
    return at;
}

size_t utf8_start(const char *p, size_t bytes, size_t n)
{
    size_t at = n;

    while (at < bytes && at - n < UTF8_WORD && !is_blank(p[at]))
        at++;
    if (at < bytes && at - n < UTF8_WORD)
        return at;
    for (at = n; at < bytes && is_inside(p[at]);)
        at++;
    return at;
}

bool utf8_valid(const char *text, size_t n)
{
    const unsigned char *p = (const unsigned char *)text, *end = p + n;
    uint32_t code;
    size_t length;

    while (p < end) {
        if (*p < 0x80) {
            p++;
            continue;
        }
        if (utf8_next(p, (size_t)(end - p), &length, &code) != UTF8_CHARACTER)
            return false;
        p += length;
    }
    return true;
}

size_t utf8_clean(const char *text, size_t n, char *out)
{
    const unsigned char *p = (const unsigned char *)text, *end = p + n;
    char *to = out;

    while (p < end) {
        uint32_t code;
        size_t length;
        const Utf8Kind kind = utf8_next(p, (size_t)(end - p), &length, &code);

        if (kind == UTF8_CHARACTER) {
            memcpy(to, p, length);
            to += length;
        } else {
            memcpy(to, UTF8_REPLACEMENT, 3);
            to += 3;
        }
        p = kind == UTF8_CUT ? end : p + length;
    }
    return (size_t)(to - out);
}

bool utf8_is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
           c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool utf8_is_word(uint32_t c)
{
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: break;
    }
    return c == 0x200c || c == 0x200d || (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
           (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
}

bool utf8_is_mark(uint32_t c)
{
    if (c < 0x80)
        return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return true;
    default: return false;
    }
}

size_t utf8_put(uint32_t c, char *out)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}
