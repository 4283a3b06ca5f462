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

# What threads share: the team, batches of sessions, waits between steps.
thread_tests='^test_(pool|batch|equivalence)$'
build_threads() {
    cmake --preset tsan > /dev/null &&
        cmake --build --preset tsan --target test_pool test_batch test_equivalence -- -j "$jobs"
}

run_tests() { # run_tests FOLDER [PATTERN]
    ctest --test-dir "$1" --output-on-failure --no-tests=error -j "$jobs" ${2:+-R "$2"}
}

stage "packages" scripts/deps.sh build test
stage "layers: self-test" scripts/check_layers.sh --self-test
stage "layers" scripts/check_layers.sh
stage "format" scripts/format.sh check
stage "configure: as a user does" scripts/check_user_configure.sh
stage "build: gcc, release" build release
stage "build: clang, release" build clang
stage "lint" scripts/lint.sh build
stage "build: gcc, sanitizers" build asan
stage "build: gcc, threads" build_threads
stage "tests: release" run_tests build
stage "tests: sanitizers" run_tests build-asan
stage "tests: threads" run_tests build-tsan "$thread_tests"
stage "wasm" scripts/check_wasm.sh
stage "aarch64" scripts/check_aarch64.sh

echo "=== nothing failed"
printf '%s\n' "${summary[@]}"
printf '%5d s  in all\n' "$SECONDS"
