#!/bin/sh
# embed.sh - what ftx.h and ftx_all.c promise to those who embed: their programs and build lines.
set -eu

case ${FTX_SANITIZE:-OFF} in
ON | on | 1) echo "skipped: a library with sanitizers asks for their flags"; exit 0 ;;
esac

source=$(pwd)
room=$FTX_BUILD/embed
rm -rf "$room"
mkdir -p "$room/include" "$room/static" "$room/shared" "$room/all"
cp runtime/ftx.h "$room/include"
cp "$FTX_BUILD/libftx.a" "$room/static"
cp -P "$FTX_BUILD"/libftx.so* "$room/shared"
"$FTXC" compile specs/fable.lua -t cpu -q -o "$room/fable.ftx"

# The program and the line that builds it, as they stand in the header.
sed -n '/^ \*     #include <ftx.h>/,/^ \*     }$/s/^ \*\( \{5\}\)\{0,1\}//p' runtime/ftx.h > "$room/app.c"
line=$(sed -n 's/^ \* Build:  //p' runtime/ftx.h)
grep -q 'int main' "$room/app.c"
test -n "$line"

for kind in static shared; do
    echo "$kind: $line"
    (cd "$room" && CPATH=$room/include LIBRARY_PATH=$room/$kind sh -c "$(echo "$line" | sed "s|^cc|${CC:-cc} -Wall -Wextra -Werror -o $kind/app|")")
    (cd "$room" && LD_LIBRARY_PATH=$room/$kind "./$kind/app" > "$kind/text")
    test -s "$room/$kind/text"
done

# The runtime as sources: the line of ftx_all.c, which gives the same text for the same seed.
line=$(sed -n '/^ \*     cc /,/lpthread$/s/^ \* *//p' runtime/ftx_all.c | tr '\n' ' ' | sed "s|app.c|$room/app.c|")
echo "sources: $line"
(cd "$source" && sh -c "$(echo "$line" | sed "s|^cc|${CC:-cc} -o $room/all/app|")")
(cd "$room" && ./all/app > all/text)
cmp "$room/static/text" "$room/shared/text"
cmp "$room/static/text" "$room/all/text"
head -c 300 "$room/static/text"
