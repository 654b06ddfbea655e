#!/bin/sh
# links.sh - every link, path, script and command that a document of the tree names is there.
#
# Looked at in each .md file: targets of relative links and their #headings; words in back-ticks or code blocks that begin with
# a folder of the tree (stars and braces as in a shell), or follow `ftxc`; in back-ticks also names of files alone.
set -eu
room=$FTX_BUILD/docs-links
rm -rf "$room"
mkdir -p "$room"

cat >"$room/check.awk" <<'AWK'
function mistake(what) { print FILENAME ":" FNR ": " what; mistakes++ }

# a/b/../c to a/c, ./a to a
function normal(path) {
    while (sub(/(^|\/)\.\//, "/", path)) sub(/^\//, "", path)
    while (sub(/(^|\/)[^\/]*[^\/.]\/\.\.(\/|$)/, "/", path)) sub(/^\//, "", path)
    sub(/\/$/, "", path)
    return path
}

# Is there a file or folder of this path? Braces stand for each of their names, a star for anything.
function there(path, open, close_, head, tail, list, n, i, pattern) {
    if (match(path, /\{[^{}]*\}/)) {
        head = substr(path, 1, RSTART - 1)
        tail = substr(path, RSTART + RLENGTH)
        n = split(substr(path, RSTART + 1, RLENGTH - 2), list, ",")
        for (i = 1; i <= n; i++)
            if (!there(head list[i] tail))
                return 0
        return 1
    }
    if (path in known || path == "")
        return 1
    if (path !~ /\*/)
        return 0
    pattern = path
    gsub(/[.+]/, "\\\\&", pattern)
    gsub(/\*/, "[^/]*", pattern)
    for (i in known)
        if (i ~ ("^" pattern "$"))
            return 1
    return 0
}

# What stands in back-ticks or in a line of a code block.
function check_code(text, words, n, i, word) {
    n = split(text, words, /[ \t"'=;()|&<>]+/)
    for (i = 1; i <= n; i++) {
        word = words[i]
        sub(/^\.\//, "", word)
        sub(/:[0-9]+$/, "", word)
        sub(/[.:,]$/, "", word)
        if (word ~ /[A-Z$…]/ && word !~ /(README|CHANGELOG|LICENSE|CMake)/)
            continue # a placeholder
        if (word ~ ("^(" rooms ")/") && !there(normal(word)))
            mistake(word " is not there")
        else if (!fenced && word ~ /^[a-z0-9_]+\.(c|h|cuh|cu|def|sh|md)$/ && !(word in names) && !(folder word in known))
            mistake("no file is called " word)
        else if (word == "ftxc" && words[i + 1] ~ /^[a-z]+$/ && (i == 1 || words[i - 1] == "$") &&
                 !(words[i + 1] in commands))
            mistake("ftxc has no command " words[i + 1])
    }
}

FILENAME == ARGV[1] { known[$0]; name = $0; sub(/.*\//, "", name); names[name]; next }
FILENAME == ARGV[2] { commands[$0]; next }
FILENAME == ARGV[3] { headings[$0]; next }
FNR == 1 { folder = FILENAME; sub(/^\/.*|[^\/]*$/, "", folder); fenced = 0; files++ } # one from elsewhere: as in the root
/^ *```/ { fenced = !fenced; next }
fenced { check_code($0); next }
{
    rest = $0
    while (match(rest, /\]\([^)]*\)/)) {
        target = heading = substr(rest, RSTART + 2, RLENGTH - 3)
        rest = substr(rest, RSTART + RLENGTH)
        sub(/#.*/, "", target)
        if (!sub(/^[^#]*#/, "", heading))
            heading = ""
        file = target == "" ? FILENAME : normal(folder target)
        if (target !~ /^[a-z]+:/ && !there(target == "" ? "" : file))
            mistake("link to " target ": not there")
        else if (heading != "" && file ~ /\.md$/ && !((file "#" heading) in headings))
            mistake("link to " target "#" heading ": no such heading")
        links++
    }
    n = split($0, spans, "`")
    for (k = 2; k <= n; k += 2) {
        check_code(spans[k])
        codes++
    }
}
END {
    print files " documents, " links " links, " codes " names, " mistakes + 0 " mistakes"
    exit mistakes > 0
}
AWK

skip='-type d ( -name build* -o -name .git -o -name .deps -o -name .carry -o -name .whl )'
set -f
# shellcheck disable=SC2086
find . $skip -prune -o -print | sed 's/^\.\///' | sort >"$room/files"
set +f
"$FTXC" help | sed -n '/^First steps/q; s/^  ftxc \([a-z]*\) .*/\1/p' >"$room/commands"
rooms=$(sed -n 's/^\([^/]*\)\/.*/\1/p' "$room/files" | sort -u | tr '\n' '|' | sed 's/\./\\\\./g; s/|$//')
# FILE#HEADING, as a browser finds it: small letters, blanks as hyphens, no punctuation
# shellcheck disable=SC2046
awk '/^ *```/ { fenced = !fenced }
     !fenced && sub(/^#+ /, "") { $0 = tolower($0); gsub(/[][`.,:;()\/*"'"'"'?!&=+<>{}$%|]/, ""); gsub(/ /, "-"); print FILENAME "#" $0 }' \
    $(grep '\.md$' "$room/files") >"$room/headings"
check() { # check FILE...: each a document, its name from the tree's root
    awk -v rooms="$rooms" -f "$room/check.awk" "$room/files" "$room/commands" "$room/headings" "$@"
}

# shellcheck disable=SC2046
check $(grep '\.md$' "$room/files")

# A document with one mistake of each kind, and nothing else that could be one.
cat >"$room/bad.md" <<'BAD'
Good: [a link](docs/README.md), `compiler/main.c`, `kernels/*.cuh`, `ftxc run x.ftx`, `compiler/{spec,ir}`.
Bad: [a link](nowhere.md)
Bad: `compiler/nowhere.c`, [a heading](docs/README.md#nowhere), good: [a heading](docs/specs.md#what-compiles)
Bad: `kernels/*.nowhere`
Bad: `nowhere.c`
Bad: `scripts/nowhere all`
Bad: `ftxc nowhere x.ftx`
Bad: `compiler/{spec,nowhere}`
```
$ ftxc nothing
```
BAD
if (check "$room/bad.md") >"$room/out"; then
    echo "a document with mistakes passed" >&2
    exit 1
fi
test "$(grep -c 'bad.md:[0-9]*: ' "$room/out")" -eq 9 && ! grep 'bad.md:1: ' "$room/out" || {
    cat "$room/out" >&2
    exit 1
}
