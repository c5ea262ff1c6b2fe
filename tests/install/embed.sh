#!/usr/bin/env bash
# embed.sh - examples/embed.c against the installed package, by pkg-config and by find_package; what it writes is what
# `sluice run` writes, and it streams. The example is short enough to be read.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/install/lib.sh
. "$here/lib.sh"
tree=$work/tree # found where it is, not where it was put
cp -a "$TREE" "$tree"
example=$tree/share/doc/sluice/examples

lines=$(wc -l <"$example/embed.c")
if [ "$lines" -lt 60 ]; then ok "the example has $lines lines"; else fail "the example has $lines lines"; fi

export PKG_CONFIG_PATH=$tree/lib/pkgconfig
same "pkg-config knows the version" "$("$tree/bin/sluice" --version | sed -n '1s/^sluice \([0-9.]*\) .*/\1/p')" "$(pkg-config --modversion sluice)"
# shellcheck disable=SC2046 # words are meant
works "cc with pkg-config" cc -std=c11 -Wall -Wextra -Werror -O1 "$example/embed.c" $(pkg-config --cflags --libs sluice) -o "$work/by-pkg-config"
unset PKG_CONFIG_PATH
works "cmake with find_package: configure" cmake -S "$example" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$tree"
works "cmake with find_package: build" cmake --build "$work/cmake"
sed 's/find_package(sluice 0.1/find_package(sluice 0.9/' "$example/CMakeLists.txt" >"$work/CMakeLists.txt"
cp "$example/embed.c" "$work"
if cmake -S "$work" -B "$work/newer" -DCMAKE_PREFIX_PATH="$tree" >"$work/out" 2>&1; then fail "find_package takes this for version 0.9"; else ok "find_package refuses another version"; fi

works "sluice run" "$tree/bin/sluice" run -m "$demo" -p "$prompt" -n 24 --temp 0 --cache 4MiB -q
cp "$work/out" "$work/wanted"
for program in by-pkg-config cmake/embed; do
    works "$program" "$work/$program" "$demo" 4 "$prompt" 24
    same "  the text of sluice run" "$(cat "$work/wanted")" "$(cat "$work/out")"
    if grep -q '^streaming 18 expert tensors' "$work/err"; then ok "  it streams"; else fail "  it does not stream: $(head -c 300 "$work/err")"; fi
done
for args in "/nonexistent 4 Hi 2" "$demo nonsense Hi 2" "$demo 0.01 Hi 2" "$demo 4"; do
    # shellcheck disable=SC2086 # words are meant
    if "$work/by-pkg-config" $args >"$work/out" 2>"$work/err"; then
        fail "embed $args: exit 0"
    elif grep -q '^embed: ' "$work/err" && [ ! -s "$work/out" ]; then
        ok "embed $args: $(grep '^embed: ' "$work/err" | cut -c1-100)"
    else
        fail "embed $args: $(head -c 300 "$work/err")"
    fi
done
finish
