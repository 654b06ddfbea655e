#!/bin/sh
# mutants.sh - scripts/mutants in a tree of one file: what is seen, survives, does not apply or does not compile; its shares,
# its record. And every entry of this tree applies.
set -eu
tree=$(pwd)
room=$FTX_BUILD/mutants
rm -rf "$room"
mkdir -p "$room/scripts" "$room/tests/mutants" "$room/runtime"

fail() {
    echo "$*" >&2
    exit 1
}

scripts/mutants list / >"$room/list" || fail "$(grep STALE "$room/list")"
PYTHONDONTWRITEBYTECODE=1 python3 - <<END || fail "an entry is in no share, or in two"
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
spec = spec_from_loader("mutants", SourceFileLoader("mutants", "scripts/mutants"))
script = module_from_spec(spec)
spec.loader.exec_module(script)
entries = script.read_lists()
shares = [m.number for turn in range(20, 40) for m in script.share(entries, turn)]
assert sorted(shares) == [m.number for m in entries]
END

cp scripts/mutants "$room/scripts"
cd "$room"
cat >runtime/clamp.c <<END
int clamp(int x, int most)
{
    if (x < 0)
        return 0; /* never below */
    return x < most ? x : most;
}
END
cat >main.c <<END
int clamp(int x, int most);
int main(void) { return clamp(-1, 3) != 0 || clamp(2, 3) != 2 || clamp(4, 3) != 3; }
END
cat >CMakeLists.txt <<END
cmake_minimum_required(VERSION 3.16)
project(clamp C)
enable_testing()
add_executable(ftxc main.c runtime/clamp.c)
add_test(NAME test_clamp COMMAND ftxc)
END
cat >tests/mutants/runtime.txt <<END
# mutants of clamp
@ runtime/clamp.c | test_clamp | a negative number stays
-     if (x < 0)
-         return 0;
+
@ runtime/clamp.c | test_clamp | bounds above 3 are not held, which the test does not ask
-     return x < most ? x : most;
+     return x < most || most > 3 ? x : most;
@ runtime/clamp.c | test_clamp | the number is not there
-     return x < most ? x : most;
+     return y;
@ runtime/clamp.c | test_clamp | equivalent: the bound itself is the bound
-     return x < most ? x : most;
+     return x > most ? most : x;
END
git init -q . 2>/dev/null
git add -A
git -c user.name=x -c user.email=x@x commit -qm clamp
code=0
scripts/mutants all -j 1 --record >out 2>&1 || code=$?
test $code = 1 || fail "$(cat out)"
grep -q '^seen  *0  runtime/clamp.c: a negative number stays ' out || fail "$(cat out)"
grep -q '^SURVIVED  *1  ' out
grep -q '^BROKEN  *2  ' out
grep -q '^3 mutants: 1 broken, 1 survived, 1 seen$' out
test "$(cut -f 1,4 tests/mutants/last.tsv | sed 1d)" = "seen	runtime/clamp.c: a negative number stays
survived	runtime/clamp.c: bounds above 3 are not held, which the test does not ask
broken	runtime/clamp.c: the number is not there" || fail "$(cat tests/mutants/last.tsv)"

# A few entries are all in share 0, which comes again as share 20; what was seen is not left; what does not apply ends a
# share at once.
scripts/mutants share 20 -j 1 >out 2>&1 && fail "$(cat out)"
grep -q '^3 mutants: 1 broken, 1 survived, 1 seen$' out
scripts/mutants share 1 -j 1 >out 2>&1 && fail "share 1 has entries"
grep -q 'no entry is chosen' out
scripts/mutants left 'a negative' >out 2>&1 && fail "what was seen is left"
grep -q 'no entry is chosen' out
sed 's/never below/below/; s/x : most/(x) : most/' runtime/clamp.c >clamp && mv clamp runtime/clamp.c
scripts/mutants share 0 -j 1 >out 2>&1 && fail "$(cat out)"
test "$(grep -c '^STALE: ' out)" = 3 || fail "$(cat out)"
cd "$tree"
echo "verdicts, shares and the record"
