#!/bin/sh
# The rules a reader relies on and a compiler does not know:
#   - a file includes only headers of its own folder or of folders of a lower layer;
#   - no .c or .h file is longer than 1500 lines;
#   - the library (src/) never exits, aborts, prints or reads the environment.
# `check_layers.sh [FOLDER]` checks a source tree; `--self-test` proves that violations are found.
set -eu

check_tree() {
    cd "$1"
    find src cli include tests fuzz tools bench -name '*.[ch]' 2> /dev/null | LC_ALL=C sort |
        xargs awk '
        BEGIN {
            n = split("base 0 quant 1 text 1 sample 1 kernel 2 plan 2 file 2 backend 3 model 4 " \
                      "run 5 serve 6 lab 6 train 6 cli 7", word, " ")
            for (i = 1; i < n; i += 2)
                layer[word[i]] = word[i + 1]
        }
        function complain(text) {
            printf "%s:%d: %s\n", FILENAME, FNR, text
            bad = 1
        }
        # The text of a line without string literals and comments that start and end on it.
        function code_of(line) {
            gsub(/\\./, "", line)
            gsub(/"[^"]*"/, "\"\"", line)
            gsub(/\/\*([^*]|\*[^\/])*\*\//, "", line)
            sub(/\/\/.*/, "", line)
            sub(/\/\*.*/, "", line)
            if (line ~ /^[ \t]*\*/)
                return ""
            return line
        }
        FNR == 1 {
            # The folder that owns the file: src/NAME/..., cli/...; tests may include anything.
            parts = split(FILENAME, path, "/")
            folder = path[1] == "src" ? path[2] : path[1] == "cli" ? "cli" : ""
            if (path[1] == "src" && (parts < 3 || !(folder in layer)))
                complain("src/" folder " is not a layer; add it to ARCHITECTURE.md and this script")
        }
        FNR == 1501 {
            complain("more than 1500 lines: split it")
        }
        folder != "" && /^[ \t]*#[ \t]*include[ \t]*"/ {
            name = $0
            sub(/^[^"]*"/, "", name)
            sub(/".*/, "", name)
            if (name ~ /\.\./)
                complain("\"" name "\": includes never go up")
            else if (name ~ /\//) {
                target = name
                sub(/\/.*/, "", target)
                if (!(target in layer))
                    complain("\"" name "\": " target " is not a layer")
                else if (target != folder && layer[target] + 0 >= layer[folder] + 0)
                    complain("\"" name "\": " folder " (layer " layer[folder] ") may not see " \
                             target " (layer " layer[target] ")")
            }
            next
        }
        path[1] == "src" {
            code = code_of($0)
            if (match(code, /(^|[^A-Za-z0-9_.>])(exit|_exit|_Exit|quick_exit|abort|printf|vprintf|puts|putchar|fprintf|vfprintf|fputs|fputc|perror|assert|getenv|secure_getenv|setenv)[ \t]*\(/))
                complain("the library never exits, prints or reads the environment: " \
                         substr(code, RSTART, RLENGTH) "...)")
        }
        END { exit bad }
        '
}

# Each case must be refused; the clean tree must pass.
self_test() {
    root=$(mktemp -d)
    trap 'rm -rf "$root"' EXIT
    fails=0
    plant() { # plant FILE TEXT
        rm -rf "$root/tree"
        mkdir -p "$root/tree/src/base" "$root/tree/src/text" "$root/tree/src/run" "$root/tree/cli"
        echo '#include "base/error.h"' > "$root/tree/src/text/good.c"
        echo '#include "run/model.h"' > "$root/tree/cli/good.c"
        printf '/* printf( in a comment */\nconst char *s = "exit(1)"; int n = snprintf(b, 1, "x");\n' \
            > "$root/tree/src/base/good.c"
        [ -z "$1" ] || { mkdir -p "$root/tree/$(dirname "$1")" && printf "$2" > "$root/tree/$1"; }
    }
    refused() { # refused FILE TEXT
        plant "$1" "$2"
        if (check_tree "$root/tree") > /dev/null 2>&1; then
            echo "self-test: not refused: $1: $2" >&2
            fails=1
        fi
    }
    plant "" ""
    (check_tree "$root/tree") || { echo "self-test: the clean tree was refused" >&2; fails=1; }
    refused src/base/bad.h '#include "run/model.h"\n'
    refused src/text/bad.c '#include "sample/chain.h"\n'
    refused src/run/bad.c '  # include "lab/report.h"\n'
    refused src/run/bad.c '#include "../base/error.h"\n'
    refused src/run/bad.c '#include "vendor/thing.h"\n'
    refused src/extra/bad.c 'int x;\n'
    refused src/run/bad.c 'void f(void) { exit(1); }\n'
    refused src/run/bad.c 'void f(void) {\n    abort();\n}\n'
    refused src/run/bad.c 'void f(void) { printf("x"); }\n'
    refused src/run/bad.c 'const char *f(void) { return getenv("HOME"); }\n'
    refused cli/bad.c "$(awk 'BEGIN { for (i = 0; i < 1501; i++) printf "int x%d;\\n", i }')\n"
    [ $fails -eq 0 ] && echo "check_layers: self-test passed"
    return $fails
}

case ${1:-} in
--self-test) self_test ;;
*)
    (check_tree "${1:-$(dirname "$0")/..}") || {
        echo "check_layers: see the lines above and the layers in ARCHITECTURE.md" >&2
        exit 1
    }
    ;;
esac
