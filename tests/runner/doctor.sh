#!/bin/sh
# doctor.sh - ftxc doctor: each row, what is missing, exit codes; with a CUDA driver made here.
set -eu
room=$FTX_BUILD/doctor
rm -rf "$room"
mkdir -p "$room/cache"

fail() {
    echo "$*" >&2
    exit 1
}
doctor() { # doctor CODE ENVIRONMENT...: it ends with that code; what it printed is in out
    code=$1 found=0
    shift
    env FTX_CACHE="$room/cache" "$@" "$FTXC" doctor >"$room/out" 2>"$room/err" || found=$?
    if [ $found != "$code" ] || [ -s "$room/err" ]; then
        fail "doctor with $*: exit code $found, wanted $code: $(cat "$room/out" "$room/err")"
    fi
}
row() { # row STATE NAME WORDS: that row is in what it printed
    grep -q "^  $1  *$2  *.*$3" "$room/out" || fail "no row $1 $2 $3: $(cat "$room/out")"
}

# No GPU: a note; the CPU works, so all is well.
doctor 0 FTX_CUDA=0 FTX_NVRTC="$room/none.so"
row ok cpu 'CPUs for this process; kernels for'
row ok memory 'GB, available'
row note driver ''
row note nvrtc 'NVRTC\|without the CUDA parts'
row '[a-z]*' cupti 'CUPTI\|trace\|without the CUDA parts'
row ok cache "$room/cache: 0 compiled kernels"
test -z "$(ls "$room/cache")" # the file that shows that it can be written is gone
echo x >"$room/cache/one"
doctor 0 FTX_CUDA=0
row ok cache ': 1 compiled kernels'

# What cannot be used is missing, with the way to get it.
doctor 1 FTX_CUDA=0 FTX_CPU=fast
row missing cpu 'FTX_CPU is "fast"'
doctor 1 FTX_CUDA=0 FTX_CACHE=/dev/null/cache
row missing cache '/dev/null/cache'
grep -q -e '-> make the folder writable' "$room/out"
doctor 0 FTX_CUDA=0 FTX_CACHE=0
row note cache 'compiled anew'

# JSON says the same.
found=0
FTX_CUDA=0 FTX_CACHE=/dev/null/cache "$FTXC" doctor --json >"$room/json" || found=$?
test $found = 1
grep -q '^{"version":"[0-9.]*","ok":false,"rows":\[{"name":"cpu","state":"ok","text":' "$room/json"
grep -q '{"name":"cache","state":"missing","text":"[^"]*","advice":"make' "$room/json"

found=0
"$FTXC" doctor x >"$room/out" 2>&1 || found=$?
test $found = 2 && grep -q 'it takes no arguments, found "x"' "$room/out"

# Libraries of NVRTC made here: one that is too old, one without all functions, and a folder with one that will do.
if ! FTX_CUDA=0 "$FTXC" doctor | grep -q 'without the CUDA parts'; then
    nvrtc() { # nvrtc FILE MAJOR MINOR FUNCTION...
        file=$1 major=$2 minor=$3
        shift 3
        {
            echo "int nvrtcVersion(int *a, int *b) { *a = $major; *b = $minor; return 0; }"
            for name in "$@"; do echo "int $name(void) { return 0; }"; done
        } >"$room/nvrtc.c"
        "${CC:-cc}" -shared -fPIC -w "$room/nvrtc.c" -o "$file"
    }
    all=$(sed -n '/^#define NVRTC_FUNCTIONS/,/^static/s/.*F(\(nvrtc[A-Za-z]*\)).*/\1/p' compiler/instantiate/nvrtc.c | grep -v nvrtcVersion)
    mkdir "$room/nvrtc"
    # shellcheck disable=SC2086
    {
        nvrtc "$room/old.so" 12 3 $all
        nvrtc "$room/few.so" 12 9 nvrtcGetPTX
        nvrtc "$room/nvrtc/libnvrtc.so.12" 12 4 $all
    }
    doctor 0 FTX_CUDA=0 FTX_NVRTC="$room/old.so"
    row note nvrtc 'old.so (12.3)'
    doctor 0 FTX_CUDA=0 FTX_NVRTC="$room/few.so"
    row note nvrtc 'few.so (not an NVRTC library)'
    doctor 0 FTX_CUDA=0 FTX_NVRTC="$room/nvrtc"
    row ok nvrtc '12.4, which compiles'
fi

# A machine with two GPUs, of which the second is too old: a driver whose functions do nothing but these.
if FTX_CUDA=0 "$FTXC" doctor | grep -q 'without the CUDA parts'; then
    echo "a build without the CUDA parts: no driver to try"
    exit 0
fi
{
    echo '#include <stddef.h>'
    for name in $(sed -n '/^#define CUDA_FUNCTIONS/,/clang-format on/s/F(\(cu[A-Za-z0-9]*\))/\n\1\n/gp' runtime/device/cuda/driver.h |
        grep '^cu[A-Z]'); do
        case $name in
        cuDriverGetVersion | cuDeviceGetCount | cuDeviceGet | cuDeviceGetName | cuDeviceGetAttribute | cuMemGetInfo) continue ;;
        esac
        for suffix in '' _v2 _v3 WithFlags _ptsz; do
            echo "int $name$suffix(void) { return 0; }"
        done
    done
    cat <<'END'
int cuDriverGetVersion(int *v) { *v = 12090; return 0; }
int cuDeviceGetCount(int *n) { *n = 2; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetName(char *name, int n, int device) { (void)n, (void)device; name[0] = 'G'; name[1] = 0; return 0; }
int cuDeviceGetAttribute(int *v, int what, int device) { *v = what == 75 ? (device ? 7 : 9) : 0; return 0; }
int cuMemGetInfo_v2(size_t *available, size_t *all) { *available = 30000000000; *all = 80000000000; return 0; }
END
} >"$room/driver.c"
mkdir "$room/cuda"
"${CC:-cc}" -shared -fPIC -w "$room/driver.c" -o "$room/cuda/libcuda.so.1"
doctor 1 FTX_CUDA="$room/cuda" FTX_NVRTC="$room/none.so"
row ok driver 'for CUDA 12.9'
row ok gpu 'cuda:0, G (sm_90a), 80.0 GB, free 30.0 GB'
row missing gpu 'cuda:1, G (sm_70)'
row missing nvrtc 'NVRTC'
grep -q -e '-> install the CUDA toolkit 12.4 or newer, or the Python package nvidia-cuda-nvrtc' "$room/out"
sed 's/12090/12030/' "$room/driver.c" >"$room/old.c"
"${CC:-cc}" -shared -fPIC -w "$room/old.c" -o "$room/cuda/libcuda.so.1"
FTX_CUDA=$room/cuda "$FTXC" doctor >"$room/out" || true
grep -q ' driver  *the CUDA driver is too old: it is for CUDA 12.3' "$room/out" || fail "$(cat "$room/out")"
echo "all rows"
