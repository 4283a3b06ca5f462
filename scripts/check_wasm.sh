#!/bin/sh
# Prove that the layers meant for the browser build for wasm32-wasi: compile src/text and what it
# needs of src/base with the project's warnings, link a self-test with nothing undefined, and run it
# under node's WASI (exit status 77 where node is not installed).
# Needs clang, lld, wasi-libc and libclang-rt-dev-wasm32 (Debian's names).
# usage: scripts/check_wasm.sh [FOLDER_FOR_OBJECTS]
set -eu
cd "$(dirname "$0")/.."

if [ $# -gt 0 ]; then
    out=$1
    mkdir -p "$out"
else
    out=$(mktemp -d)
    trap 'rm -rf "$out"' EXIT
fi

${CC:-cc} -std=c11 -O1 -D_POSIX_C_SOURCE=200809L tools/gen_unicode.c -o "$out/gen_unicode"
"$out/gen_unicode" "${OB_UNICODE_DIR:-/usr/share/unicode}" "$out/unicode_tables.h"

flags="--target=wasm32-wasi --sysroot=${WASI_SYSROOT:-/usr} -std=c11 -O2
    -Wall -Wextra -Wpedantic -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
    -Wpointer-arith -Wcast-qual -Wwrite-strings -Wundef -Wdouble-promotion -ffp-contract=off
    -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE -Iinclude -Isrc -Itests -I$out"

objects=
for source in src/text/*.c src/base/memory.c src/base/error.c src/base/text_buffer.c \
    tests/wasm_text.c; do
    object=$out/$(echo "$source" | tr / _ | sed 's/\.c$/.o/')
    # shellcheck disable=SC2086 # flags are words
    clang $flags -c "$source" -o "$object"
    objects="$objects $object"
done
# shellcheck disable=SC2086
clang --target=wasm32-wasi --sysroot="${WASI_SYSROOT:-/usr}" $objects \
    -Wl,--error-unresolved-symbols,--fatal-warnings -o "$out/wasm_text.wasm"
echo "check_wasm: linked $(wc -c <"$out/wasm_text.wasm") bytes"

if ! command -v node >/dev/null; then
    echo "check_wasm: node is not installed; the self-test was not run" >&2
    exit 77
fi
cat >"$out/run.mjs" <<'JS'
import { readFile } from 'node:fs/promises';
import { WASI } from 'node:wasi';
const wasi = new WASI({ version: 'preview1', args: ['wasm_text'], returnOnExit: true });
const module = await WebAssembly.compile(await readFile(process.argv[2]));
process.exitCode = wasi.start(await WebAssembly.instantiate(module, wasi.getImportObject()));
JS
node --no-warnings "$out/run.mjs" "$out/wasm_text.wasm"
