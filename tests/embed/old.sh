#!/bin/sh
# old.sh - a program built with an older, shorter ftx.h runs with today's library, static and shared, as one of today.
set -eu

case ${FTX_SANITIZE:-OFF} in
ON | on | 1) echo "skipped: a library with sanitizers asks for their flags"; exit 0 ;;
esac

room=$FTX_BUILD/old
rm -rf "$room"
mkdir -p "$room/shared"
cp -P "$FTX_BUILD"/libftx.so* "$room/shared"
"$FTXC" compile specs/fable.lua -t cpu -q -o "$room/fable.ftx"
"$FTXC" compile tests/models/tiny-bert -t cpu -q -o "$room/bert.ftx"

for header in tests/embed/old runtime; do
    name=$(basename "$header")
    "${CC:-cc}" -std=c99 -Wall -Wextra -pedantic -Werror -I"$header" -c tests/embed/old.c -o "$room/$name.o"
    "${CC:-cc}" "$room/$name.o" -o "$room/$name-static" "$FTX_BUILD/libftx.a" -lpcre2-8 -lutf8proc -lxxhash -lm -ldl -lpthread
    "${CC:-cc}" "$room/$name.o" -o "$room/$name-shared" -L"$room/shared" -lftx
    for kind in static shared; do
        LD_LIBRARY_PATH=$room/shared "$room/$name-$kind" "$room/fable.ftx" "$room/bert.ftx" \
            >"$room/$name-$kind.text" 2>"$room/$name-$kind.sizes" || { cat "$room/$name-$kind.sizes"; exit 1; }
        cmp "$room/old-static.text" "$room/$name-$kind.text"
    done
done

# Every struct has grown since.
awk 'NR == FNR { for (i = 1; i <= NF; i++) old[i] = $i; next }
     { for (i = 1; i <= NF; i++) if ($i <= old[i]) exit 1 }' "$room/old-static.sizes" "$room/runtime-static.sizes"
test "$(grep -c ':' "$room/old-static.text")" -ge 20
head -n 6 "$room/old-static.text"
