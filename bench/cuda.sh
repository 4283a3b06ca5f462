#!/usr/bin/env bash
# Build, check and time the CUDA backend on a machine with a GPU, in one run, and leave a table.
#
#   bench/cuda.sh [-b BUILD] [-o OUT] [-s SHAPES] [STAGE...]
#
# BUILD: a folder with a finished build (default: build, made when it is not there). OUT: where logs and
# the table go (default: BUILD/cuda). SHAPES: comma-separated, default bonsai-8b,bonsai-27b. Stages:
# ops, models, kl, decode, phases, prefill, depth, batch, sanitizer; default: all but the last.
set -uo pipefail
cd "$(dirname "$0")/.."
build=build out="" shapes=bonsai-8b,bonsai-27b
while getopts b:o:s:h option; do
    case $option in
    h) sed -n '2,9s/^# \{0,1\}//p' "$0" && exit 0 ;;
    b) build=$OPTARG ;;
    o) out=$OPTARG ;;
    s) shapes=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
out=${out:-$build/cuda}
stages=${*:-ops models kl decode phases prefill depth batch}
mkdir -p "$out"
table=$out/table.txt
: > "$table"
if [ ! -x "$build/onebit" ]; then
    cmake -B "$build" -G Ninja && cmake --build "$build" || exit 1
fi
failed=0

row() { printf '%-34s %s\n' "$1" "$2" | tee -a "$table"; }

check() { # check NAME COMMAND...: its last line, and whether it succeeded
    local name=$1 start=$SECONDS verdict=ok
    shift
    if ! "$@" > "$out/$name.log" 2>&1; then
        verdict=FAILED failed=1
        tail -n 25 "$out/$name.log"
    fi
    row "$name" "$verdict ($((SECONDS - start)) s): $(tail -n 1 "$out/$name.log" | cut -c1-90)"
}

models=${TMPDIR:-/tmp}
model_of() { # made once for all stages
    [ -e "$models/$1.gguf" ] || "$build/onebit" synth -q --shape "$1" "$models/$1.gguf" >&2
    echo "$models/$1.gguf"
}

measure() { # measure NAME SHAPE OPTIONS...
    local name=$1 shape=$2
    shift 2
    if ! "$build/onebit" bench --backend cuda -m "$(model_of "$shape")" "$@" \
        > "$out/$name-$shape.json" 2> "$out/$name-$shape.err"; then
        failed=1
        row "$name $shape" "FAILED: $(cat "$out/$name-$shape.err")"
    fi
    grep -v '"machine"' "$out/$name-$shape.json" | while read -r line; do
        field() { sed "s/.*\"$1\": *\"\{0,1\}\([^,}\"]*\).*/\1/" <<< "$line"; }
        row "$shape $(field test) $(field tokens) at $(field depth) x $(field batch)" \
            "$(field tps_median) tokens/s ($(field tps_min) to $(field tps_max))"
    done
}

for stage in $stages; do
    case $stage in
    ops) check ops "$build/tests/check_backend" --backend cuda -v ;;
    models) check models "$build/tests/test_cuda" ;;
    kl) check kl "$build/onebit" check kl --backend cuda --tokens tests/data/demo/ppl_tokens.u16 ;;
    sanitizer)
        check memcheck compute-sanitizer --tool memcheck --error-exitcode 1 \
            "$build/tests/check_backend" --backend cuda
        check racecheck compute-sanitizer --tool racecheck --error-exitcode 1 \
            "$build/tests/check_backend" --backend cuda
        ;;
    *)
        for shape in ${shapes//,/ }; do
            case $stage in
            decode) measure decode "$shape" --prefill '' --decode 128 --repeat 3 ;;
            prefill) measure prefill "$shape" --prefill 4096 --decode 1 --repeat 2 --chunk 4096 ;;
            depth) measure depth "$shape" --prefill '' --decode 64 --depth 32768 --repeat 1 --chunk 4096 ;;
            phases) "$build/tests/cuda_phases" "$(model_of "$shape")" | tee -a "$table" ;;
            batch) measure batch "$shape" --prefill '' --decode 32 --batch 64 --repeat 2 ;;
            *) echo "cuda.sh: unknown stage '$stage'" >&2 && exit 2 ;;
            esac
        done
        ;;
    esac
done
echo "=== table"
cat "$table"
exit $failed
