#!/bin/sh
# header.sh - ftx.h as C99, C11 and C++98 without a warning, by every compiler here; its initialisers in each language.
set -eu

case ${FTX_SANITIZE:-OFF} in
ON | on | 1) echo "skipped: a library with sanitizers asks for their flags"; exit 0 ;;
esac

room=$FTX_BUILD/header
rm -rf "$room"
mkdir -p "$room"
cat >"$room/app.c" <<'END'
#include <ftx.h>
FtxOptions options_of(void);
FtxOptions options_of(void)
{
    FtxOptions o = FTX_OPTIONS_INIT;
    FtxEvent events[4] = {FTX_EVENT_INIT};
    FtxEncode job = FTX_ENCODE_INIT;

    o.threads = (int)(events[0].size - sizeof(FtxEvent) + events[3].size + job.size - sizeof job + job.count);
    return o;
}
int main(void)
{
    return options_of().size == sizeof(FtxOptions) && options_of().threads == 0 ? 0 : 1;
}
END
flags="-Wall -Wextra -pedantic -Wshadow -Wconversion -Werror -Iruntime"
tried=0
# shellcheck disable=SC2086
for cc in gcc clang; do
    command -v "$cc" >/dev/null || continue
    for std in c99 c11; do
        "$cc" -std=$std $flags "$room/app.c" -o "$room/app" "$FTX_BUILD/libftx.so"
        LD_LIBRARY_PATH=$FTX_BUILD "$room/app"
        tried=$((tried + 1))
    done
done
# shellcheck disable=SC2086
for cxx in g++ clang++; do
    command -v "$cxx" >/dev/null || continue
    for std in c++98 c++17; do
        "$cxx" -x c++ -std=$std $flags -c "$room/app.c" -o "$room/app.o"
        "$cxx" "$room/app.o" -o "$room/app" "$FTX_BUILD/libftx.so"
        LD_LIBRARY_PATH=$FTX_BUILD "$room/app"
        tried=$((tried + 1))
    done
done
echo "$tried builds of ftx.h"
test $tried -ge 4 # one C compiler and one C++ compiler at least
