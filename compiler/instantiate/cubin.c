/* cubin.c - what a kernel takes: read from the ELF file that holds its code.
 *
 *   .text.ENTRY        instructions of 16 bytes
 *   .nv.shared.ENTRY   its size is the static shared memory; from sm_90 on the system's own
 *                      1024 bytes are in it, and .nv.shared.reserved.0 is there
 *   .nv.info           records {format u8, attribute u8, size u16, payload}; format 4 has a
 *                      payload of `size` bytes, others carry their value in place of the size.
 *                      REGCOUNT and FRAME_SIZE hold {symbol u32, value u32}.
 *
 * The file comes from NVRTC or from the cache, yet every offset is checked before use. */
#include "parts.h"

#include <string.h>

enum {
    EH_SHOFF = 40,
    EH_SHENTSIZE = 58,
    EH_SHNUM = 60,
    EH_SHSTRNDX = 62,
    EH_BYTES = 64,
    SH_BYTES = 64,
    SYM_BYTES = 24,
    SHT_NOBITS = 8,
    EM_CUDA = 190,
    ATTR_FRAME_SIZE = 0x11,
    ATTR_REGCOUNT = 0x2f,
    OP_LDL = 0x983,
    OP_STL = 0x387,
    INSTRUCTION = 16,
    RESERVED_SMEM = 1024,
};

typedef struct Section {
    const char *name;
    uint32_t type, link;
    uint64_t at, bytes;
} Section;

static uint64_t number(const void *p, size_t at, size_t bytes)
{
    uint64_t v = 0;

    memcpy(&v, (const char *)p + at, bytes);
    return v;
}

/* The string at `at` of a table [first, first + n) of the file; "" where it is not one. */
static const char *string_at(Bytes f, uint64_t first, uint64_t n, uint64_t at)
{
    const char *s = (const char *)f.at + first + at;

    return at < n && memchr(s, 0, (size_t)(n - at)) ? s : "";
}

static bool section_at(Bytes f, uint64_t i, Section *s)
{
    const uint64_t table = number(f.at, EH_SHOFF, 8), names = number(f.at, EH_SHSTRNDX, 2);
    const char *p = f.at;

    if (number(p, EH_SHENTSIZE, 2) != SH_BYTES || table > f.bytes || i >= number(p, EH_SHNUM, 2) ||
        (f.bytes - table) / SH_BYTES <= i || (f.bytes - table) / SH_BYTES <= names)
        return false;
    const char *h = p + table + i * SH_BYTES, *strings = p + table + names * SH_BYTES;
    const uint64_t strings_at = number(strings, 24, 8), strings_bytes = number(strings, 32, 8);

    if (strings_at > f.bytes || strings_bytes > f.bytes - strings_at)
        return false;
    *s = (Section){
        .name = string_at(f, strings_at, strings_bytes, number(h, 0, 4)),
        .type = (uint32_t)number(h, 4, 4),
        .at = number(h, 24, 8),
        .bytes = number(h, 32, 8),
        .link = (uint32_t)number(h, 40, 4),
    };
    return s->type == SHT_NOBITS || (s->at <= f.bytes && s->bytes <= f.bytes - s->at);
}

static bool section_named(Bytes f, const char *prefix, const char *name, Section *s)
{
    const size_t n = strlen(prefix);

    for (uint64_t i = 0; i < number(f.at, EH_SHNUM, 2); i++)
        if (section_at(f, i, s) && !strncmp(s->name, prefix, n) && !strcmp(s->name + n, name))
            return true;
    return false;
}

static const char *symbol_name(Bytes f, uint64_t i)
{
    Section symbols, strings;

    if (!section_named(f, ".symtab", "", &symbols) || !section_at(f, symbols.link, &strings) ||
        i >= symbols.bytes / SYM_BYTES)
        return "";
    const uint64_t name = number(f.at, symbols.at + i * SYM_BYTES, 4);
    return string_at(f, strings.at, strings.bytes, name);
}

static void read_info(Bytes f, const Section *s, const char *entry, Resources *out)
{
    const unsigned char *p = (const unsigned char *)f.at + s->at;

    for (uint64_t at = 0; at + 4 <= s->bytes;) {
        const uint64_t payload = p[at] == 4 ? number(p, at + 2, 2) : 0;

        if (payload > s->bytes - at - 4)
            return;
        if (payload == 8 && !strcmp(symbol_name(f, number(p, at + 4, 4)), entry)) {
            const uint32_t value = (uint32_t)number(p, at + 8, 4);

            if (p[at + 1] == ATTR_REGCOUNT)
                out->registers = value;
            else if (p[at + 1] == ATTR_FRAME_SIZE)
                out->stack_bytes = value;
        }
        at += 4 + payload;
    }
}

/* Bits 73..75 of a load or store: 0, 1 a byte, 2, 3 a half, 4 a word, 5 two, 6 four. */
static uint32_t access_bytes(const unsigned char *instruction)
{
    static const uint8_t bytes[8] = {1, 1, 2, 2, 4, 8, 16, 16};

    return bytes[(instruction[9] >> 1) & 7];
}

static void read_code(Bytes f, const Section *s, Resources *out)
{
    const unsigned char *p = (const unsigned char *)f.at + s->at;

    out->instructions = (uint32_t)(s->bytes / INSTRUCTION);
    for (uint64_t at = 0; at + INSTRUCTION <= s->bytes; at += INSTRUCTION) {
        const uint32_t op = (uint32_t)number(p, at, 2) & 0xfff;

        if (op == OP_LDL || op == OP_STL)
            out->spill_bytes += access_bytes(p + at);
    }
}

bool cubin_resources(Bytes cubin, const char *entry, Resources *out)
{
    Section s;

    *out = (Resources){0};
    if (cubin.bytes < EH_BYTES || memcmp(cubin.at, "\177ELF\2\1", 6) ||
        number(cubin.at, 18, 2) != EM_CUDA || !section_named(cubin, ".text.", entry, &s) ||
        s.type == SHT_NOBITS)
        return false;
    read_code(cubin, &s, out);
    if (section_named(cubin, ".nv.info", "", &s) && s.type != SHT_NOBITS)
        read_info(cubin, &s, entry, out);
    if (section_named(cubin, ".nv.shared.", entry, &s))
        out->static_smem = (uint32_t)s.bytes;
    if (out->static_smem >= RESERVED_SMEM && section_named(cubin, ".nv.shared.reserved.0", "", &s))
        out->static_smem -= RESERVED_SMEM;
    return true;
}
