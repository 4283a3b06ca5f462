#!/bin/bash
# The installed library as an embedding program meets it: the header alone as C11 and C++17, the example
# built through pkg-config, its answer beside `onebit run`; and uninstall leaves nothing.
# usage: installed.sh BUILD_FOLDER C_COMPILER
set -euo pipefail
build=$1
cc=$2
root=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

DESTDIR=$folder/root cmake --install "$build" > "$folder/log" || { cat "$folder/log" && exit 1; }
config=$(find "$folder/root" -name onebit.pc)
export PKG_CONFIG_SYSROOT_DIR=$folder/root PKG_CONFIG_PATH=${config%/*}
cflags=$(pkg-config --cflags onebit)
libs=$(pkg-config --libs onebit)
[ "$(pkg-config --modversion onebit)" = "$("$build/onebit" --version | cut -d ' ' -f 2)" ]

echo "the header alone"
echo '#include <onebit.h>' > "$folder/alone.c"
warnings="-Wall -Wextra -Wpedantic -Werror"
# shellcheck disable=SC2086 # flags are words
"$cc" -x c -std=c11 $warnings $cflags -fsyntax-only "$folder/alone.c"
# shellcheck disable=SC2086
clang -x c++ -std=c++17 $warnings $cflags -fsyntax-only "$folder/alone.c"

echo "the example"
# shellcheck disable=SC2086
"$cc" -std=c11 $warnings $cflags "$root/examples/complete.c" -o "$folder/complete" $libs
prompt="The city of London is"
model=$root/models/onebit-demo.gguf
"$folder/complete" "$model" "$prompt" > "$folder/said"
"$build/onebit" run -m "$model" -p "$prompt" -n 48 > "$folder/expected"
[ "$(wc -c < "$folder/said")" -gt 40 ]
cmp "$folder/said" "$folder/expected"
code=0
"$folder/complete" "$folder/nothing.gguf" "$prompt" > /dev/null 2> "$folder/error" || code=$?
[ $code -eq 1 ]
grep -q "^complete: .*nothing.gguf" "$folder/error"
"$folder/complete" "$model" "$prompt" > /dev/full 2> /dev/null && exit 1

echo "uninstall"
prefix=$(pkg-config --variable=prefix onebit)
prefix=${prefix#"$folder/root"}
make -s -C "$root" uninstall DESTDIR="$folder/root" prefix="$prefix" \
    libdir="${PKG_CONFIG_PATH#"$folder/root"}/.."
left=$(find "$folder/root" ! -type d)
[ -z "$left" ] || { echo "uninstall left $left" >&2 && exit 1; }
