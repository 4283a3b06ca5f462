#!/bin/sh
# Prove the kernels on 64-bit Arm without owning one: cross-build src/kernel and what it needs with
# the project's warnings, and run check_kernels under qemu as a machine without dot products, one with
# them and one with everything qemu has. Exit status 77 where the tools are not installed.
# Needs gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user (Debian's names).
# usage: scripts/check_aarch64.sh [FOLDER_FOR_OBJECTS]
set -eu
cd "$(dirname "$0")/.."

cc=${AARCH64_CC:-aarch64-linux-gnu-gcc}
qemu=${QEMU_AARCH64:-qemu-aarch64}
for tool in "$cc" "$qemu"; do
    if ! command -v "$tool" > /dev/null; then
        echo "check_aarch64: $tool is not installed; nothing was checked" >&2
        exit 77
    fi
done

if [ $# -gt 0 ]; then
    out=$1
    mkdir -p "$out"
else
    out=$(mktemp -d)
    trap 'rm -rf "$out"' EXIT
fi

flags="-std=c11 -O3 -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE -Iinclude -Isrc -Itests
    -Wall -Wextra -Wpedantic -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
    -Wpointer-arith -Wcast-qual -Wwrite-strings -Wundef -Wdouble-promotion
    -ffp-contract=off -fno-math-errno -fno-trapping-math -fvisibility=hidden"
objects=
for source in src/kernel/*.c src/kernel/arm/*.c src/quant/*.c src/base/error.c \
    tests/check_kernels*.c; do
    object=$out/$(echo "$source" | tr / _ | sed 's/\.c$/.o/')
    case $source in
    src/kernel/arm/dotprod_*) march=-march=armv8.2-a+dotprod ;;
    *) march=-march=armv8-a ;;
    esac
    # shellcheck disable=SC2086 # flags are words
    "$cc" $flags $march -c "$source" -o "$object"
    objects="$objects $object"
done
# shellcheck disable=SC2086
"$cc" -static $objects -lm -o "$out/check_kernels"

# cortex-a53 has no dot products: the level must be named as skipped there, and run elsewhere.
for cpu in cortex-a53 cortex-a76 max; do
    echo "check_aarch64: as $cpu"
    "$qemu" -cpu "$cpu" "$out/check_kernels" --quick > "$out/said" || {
        cat "$out/said"
        exit 1
    }
    cat "$out/said"
    if grep -q '^skipped: level dotprod' "$out/said"; then has=no; else has=yes; fi
    case $cpu/$has in
    cortex-a53/no | cortex-a76/yes | max/yes) ;;
    *)
        echo "check_aarch64: $cpu: level dotprod was found to be there: $has" >&2
        exit 1
        ;;
    esac
done
