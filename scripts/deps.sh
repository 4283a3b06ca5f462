#!/bin/sh
# Install what is missing: `deps.sh build`, `deps.sh test`, or both. Debian packages as root or with
# sudo, otherwise it prints the command; for the tests also the npm packages that
# tests/oracle/package.json names, beside it. With nothing missing it does nothing.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)

build_packages="gcc libc6-dev make cmake ninja-build pkg-config unicode-data libjansson-dev libedit-dev
libxxhash-dev libhttp-parser-dev libsqlite3-dev"
test_packages="clang clang-format clang-tidy cppcheck lld libclang-rt-dev libclang-rt-dev-wasm32 wasi-libc
tmux libcmocka-dev libpcre2-dev libutf8proc-dev python3-jinja2
gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"
# Run the WebAssembly self-test and the oracles from npm; ones that came from elsewhere will do.
command -v node > /dev/null 2>&1 || test_packages="$test_packages nodejs"
command -v npm > /dev/null 2>&1 || test_packages="$test_packages npm"

wanted=""
for group in "$@"; do
    case $group in
    build) wanted="$wanted $build_packages" ;;
    test) wanted="$wanted $test_packages" ;;
    *)
        echo "deps.sh: unknown group '$group': there are build and test" >&2
        exit 2
        ;;
    esac
done

install_oracles() {
    folder=$root/tests/oracle
    [ "$folder/node_modules/.package-lock.json" -nt "$folder/package.json" ] && return
    command -v npm > /dev/null 2>&1 || { echo "deps.sh: 'npm' is missing; install it" >&2; return; }
    echo "installing: the packages of tests/oracle/package.json" >&2
    (cd "$folder" && npm install --ignore-scripts --no-package-lock --no-audit --no-fund \
        --loglevel=error >&2) || {
        echo "deps.sh: npm cannot install the packages of tests/oracle/package.json" >&2
        exit 1
    }
}
finish() {
    case " $* " in *" test "*) install_oracles ;; esac
    exit 0
}

if ! command -v dpkg-query > /dev/null 2>&1 || ! command -v apt-get > /dev/null 2>&1; then
    for tool in cc cmake ninja pkg-config; do
        command -v "$tool" > /dev/null 2>&1 || echo "deps.sh: '$tool' is missing; install it" >&2
    done
    finish "$@"
fi

is_installed() {
    dpkg-query -W -f '${db:Status-Status}\n' "$1" 2> /dev/null | grep -qx installed
}

missing=""
for package in $wanted; do
    is_installed "$package" || missing="$missing $package"
done
[ -n "$missing" ] || finish "$@"

if [ "$(id -u)" -eq 0 ]; then
    as_root=""
elif command -v sudo > /dev/null 2>&1 && { sudo -n true 2> /dev/null || [ -t 0 ]; }; then
    as_root="sudo"
else
    echo "deps.sh: packages are missing; as root, run:" >&2
    echo "    apt-get update && apt-get install -y --no-install-recommends$missing" >&2
    exit 1
fi

echo "installing:$missing" >&2
# Fresh images come without package lists, and old lists name versions that are gone.
if [ -z "$(find /var/lib/apt/lists -name '*_Packages*' -mtime -7 2> /dev/null | head -n 1)" ]; then
    $as_root apt-get update -qq >&2
fi
install() {
    # shellcheck disable=SC2086
    $as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends $missing >&2
}
install || { $as_root apt-get update -qq >&2 && install; }
finish "$@"
