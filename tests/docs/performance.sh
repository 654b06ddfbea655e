#!/bin/sh
# performance.sh - docs/performance.md is what scripts/performance makes, and wrong results are refused by file and line.
set -eu
maker=$FTX_BUILD/tests/docs/performance
room=$FTX_BUILD/docs-results
rm -rf "$room"
mkdir -p "$room"

"$maker" docs/results >"$room/page.md"
cmp "$room/page.md" docs/performance.md || {
    echo "docs/performance.md is not what docs/results gives: run scripts/performance" >&2
    exit 1
}
for file in docs/results/*.json; do # of other tests: they say whose they are
    [ "$file" = docs/results/scenarios.json ] || grep -q '"about"' "$file" || {
        echo "$file: \"about\" is missing" >&2
        exit 1
    }
done

good='{"step": "decode", "model": "m", "sequences": 1, "tokens": 1, "context": 8, "median_us": 2000, "date": "2026-11-22",'
good="$good \"device\": \"cpu\", \"ftxc\": \"0.1\", \"command\": \"ftxc bench m.ftx\"}"
page='{"head": ["# Page"], "groups": [{"title": "T", "text": ["Text."], "heading": "h", "value": "median_us",'
page="$page \"match\": {\"device\": \"cpu\"}, \"scenarios\": [{\"name\": \"one\", \"match\": {\"context\": 8}, \"floor\": 1}]}]}"

made() { # made RESULTS [PAGE]: runs the maker over these two texts
    printf '%s\n' "$1" >"$room/a.jsonl"
    printf '%s\n' "${2:-$page}" >"$room/scenarios.json"
    "$maker" "$room" >"$room/out" 2>"$room/err"
}
refused() { # refused MESSAGE RESULTS [PAGE]: the maker fails and says so
    message=$1
    shift
    if made "$@" || ! grep -qF "$message" "$room/err"; then
        echo "expected to be refused with: $message" >&2
        cat "$room/err" >&2
        exit 1
    fi
}
shown() { # shown ROW RESULTS: the page has this row
    made "$2"
    grep -qF "$1" "$room/out" || {
        echo "expected the row: $1" >&2
        cat "$room/out" "$room/err" >&2
        exit 1
    }
}
with() { echo "$good" | sed "s/$1/$2/"; }

shown '| one | 2 |  |  | 1 (50 %) | 1 |' "$good"
shown '| one | 3 |  |  | 1 (33 %) | 1 |' "$good
$(with 'us": 2000' 'us": 3000')"
shown '| one | 2 |  |  | 1 (50 %) | 1 |' "$good
$(with '2000, "date": "2026' '3000, "date": "2025')"
shown '| one | 1,234,568 |' "$(with 2000 1234567890)"
shown '| one | 2 * |' "$(with '"model"' '"note": "warm", "model"')"
refused 'a.jsonl:1: "device" is missing' "$(with '"device": "cpu", ' '')"
refused 'a.jsonl:2: "command" is missing' "$good
$(with ', "command": "ftxc bench m.ftx"' '')"
refused 'a.jsonl:1: "date": expected a date' "$(with 2026-11-22 22.11.2026)"
refused 'a.jsonl:1: "median_us": expected a number above 0' "$(with 2000 '"2000"')"
refused 'a.jsonl:1: "speed" is not a field' "$(with '"model"' '"speed": 1, "model"')"
refused 'a.jsonl:1: "beams" does not belong' "$(with '"model"' '"beams": 1, "model"')"
refused 'a.jsonl:1: expected one of "step"' "$(with '"step": "decode", ' '')"
refused 'a.jsonl:1: expected an object' '[1]'
refused 'scenarios.json:0: "one": no result matches it' "$(with '"context": 8' '"context": 9')"
refused '"one": "goal" is not known here' "$good" "$(echo "$page" | sed 's/"floor"/"goal"/')"
refused '"T": "heading" is missing' "$good" "$(echo "$page" | sed 's/"heading": "h", //')"

# What `ftxc bench --json` prints can be stored as it is.
"$FTXC" compile tests/models/tiny-llama -t cpu -q -o "$room/tiny.ftx"
"$FTXC" bench "$room/tiny.ftx" -d cpu --sequences 1 --context 8 --repeat 2 --json >"$room/line"
page=$(echo "$page" | sed 's/"device": "cpu"//')
made "$(cat "$room/line")"
"$FTXC" bench "$room/tiny.ftx" -d cpu --sequences 1 --new 4 --source 6 --repeat 1 --json >"$room/line"
made "$(cat "$room/line")" "$(echo "$page" | sed 's/median_us/median_ms/; s/"context": 8/"generation": 4/')"
