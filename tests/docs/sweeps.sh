#!/bin/sh
# sweeps.sh - scripts/sweep: every size of a sweep is timed once, in as few runs as ftxc takes; what jumps or falls is named.
set -eu
room=$FTX_BUILD/docs-sweeps
rm -rf "$room"
mkdir -p "$room"
fail() {
    echo "$*" >&2
    exit 1
}

# An ftxc that compiles an empty file and takes 100 us and one more for each token, but 20 % more from 65 tokens on, and as
# much as for 64 at 256.
cat >"$room/ftxc" <<'END'
#!/usr/bin/env python3
import json, os, sys
words = sys.argv[1:]
with open(os.path.join(os.path.dirname(sys.argv[0]), "calls"), "a") as calls:
    print(" ".join(words), file=calls)
if words[0] == "compile":
    open(words[words.index("-o") + 1], "w").close()
    sys.exit()
sizes = [int(n) for n in words[words.index("--prompt") + 1].split(",")]
assert len(sizes) <= 32 and words[-1] == "--json" and words[1] == "1B.ftx"
print(json.dumps({"step": "decode", "tokens": 1, "median_us": 1}))
for n in sizes:
    print(json.dumps({"step": "prompt", "tokens": n, "median_us": 164 if n == 256 else (100 + n) * (1.2 if n >= 65 else 1)}))
END
chmod +x "$room/ftxc"
scripts/sweep run "$room" "prompt 1B" -o "$room/sweeps.jsonl" >"$room/said"
grep -q '^prompt 1B: 42 sizes, 3 cliffs$' "$room/said" || fail "$(cat "$room/said")"
grep -q '^ *64 to *65 tokens: +20.7 %$' "$room/said" || fail "$(cat "$room/said")"
grep -q '^ *193 to *256 tokens: -53.4 %$' "$room/said" || fail "$(cat "$room/said")"
grep -q '^ *256 to *257 tokens: +161.2 %$' "$room/said" || fail "$(cat "$room/said")"
test "$(wc -l <"$room/said")" = 4
test "$(wc -l <"$room/sweeps.jsonl")" = 42
test "$(grep -c '"sweep": "prompt 1B", "make": "ftxc compile specs/llama-3.2-1b.lua .* -t h200"' "$room/sweeps.jsonl")" = 42
test "$(grep -c ^compile "$room/calls")" = 1
test "$(grep -c ^bench "$room/calls")" = 2

# The same from the file; 8 % and 3 % are none.
code=0
scripts/sweep cliffs "$room/sweeps.jsonl" >"$room/again" || code=$?
test $code = 1 && cmp "$room/said" "$room/again"
line() { echo "{\"sweep\": \"requests Transformer-base\", \"requests\": $1, \"median_ms\": $2}"; }
{ line 3 1.079; line 1 1; line 2 1; line 4 1.05; line 9 2; } >"$room/none.jsonl"
scripts/sweep cliffs "$room/none.jsonl" >"$room/said"
grep -qx 'requests Transformer-base: 5 sizes, 0 cliffs' "$room/said"
{ line 3 1.081; line 1 1; line 2 1; line 4 1.048; line 5 1.04; } >"$room/both.jsonl"
scripts/sweep cliffs "$room/both.jsonl" >"$room/said" || :
grep -q '^ *2 to *3 requests: +8.1 %$' "$room/said" || fail "$(cat "$room/said")"
grep -q '^ *3 to *5 requests: -3.8 %$' "$room/said" || fail "$(cat "$room/said")"

# A sweep that there is not, and an ftxc that fails: the others are kept.
if scripts/sweep run "$room" nothing 2>"$room/said"; then fail "a sweep that there is not"; fi
grep -q '^sweep: no sweep nothing; there are: decode 1B, ' "$room/said"
if scripts/sweep run "$room" "prompt 1B" "decode 8B" -o "$room/half.jsonl" >/dev/null 2>"$room/said"; then fail "a failure"; fi
grep -q '^decode 8B: ' "$room/said"
test "$(wc -l <"$room/half.jsonl")" = 42
scripts/sweep list >"$room/said"
grep -qx 'texts BERT-base' "$room/said"

# What is stored can be read.
scripts/sweep cliffs >"$room/said" 2>"$room/errors" || :
test ! -s "$room/errors" || fail "$(cat "$room/errors")"
