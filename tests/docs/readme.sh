#!/bin/sh
# readme.sh - the spec that README.md shows is the text of specs/fable.lua, and README.md is below 120 lines.
set -eu
room=$FTX_BUILD/docs-readme
rm -rf "$room"
mkdir -p "$room"
sed -n '/^```lua$/,/^```$/p' README.md | sed '1d;$d' >"$room/shown.lua"
cmp "$room/shown.lua" specs/fable.lua || {
    echo "README.md shows another text than specs/fable.lua" >&2
    exit 1
}
lines=$(wc -l <README.md)
[ "$lines" -lt 120 ] || {
    echo "README.md has $lines lines, 120 or more" >&2
    exit 1
}
