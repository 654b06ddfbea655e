#!/bin/sh
# storm.sh - tests/gpu/storm on the CPU: nothing differs, whatever the limits; where something must, it says what.
set -eu
room=$FTX_BUILD/storms
storm=$FTX_BUILD/tests/gpu/storm
rm -rf "$room"
mkdir -p "$room"

fail() {
    echo "$*" >&2
    cat "$room/out" >&2
    exit 1
}
run() { # run STATUS WORDS...: it ends with that status; what it printed is in out
    status=$1 found=0
    shift
    "$storm" "$@" --threads 2 >"$room/out" 2>&1 || found=$?
    [ $found = "$status" ] || fail "storm $*: status $found, wanted $status"
}
says() {
    grep -Eq "$1" "$room/out" || fail "it does not say: $1"
}
compile() { # compile MODEL NAME DEFINES...
    model=$1 name=$2
    shift 2
    "$FTXC" compile "tests/models/$model" -q -t cpu "$@" -o "$room/$name.ftx"
}

same="-D limits.context=48 -D decode.width=3 -D kv.block_size=8"
# shellcheck disable=SC2086
compile tiny-llama wide $same -D limits.sequences=9 -D limits.tokens=33
# shellcheck disable=SC2086
compile tiny-llama narrow $same -D limits.sequences=4 -D limits.tokens=12
# shellcheck disable=SC2086
compile tiny-llama other $same -D limits.sequences=4 -D limits.tokens=12 -D precision.weights=int8
compile tiny-bert texts -D limits.context=32 -D limits.tokens=40 -D limits.sequences=4
compile tiny-bert other-texts -D limits.context=32 -D limits.tokens=40 -D limits.sequences=4 -D precision.weights=fp16

run 0 "$room/narrow.ftx" --storms 6
says '2 threads, 6 storms in'
says '^  [1-9][0-9]* samples: 0 differ in tokens or text, 0 in'
says '^  [1-9][0-9]* scored texts: 0 differ; 0 vectors: 0 differ'
run 0 "$room/wide.ftx" --alone "$room/narrow.ftx" --storms 4 --seed 50 --prefix
says ' 4 storms in'
run 0 "$room/texts.ftx" --storms 2
says ' [1-9][0-9]* vectors: 0 differ'

# Other weights: tokens, scores and vectors differ, and a storm of a few actions shows it.
run 1 "$room/wide.ftx" --alone "$room/other.ftx" --storms 2
says 'samples: [1-9][0-9]* differ in tokens or text, [1-9][0-9]* in log-probabilities'
says 'scored texts: [1-9][0-9]* differ'
says '^storm 1 of 1 thread differs with [1-4] actions of 220:'
says '(and|than) alone$'
run 1 "$room/texts.ftx" --alone "$room/other-texts.ftx" --storms 2
says ' vectors: [1-9][0-9]* differ'
says 'differs with 1 actions of 220'
says '^text [0-9] of 4 .seed [0-9]*. has another vector than alone'

run 2 "$room/narrow.ftx" --storms some
says '^storm: --storms: expected a number'
run 2 "$room/none.ftx"
says '^storm: .*none.ftx'
run 2 "$room/narrow.ftx" --colour
says '^storm: --colour'
