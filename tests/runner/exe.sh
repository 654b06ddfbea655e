#!/bin/sh
# exe.sh - `ftxc compile --exe`: the program gives the tokens that `ftxc run` gives, with nothing
# beside it; what is left of one that was cut off says so.
set -eu
room=$FTX_BUILD/exe
rm -rf "$room"
mkdir -p "$room/elsewhere"
say="--ids 5,17,9,230 --max-new 12 -d cpu"

"$FTXC" compile tests/models/tiny-llama -t cpu -q -o "$room/tiny.ftx"
"$FTXC" compile tests/models/tiny-llama -t cpu -q --exe -o "$room/tiny"
mv "$room/tiny" "$room/elsewhere/story"
story=$room/elsewhere/story

# shellcheck disable=SC2086
for how in "--greedy" "--temperature 0.9 --seed 5 --top-k 9" "--beams 1 --json --greedy"; do
    "$FTXC" run "$room/tiny.ftx" $say $how -q | sed 's/"timings.*//' >"$room/wanted"
    (cd / && env -i "$story" $say $how -q) | sed 's/"timings.*//' >"$room/found"
    cmp "$room/wanted" "$room/found"
done
test -s "$room/found"

# Without /proc it finds itself, too.
cat >"$room/no_proc.c" <<'END'
#include <errno.h>
#include <unistd.h>
ssize_t readlink(const char *restrict path, char *restrict to, size_t n)
{
    (void)path, (void)to, (void)n;
    errno = ENOENT;
    return -1;
}
END
"${CC:-cc}" -shared -fPIC "$room/no_proc.c" -o "$room/no_proc.so"
# shellcheck disable=SC2086
{
    "$story" $say --greedy -q >"$room/wanted"
    (cd "$room" && ASAN_OPTIONS=verify_asan_link_order=0 LD_PRELOAD=$room/no_proc.so elsewhere/story $say --greedy -q) >"$room/found"
}
cmp "$room/wanted" "$room/found"

# The artifact in it is the artifact: ftxc reads it there, and it is the same to the byte.
"$FTXC" show "$story" --verify | grep -q 'all checksums are right'
bytes=$(stat -c %s "$room/tiny.ftx")
tail -c $((bytes + 32)) "$story" | head -c "$bytes" | cmp - "$room/tiny.ftx"
"$FTXC" compile tests/models/tiny-llama -t cpu -q --exe -o "$room/again"
cmp "$story" "$room/again"

refused() { # refused CODE WORDS COMMAND...: it ends with that code and says those words
    code=$1 words=$2 found=0
    shift 2
    "$@" >"$room/out" 2>"$room/err" || found=$?
    if [ $found != "$code" ] || ! grep -q -e "$words" "$room/err"; then
        echo "$*: exit code $found, wanted $code and \"$words\"; it said:" >&2
        cat "$room/err" >&2
        exit 1
    fi
}
program=$(stat -c %s "$FTX_BUILD/ftx-run")
all=$(stat -c %s "$story")
for keep in $((all - 1)) $((all - 32)) $((all - 100000)) $((program + 64)) $((program + 1)); do
    head -c "$keep" "$story" >"$room/cut"
    chmod +x "$room/cut"
    refused 1 'cut: .*has lost its end' "$room/cut" --ids 1
done
# Cut inside the program, the system's loader ends it before its first instruction: only others can say why.
for keep in $((program / 2)) 5000; do
    head -c "$keep" "$story" >"$room/cut"
    if "$room/cut" --ids 1 >"$room/out" 2>&1; then
        echo "a program of $keep bytes runs" >&2
        exit 1
    fi
    refused 1 'has lost its end' "$FTXC" show "$room/cut"
done
(cat "$story" && echo more) >"$room/cut"
refused 1 'has lost its end' "$room/cut" --ids 1
refused 1 'has lost its end' "$FTXC" show "$room/cut"
(head -c $((all - 30)) "$story" && printf '\001' && tail -c 29 "$story") >"$room/cut"
refused 1 'not where the end of the file says' "$room/cut" --ids 1
(head -c $((all - 40000)) "$story" && printf 'other' && tail -c 39995 "$story") >"$room/cut"
chmod +x "$room/cut"
refused 1 'damaged (checksum)' "$FTXC" show "$room/cut" --verify

# It speaks by its own name; the runner alone takes an artifact, and holds none.
refused 2 '^story: unknown option --foo' "$story" --foo
refused 2 'story --help' "$story" --foo
"$story" --help | grep -q '^story \[PROMPT\]'
"$FTX_BUILD/ftx-run" "$room/tiny.ftx" $say --greedy -q >"$room/found"
"$FTXC" run "$room/tiny.ftx" $say --greedy -q | cmp - "$room/found"
refused 2 'ftx-run: expected an artifact' "$FTX_BUILD/ftx-run"
refused 1 'no model inside' "$FTXC" run "$FTX_BUILD/ftx-run" x
refused 2 'leave --sidecar out' "$FTXC" compile tests/models/tiny-llama --exe --sidecar -o "$room/x"
test ! -e "$room/x"
echo "a model of $bytes bytes behind a program of $program"
