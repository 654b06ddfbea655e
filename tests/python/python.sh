#!/bin/sh
# python.sh - the tests of the Python package, against the libftx and the ftxc of this build. FTX_PYTHON names another
# Python than Debian's.
set -eu
case ${FTX_SANITIZE:-OFF} in
ON | on | 1) echo "skipped: a library with sanitizers asks for their flags"; exit 0 ;;
esac
here=$(dirname "$0")
FTX_LIBRARY=$FTX_BUILD/libftx.so
export FTX_LIBRARY
PYTHONPATH=python PYTHONDONTWRITEBYTECODE=1 exec "${FTX_PYTHON:-/usr/bin/python3}" -W error -m unittest discover -s "$here" -v
