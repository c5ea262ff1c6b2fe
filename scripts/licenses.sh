#!/usr/bin/env bash
# licenses.sh OUT LLAMA_SOURCE - collect the licences of all that an installation carries.
#
# Writes OUT/base for what is always installed, OUT/llama for llama.cpp's libraries, OUT/server for llama-server: a file per part,
# NAME.txt, and INDEX, a line per part with tabs between: file, licence, part and version, installed files that hold it.
# The texts come from the very sources that are built: of single-header libraries that carry theirs inside, the comment is
# taken out. What another llama.cpp release has not, is left out. What it has and this file does not know, or whose text is
# not where it is looked for, is said, and gets a line that says so: that is no reason not to build against that
# release, but the test install-licenses does not let it pass.
set -euo pipefail
[ $# -eq 2 ] || { sed -n '2s/^# //p' "$0" >&2; exit 2; }
root=$(cd "$(dirname "$0")/.." && pwd)
out=$1
src=$2
export LC_ALL=C

rm -rf "$out"
mkdir -p "$out/base" "$out/llama" "$out/server"

# row SET NAME LICENCE PART FILES
row() { printf '%s\t%s\t%s\t%s\n' "$2.txt" "$3" "$4" "$5" >>"$out/$1/INDEX"; }

# unknown SET NAME PART FILES
unknown() {
    echo "licenses: $3: its licence is not known here" >&2
    echo "The licence of this part was not found when sluice was built: see the source of llama.cpp." >"$out/$1/$2.txt"
    row "$1" "$2" 'not known' "$3" "$4"
}

# add SET NAME LICENCE PART FILES: standard input becomes SET/NAME.txt
add() {
    cat >"$out/$1/$2.txt"
    if grep -qiE 'copyright|public domain|warranty' "$out/$1/$2.txt"; then row "$@"; else unknown "$1" "$2" "$4" "$5"; fi
}

# What of these files is there.
any() {
    local file
    for file in "$@"; do [ ! -f "$file" ] || cat "$file"; done
}

# A comment of // lines at the beginning of a file; the first /* */ comment that matches a text; the last one of a file.
head_comment() { sed -n '/^\/\//!q; s/^\/\/ \{0,1\}//p' "$1"; }
comment_with() { any "$1" | awk -v text="$2" 'BEGIN { RS = "/[*]"; FS = "[*]/" } !found && index($1, text) { found = 1; print $1 }'; }
last_comment() { any "$1" | awk 'BEGIN { RS = "/[*]"; FS = "[*]/" } { last = $1 } END { print last }'; }
first_match() { [ ! -f "$1" ] || sed -nE "s/.*$2.*/\\1/p" "$1" | sed -n 1p; }

version=$(sed -n 's/^project(sluice VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
add base sluice MIT "sluice $version" 'bin/sluice lib/libsluice.a lib/sluice/libggml-sluice.so lib/sluice/libsluice-preload.so' <"$root/LICENSE"

add llama llama.cpp MIT 'llama.cpp with ggml' 'lib/sluice/libllama* lib/sluice/libggml* lib/sluice/llama-server lib/sluice/include' <"$src/LICENSE"
ops=$src/ggml/src/ggml-cpu/ops.cpp
if [ -f "$ops" ] && grep -q 'Jeffrey Quesnelle' "$ops"; then
    { grep -h 'Jeffrey Quesnelle' "$ops" | head -n 1 | sed 's/^ *\/\/ *//'; sed '1,/^Copyright/d' "$src/LICENSE"; } |
        add llama yarn MIT 'YaRN, in ggml' 'lib/sluice/libggml-cpu*'
fi
sgemm=$src/ggml/src/ggml-cpu/llamafile/sgemm.cpp
[ ! -f "$sgemm" ] || head_comment "$sgemm" | sed '/_$/,$d' | add llama llamafile MIT "llamafile's matrix multiplication, in ggml" 'lib/sluice/libggml-cpu*'

for name in uplot marked dompurify; do
    dir=$("$root/scripts/npm-package.sh" "$name")
    case $name in dompurify) licence=Apache-2.0 ;; *) licence=MIT ;; esac
    v=${dir##*/"$name"-} # NAME-VERSION-CHECKSUM
    v=${v%-*}
    add base "$name" "$licence" "$name $v, in the window's page" 'bin/sluice lib/libsluice.a lib/sluice/libggml-sluice.so' <"$dir/LICENSE"
done

# What llama-server is made of beside llama.cpp itself.
server='lib/sluice/llama-server lib/sluice/libllama-*'
media='lib/sluice/libmtmd*'
for dir in "$src"/vendor/*/ "$src"/vendor/hash/*/; do
    [ -d "$dir" ] || continue
    name=$(basename "$dir")
    case $name in
    cpp-httplib)
        v=$(first_match "$dir/httplib.h" 'CPPHTTPLIB_VERSION "([^"]*)"')
        add server "$name" MIT "cpp-httplib $v" "$server" < <(any "$dir/LICENSE" "$src/licenses/LICENSE-httplib") ;;
    nlohmann)
        v=$(first_match "$dir/json.hpp" '\|  version ([0-9.]+)')
        add server nlohmann-json MIT "JSON for Modern C++ $v" "$server" < <(any "$src/licenses/LICENSE-jsonhpp") ;;
    sheredom) comment_with "$dir/subprocess.h" 'public domain' | add server subprocess Unlicense 'subprocess.h' "$server" ;;
    stb)
        v=$(first_match "$dir/stb_image.h" 'stb_image - v([0-9.]+)')
        last_comment "$dir/stb_image.h" | add server stb_image 'MIT or Unlicense' "stb_image $v" "$media" ;;
    miniaudio)
        v=$(first_match "$dir/miniaudio.h" ' - v([0-9.]+) - ')
        last_comment "$dir/miniaudio.h" | add server miniaudio 'Unlicense or MIT-0' "miniaudio $v" "$media" ;;
    hash) ;; # the four below
    xxhash)
        v=$(any "$dir/xxhash.h" | sed -nE 's/^#define XXH_VERSION_(MAJOR|MINOR|RELEASE) +([0-9]+).*/\2/p' | paste -sd.)
        add server xxhash BSD-2-Clause "xxHash $v" "$media" < <(any "$dir/LICENSE") ;;
    sha1) comment_with "$dir/sha1.c" 'Public Domain' | sed '/Test Vectors/,$d' | add server sha1 'public domain' 'SHA-1 in C' "$media" ;;
    sha256) add server sha256 'public domain' 'SHA-256' "$media" < <(any "$dir/LICENSE") ;;
    rotate-bits) add server rotate-bits MIT 'rotate-bits' "$media" < <(any "$dir/LICENSE.md") ;;
    *) unknown server "$name" "vendor/$name of llama.cpp" "$server" ;;
    esac
done
