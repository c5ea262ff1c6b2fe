#!/usr/bin/env bash
# circles.sh ROOT BUILD - no more than three files of src may need each other in a circle.
#
# A file needs another one when it includes it, or when it calls a function of it or uses a variable of it, as the
# symbols of the object files in BUILD tell (a call through a pointer is not seen, and is the way to hand something to a
# lower layer). Files that need each other directly or through others form a circle: nobody can read, test or change one
# of them without the rest. Two or three that share one job are allowed.
#
# Before ROOT is judged, made-up files are: a check that finds no circle there finds none anywhere. Exit code 1 on any
# circle of more than three.
set -euo pipefail
export LC_ALL=C
most=3

# The includes among files of src, as lines `file file`.
includes() { # ROOT
    (cd "$1/src" && find . \( -name '*.c' -o -name '*.h' \) -type f | sed 's|^\./||' | sort | while read -r f; do
        sed -nE 's|^[[:space:]]*#[[:space:]]*include[[:space:]]*"([a-z_]+/[a-z0-9_]+)\.h".*|\1.h|p' "$f" | sed "s|^|$f |"
    done)
}

# Symbols that object files define and use, as lines `file D|U symbol`.
symbols() { # ROOT BUILD
    find "$2" -name '*.c.o' -path '*.dir/src/*' -not -path '*/tests/*' | sort | while read -r o; do
        local file=${o##*.dir/src/}
        [ -f "$1/src/${file%.o}" ] || continue # of a file that was there when BUILD was made
        nm -P "$o" | awk -v m="${file%.o}" '$2 ~ /^[TDBRVWC]$/ { print m, "D", $1 } $2 == "U" { print m, "U", $1 }'
    done
}

# The circles of more than $most files, one per line. Reads `file file` and `file D|U symbol` in any order.
circles() {
    awk -v most="$most" '
        NF == 2 && $1 != $2 { edge[$1, $2]; node[$1]; node[$2] }
        NF == 3 && $2 == "D" { home[$3] = $1; node[$1] }
        NF == 3 && $2 == "U" { use[$1, $3] }
        END {
            for (k in use) {
                split(k, p, SUBSEP)
                if ((p[2] in home) && home[p[2]] != p[1]) edge[p[1], home[p[2]]]
            }
            for (k in edge) { split(k, p, SUBSEP); next_of[p[1]] = next_of[p[1]] " " p[2] }
            for (n in node) reach_from(n)
            for (n in node) {
                line = n; size = 1
                for (m in node) if (m != n && ((n, m) in reach) && ((m, n) in reach)) { size++; line = line " " m }
                if (size > most && !(n in said)) {
                    count = split(line, member, " ")
                    for (i = 1; i <= count; i++) said[member[i]]
                    print size " files: " line
                }
            }
        }
        function reach_from(n,    queue, head, tail, part, count, i) {
            queue[0] = n; tail = 1
            for (head = 0; head < tail; head++) {
                count = split(next_of[queue[head]], part, " ")
                for (i = 1; i <= count; i++) if (!((n, part[i]) in reach)) { reach[n, part[i]]; queue[tail++] = part[i] }
            }
        }
    '
}

self_test() {
    local four="a/one a/two
a/two D f
a/three U f
a/three D g
a/two U g
a/four a/one
a/three a/four
a/two U h
b/five D h" three="a/one a/two
a/two a/three
a/three U f
a/one D f
a/four a/one"
    circles <<<"$four" | grep -q '^4 files: ' || { echo "self-test: a circle of four was not found"; return 1; }
    [ -z "$(circles <<<"$three")" ] || { echo "self-test: a circle of three was refused"; return 1; }
}

[ $# -eq 2 ] || { sed -n '2s/^# //p' "$0" >&2; exit 2; }
self_test || exit 1
edges=$(includes "$1"; symbols "$1" "$2")
[ "$(grep -c ' U ' <<<"$edges")" -gt 500 ] || { echo "circles: no objects of src in $2"; exit 1; }
found=$(circles <<<"$edges")
[ -z "$found" ] || { echo "$found"; exit 1; }
echo "no circle of more than $most files among $(cut -d' ' -f1 <<<"$edges" | sort -u | grep -c .)"
