#!/bin/sh
# decoding.sh - ways to decode from the command line: several samples, beams and their groups, a forced beginning.
set -eu
room=$FTX_BUILD/decoding
rm -rf "$room"
mkdir -p "$room"

fail() {
    echo "$*" >&2
    exit 1
}
has() { # has FILE WORDS: they are in it
    grep -q -F -e "$2" "$1" || fail "$1 has no \"$2\": $(head -c 2000 "$1")"
}
refused() { # refused WORDS ARGUMENT...: exit code 2 and those words
    words=$1 code=0
    shift
    "$FTXC" "$@" >"$room/out" 2>"$room/err" </dev/null || code=$?
    [ $code = 2 ] || fail "ftxc $*: exit code $code"
    has "$room/err" "$words"
}
ids_of() { # ids_of FILE: the lists of ids in it, a line each
    grep -o '"ids":\[[0-9,]*\]' "$1"
}

"$FTXC" compile specs/fable.lua -t cpu -q -o "$room/fable.ftx" -D limits.sequences=6 -D decode.width=6
fable="run $room/fable.ftx -d cpu -q --seed 5 -n 10"
# shellcheck disable=SC2086
{
    # Each sample has the text of its number; sample 0 is what a request for one gives.
    "$FTXC" $fable "Once upon a time" --samples 3 --json >"$room/three"
    "$FTXC" $fable "Once upon a time" --json >"$room/one"
    has "$room/three" '"samples":[{'
    has "$room/three" '"sample":2}]'
    ids_of "$room/one" | cmp - <<END
$(ids_of "$room/three" | sed -n 1p)
END
    test "$(ids_of "$room/three" | sed -n '2,4p' | sort -u | wc -l)" = 3
    "$FTXC" $fable "Once upon a time" --samples 3 >"$room/text"
    test "$(grep -c -- '^--- [012] ---$' "$room/text")" = 3
    # What prompts have in common at their beginning is read once. The texts are the same.
    begin="Once upon a time there was a king who had three sons, and the youngest of them was called"
    printf '%s\n' "$begin Hans." "$begin Simon." >"$room/prompts"
    "$FTXC" $fable --batch --json --prefix-cache <"$room/prompts" >"$room/kept"
    "$FTXC" $fable --batch --json <"$room/prompts" >"$room/read"
    ids_of "$room/kept" >"$room/ids"
    ids_of "$room/read" | cmp - "$room/ids"
    has "$room/kept" '"cached_tokens":0'
    has "$room/kept" '"cached_tokens":16'
    test "$(grep -c cached_tokens "$room/read")" = 0
    "$FTXC" $fable --batch --json --overcommit --kv-memory 2M <"$room/prompts" | ids_of /dev/stdin | cmp - "$room/ids"
    printf 'The king\nThe queen\n' | "$FTXC" $fable --batch --samples 2 --top-k 1 >"$room/lines"
    test "$(sort -u "$room/lines" | wc -l)" -lt "$(wc -l <"$room/lines")" # of one likeliest token all are the same
    "$FTXC" $fable "Once upon a time" --typical-p 0.2 --json | grep -q '"text"'
    refused 'samples: expected 0 to 6, found 7' $fable x --samples 7
    refused 'samples: 2 at temperature 0' $fable x --samples 2 --greedy
    refused 'typical_p: expected 0 to 1' $fable x --typical-p 2

    # The seed is printed where tokens are drawn: by it each prompt of a batch gives its text alone.
    seed_of() { # seed_of FILE LINE
        sed -n "$2p" "$1" | sed -n 's/.*"seed":\(-\{0,1\}[0-9]*\).*/\1/p'
    }
    printf 'The king\nThe queen\n' | "$FTXC" run "$room/fable.ftx" -d cpu -n 10 --batch --json >"$room/lines" 2>"$room/err"
    grep -q "throughput [0-9]* tokens/s; seed $(seed_of "$room/lines" 1); " "$room/err" || fail "$(cat "$room/err")"
    test "$(seed_of "$room/lines" 2)" = $(($(seed_of "$room/lines" 1) + 1))
    "$FTXC" $fable "The queen" --seed "$(seed_of "$room/lines" 2)" --json | ids_of - >"$room/one"
    ids_of "$room/lines" | sed -n 2p | cmp - "$room/one"
    "$FTXC" run "$room/fable.ftx" x -d cpu -n 3 --seed 18446744073709551615 >"$room/out" 2>"$room/err"
    has "$room/err" 'seed -1;'
    "$FTXC" run "$room/fable.ftx" x -d cpu -n 3 --greedy --json >"$room/out" 2>"$room/err"
    ! grep seed "$room/out" "$room/err" || fail "greedy has no seed"
    has "$room/out" '"timings":{"first_token_ms":'
    has "$room/out" '"decode_tokens_per_second":'

    # More prompts than are kept at once: each answer in its place.
    seq 100 | "$FTXC" $fable --batch --greedy -n 2 >"$room/lines"
    seq 80 100 | "$FTXC" $fable --batch --greedy -n 2 >"$room/other"
    tail -n 21 "$room/lines" | cmp - "$room/other"

    # A word that is written, banned as a text and by its ids: it is written no more.
    "$FTXC" $fable "Once upon a time" --greedy --json >"$room/free"
    word=$(sed 's/.*"text":"\([^"]*\)".*/\1/' "$room/free" | tr -cs 'A-Za-z' '\n' | grep '^...' | tail -n 1)
    ids=$(ids_of "$room/free" | sed 's/.*\[//; s/\]//')
    pair=$(echo "$ids" | cut -d , -f 4,5)
    has "$room/free" "$word"
    for way in --greedy '--beams 4' '--samples 3'; do
        "$FTXC" $fable "Once upon a time" $way --json --bad-words "$word" >"$room/other"
        ! grep -q "\b$word\b" "$room/other" || fail "$word is bad, but was written"
        "$FTXC" $fable "Once upon a time" $way --json --bad-word-ids "$pair" --bad-word-ids "${ids%%,*}" >"$room/other"
        ! ids_of "$room/other" | tr '[]' ',,' | grep -q -e ",$pair," -e ",${ids%%,*}," || fail "$pair are bad, but were written"
    done
    refused 'expected 1 to 256 ids, the spec' $fable x --bad-word-ids "$(seq -s , 1 257)"
    refused 'bad_lengths[1]: with it there are 257 ids of bad words' $fable x --bad-word-ids "$(seq -s , 1 256)" --bad-word-ids 7
    refused 'bad_ids[1]: 4096 is no token id' $fable x --bad-word-ids 3,4096
    refused '--bad-word-ids: expected whole numbers' $fable x --bad-word-ids x
    refused 'bad_words[0]: expected 1 to 255 bytes' $fable x --bad-words ' '

    # Groups that do not mind each other find the same; those that do begin with other tokens.
    "$FTXC" $fable "Once upon a time" --beams 6 --n-best 6 --beam-groups 3 --json >"$room/same"
    test "$(ids_of "$room/same" | sed 1d | sort -u | wc -l)" = 2
    "$FTXC" $fable "Once upon a time" --beams 6 --n-best 6 --beam-groups 6 --diversity-rate 99 --json >"$room/diverse"
    test "$(ids_of "$room/diverse" | sed 1d | sed 's/,.*//' | sort -u | wc -l)" = 6
    refused 'beam_groups: 6 beams cannot be divided into 4 groups of one size' $fable x --beams 6 --beam-groups 4
    refused 'diversity_rate: expected 0 to' $fable x --beams 6 --beam-groups 2 --diversity-rate -1
}

# A user's text has no control tokens with --literal: the prompt is the ids that `tokenize --literal` prints.
text='A<|end_of_text|>B'
plain=$("$FTXC" tokenize "$room/fable.ftx" "$text")
literal=$("$FTXC" tokenize "$room/fable.ftx" "$text" --literal)
test "$plain" = 0,34,1,35
case ,$literal, in *,1,*) fail "$literal has the end token" ;; esac
test "$("$FTXC" detokenize "$room/fable.ftx" "$literal" --skip-special)" = "$text"
# shellcheck disable=SC2086
{
    "$FTXC" $fable "$text" --literal --json >"$room/literal"
    "$FTXC" $fable --ids "$literal" --json | ids_of - >"$room/one"
    ids_of "$room/literal" | cmp - "$room/one"
    "$FTXC" $fable "$text" --json >"$room/plain"
    has "$room/literal" "\"prompt_tokens\":$(echo "$literal" | tr , '\n' | wc -l),"
    has "$room/plain" '"prompt_tokens":4,'
    "$FTXC" $fable "$text" --beams 3 --json >"$room/plain"
    has "$room/plain" '"prompt_tokens":4,'
    "$FTXC" $fable "$text" --truncate end --max-prompt 3 --json >"$room/plain"
    has "$room/plain" '"prompt_tokens":3,'
    refused '--literal is about text' $fable --ids 5 --literal
    refused '--literal is about text' score "$room/fable.ftx" --ids 5,6 --literal
}
echo "$text" >"$room/text"
"$FTXC" score "$room/fable.ftx" "$room/text" -d cpu --literal --json | ids_of - >"$room/one"
test "$(cat "$room/one")" = "\"ids\":[$("$FTXC" tokenize "$room/fable.ftx" -f "$room/text" --keep-newline --literal)]"

# What is too long loses its start or its end, or is refused.
# shellcheck disable=SC2086
{
    for case in start,31,32 end,30,31; do
        "$FTXC" $fable --greedy --json --ids 30,31,32 --truncate ${case%%,*} --max-prompt 2 | ids_of - >"$room/cut"
        "$FTXC" $fable --greedy --json --ids ${case#*,} | ids_of - | cmp - "$room/cut"
    done
    long=$(yes "The king went to the sea." | head -n 2000 | tr '\n' ' ')
    echo "$long" | "$FTXC" $fable --greedy --truncate start >"$room/cut"
    test "$(wc -c <"$room/cut")" -gt 10
    refused 'at most 2 fit' $fable --ids 30,31,32 --max-prompt 2
    refused 'tokenize it and pass ids' $fable "$long"
    refused '--truncate: expected start or end, found "only_first"' $fable x --truncate only_first
}

# What is written goes on from forced ids, greedy and with beams.
"$FTXC" compile specs/verse.lua -t cpu -q -o "$room/verse.ftx"
verse="run $room/verse.ftx -d cpu -q --json"
# shellcheck disable=SC2086
{ # the spec searches by beams; greedy does not
    "$FTXC" $verse "No one knows his name." --greedy >"$room/greedy"
    "$FTXC" $verse "No one knows his name." --beams 1 --temperature 0 | ids_of - >"$room/one"
    ids_of "$room/greedy" | cmp - "$room/one"
    ! grep -q hypotheses "$room/greedy" || fail "greedy searched by beams"
}
# shellcheck disable=SC2086
for way in --greedy '--beams 4'; do
    "$FTXC" $verse "No one knows his name." $way >"$room/free"
    ids=$(ids_of "$room/free" | sed -n 1p | sed 's/.*\[//; s/\]//')
    head=$(echo "$ids" | cut -d , -f 1,2,3)
    "$FTXC" $verse "No one knows his name." $way --prefix-ids "$head" >"$room/forced"
    test "$head,$(ids_of "$room/forced" | sed -n 1p | sed 's/.*\[//; s/\]//')" = "$ids"
done
# shellcheck disable=SC2086
{
    many=$(yes "No one knows his name." | head -n 100 | tr '\n' ' ')
    refused 'the source has' $verse "$many" --greedy
    "$FTXC" $verse "$many" --greedy --truncate end -n 8 >"$room/cut"
    "$FTXC" $verse "$many" --greedy --truncate end --max-prompt 255 -n 8 | ids_of - >/dev/null
    has "$room/cut" '"finish"'
    "$FTXC" $verse "No one knows his name." >"$room/free"
    has "$room/free" "\"prompt_tokens\":$("$FTXC" tokenize "$room/verse.ftx" "No one knows his name." | tr , '\n' | wc -l),"
    refused 'prefix[0]: 999999 is no token id' $verse "Yes." --prefix-ids 999999
    "$FTXC" $verse "Yes." --greedy -n 5 --prefix-ids 7999 | sed 's/"timings.*//' >"$room/prefix"
    "$FTXC" $verse "Yes." --greedy -n 5 --language '<pad>' | sed 's/"timings.*//' | cmp - "$room/prefix"
    "$FTXC" $verse "Yes." --greedy -n 5 | sed 's/"timings.*//' >"$room/free"
    ! cmp -s "$room/free" "$room/prefix" || fail "a first token changes nothing"
    refused '--language: the tokenizer has no special token "deu_Latn"' $verse "Yes." --language deu_Latn
    refused '--language: the tokenizer has no special token "a"' $verse "Yes." --language a
    refused '--language: the model reads no source, so it cannot write "a"' $fable x --language a
    refused '--prefix-ids: expected whole numbers' $verse "Yes." --prefix-ids x
    refused 'the model reads no source, so a prefix is a prompt' $fable x --prefix-ids 3
}
echo "samples, groups and prefixes are as they should be"
