#!/bin/sh
# clang-tidy (.clang-tidy) and cppcheck over the library and the program; any finding is an error.
# Needs a configured build folder for the compile commands and the generated tables.
# usage: scripts/lint.sh [BUILD_FOLDER]
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
jobs=$(nproc 2> /dev/null || echo 2)
[ -f "$build/compile_commands.json" ] || {
    echo "lint.sh: $build is not configured; run cmake --preset release" >&2
    exit 2
}

# Other machines' instruction sets are not in the compile commands of this one.
case $(uname -m) in
x86_64) other=src/kernel/arm ;;
*) other=src/kernel/x86 ;;
esac
echo "clang-tidy"
find src cli -name '*.c' -not -path "$other/*" | LC_ALL=C sort |
    xargs -P "$jobs" -n 8 clang-tidy --quiet -p "$build" 2> /dev/null

# Three of its checks are off. It misreads hexadecimal floating constants (incorrectLogicOperator) and
# `p->next++->field` (legacyUninitvar; uninitvar sees the rest), and takes a sum that has exp(0) in it for 0
# (invalidFunctionArg).
echo "cppcheck"
cppcheck --enable=warning,performance,portability --inline-suppr --std=c11 -j "$jobs" --quiet \
    --error-exitcode=1 -Iinclude -Isrc -I"$build/generated" "-D__$(uname -m)__" \
    --suppress=missingIncludeSystem --suppress=incorrectLogicOperator --suppress=legacyUninitvar \
    --suppress=invalidFunctionArg src cli
echo "lint: nothing found"
