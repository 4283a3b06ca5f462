#!/bin/sh
# `format.sh check` fails on a C file that is not laid out as .clang-format says; `format.sh fix`
# rewrites them.
set -eu
cd "$(dirname "$0")/.."
case ${1:-check} in
check) mode="--dry-run -Werror" ;;
fix) mode="-i" ;;
*)
    echo "format.sh: check or fix?" >&2
    exit 2
    ;;
esac
# shellcheck disable=SC2086
find src include cli tests fuzz tools examples -name '*.[ch]' | LC_ALL=C sort | xargs clang-format $mode
