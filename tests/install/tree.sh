#!/usr/bin/env bash
# tree.sh - `cmake --install` with DESTDIR, the tree moved afterwards; the command, exec and serve in it while the build
# tree and the cache cannot be seen.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/install/lib.sh
. "$here/lib.sh"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/sluice

# Inside a mount namespace of its own, with empty directories in the place of what must not be needed.
if [ "${1:-}" = hidden ]; then
    tree=$2
    for dir in "$BUILD" "$cache"; do mount -t tmpfs none "$dir" || exit 3; done
    [ ! -e "$BUILD/bin/sluice" ] && [ ! -e "$LLAMA_BIN/libllama.so" ] || exit 3
    "$tree/bin/sluice" run -m "$demo" -p "$prompt" -n 24 --temp 0 --cache 4MiB -q || exit 1
    echo
    echo "== exec"
    "$tree/bin/sluice" exec -q -- "$tree/lib/sluice/llama-server" --list-devices || exit 1
    echo "== serve"
    coproc "$tree/bin/sluice" serve -m "$demo" --cache 4MiB -c 512 --port 0 --no-window 2>&1
    while IFS= read -r -t 120 line <&"${COPROC[0]}"; do
        case $line in
        api*) url=${line#api*http} ;;
        ready)
            curl -s "http${url}/completions" -d '{"prompt":[3,4],"max_tokens":2,"temperature":0}'
            echo
            break ;;
        *) echo "$line" ;;
        esac
    done
    kill -TERM "$COPROC_PID"
    wait "$COPROC_PID"
    exit
fi

rm -rf "$TREE"
DESTDIR=$work/stage works "cmake --install, DESTDIR" cmake --install "$BUILD" --prefix /opt/first
same "  nothing but the prefix is below DESTDIR" opt/first "$(cd "$work/stage" && echo *)/$(ls "$work/stage/opt")"
mkdir -p "$(dirname "$TREE")"
mv "$work/stage/opt/first" "$TREE"
works "cmake --install over an installation" cmake --install "$BUILD" --prefix "$TREE"
cp -a "$TREE" "$work/moved" # outside of the build tree

for file in bin/sluice lib/sluice/libggml-sluice.so lib/sluice/libsluice-preload.so lib/libsluice.a include/sluice.h \
    lib/sluice/libllama.so lib/sluice/include/llama.h lib/pkgconfig/sluice.pc lib/cmake/sluice/sluiceConfig.cmake \
    share/man/man1/sluice.1 share/bash-completion/completions/sluice share/doc/sluice/README.md; do
    [ -s "$TREE/$file" ] || fail "$file is not installed"
done
[ ! -e "$LLAMA_BIN/llama-server" ] || [ -x "$TREE/lib/sluice/llama-server" ] || fail "llama-server was built and is not installed"

# Search paths are relative, and every library is found in the tree or is the system's. The texts do not say where they
# were made, nor does the command (llama.cpp's assertions name its source files).
n=0
while read -r file; do
    paths=$(readelf -d "$file" 2>/dev/null | sed -nE 's/.*R(UN)?PATH.*\[(.*)\]/\2/p')
    case $paths in '' | '$ORIGIN' | '$ORIGIN/../lib/sluice') ;; *) fail "$file searches $paths" ;; esac
    lost=$(ldd "$file" 2>/dev/null | grep -E "not found|=> ($BUILD/bin|$cache)")
    [ -z "$lost" ] || fail "$file: $lost"
    n=$((n + 1))
done < <(find "$work/moved/bin" "$work/moved/lib/sluice" -type f ! -name '*.h')
if [ "$n" -ge 7 ]; then ok "$n programs and libraries find each other"; else fail "only $n programs and libraries"; fi
told=$(grep -rlaF -e "$BUILD/" -e "$LLAMA_BIN" "$work/moved/bin" "$work/moved/lib/cmake" "$work/moved/lib/pkgconfig" "$work/moved/share" \
    "$work"/moved/lib/sluice/lib*sluice*.so)
[ -z "$told" ] || fail "the place of the build is in: $told"

same "sluice --version is the build tree's" "$("$BUILD/bin/sluice" --version)" "$("$work/moved/bin/sluice" --version)"
works "sluice --version --json" "$work/moved/bin/sluice" --version --json
for key in sluice llama_cpp llama_cpp_commit llama_cpp_build ggml cpu_backend_linked_in cpu_features assertions sanitizer; do
    grep -q "\"$key\": " "$work/out" || fail "--version --json has no $key"
done

"$BUILD/bin/sluice" run -m "$demo" -p "$prompt" -n 24 --temp 0 --cache 4MiB -q >"$work/wanted" 2>"$work/err" ||
    fail "the build tree's sluice run: $(head -c 300 "$work/err")"
alone=(unshare --mount)
[ "$(id -u)" = 0 ] || alone=(unshare --map-root-user --mount)
if ! "${alone[@]}" mount -t tmpfs none "$BUILD" 2>/dev/null; then
    echo "note: no mount namespace is allowed here: the build tree and the cache stay visible"
    works "sluice run of a moved tree" "$work/moved/bin/sluice" run -m "$demo" -p "$prompt" -n 24 --temp 0 --cache 4MiB -q
    same "  the same text" "$(cat "$work/wanted")" "$(cat "$work/out")"
    finish
fi
works "run, exec, serve of a moved tree, without build tree and cache" "${alone[@]}" bash "$here/tree.sh" hidden "$work/moved"
same "  run: the same text" "$(cat "$work/wanted")" "$(sed '/^== exec/,$d' "$work/out")"
if sed -n '/^== exec/,/^== serve/p' "$work/out" | grep -qi sluice; then ok "  exec: the plug-in's device is there"; else fail "  exec: no device: $(cat "$work/out" "$work/err" | tail -n 20)"; fi
if sed -n '/^== serve/,$p' "$work/out" | grep -q '"text"'; then ok "  serve: an answer"; else fail "  serve: no answer: $(tail -n 20 "$work/out")"; fi
if sed -n '/^== serve/,$p' "$work/out" | grep -q 'sluice: streaming '; then ok "  serve: it streams"; else fail "  serve does not stream: $(tail -n 20 "$work/out")"; fi
finish
