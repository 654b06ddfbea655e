#!/bin/sh
# traces.sh - `ftxc run --trace`, `ftxc bench --trace` on the CPU, and scripts/timeline: the file is what trace viewers
# read, its kernels are those of `ftxc show`, in order; after Ctrl-C it is whole.
set -eu
room=$FTX_BUILD/traces
rm -rf "$room"
mkdir -p "$room"
llama=$room/llama.ftx bert=$room/bert.ftx
"$FTXC" compile tests/models/tiny-llama -t cpu -q -o "$llama"
"$FTXC" compile tests/models/tiny-bert -t cpu -q -o "$bert"

fail() {
    echo "$*" >&2
    exit 1
}

"$FTXC" run "$llama" --ids 5,6,7 -n 4 --greedy -d cpu -q --json --trace "$room/run.json" >"$room/traced"
"$FTXC" run "$llama" --ids 5,6,7 -n 4 --greedy -d cpu -q --json >"$room/plain"
cut -d, -f2-3 "$room/plain" >"$room/plain.ids"
cut -d, -f2-3 "$room/traced" | cmp - "$room/plain.ids" || fail "a trace changes what is written"
"$FTXC" show "$llama" --json >"$room/show.json"
python3 - "$room/run.json" "$room/show.json" <<'END'
import json, sys

trace, show = (json.load(open(path)) for path in sys.argv[1:])
events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
host, device = ([e for e in events if (e["cat"] == "host") == is_host] for is_host in (True, False))
plan = show["plans"][0]
names = [[(l["label"], plan["kernels"][l["kernel"]]["entry"]) for l in p["launches"]] for p in plan["programs"]]
assert all(e["pid"] == 1 and e["tid"] > 0 and e["ts"] >= 0 and e["dur"] >= 0 for e in events)
assert sum(e["name"] == "step" for e in host) >= 4, host
runs = [e for e in host if e["name"] == "run"]
assert len(runs) == 4 and [r["args"]["run"] for r in runs] == [1, 2, 3, 4], runs
assert runs[0]["args"]["T"] == 3 and runs[1]["args"]["T"] == 1
end = 0
for r in runs:  # the kernels of a program, in its order, inside of the call
    ours = [e for e in device if e["args"]["run"] == r["args"]["run"]]
    assert [(e["name"], e["args"]["kernel"]) for e in ours] in names, ours
    for e in ours:
        assert e["cat"] == "kernel" and e["tid"] == 2 and e["ts"] >= end - 0.002, (e, end)
        end = e["ts"] + e["dur"]
    assert r["ts"] - 0.002 <= ours[0]["ts"] and end <= r["ts"] + r["dur"] + 0.002
arrows = [e for e in trace["traceEvents"] if e["ph"] in "sf"]
assert len(arrows) == 8 and {e["id"] for e in arrows} == {1, 2, 3, 4}
assert trace["otherData"]["dropped_events"] == 0 and trace["otherData"]["device"].startswith("cpu")
END

# It is read back: a table of all kernels, the kernels of one run with the gaps between them.
scripts/timeline "$room/run.json" >"$room/table"
head -n 1 "$room/table" | grep -q '^tiny-llama on cpu (.*the host.s clock around each kernel$' || fail "no head"
grep -q 'busy$' "$room/table" && grep -q '^host, ms: step ' "$room/table" || fail "no table"
test "$(grep -c ' embed__' "$room/table")" = 1
scripts/timeline "$room/run.json" --run 1 >"$room/first"
grep -q '^run 1: T=3 S=1, host ' "$room/first"
sed -n 3p "$room/first" | grep -q '^ *0.0 .* 0.0  embed  embed__' || fail "the first kernel is not embed"
tail -n 2 "$room/first" | head -n 1 | grep -q '  sample  sample__' || fail "the last kernel is not sample"
tail -n 1 "$room/first" | grep -q 'us, of them .* busy and .* between kernels'
scripts/timeline "$room/run.json" --run -1 | grep -q '^run 4: '
for wrong in 0 5 -5; do
    ! scripts/timeline "$room/run.json" --run $wrong >"$room/out" 2>&1 || fail "--run $wrong"
    grep -q 'the trace has 4 runs' "$room/out"
done
! scripts/timeline README.md >"$room/out" 2>&1 || fail "README.md is no trace"
grep -q '^timeline: README.md: ' "$room/out"

# Encoders, single steps and whole generations are traced, too.
"$FTXC" run "$bert" --ids 5,6,7,8 -d cpu -q --trace "$room/bert.json" >"$room/out"
scripts/timeline "$room/bert.json" --run 1 | grep -q '^run 1: T=4 S=1'
"$FTXC" bench "$llama" -d cpu --repeat 3 --context 8 --trace "$room/bench.json" >"$room/out"
scripts/timeline "$room/bench.json" | grep -q ' 4 .* embed__' || fail "bench: three runs and one before them"
"$FTXC" bench "$llama" -d cpu --repeat 1 --new 3 --source 4 --trace "$room/new.json" >"$room/out"
scripts/timeline "$room/new.json" | grep -q ' embed__'

# A file that cannot be written ends with code 1, and its reason; what was asked for is answered.
code=0
"$FTXC" run "$llama" --ids 5 -n 2 --greedy -d cpu -q --trace "$room/none/t.json" >"$room/out" 2>"$room/err" || code=$?
test $code = 1 && grep -q 'none/t.json: cannot be written' "$room/err" && test -s "$room/out"
code=0
"$FTXC" bench "$llama" -d cpu --repeat 1 --context 8 --trace "$room/none/t.json" >"$room/out" 2>"$room/err" || code=$?
test $code = 1 && grep -q 'none/t.json: cannot be written' "$room/err"

# Ctrl-C: what was recorded is kept.
FTX_TRACE=1 "$FTXC" run "$llama" --ids 5,6 --samples 4 --temperature 1 --ignore-eos -d cpu --trace "$room/cut.json" \
    >"$room/out" 2>"$room/err" &
while kill -0 $! 2>/dev/null && ! grep -q 'launch sample' "$room/err"; do sleep 0.01; done
kill -INT $! || true
code=0
wait $! || code=$?
test $code = 130 || test $code = 0
scripts/timeline "$room/cut.json" | grep -q ' sample__' || fail "the trace is not whole after Ctrl-C"
! ls "$room" | grep -v -e '\.json$' -e '\.ftx$' -e '\.ids$' -e '^[a-z]*$' || fail "a part of a file is left"
