/* scripts.c - UnicodeScripts of tokenizer.json as a pattern: a piece is a run of one script.
 *
 *   "ab где, 漢字カ"   "ab " | "где" | ", " | "漢字カ"
 *
 * As in Hugging Face's tokenizers Hiragana, Katakana and U+30FC count as Han. A space, and a character of a script that is
 * not listed, are part of the piece before them; at the start of a text they are dropped. Scripts are those of PCRE2's
 * Unicode, the list is that of the library. */
#include <assert.h>
#include <string.h>

#include "parts.h"

static const char SCRIPTS[] =
    "Latin Cyrillic Greek Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak "
    "Bengali Bhaiksuki Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian Caucasian_Albanian "
    "Chakma Cham Cherokee Coptic Cuneiform Cypriot Deseret Devanagari Duployan Egyptian_Hieroglyphs Elbasan "
    "Ethiopic Georgian Glagolitic Gothic Grantha Gujarati Gurmukhi Hangul Hanunoo Hatran Hebrew Imperial_Aramaic "
    "Inherited Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada Kayah_Li Kharoshthi Khmer "
    "Khojki Khudawadi Lao Lepcha Limbu Linear_A Linear_B Lisu Lycian Lydian Mahajani Malayalam Mandaic Manichaean "
    "Marchen Meetei_Mayek Mende_Kikakui Meroitic_Cursive Meroitic_Hieroglyphs Miao Modi Mongolian Mro Multani "
    "Myanmar Nabataean New_Tai_Lue Newa Nko Ogham Ol_Chiki Old_Hungarian Old_Italic Old_North_Arabian Old_Permic "
    "Old_Persian Old_South_Arabian Old_Turkic Oriya Osage Osmanya Pahawh_Hmong Palmyrene Pau_Cin_Hau Phags_Pa "
    "Phoenician Psalter_Pahlavi Rejang Runic Samaritan Saurashtra Sharada Shavian Siddham SignWriting Sinhala "
    "Sora_Sompeng Sundanese Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Takri Tamil Tangut "
    "Telugu Thaana Thai Tibetan Tifinagh Tirhuta Ugaritic Vai Warang_Citi Yi";

#define HAN "\\p{sc:Han}\\p{sc:Hiragana}\\p{sc:Katakana}\\x{30fc}"

/* `set` and its neighbours of no script. */
static void put_run(Build *b, Blob *out, const char *set)
{
    const char *text = arena_printf(b->keep, "%s(?:%s|(?&none))*+|", set, set);
    const size_t n = strlen(text);

    if (out->n + n > out->cap) {
        out->cap = (out->n + n) * 2;
        out->at = arena_grow(b->keep, out->at, out->n, out->cap);
    }
    assert(out->at);
    memcpy(out->at + out->n, text, n);
    out->n += n;
}

const char *scripts_pattern(Build *b)
{
    Blob runs = {0};
    const char *listed = "";

    for (const char *name = SCRIPTS, *end; *name; name = end + (*end == ' ')) {
        end = name + strcspn(name, " ");
        put_run(b, &runs, arena_printf(b->keep, "\\p{sc:%.*s}", (int)(end - name), name));
        listed = arena_printf(b->keep, "%s\\p{sc:%.*s}", listed, (int)(end - name), name);
    }
    put_run(b, &runs, "[" HAN "]");
    put_run(b, &runs, "(?![ \\x{30fc}])\\p{sc:Common}");
    return arena_printf(b->keep, "(?(DEFINE)(?<none> |[^%s" HAN "\\p{sc:Common}]))(?:%.*s)", listed, (int)runs.n - 1,
                        runs.at);
}
