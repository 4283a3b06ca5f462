#!/usr/bin/env bash
# Every check and every test, as `make test` and continuous integration run them. Stops at the first
# stage that fails; each stage and the whole are timed.
set -euo pipefail
cd "$(dirname "$0")/.."

summary=()
jobs=$(nproc 2> /dev/null || echo 2)

stage() { # stage NAME COMMAND...
    local name=$1 start=$SECONDS code=0 note=""
    shift
    echo "=== $name"
    "$@" || code=$?
    if [ $code -eq 77 ]; then
        note=" (SKIPPED: what it needs is not here)"
    elif [ $code -ne 0 ]; then
        echo "=== $name: FAILED after $((SECONDS - start)) s" >&2
        exit 1
    fi
    summary+=("$(printf '%5d s  %s%s' $((SECONDS - start)) "$name" "$note")")
}

build() { # build PRESET
    cmake --preset "$1" > /dev/null && cmake --build --preset "$1" -- -j "$jobs"
}

# The thread team, several sessions at once, and one forward pass over many thread counts.
threaded="test_pool test_batch test_equivalence"

build_threaded() {
    # shellcheck disable=SC2086 # names are words
    cmake --preset tsan > /dev/null && cmake --build --preset tsan --target $threaded -- -j "$jobs"
}

run_tests() { # run_tests FOLDER [PATTERN]
    ctest --test-dir "$1" --output-on-failure --no-tests=error -j "$jobs" ${2:+-R "$2"}
}

stage "packages" scripts/deps.sh build test
stage "layers: self-test" scripts/check_layers.sh --self-test
stage "layers" scripts/check_layers.sh
stage "format" scripts/format.sh check
stage "build: gcc, release" build release
stage "lint" scripts/lint.sh build
stage "build: clang, release" build clang
stage "build: gcc, sanitizers" build asan
stage "build: gcc, thread sanitizer" build_threaded
stage "tests: release" run_tests build
stage "tests: sanitizers" run_tests build-asan
stage "tests: thread sanitizer" run_tests build-tsan "^(${threaded// /|})\$"
stage "wasm" scripts/check_wasm.sh
stage "aarch64" scripts/check_aarch64.sh

echo "=== nothing failed"
printf '%s\n' "${summary[@]}"
printf '%5d s  in all\n' "$SECONDS"
