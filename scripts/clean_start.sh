#!/usr/bin/env bash
# The README's two commands on an empty machine, timed: a fresh Debian made by debootstrap in a temporary
# folder, with git and make added as the README asks for, and nothing else. Needs root, debootstrap and
# a Debian mirror; takes a few minutes and 2 GB. Not part of `make test`; docs/clean_start.md keeps the outcome.
# usage: scripts/clean_start.sh [SUITE]     MIRROR=http://... for another mirror
set -euo pipefail
cd "$(dirname "$0")/.."
suite=${1:-bookworm}
mirror=${MIRROR:-http://deb.debian.org/debian}

[ "$(id -u)" -eq 0 ] || { echo "clean_start.sh: a chroot needs root" >&2; exit 2; }
command -v debootstrap > /dev/null || { echo "clean_start.sh: install debootstrap" >&2; exit 2; }

root=$(mktemp -d)
chmod 755 "$root" # apt downloads as a user of its own
trap 'umount "$root/proc" 2> /dev/null || true; rm -rf --one-file-system "$root"' EXIT

inside() { chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 "$@"; }

timed() { # timed NAME COMMAND...: a line with the seconds it took, on stdout
    local name=$1 start=$SECONDS
    shift
    "$@" >&2
    printf '%5d s  %s\n' $((SECONDS - start)) "$name"
}

start_chat() { printf 'Hello!\nWhat is a river?\n' | inside make -C onebit run; }

debootstrap --variant=minbase "$suite" "$root" "$mirror" > /dev/null
mount -t proc proc "$root/proc"
inside apt-get install -y -qq --no-install-recommends git make > /dev/null
git clone -q --bare . "$root/srv/onebit.git"
printf 'empty machine: Debian %s, %d packages\n' "$(cat "$root/etc/debian_version")" \
    "$(inside dpkg-query -f '.\n' -W | wc -l)"

timed "git clone /srv/onebit.git onebit" inside git -c safe.directory='*' clone -q /srv/onebit.git onebit
timed "make -C onebit run: packages, build, two questions answered" start_chat
printf 'second time, nothing to install or build:\n'
timed "make -C onebit run" start_chat
