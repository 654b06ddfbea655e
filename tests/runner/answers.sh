#!/bin/sh
# answers.sh - encoders and translators from the command line: lines in their order and as they come, pairs,
# what is too long, classes, and mistakes that harm nobody else.
set -eu
room=$FTX_BUILD/answers
rm -rf "$room"
mkdir -p "$room"

fail() {
    echo "$*" >&2
    exit 1
}
has() { # has FILE WORDS: they are in it
    grep -q -F -e "$2" "$1" || fail "$1 has no \"$2\": $(head -c 2000 "$1")"
}

# --- translators -------------------------------------------------------------------------------------
verse=$room/verse.ftx
"$FTXC" compile specs/verse.lua -t cpu -q -o "$verse"
printf 'No one knows his name.\nI like it.\nDo you have any children?\n' >"$room/sources"
for line in 1 2 3; do
    "$FTXC" run "$verse" "$(sed -n ${line}p "$room/sources")" -d cpu -q
done >"$room/alone"
"$FTXC" run "$verse" -d cpu -q <"$room/sources" >"$room/together"
cmp "$room/alone" "$room/together"
"$FTXC" run "$verse" -d cpu -q --prompt-file "$room/sources" --batch | cmp - "$room/alone"

# More lines than are read at once, of all lengths: each in its place.
i=0
while [ $i -lt 40 ]; do
    cat "$room/sources"
    i=$((i + 1))
done >"$room/many"
"$FTXC" run "$verse" -d cpu -q --beams 1 <"$room/many" >"$room/answers"
"$FTXC" run "$verse" -d cpu -q --beams 1 <"$room/sources" >"$room/three"
test "$(wc -l <"$room/answers")" = 120
for line in 1 40 79 118; do
    tail -n +$line "$room/answers" | head -n 3 | cmp - "$room/three"
done

# An answer comes before the next line does.
mkfifo "$room/in" "$room/out"
"$FTXC" run "$verse" -d cpu -q <"$room/in" >"$room/out" &
exec 3>"$room/in" 4<"$room/out"
for line in 1 2 3; do
    sed -n ${line}p "$room/sources" >&3
    IFS= read -r answer <&4
    test "$answer" = "$(sed -n ${line}p "$room/alone")" || fail "line $line: $answer"
done
exec 3>&- 4<&-
wait $!

# An empty line of a document is an empty line of its translation.
printf '%s\n\n \t\n%s\n' "$(sed -n 1p "$room/sources")" "$(sed -n 3p "$room/sources")" >"$room/gaps"
"$FTXC" run "$verse" -d cpu -q <"$room/gaps" >"$room/answers" 2>"$room/err"
{ sed -n 1p "$room/alone"; echo; echo; sed -n 3p "$room/alone"; } | cmp - "$room/answers"
test ! -s "$room/err" || fail "$(cat "$room/err")"
"$FTXC" run "$verse" '' -d cpu -q >"$room/answers"
test "$(wc -c <"$room/answers")" = 1
"$FTXC" run "$verse" -d cpu -q --json <"$room/gaps" >"$room/json"
test "$(wc -l <"$room/json")" = 4
sed -n 2p "$room/json" >"$room/gap"
has "$room/gap" '"text":"","ids":[],"logprobs":[],"finish":"end"'
has "$room/gap" '"first_token_ms":null'
sed -n 3p "$room/json" >"$room/gap"
has "$room/gap" '"first_token_ms":null'

# A line that cannot be translated keeps its place, and the message says why.
{
    sed -n 1p "$room/sources"
    echo
    i=0
    while [ $i -lt 300 ]; do printf 'word '; i=$((i + 1)); done
    echo
    sed -n 3p "$room/sources"
} >"$room/bad"
code=0
"$FTXC" run "$verse" -d cpu -q <"$room/bad" >"$room/answers" 2>"$room/err" || code=$?
test $code = 2
{ sed -n 1p "$room/alone"; echo; echo; sed -n 3p "$room/alone"; } | cmp - "$room/answers"
has "$room/err" 'line 3: the source has 301 tokens; at most 256 fit'
"$FTXC" run "$verse" -d cpu -q --json <"$room/bad" 2>/dev/null >"$room/json" || true
test "$(wc -l <"$room/json")" = 4
has "$room/json" '{"error":"the source has 301 tokens; at most 256 fit'
"$FTXC" run "$verse" "$(sed -n 1p "$room/sources")" -d cpu -q --json --beams 3 --n-best 3 --early-stopping never \
    --length-penalty 0.6 >"$room/json"
for key in '"hypotheses":[{"ids":[' '"text":"Niemand kennt seinen Namen."' '"score":-'; do
    has "$room/json" "$key"
done

# --- a checkout with SentencePiece's files alone ---------------------------------------------------------
mkdir "$room/spm"
for file in config.json generation_config.json source.spm target.spm vocab.json model.safetensors; do
    ln -s "$PWD/specs/verse/$file" "$room/spm/$file"
done
"$FTXC" compile "$room/spm" -t cpu -q -o "$room/spm.ftx"
"$FTXC" run "$room/spm.ftx" -d cpu -q <"$room/sources" | cmp - "$room/alone"

# --- encoders --------------------------------------------------------------------------------------------
bert=$room/bert.ftx
"$FTXC" compile tests/models/tiny-bert -D tokenizer=tests/tokenizer/small/wordpiece.json -t cpu -q -o "$bert"
run="run $bert -d cpu -q"
# shellcheck disable=SC2086
{
    "$FTXC" $run "a b" --pair ab --json >"$room/pair"
    "$FTXC" $run --ids 2,4,5,3,9,3 --types 0,0,0,0,1,1 --json >"$room/ids"
    printf 'a b\tab\n' | "$FTXC" $run --batch --json >"$room/tab"
    cmp "$room/pair" "$room/ids"
    cmp "$room/pair" "$room/tab"
    for key in '{"tokens":6,"first":[' '"mean":[' '"pooled":['; do
        has "$room/pair" "$key"
    done
    "$FTXC" $run "a[SEP]b" --json >"$room/plain"
    has "$room/plain" '{"tokens":5,'
    "$FTXC" $run "a[SEP]b" --literal --json >"$room/literal"
    has "$room/literal" "{\"tokens\":$("$FTXC" tokenize "$bert" 'a[SEP]b' --literal | tr , '\n' | wc -l),"
    ! grep -q '^{"tokens":5,' "$room/literal"
    "$FTXC" $run "" --json >"$room/empty"
    has "$room/empty" '{"tokens":2,'
    i=0 long=
    while [ $i -lt 200 ]; do long="$long a"; i=$((i + 1)); done
    code=0
    printf 'a\n%s\nb\n' "$long" | "$FTXC" $run --batch --json >"$room/json" 2>"$room/err" || code=$?
    test $code = 2
    has "$room/err" 'text 2: text: 202 tokens, at most 128 fit (limits.context)'
    test "$(grep -c '"first"' "$room/json")" = 2
    "$FTXC" $run "$long" --truncate longest_first --json >"$room/json"
    has "$room/json" '{"tokens":128,'
    "$FTXC" $run "a b" "a b" x >"$room/near"
    has "$room/near" ' 1.0000  1.0000 '
    code=0
    "$FTXC" $run a --truncate only_second 2>"$room/err" || code=$?
    test $code = 2
    has "$room/err" 'the second text is to be cut, and there is none'
}

# --- a classifier ------------------------------------------------------------------------------------------
"$FTXC" compile tests/models/tiny-bert -D graph.outputs=3 -D labels=yes,no,perhaps --no-weights -t cpu -q \
    -D tokenizer=tests/tokenizer/small/wordpiece.json -o "$room/class.ftx"
run="run $room/class.ftx -d cpu -q --random-weights 3"
# shellcheck disable=SC2086
{
    "$FTXC" $run "a b" >"$room/scores"
    test "$(cut -d ' ' -f 1 "$room/scores" | sort | tr '\n' ' ')" = 'no perhaps yes '
    awk '{ sum += $2; if (NR > 1 && $2 > last) exit 1; last = $2 } END { exit !(sum > 0.999 && sum < 1.001) }' "$room/scores"
    printf 'a b\nab\tx\n' | "$FTXC" $run --batch >"$room/lines"
    test "$(sed -n 1p "$room/lines")" = "$(printf '%s\ta b' "$(sed -n 1p "$room/scores")")"
    "$FTXC" $run "a b" --json >"$room/json"
    has "$room/json" '"labels":[{"label":"'
}
"$FTXC" show "$room/class.ftx" >"$room/shown"
has "$room/shown" 'vectors      96 numbers a token, 3 a text (pooled); input: ids or hidden states of 96'
has "$room/shown" 'labels       yes, no, perhaps'
has "$room/shown" 'encode hidden states, any number of tokens'

# --- classes of tokens ---------------------------------------------------------------------------------------
tokens() {
    "$FTXC" compile tests/models/tiny-bert -D graph.pooling=tokens -D "graph.outputs=$1" -D "labels=$2" -D "scoring=$3" \
        --no-weights -t cpu -q -D tokenizer=tests/tokenizer/small/wordpiece.json -o "$room/tokens.ftx"
}
run="run $room/tokens.ftx -d cpu -q --random-weights 3"
# shellcheck disable=SC2086
{
    tokens 3 O,B-PER,I-PER softmax
    "$FTXC" $run "a b" >"$room/one"
    test "$(cut -f 1 "$room/one" | tr '\n' ' ')" = '" [CLS]" " a" " b" " [SEP]" '
    test "$(grep -cE '	(O|[BI]-PER) (0\.[0-9]*|1)$' "$room/one")" = 4
    "$FTXC" $run "a b" "a b" >"$room/two"
    test "$(cat "$room/two")" = "$(cat "$room/one" && echo && cat "$room/one")"
    "$FTXC" $run "a b" --json >"$room/json"
    python3 - "$room/json" "$room/one" <<'END'
import json, sys
answer = json.load(open(sys.argv[1]))
lines = [line.rstrip("\n").split("\t") for line in open(sys.argv[2])]
assert answer["tokens"] == len(answer["labels"]) == len(lines) == 4 and "first" not in answer
for token, (text, best) in zip(answer["labels"], lines):
    scores = token["labels"]
    assert token["token"] == json.loads(text) and list(scores) == ["O", "B-PER", "I-PER"], token
    name, score = max(scores.items(), key=lambda s: s[1])
    assert abs(sum(scores.values()) - 1) < 1e-5 and best.split(" ")[0] == name and abs(float(best.split(" ")[1]) - score) < 1e-4
END
    tokens 2 start,end none
    "$FTXC" $run a --pair "b b" >"$room/pair"
    test "$(cut -f 1 "$room/pair" | tr '\n' ' ')" = '" [CLS]" " a" " [SEP]" " b" " b" " [SEP]" '
    test "$(grep -cE '	start -?[0-9.e-]+	end -?[0-9.e-]+$' "$room/pair")" = 6
}
echo "lines, pairs and classes are as they should be"
