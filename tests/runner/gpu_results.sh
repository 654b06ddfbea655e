#!/bin/sh
# gpu_results.sh - tests/gpu/check.sh puts what passed into gpu.json, by programs that only act as if there were a GPU.
set -eu
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 0; }
room=$FTX_BUILD/gpu-results
rm -rf "$room"
mkdir -p "$room/build/tests/models" "$room/bin"
file=$room/gpu.json

fail() {
    echo "$*" >&2
    cat "$room/out" >&2
    exit 1
}
program() { # program NAME: from standard input
    cat >"$room/$1"
    chmod +x "$room/$1"
}
program bin/nvidia-smi <<'END'
#!/bin/sh
case $* in *driver*) echo 580.1 ;; *) echo "NVIDIA Nothing" ;; esac
END
program build/ftxc <<'END'
#!/bin/sh
case $1 in
doctor) echo "  ok       nvrtc     13.0, which compiles for GPUs" ;;
bench) echo '{"model": "m"}' ;;
*) echo "sm_90a bench__c$# 00000000000000b0" >>"$FTX_TEXTS" ;;
esac
END
for test in golden:2 tiny:3 many:4; do # a test compiles two kernels, and fails if there is a file `bad`
    program build/tests/models/test_${test%:*} <<END
#!/bin/sh
echo "sm_90a attend__c1 00000000000000a1" >>"\$FTX_TEXTS"
echo "sm_90a ${test%:*}__c2 00000000000000a${test#*:}" >>"\$FTX_TEXTS"
[ ! -e "$room/bad" ]
END
done
check() { # check COMMIT PART...
    commit=$1
    shift
    PATH="$room/bin:$PATH" FTX_GPU_RESULTS=$file FTX_COMMIT=$commit FTX_OUT=$room/work \
        tests/gpu/check.sh "$room/build" "$@" >"$room/out" 2>&1
}
changed() {
    tests/gpu/results.py changed "$1" "$room/texts" >"$room/out" 2>&1
}
shown() { # shown LINE: the last program printed it
    grep -qxF "$1" "$room/out" || fail "expected: $1"
}

# Two parts pass at one commit, one of them again at the next.
check 0123456 fp32 bench || fail "all parts pass"
check 789abcd many fp32 || fail "all parts pass"
cat >"$room/texts" <<'END'
sm_90a attend__c1 00000000000000a1
sm_90a many__c2 00000000000000a4
sm_90a many__c2 00000000000000a9
sm_90a bench__c7 00000000000000b0
sm_90a new__c7 00000000000000c0
compute_80 attend__c1 00000000000000a1
END
changed "$file"
today=$(date +%F)
test "$(wc -l <"$room/out")" = 5
shown "gpu fp32: passed at 789abcd on $today, NVIDIA Nothing, driver 580.1, NVRTC 13.0"
shown "gpu many: passed at 789abcd on $today, NVIDIA Nothing, driver 580.1, NVRTC 13.0"
shown "gpu bench: passed at 0123456 on $today, NVIDIA Nothing, driver 580.1, NVRTC 13.0"
shown "gpu sm_90a: of 5 kernel texts of the specs 2 have passed a comparison with references, 1 more have run, 2 have \
not run as they are now: many 1 of 2, new 1 of 1"
shown "gpu compute_80: of 1 kernel texts of the specs 0 have passed a comparison with references, 0 more have run, 1 have \
not run as they are now: attend 1 of 1"

# What fails now has not passed; the parts beside it stay.
touch "$room/bad"
! check 789abcd many bench || fail "a part failed"
rm "$room/bad"
changed "$file"
! grep -q 'gpu many' "$room/out" || fail "many has failed"
shown "gpu sm_90a: of 5 kernel texts of the specs 1 have passed a comparison with references, 1 more have run, 3 have \
not run as they are now: many 2 of 2, new 1 of 1"

# Two at a time lose nothing.
mkdir "$room/two"
i=0
while [ $i -lt 4 ]; do
    for part in many odd; do
        tests/gpu/results.py passed "$room/two/gpu.json" $part "$room/texts" "GPU $i" 1 1.1 0123456 &
    done
    i=$((i + 1))
done
wait
changed "$room/two/gpu.json"
test "$(grep -c 'passed at 0123456' "$room/out")" = 8 || fail "8 runs"

# Every part that check.sh has may be written.
parts=$(sed -n 's/^    \([a-z_0-9]*\)).*/\1/p' tests/gpu/check.sh)
test "$(echo "$parts" | wc -l)" -gt 15 || fail "parts of check.sh: $parts"
for part in $parts; do
    tests/gpu/results.py passed "$room/two/gpu.json" "$part" "$room/texts" "GPU 1" 1 1.1 0123456 || fail "part $part"
done

# What would be wrong is not written; a file that is wrong is named, and stays.
! check 'no commit' fp32 || fail "no commit"
grep -q '"commit" is "no commit"' "$room/out" || fail "no commit"
refused() { # refused MESSAGE SED-SCRIPT
    sed "$2" "$room/good" >"$file"
    cp "$file" "$room/before"
    ! changed "$file" || fail "expected to be refused: $1"
    grep -qF "$1" "$room/out" || fail "expected: $1"
    ! check 0123456 many || fail "expected to be refused: $1"
    cmp "$file" "$room/before"
}
cp "$file" "$room/good"
refused 'gpu.json: Expecting' '$d'
refused "gpu.json: 'runs' is missing" 's/"runs"/"walks"/'
refused "gpu.json: 'gpu' is missing" 's/"gpu"/"cpu"/'
refused 'run 1: "part" is "fp31"' 's/"fp32"/"fp31"/'
refused 'has other fields' 's/"gpu"/"more": 1, "gpu"/'
refused 'run 1: the hashes of attend for sm_90a' 's/00000000000000a1/a1/'
rm "$file"
! changed "$file" || fail "there is no file"
: >"$room/texts"
changed docs/results/gpu.json || fail "docs/results/gpu.json is wrong"
echo "kernel texts and the parts that they passed"
