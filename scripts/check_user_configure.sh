#!/bin/sh
# `make run` installs the build packages of deps.sh and no others: configure where pkg-config knows no library
# but theirs. Exit status 77 where there is no dpkg to ask.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
command -v dpkg-query > /dev/null 2>&1 || exit 77

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/pc"
packages=$(sed -n '/^build_packages="/,/"$/{s/^build_packages=//;p}' "$root/scripts/deps.sh" | tr -d '"')
# shellcheck disable=SC2086
dpkg-query -L $packages | grep '/pkgconfig/.*\.pc$' | while read -r file; do
    ln -s "$file" "$folder/pc/"
done
[ -e "$folder/pc/jansson.pc" ] || { echo "check_user_configure.sh: no libraries in '$packages'" >&2; exit 1; }

# Libraries that these need in turn are looked up as ever.
cat > "$folder/pkg-config" << EOF
#!/bin/sh
for word; do
    case \$word in -* | *[0-9].[0-9]* | = | '>=') continue ;; esac
    [ -e "$folder/pc/\$word.pc" ] || exit 1
done
exec pkg-config "\$@"
EOF
chmod +x "$folder/pkg-config"
cmake -S "$root" -B "$folder/build" -DCMAKE_BUILD_TYPE=Release -DOB_CUDA=OFF \
    -DPKG_CONFIG_EXECUTABLE="$folder/pkg-config" > "$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }
grep 'left out' "$folder/log"
