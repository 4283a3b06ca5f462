#!/bin/sh
# Run every libFuzzer target for a time: `soak.sh BUILD_FOLDER SECONDS`. New inputs go to
# BUILD_FOLDER/corpus, crashes stay in BUILD_FOLDER; seeds come from fuzz/corpus.
set -eu
build=$1
seconds=$2
root=$(cd "$(dirname "$0")/.." && pwd)
found=0
for target in $(find "$build" -type f -name 'fuzz_*' -perm -u+x | LC_ALL=C sort); do
    name=$(basename "$target")
    name=${name#fuzz_}
    seeds="$root/fuzz/corpus/$name"
    mkdir -p "$build/corpus/$name"
    [ -d "$seeds" ] || seeds=""
    echo "fuzzing $name for $seconds s"
    # shellcheck disable=SC2086
    "$target" -max_total_time="$seconds" -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0 \
        -artifact_prefix="$build/crash-$name-" "$build/corpus/$name" $seeds
    found=1
done
[ $found -eq 1 ] || { echo "soak.sh: no fuzz_* program in $build" >&2; exit 1; }
