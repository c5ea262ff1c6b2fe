#!/usr/bin/env bash
# node.sh RELEASE - node-llama-cpp with its prebuilt libraries of a llama.cpp release streams, and generates the text that it
# generates without the plug-in: with GGML_BACKEND_PATH, and started by `sluice exec`.
#
# The two packages come from scripts/llama.sh, which has their checksums; what they depend on is locked beside this file
# (package-lock.json: checksums, no addresses). Nothing of the packages is run while they are installed. Skipped where
# they cannot be had or Node.js is too old for them. Environment: WORK, a directory.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/releases/lib.sh
. "$here/../releases/lib.sh"
[ $# = 1 ] || { sed -n '2,3p' "$0" >&2; exit 2; }
release=$1
: "${WORK:?}"
for v in "${!SLUICE_@}"; do unset "$v"; done
unset GGML_BACKEND_PATH v
export OMP_WAIT_POLICY=passive

command -v node >/dev/null || skip "there is no Node.js"
major=$(node -p 'process.versions.node.split(".")[0]')
[ "$major" -ge 20 ] || skip "node-llama-cpp wants Node.js 20, this is $(node --version)"

build_release "$release" npm lib "$WORK/$release-npm" ggml-sluice sluice sluice-preload
dir=$WORK/$release-npm/node
mkdir -p "$dir"
packages=$("$root/scripts/llama.sh" node npm "$release" 2>"$dir/fetch.log" | sed -n 's/^node=//p') || true
[ -n "$packages" ] || skip "$(tail -n 1 "$dir/fetch.log")"

stamp=$(cat "$here/package.json" "$here/package-lock.json" <(echo "$packages") | sha256sum)
if [ "$(cat "$dir/stamp" 2>/dev/null)" != "$stamp" ]; then
    rm -rf "$dir/node_modules" "$dir/stamp"
    cp "$here/package.json" "$here/package-lock.json" "$dir/"
    (cd "$dir" && npm ci --omit=optional --ignore-scripts --no-audit --no-fund --prefer-offline) >"$dir/npm.log" 2>&1 || {
        if grep -qE 'E404|ENOTFOUND|ETIMEDOUT|EAI_AGAIN|ECONN' "$dir/npm.log"; then skip "npm could not fetch what node-llama-cpp needs"; fi
        tail -n 20 "$dir/npm.log"
        exit 1
    }
    cp -r "$packages/node-llama-cpp" "$dir/node_modules/"
    mkdir -p "$dir/node_modules/@node-llama-cpp"
    cp -r "$packages/linux-x64" "$dir/node_modules/@node-llama-cpp/"
    echo "$stamp" >"$dir/stamp"
fi
cp "$here/generate.mjs" "$dir/"
cd "$dir"

failures=0
fail() { failures=$((failures + 1)); echo "FAIL $*"; }
counter() { grep -oE "\"$2\": *[0-9]+" "$1" 2>/dev/null | head -n 1 | sed 's/.*: *//'; }
program=(node generate.mjs "$root/models/demo.gguf" $'Request: Tell me a story about a baker.\n\n' 32)

"${program[@]}" >want.json 2>want.log || { tail -n 5 want.log; echo "FAIL node-llama-cpp without the plug-in"; exit 1; }
grep -q "\"build\":\"prebuilt\",\"release\":\"$release\",\"text\":\"[^\"]\{40,\}" want.json || {
    echo "FAIL node-llama-cpp alone: $(head -c 300 want.json)"
    exit 1
}

# LABEL COMMAND...: the same text, and the counters show that experts were read, reused and evicted
same() {
    local label=$1 key bad=
    shift
    rm -f stats.json got.json
    if ! env SLUICE_STATS="$dir/stats.json" SLUICE_CACHE=3MiB SLUICE_FORCE_CACHE=1 "$@" >got.json 2>got.log; then
        fail "$label: $(tail -n 1 got.log)"
        return
    fi
    cmp -s want.json got.json || bad="; says something else: $(head -c 200 got.json)"
    for key in tensors read_bytes_total hits_total evictions; do
        [ "$(counter stats.json $key)" -gt 0 ] 2>/dev/null || bad="$bad; $key is $(counter stats.json $key)"
    done
    if [ -n "$bad" ]; then fail "$label${bad/;/:}"; else
        echo "ok   $label: the same $(wc -c <want.json) bytes; $(counter stats.json tensors) tensors stream," \
            "$(counter stats.json read_bytes_total) bytes read, $(counter stats.json evictions) evictions"
    fi
}
same "node-llama-cpp of $release, GGML_BACKEND_PATH" env GGML_BACKEND_PATH="$BIN/libggml-sluice.so" "${program[@]}"
same "node-llama-cpp of $release, sluice exec" "$BIN/sluice" exec -- "${program[@]}"
[ "$failures" -eq 0 ]
