/* cubin.c - registers, stack, shared memory and instructions of a kernel, read from the ELF file of its code.
 *
 *   .text.ENTRY        instructions of 16 bytes
 *   .nv.shared.ENTRY   its size is the static shared memory. From sm_90 on it includes the 1024 bytes that the
 *                      system reserves; then .nv.shared.reserved.0 exists.
 *   .nv.info           records {format u8, attribute u8, size u16, payload}; format 4 has a payload of `size`
 *                      bytes, other formats have their value in place of the size. REGCOUNT and FRAME_SIZE
 *                      hold {symbol u32, value u32}.
 *   .nv.info.ENTRY     records of one kernel; NUM_BARRIERS has its value in place of the size
 *
 * The low 12 bits of an instruction are its operation, the same from sm_80 to sm_120; bits 9 to 11 of them say where the
 * second operand comes from. The table below was made by assembling each instruction for every target.
 *
 * The file comes from NVRTC or from the cache; still, every offset is checked before it is used. */
#include "cubin.h"

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
    EH_FLAGS = 48,
    EH_ABI = 8,
    EM_CUDA = 190,
    ATTR_FRAME_SIZE = 0x11,
    ATTR_REGCOUNT = 0x2f,
    ATTR_BARRIERS = 0x4c,
    OP_LDGSTS = 0xfae,
    OP_HGMMA = 0x9f0,
    OP_HGMMA_HELD = 0xdf0, /* HGMMA with its first operand in registers */
    OP_QGMMA = 0x9f3,      /* of 8-bit operands */
    OP_QGMMA_HELD = 0xdf3,
    OP_IGMMA_HELD = 0xdf1, /* of integers of 8 bits */
    OP_R2UR = 0x2ca,       /* register to uniform register */
    OP_BRA = 0x947,
    ANY_SOURCE = 0x1ff, /* mask without bits 9 to 11 */
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

/* The string at `at` in the string table [first, first + n) of the file; "": the offset is wrong. */
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

/* Reads the records of a section, those of symbol `entry` and those without a symbol. */
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
        } else if (p[at] != 4 && p[at + 1] == ATTR_BARRIERS) {
            out->barriers = p[at + 2];
        }
        at += 4 + payload;
    }
}

/* --- instructions ------------------------------------------------------------------------------ */

/* The kind of each operation. Loads and stores of global memory stand here as the narrow kind. */
static const struct {
    uint32_t mask, op;
    CodeClass is;
} kinds[] = {
    {0xfff, 0x981, CODE_LOAD}, /* LDG */
    {0xfff, 0x980, CODE_LOAD}, /* LD: generic address */
    {0xfff, 0x986, CODE_STORE},          {0xfff, 0x985, CODE_STORE},          {0xfff, OP_LDGSTS, CODE_ASYNC},
    {0xfff, 0x983, CODE_LOCAL},  /* LDL */
    {0xfff, 0x387, CODE_LOCAL},  /* STL */
    {0xfff, 0x984, CODE_SHARED}, /* LDS */
    {0xfff, 0x388, CODE_SHARED}, /* STS */
    {0xfff, 0x83b, CODE_SHARED}, /* LDSM */
    {0xfff, 0x844, CODE_SHARED}, /* STSM */
    {0xfff, 0x23c, CODE_MATRIX}, /* HMMA */
    {0xfff, 0x237, CODE_MATRIX}, /* IMMA */
    {0xfff, 0x27a, CODE_MATRIX}, /* QMMA */
    {0xfff, OP_HGMMA, CODE_MATRIX},      {0xfff, OP_HGMMA_HELD, CODE_MATRIX}, {0xfff, OP_QGMMA, CODE_MATRIX},
    {0xfff, OP_QGMMA_HELD, CODE_MATRIX}, {0xfff, OP_IGMMA_HELD, CODE_MATRIX}, {0xfff, 0x3ba, CODE_BULK}, /* UBLKCP */
    {0xfff, 0x3bc, CODE_BULK},                                                                           /* UBLKPF */
    {0xfff, 0x5b4, CODE_BULK},                                          /* UTMALDG: TMA */
    {ANY_SOURCE, 0x023, CODE_FMA},       {ANY_SOURCE, 0x031, CODE_FMA}, /* HFMA2 */
    {ANY_SOURCE, 0x108, CODE_SPECIAL},   {ANY_SOURCE, 0x189, CODE_SHUFFLE},   {0xfff, 0x3c4, CODE_SHUFFLE}, /* REDUX */
    {0xfff, 0xb1d, CODE_BARRIER},        {0xfff, 0x5b2, CODE_BARRIER}, /* SYNCS: mbarriers */
    {0xfff, 0x5a7, CODE_BARRIER},        {0xfff, 0x9a7, CODE_BARRIER},        {0xfff, 0x98e, CODE_ATOMIC}, /* RED */
    {0xfff, 0x9a8, CODE_ATOMIC},                                                                           /* ATOMG */
    {0xfff, 0x3a9, CODE_ATOMIC},         {0xfff, 0x38c, CODE_ATOMIC},                                      /* ATOMS */
    {0xfff, 0x38d, CODE_ATOMIC},         {0xfff, 0x992, CODE_FENCE},                                       /* MEMBAR */
};

const char *code_class_name(CodeClass c)
{
    static const char *const names[] = {
#define C(id, name, what) name,
        CODE_CLASSES(C)
#undef C
    };

    return c < CODE_COUNT ? names[c] : "";
}

/* The compute capability, 80 ... 120; in files of CUDA 12 it is in the lowest byte of the flags. */
static uint32_t capability(Bytes f)
{
    const uint32_t flags = (uint32_t)number(f.at, EH_FLAGS, 4);

    return number(f.at, EH_ABI, 1) >= 8 ? flags >> 8 & 0xff : flags & 0xff;
}

/* Bytes that a load or store moves a thread, from bits 73 to 75. Asynchronous copies from sm_100 on use bits 74 and 75:
 * 4, 8 or 16 bytes. */
static uint32_t access_bytes(const unsigned char *instruction, uint32_t op, uint32_t of)
{
    static const uint8_t bytes[8] = {1, 1, 2, 2, 4, 8, 16, 16};

    if (op == OP_LDGSTS && of >= 100)
        return 4u << (instruction[9] >> 2 & 3);
    return bytes[(instruction[9] >> 1) & 7];
}

static CodeClass class_of(uint32_t op, uint32_t bytes)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if ((op & kinds[i].mask) != kinds[i].op)
            continue;
        if (bytes >= 16 && (kinds[i].is == CODE_LOAD || kinds[i].is == CODE_STORE || kinds[i].is == CODE_ASYNC))
            return (CodeClass)(kinds[i].is - 1); /* the wide kind stands before the narrow one */
        return kinds[i].is;
    }
    return CODE_OTHER;
}

static void read_code(Bytes f, const Section *s, Resources *out)
{
    const unsigned char *p = (const unsigned char *)f.at + s->at;
    const uint32_t of = capability(f);
    uint32_t moves = 0; /* R2UR since the last HGMMA */
    bool in_row = false;

    out->instructions = (uint32_t)(s->bytes / INSTRUCTION);
    for (uint64_t at = 0; at + INSTRUCTION <= s->bytes; at += INSTRUCTION) {
        const uint32_t op = (uint32_t)number(p, at, 2) & 0xfff, bytes = access_bytes(p + at, op, of);
        const CodeClass is = class_of(op, bytes);

        out->code[is]++;
        if (is == CODE_LOCAL)
            out->spill_bytes += bytes;
        if (op == OP_HGMMA || op == OP_HGMMA_HELD || op == OP_QGMMA || op == OP_QGMMA_HELD || op == OP_IGMMA_HELD) {
            out->operand_moves += in_row ? moves : 0;
            in_row = true;
            moves = 0;
        }
        in_row = in_row && op != OP_BRA;
        moves += op == OP_R2UR;
    }
}

bool cubin_resources(Bytes cubin, const char *entry, Resources *out)
{
    Section s;

    *out = (Resources){0};
    if (cubin.bytes < EH_BYTES || memcmp(cubin.at, "\177ELF\2\1", 6) || number(cubin.at, 18, 2) != EM_CUDA ||
        !section_named(cubin, ".text.", entry, &s) || s.type == SHT_NOBITS)
        return false;
    read_code(cubin, &s, out);
    if (section_named(cubin, ".nv.info", "", &s) && s.type != SHT_NOBITS)
        read_info(cubin, &s, entry, out);
    if (section_named(cubin, ".nv.info.", entry, &s) && s.type != SHT_NOBITS)
        read_info(cubin, &s, entry, out);
    if (section_named(cubin, ".nv.shared.", entry, &s))
        out->static_smem = (uint32_t)s.bytes;
    if (out->static_smem >= RESERVED_SMEM && section_named(cubin, ".nv.shared.reserved.0", "", &s))
        out->static_smem -= RESERVED_SMEM;
    return true;
}
