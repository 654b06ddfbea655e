/* spm.c - SentencePiece's own file: a protobuf message with pieces, the trainer's settings and the
 * normaliser with its map of characters. Kudo and Richardson 2018.
 *
 *   message     1 piece*  { 1 text  2 score (fp32)  3 type }
 *               2 trainer { 3 model  24 spaces after words  35 byte fallback  40 unk  44 unk's text }
 *               3 normaliser { 2 map  3 space before the text  4 fewer spaces  5 visible spaces }
 *               5 denormaliser { 2 map }
 *
 * The id of a piece is its index, and no tokens are put around a text. Marian's ids are those of the vocab.json beside
 * the .spm; a piece that is not in it is unknown. Marian's tokenizer splits a text at special tokens and treats each
 * part as a separate text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parts.h"
#include "../../runtime/base/file.h"
#include "../../runtime/base/utf8.h"

enum { UNKNOWN_PENALTY = 10, MOST_LENGTH = 512 /* bytes of a piece that merges may make */ };

enum { NORMAL = SPM_NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };
typedef enum ModelType { UNIGRAM = 1, BPE } ModelType;

typedef struct Spm {
    Build *b;
    struct {
        SpmPiece *at;
        size_t n, cap;
    } pieces;
    uint64_t model;
    bool after, bytes; /* spaces after words; byte fallback */
    const char *unknown_text;
    bool dummy, squeeze, escape;
    bool marian; /* ids from vocab.json */
    bool apart;  /* texts between added tokens are separate ones */
} Spm;

/* --- protobuf: bounded reading of fields -------------------------------------------------------- */

typedef enum WireType { WIRE_NUMBER = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 } WireType;

typedef struct Reader {
    const unsigned char *at, *end;
    bool bad;
} Reader;

typedef struct Field {
    uint64_t number, value; /* value: of WIRE_NUMBER and WIRE_32 */
    WireType wire;
    Reader inside; /* WIRE_BYTES */
} Field;

static uint64_t next_number(Reader *r)
{
    uint64_t value = 0;

    for (int shift = 0; shift < 64 && r->at < r->end; shift += 7) {
        const unsigned char byte = *r->at++;

        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return value;
    }
    r->bad = true;
    return 0;
}

static bool skip(Reader *r, uint64_t n)
{
    if (n > (uint64_t)(r->end - r->at)) {
        r->bad = true;
        return false;
    }
    r->at += n;
    return true;
}

/* False: the message has ended, or it is damaged (r->bad). */
static bool next_field(Reader *r, Field *f)
{
    uint64_t key, n;

    if (r->bad || r->at == r->end)
        return false;
    key = next_number(r);
    *f = (Field){.number = key >> 3, .wire = (WireType)(key & 7)};
    switch (f->wire) {
    case WIRE_NUMBER: f->value = next_number(r); return !r->bad;
    case WIRE_64: return skip(r, 8);
    case WIRE_32: {
        uint32_t bits;

        if (!skip(r, 4))
            return false;
        memcpy(&bits, r->at - 4, 4);
        f->value = bits;
        return true;
    }
    case WIRE_BYTES:
        n = next_number(r);
        if (r->bad || !skip(r, n))
            return false;
        f->inside = (Reader){r->at - n, r->at, false};
        return true;
    }
    r->bad = true; /* groups, which these files do not use */
    return false;
}

/* NULL: not a text. */
static const char *field_text(Build *b, const Field *f)
{
    const char *at = (const char *)f->inside.at;
    const size_t n = (size_t)(f->inside.end - f->inside.at);

    if (f->wire != WIRE_BYTES || memchr(at, 0, n) || !utf8_valid(at, n))
        return NULL;
    return arena_strndup(b->keep, at, n);
}

/* --- the file ----------------------------------------------------------------------------------- */

static bool read_piece(Spm *m, Reader r)
{
    SpmPiece p = {.type = NORMAL};
    Field f;

    while (next_field(&r, &f)) {
        if (f.number == 1 && !(p.text = field_text(m->b, &f)))
            return diag_error(m->b->d, m->b->loc, "piece %zu is no UTF-8", m->pieces.n);
        if (f.number == 2 && f.wire == WIRE_32) {
            const uint32_t bits = (uint32_t)f.value;
            memcpy(&p.score, &bits, sizeof bits);
        }
        if (f.number == 3 && f.wire == WIRE_NUMBER)
            p.type = (uint32_t)f.value;
    }
    if (r.bad || !p.text || !*p.text || p.type < NORMAL || p.type > BYTE || p.score != p.score)
        return diag_error(m->b->d, m->b->loc, "piece %zu has no text or an unknown type", m->pieces.n);
    if (m->pieces.n >= MAX_ID)
        return diag_error(m->b->d, m->b->loc, "has over %d pieces", MAX_ID);
    p.id = (int32_t)m->pieces.n;
    *arena_push(m->b->keep, m->pieces) = p;
    return true;
}

static bool read_trainer(Spm *m, Reader r)
{
    Field f;

    while (next_field(&r, &f)) {
        if (f.number == 3)
            m->model = f.value;
        else if (f.number == 24)
            m->after = f.value;
        else if (f.number == 35)
            m->bytes = f.value;
        else if (f.number == 44 && !(m->unknown_text = field_text(m->b, &f)))
            r.bad = true;
    }
    return !r.bad || diag_error(m->b->d, m->b->loc, "its trainer's settings are damaged");
}

static bool read_normaliser(Spm *m, Reader r)
{
    Field f;

    while (next_field(&r, &f)) {
        if (f.number == 2 && f.wire == WIRE_BYTES && f.inside.at < f.inside.end) {
            m->b->n_charsmap = (size_t)(f.inside.end - f.inside.at);
            m->b->charsmap = memcpy(arena_alloc(m->b->keep, m->b->n_charsmap), f.inside.at, m->b->n_charsmap);
        }
        if (f.number == 3)
            m->dummy = f.value;
        if (f.number == 4)
            m->squeeze = f.value;
        if (f.number == 5)
            m->escape = f.value;
    }
    return !r.bad || diag_error(m->b->d, m->b->loc, "its normaliser is damaged");
}

static bool read_denormaliser(Spm *m, Reader r)
{
    Field f;

    while (next_field(&r, &f))
        if (f.number == 2 && f.inside.at < f.inside.end)
            return diag_error(m->b->d, m->b->loc, "it has a denormaliser, which is not supported");
    return true;
}

static bool read_message(Spm *m, Reader r)
{
    Field f;
    bool ok = true;

    while (ok && next_field(&r, &f)) {
        if (f.wire != WIRE_BYTES)
            continue;
        switch (f.number) {
        case 1: ok = read_piece(m, f.inside); break;
        case 2: ok = read_trainer(m, f.inside); break;
        case 3: ok = read_normaliser(m, f.inside); break;
        case 5: ok = read_denormaliser(m, f.inside); break;
        default: break;
        }
    }
    if (ok && (r.bad || !m->pieces.n))
        return diag_error(m->b->d, m->b->loc, "is no SentencePiece model");
    return ok;
}

/* --- ids ---------------------------------------------------------------------------------------- */

static const char *beside(Build *b, const char *name)
{
    const char *slash = strrchr(b->loc.file, '/');

    return arena_printf(b->keep, "%.*s%s", slash ? (int)(slash + 1 - b->loc.file) : 0, b->loc.file, name);
}

static bool is_language(const char *text)
{
    const size_t n = strlen(text);

    return n > 4 && text[0] == '>' && text[1] == '>' && strcmp(text + n - 2, "<<") == 0;
}

/* Adds the tokens of vocab.json. Marian's special tokens and language codes (>>deu<<) are recognised in texts. */
static bool add_vocab(Build *b)
{
    static const char *const special[] = {"</s>", "<unk>", "<pad>"};
    const char *text;
    json_t *id;

    json_object_foreach(b->vocab, text, id)
    {
        bool found = false;

        if (!json_is_integer(id))
            return diag_error(b->d, b->loc, "vocab.json beside it: token \"%.80s\" has no id", text);
        for (size_t i = 0; i < LEN(special); i++)
            found |= strcmp(text, special[i]) == 0;
        if (!build_token(b, text, json_integer_value(id), found ? TOK_SPECIAL : 0))
            return false;
        if (found || is_language(text))
            build_added(b, text, (int32_t)json_integer_value(id), 0);
    }
    return true;
}

static bool read_vocab(Spm *m, const char *path)
{
    Build *b = m->b;
    json_error_t why;
    FileMap map;
    FtxError err;
    const char *text;
    size_t bytes;
    int32_t end;

    if (file_map(path, &map, &err))
        return diag_error(b->d, (Loc){0}, "%s", err.text);
    text = file_text(&map, &bytes);
    b->vocab = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
    file_unmap(&map);
    if (!json_is_object(b->vocab))
        return diag_error(b->d, b->loc, "vocab.json beside it is not a JSON object");
    if (!add_vocab(b))
        return false;
    b->facts.unknown = build_id(b, "<unk>");
    end = build_id(b, "</s>");
    if (b->facts.unknown < 0 || end < 0)
        return diag_error(b->d, b->loc, "vocab.json beside it has no \"<unk>\" or no \"</s>\"");
    for (size_t i = 0; i < m->pieces.n; i++) {
        SpmPiece *p = &m->pieces.at[i];

        p->id = build_id(b, p->text);
        if (p->id < 0)
            p->id = b->facts.unknown;
    }
    b->framed = true;
    build_frame(b, TOK_TEXT, 0, false);
    build_frame(b, end, 0, false);
    build_frame(b, TOK_TEXT, 0, true);
    build_frame(b, TOK_OTHER_TEXT, 0, true);
    build_frame(b, end, 0, true);
    b->facts.flags |= TOK_GROUPS | TOK_TRIM;
    return true;
}

/* The text of the unknown token: " ⁇ " if the file has none. */
static bool use_places(Spm *m)
{
    Build *b = m->b;

    b->vocab = json_object();
    for (size_t i = 0; i < m->pieces.n; i++) {
        const SpmPiece *p = &m->pieces.at[i];
        const char *text = p->type == UNKNOWN ? m->unknown_text : p->text;

        if (!build_token(b, text, p->id, p->type == CONTROL ? TOK_SPECIAL : 0))
            return false;
        if (p->type == UNKNOWN)
            b->facts.unknown = p->id;
        json_object_set_new(b->vocab, p->text, json_integer(p->id));
    }
    return true;
}

static void mark_users(Spm *m)
{
    for (size_t i = 0; i < m->pieces.n; i++)
        if (m->pieces.at[i].type == USER_DEFINED && m->pieces.at[i].id != m->b->facts.unknown) {
            m->b->texts.at[m->pieces.at[i].id].flags |= TOK_USER;
            m->b->facts.flags |= TOK_USERS;
        }
}

static bool read_ids(Spm *m)
{
    static const char *const names[] = {"tokenizer.model", "ice_text.model"}; /* the second is ChatGLM-6B's */
    const char *path = m->b->loc.file, *vocab = beside(m->b, "vocab.json");
    const char *config = beside(m->b, "tokenizer_config.json");
    const size_t n = strlen(path);

    m->marian = n > 4 && strcmp(path + n - 4, ".spm") == 0 && file_exists(vocab);
    if (m->marian && file_exists(beside(m->b, "target_vocab.json")))
        return diag_error(m->b->d, m->b->loc,
                          "there is a target_vocab.json beside it: one vocabulary for both languages is "
                          "supported");
    if (!(m->marian ? read_vocab(m, vocab) : use_places(m)))
        return false;
    mark_users(m);
    m->apart = m->marian;
    for (size_t i = 0; i < LEN(names); i++)
        if (n >= strlen(names[i]) && strcmp(path + n - strlen(names[i]), names[i]) == 0 && file_exists(config))
            return read_tokenizer_config(m->b, config, (int32_t)m->pieces.n, &m->apart);
    return true;
}

/* --- the model ---------------------------------------------------------------------------------- */

static size_t character_bytes(const char *text)
{
    size_t n = 1;

    while (((unsigned char)text[n] & 0xc0) == 0x80)
        n++;
    return n;
}

/* Control, unknown and byte pieces are never matched in a text. Pieces of the user are matched before all others; in
 * Unigram they only have a score that is hard to beat, as in SentencePiece 0.2.3. */
static void add_pieces(Spm *m)
{
    double least = 0;
    bool any = false;

    for (size_t i = 0; i < m->pieces.n; i++) {
        const SpmPiece *p = &m->pieces.at[i];

        if (p->type == USER_DEFINED)
            build_piece(m->b, p->text, p->id, (float)((double)strlen(p->text) * 0.1f - 0.1));
        if (p->type != NORMAL)
            continue;
        build_piece(m->b, p->text, p->id, p->score);
        if (!any || p->score < least)
            least = p->score;
        any = true;
    }
    m->b->facts.unknown_score = (float)((float)least - UNKNOWN_PENALTY);
}

typedef struct Merge {
    float score;
    uint32_t piece, split;
    int32_t left, right, result;
} Merge;

static int by_score(const void *a, const void *b)
{
    const Merge *x = a, *y = b;

    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    if (x->piece != y->piece)
        return x->piece < y->piece ? -1 : 1;
    return x->split < y->split ? -1 : x->split > y->split;
}

static const TokPiece *piece_at(const Build *b, const char *text)
{
    const uint32_t node = trie_find(b, text);
    const TokPiece *p = node && b->trie.at[node].piece ? &b->pieces.at[b->trie.at[node].piece - 1] : NULL;

    return p && b->texts.at[p->id].flags & TOK_USER ? NULL : p;
}

typedef struct MergeList {
    Merge *at;
    size_t n, cap;
} MergeList;

/* Every way to make piece i of two others. */
static void add_ways(Spm *m, uint32_t i, MergeList *list)
{
    Arena *keep = m->b->keep;
    const SpmPiece *p = &m->pieces.at[i];
    const size_t n = strlen(p->text);

    for (size_t k = 1; k < n && n <= MOST_LENGTH; k++) {
        const TokPiece *left, *right;

        if (((unsigned char)p->text[k] & 0xc0) == 0x80)
            continue;
        left = piece_at(m->b, arena_strndup(keep, p->text, k));
        right = left ? piece_at(m->b, p->text + k) : NULL;
        if (right)
            *arena_push(keep, *list) = (Merge){p->score, i, (uint32_t)k, left->id, right->id, p->id};
    }
}

/* SentencePiece merges by the texts of symbols, the tables by their tokens: each character of a piece must be a piece. */
static bool has_characters(Spm *m, const SpmPiece *p)
{
    for (size_t at = 0, n; p->text[at]; at += n) {
        n = character_bytes(p->text + at);
        if (!piece_at(m->b, arena_strndup(m->b->keep, p->text + at, n)))
            return diag_error(m->b->d, m->b->loc,
                              "its BPE has the piece \"%.80s\", but none for the character \"%.*s\", which is not "
                              "supported",
                              p->text, (int)n, p->text + at);
    }
    return true;
}

/* Two pieces can be merged if their texts together are a piece. Merges to a piece with a better score come first; of
 * equal scores the leftmost. */
static bool add_merges(Spm *m)
{
    MergeList list = {0};
    Build *b = m->b;

    for (uint32_t i = 0; i < m->pieces.n; i++) {
        const size_t before = list.n;

        if (m->pieces.at[i].type != NORMAL && m->pieces.at[i].type != UNUSED)
            continue;
        add_ways(m, i, &list);
        if (m->pieces.at[i].type == NORMAL ? !has_characters(m, &m->pieces.at[i]) : list.n > before)
            return m->pieces.at[i].type == UNUSED
                       ? diag_error(b->d, b->loc, "its BPE has the unused piece \"%.80s\", which is not supported",
                                    m->pieces.at[i].text)
                       : false;
    }
    if (list.n)
        qsort(list.at, list.n, sizeof *list.at, by_score);
    for (uint32_t i = 0; i < list.n; i++) {
        const Merge *x = &list.at[i];
        const uint32_t rank = i && list.at[i - 1].score == x->score ? b->merges.at[i - 1].rank : i;

        *arena_push(b->keep, b->merges) = (TokMerge){x->left, x->right, x->result, rank};
    }
    build_pairs(b);
    return true;
}

static void add_bytes(Spm *m)
{
    m->b->facts.flags |= TOK_BYTE_FALLBACK;
    build_byte_ids(m->b);
    arena_push(m->b->keep, m->b->decode)->kind = DECODE_BYTES;
}

static void add_spaces(Spm *m)
{
    DecodeStep *s = arena_push(m->b->keep, m->b->decode);

    build_norm(m->b, TOK_NORM_PIECES,
               (!m->dummy  ? 0u
                : m->after ? TOK_DUMMY_AFTER
                           : TOK_DUMMY) |
                   (m->squeeze ? TOK_SQUEEZE : 0u) | (m->escape ? TOK_ESCAPE : 0u) | (m->apart ? 0u : TOK_START),
               "", "");
    *s = (DecodeStep){.kind = DECODE_SENTENCEPIECE, .what = "", .with = "", .flag = m->dummy || m->squeeze};
    if (m->squeeze)
        m->b->facts.flags |= TOK_FIRST_LASTS;
}

/* The tables of a model whose pieces have their ids. */
static bool add_model(Spm *m)
{
    Build *b = m->b;

    add_pieces(m);
    build_trie(b);
    b->facts.model = m->model == BPE ? TOK_MODEL_BPE_CHARACTERS : TOK_MODEL_UNIGRAM;
    b->facts.flags |= TOK_FUSE_UNKNOWN | TOK_SINGLE;
    if (m->bytes)
        add_bytes(m);
    add_spaces(m);
    return m->model != BPE || add_merges(m);
}

bool build_sentencepiece(Build *b, const SpmPiece *pieces, size_t n, bool dummy, bool squeeze)
{
    Spm m = {.b = b,
             .model = BPE,
             .unknown_text = " \xe2\x81\x87 ",
             .dummy = dummy,
             .squeeze = squeeze,
             .escape = true,
             .apart = true};

    for (size_t i = 0; i < n; i++) {
        *arena_push(b->keep, m.pieces) = pieces[i];
        m.bytes |= pieces[i].type == BYTE;
    }
    if (!use_places(&m))
        return false;
    mark_users(&m);
    return add_model(&m);
}

bool read_sentencepiece(Build *b, const void *p, size_t n)
{
    Spm m = {
        .b = b, .model = UNIGRAM, .unknown_text = " \xe2\x81\x87 ", .dummy = true, .squeeze = true, .escape = true};

    if (!read_message(&m, (Reader){p, (const unsigned char *)p + n, false}))
        return false;
    if (m.model != UNIGRAM && m.model != BPE)
        return diag_error(b->d, b->loc, "its model is of the type %llu; Unigram and BPE are supported",
                          (unsigned long long)m.model);
    return read_ids(&m) && add_model(&m) && read_post_processor(b, NULL); /* the default frame */
}
