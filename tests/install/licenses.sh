#!/usr/bin/env bash
# licenses.sh - everything that an installation carries has its licence there, and docs/dependencies.md tells of it.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/install/lib.sh
. "$here/lib.sh"
dir=$TREE/share/doc/sluice/licenses
index=$dir/INDEX
doc=$TREE/share/doc/sluice/docs/dependencies.md

# Each binary, and each directory of headers, is named by some line of the index; and by llama.cpp's own if it is llama.cpp's.
covered() { # FILE
    local file licence part patterns pattern
    while IFS=$'\t' read -r file licence part patterns; do
        for pattern in $patterns; do
            # shellcheck disable=SC2053 # a pattern
            [[ $1 == $pattern && -s $dir/$file && -n $licence && -n $part ]] && return 0
        done
    done <"$index"
    return 1
}
n=0
while read -r file; do
    covered "$file" || fail "$file: no licence"
    n=$((n + 1))
done < <(cd "$TREE" && find bin lib -type f \( -perm -u+x -o -name '*.so*' -o -name '*.a' \) ! -name '*.h' && echo lib/sluice/include)
if [ "$n" -ge 8 ]; then ok "$n binaries have a licence"; else fail "only $n binaries"; fi
if covered lib/sluice/libstranger.so; then fail "a library that nobody knows has a licence"; else ok "one that nobody knows has none"; fi

# The rows of the index, its files and the table of dependencies.md say the same.
rows=$(sed -n '/^## What an installation carries/,$p' "$doc" | grep -E '^\| .*\.txt` \|')
[ "$(wc -l <<<"$rows")" -ge 7 ] || fail "dependencies.md: $(wc -l <<<"$rows") rows"
while IFS=$'\t' read -r file licence part _; do
    grep -qiE 'copyright|public domain|warranty' "$dir/$file" || fail "$file is no licence"
    row=$(grep -F "\`$file\`" <<<"$rows")
    grep -qF -- "$licence" <<<"$row" || fail "dependencies.md: $file is not $licence: '$row'"
    version=$(grep -oE ' [0-9]+(\.[0-9]+)+' <<<"$part" | head -n 1)
    [ "${part%% *}" = sluice ] || grep -qF -- "${version# }" <<<"$row" || fail "dependencies.md: $file is not version$version: '$row'"
done <"$index"
same "a file for each row of the index" "$(cut -f1 "$index" | sort)" "$(cd "$dir" && ls -- *.txt)"
server=$([ -x "$TREE/lib/sluice/llama-server" ] && echo yes)
while IFS= read -r row; do
    file=$(grep -oE '[a-z0-9._-]+\.txt`' <<<"$row" | tr -d '`')
    if [ -s "$dir/$file" ] || { [ -z "$server" ] && grep -q 'llama-server' <<<"$row"; }; then ok "$file"; else fail "dependencies.md names $file, which is not installed"; fi
done <<<"$rows"

# What is in there by its own witness: the page's libraries, and llama-server's.
grep -qaF DOMPurify "$TREE/bin/sluice" || fail "no DOMPurify in bin/sluice: is the table still right?"
[ -z "$server" ] || grep -qaF nlohmann "$TREE"/lib/sluice/libllama-common.so* || fail "no nlohmann json in libllama-common"
finish
