#!/bin/sh
# man.sh - the manual page says, word for word, what the help texts say.
set -eu
room=$FTX_BUILD/man-test
rm -rf "$room"
mkdir -p "$room"
scripts/man "$FTXC" "$room/ftxc.1"

words() { # of what it reads, one a line
    tr -s '[:space:]' '\n' | sed '/^$/d'
}
section() { # section TITLE: its text, without what is roff's
    awk -v title=".SH $1" '$0 == title { inside = 1; next } /^\.SH / { inside = 0 } inside' "$room/ftxc.1" |
        sed '/^\.\(TP\|PP\|EX\|EE\)$/d; s/^\.\(B\|SS\) //; s/^\\&//; s/\\-/-/g; s/\\e/\\/g'
}
check() { # check TITLE HELP...: the section has the words of that help
    title=$1
    shift
    "$FTXC" "$@" | words >"$room/help"
    section "$title" | words | diff "$room/help" - >&2 || {
        echo "the section $title is not ftxc $*" >&2
        exit 1
    }
    test -s "$room/help"
}
check DESCRIPTION help
n=0
for command in $("$FTXC" help | sed -n '/^First steps/q; s/^  ftxc \([a-z]*\) .*/\1/p'); do
    [ "$command" != help ] || continue
    check "FTXC $(echo "$command" | tr '[:lower:]' '[:upper:]')" help "$command"
    n=$((n + 1))
done
check ENVIRONMENT help env
test $n = "$(grep -c '^\.SH FTXC ' "$room/ftxc.1")"
if command -v groff >/dev/null; then
    groff -man -Tutf8 -ww "$room/ftxc.1" 2>"$room/err" >"$room/page"
    test ! -s "$room/err" || { cat "$room/err" >&2; exit 1; }
    grep -q . "$room/page"
fi

# One table of exit codes: that of help stands in the room's README.
"$FTXC" help | sed -n '/^Exit codes:$/,$ s/^  \([0-9]*\)  *\(.*\)/| \1 | \2 |/p' >"$room/codes"
test "$(wc -l <"$room/codes")" = 5
while IFS= read -r row; do
    grep -q -F -x "$row" runner/README.md || { echo "runner/README.md has no row: $row" >&2; exit 1; }
done <"$room/codes"
echo "$n commands"
