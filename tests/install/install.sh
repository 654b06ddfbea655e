#!/bin/sh
# install.sh - `cmake --install build --prefix X`: the program of ftx.h, built against X by pkg-config and
# by find_package, shared and static; then X is moved, and everything holds there, too.
set -eu
case ${FTX_SANITIZE:-OFF} in
ON | on | 1) echo "skipped: a library with sanitizers asks for their flags"; exit 0 ;;
esac

room=$FTX_BUILD/install
rm -rf "$room"
mkdir -p "$room/first"
"$CMAKE" --install "$FTX_BUILD" --prefix "$room/first" >"$room/log"
mv "$room/first" "$room/moved"
prefix=$room/moved
pc=$(dirname "$(find "$prefix" -name ftx.pc)")
lib=$(dirname "$pc")

# The manual page says what the help texts say; licence and changes are there.
scripts/man "$prefix/bin/ftxc" "$room/ftxc.1"
cmp "$room/ftxc.1" "$prefix/share/man/man1/ftxc.1"
cmp LICENSE "$prefix/share/doc/ftxc/LICENSE"
cmp CHANGELOG.md "$prefix/share/doc/ftxc/CHANGELOG.md"

"$prefix/bin/ftxc" compile specs/fable.lua -t cpu -q -o "$room/fable.ftx"
"$prefix/bin/ftx-run" "$room/fable.ftx" "Once upon a time" -q -n 5 >/dev/null
sed -n '/^ \*     #include <ftx.h>/,/^ \*     }$/s/^ \*\( \{5\}\)\{0,1\}//p' runtime/ftx.h >"$room/app.c"

runs() { # runs PROGRAM: it tells the story that the others tell
    (cd "$room" && LD_LIBRARY_PATH=$lib "$1" >text)
    test -s "$room/text"
    [ -e "$room/wanted" ] || cp "$room/text" "$room/wanted"
    cmp "$room/text" "$room/wanted"
}

# pkg-config: shared; everything static; ours static and the system's shared.
flags() {
    PKG_CONFIG_PATH=$pc pkg-config "$@" ftx
}
test "$(flags --modversion)" = "$(sed -n 's/^project(ftxc VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)"
# shellcheck disable=SC2046
{
    "$CC" -std=c11 -Wall -Werror "$room/app.c" -o "$room/shared" $(flags --cflags --libs)
    "$CC" -std=c11 "$room/app.c" -o "$room/static" -static $(flags --static --cflags --libs) 2>"$room/log"
    "$CC" -std=c11 "$room/app.c" -o "$room/inside" $(flags --static --cflags --libs | sed 's/-lftx/-l:libftx.a/')
}
ldd "$room/shared" | grep -q 'libftx.so.0'
if ldd "$room/inside" | grep -q libftx; then exit 1; fi
if ldd "$room/static" >/dev/null 2>&1; then exit 1; fi
for program in shared inside static; do
    runs "./$program"
done

# The shared library shows ftx.h and nothing else, and asks for the system alone.
nm -D --defined-only "$lib/libftx.so" | awk '{print $3}' | grep -v '^ftx_' && exit 1
sed -n '/^static/d; s/^[A-Za-z][A-Za-z ]*[ *]\(ftx_[a-z_]*\)(.*/\1/p' runtime/ftx.h | sort -u | while read -r name; do
    nm -D --defined-only "$lib/libftx.so" | grep -q " $name\$" || { echo "libftx.so lacks $name"; exit 1; }
done

# find_package: shared and static.
mkdir "$room/app"
cat >"$room/app/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(app LANGUAGES C)
find_package(ftx 0.1 REQUIRED)
add_executable(app_shared ../app.c)
target_link_libraries(app_shared PRIVATE ftx::ftx)
add_executable(app_static ../app.c)
target_link_libraries(app_static PRIVATE ftx::ftx_static)
END
"$CMAKE" -S "$room/app" -B "$room/app/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$CC" >"$room/log"
"$CMAKE" --build "$room/app/build" >"$room/log"
runs "$room/app/build/app_shared"
runs "$room/app/build/app_static"
ldd "$room/app/build/app_shared" | grep -q 'libftx.so.0'
if ldd "$room/app/build/app_static" | grep -q libftx; then exit 1; fi
head -c 200 "$room/wanted"
