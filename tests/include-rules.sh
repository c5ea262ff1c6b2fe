#!/usr/bin/env bash
# include-rules.sh [ROOT] - which folder may include what (docs/architecture.md: dependencies point down only).
#
#   src/cache, src/memory  nothing of ggml and llama.cpp
#   src/cache              nothing of the other folders
#   src/memory             of the other folders only cache/error.h
#   src/observe            of the other folders only cache, memory and trace; no ggml and llama.cpp
#   src/trace              of the other folders only cache/error.h, cache/policy.h and cache/classes.h; no ggml and llama.cpp
#   src/window             of the other folders only observe, of cache engine.h, error.h, clock.h and check.h, of memory address.h, process.h and
#                          settings.h; no ggml and llama.cpp; alone it includes microhttpd.h
#   src/bench              of the other folders only cache/error.h and memory/cgroup.h; no ggml and llama.cpp
#   src/gguf               of the other folders only cache/error.h; ggml, but not llama.cpp
#   src/ggml               cache, memory, observe, trace, gguf and window/watch.h; alone it includes ggml's backend interface; not llama.h
#   src/selftest           ggml and cache; not llama.h
#   src/api                ggml, selftest, cache, memory and observe: it is the top of the library
#   src/run                no ggml-backend-impl.h and nothing of cli; alone it includes llama.h
#   src/cli                run, memory, observe, bench, trace, gguf and preload's mapping, but neither llama.h nor ggml nor cache
#   src/preload            nothing: it is loaded into programs that do not link us
#   include                standard headers only
#   tests, tools           no ggml-backend-impl.h
#
# Before ROOT is judged, a made-up tree with one violation of each rule is: a check that finds nothing there
# finds nothing anywhere. Exit code 1 on any violation.
set -euo pipefail
export LC_ALL=C

# Every include of the C files of a tree, as lines `file header`.
includes() { # ROOT
    (cd "$1" && find src include tests tools \( -name '*.c' -o -name '*.h' \) -type f 2>/dev/null | sort | while read -r f; do
        # shellcheck disable=SC2001
        sed -nE 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]([^>"]+)[>"].*/\1/p' "$f" | sed "s|^|$f |"
    done)
}

# The violations among them, one per line.
violations() { # ROOT
    includes "$1" | awk '
        function bad(why) { print $1 " includes " $2 ": " why }
        {
            folder = $1
            sub(/\/[^\/]*$/, "", folder)
            header = $2
            base = header
            sub(/.*\//, "", base)
            top = header ~ /\// ? header : ""
            sub(/\/.*/, "", top)
            ours = top ~ /^(cache|memory|trace|bench|gguf|window|ggml|selftest|api|observe|run|cli|preload)$/
            llama = !ours && base ~ /^llama.*\.h$/
            ggml = !ours && base ~ /^(ggml|gguf).*\.h$/
        }
        header ~ /\.\.\// { bad("paths start at src/ or include/") }
        base == "ggml-backend-impl.h" && folder !~ /^src\/ggml/ { bad("only src/ggml knows the backend interface") }
        llama && folder !~ /^(src\/run|tests|tools)/ { bad("only src/run (and tests, tools) may use llama.cpp") }
        ggml && folder ~ /^(src\/(cache|memory|observe|trace|bench|window|preload|cli)|include)/ && base != "ggml-backend-impl.h" { bad("no ggml here") }
        folder ~ /^src\/cache/ && ours && top != "cache" { bad("src/cache stands on nothing") }
        folder ~ /^src\/memory/ && ours && top != "memory" && header != "cache/error.h" { bad("src/memory may use cache/error.h only") }
        folder ~ /^src\/observe/ && ours && top !~ /^(observe|cache|memory|trace)$/ { bad("src/observe may use src/cache, src/memory and src/trace only") }
        folder ~ /^src\/trace/ && ours && top != "trace" && header !~ /^cache\/(error|policy|classes)\.h$/ { bad("src/trace may use cache/error.h, cache/policy.h and cache/classes.h only") }
        folder ~ /^src\/bench/ && ours && top != "bench" && header !~ /^(cache\/error|memory\/cgroup)\.h$/ { bad("src/bench may use cache/error.h and memory/cgroup.h only") }
        folder ~ /^src\/window/ && ours && top !~ /^(window|observe)$/ && header !~ /^(cache\/(engine|error|clock|check)|memory\/(address|process|settings))\.h$/ { bad("src/window may use of cache engine.h, error.h, clock.h and check.h, of memory address.h, process.h and settings.h only") }
        base == "microhttpd.h" && folder !~ /^src\/window/ { bad("only src/window serves HTTP") }
        folder ~ /^src\/gguf/ && ours && top != "gguf" && header != "cache/error.h" { bad("src/gguf may use ggml and cache/error.h only") }
        folder ~ /^src\/ggml/ && ours && top !~ /^(ggml|cache|memory|observe|trace|gguf)$/ && header !~ /^window\/watch\.h$/ { bad("dependencies point down") }
        folder ~ /^src\/selftest/ && ours && top !~ /^(selftest|ggml|cache)$/ { bad("dependencies point down") }
        folder ~ /^src\/api/ && ours && top !~ /^(api|selftest|ggml|cache|memory|observe)$/ { bad("dependencies point down") }
        folder ~ /^src\/run/ && ours && top !~ /^(run|ggml|cache|memory|observe|gguf)$/ { bad("dependencies point down") }
        folder ~ /^src\/cli/ && ours && top ~ /^(cache|ggml|selftest|api|window)$/ { bad("the command asks the runner") }
        folder ~ /^src\/preload/ && (ours && top != "preload" || header == "sluice.h") { bad("src/preload stands alone") }
        folder ~ /^include/ && (ours || header ~ /"/) { bad("the public header stands alone") }
    '
}

self_test() {
    local tree found missed=0 file header
    tree=$(mktemp -d)
    # shellcheck disable=SC2064
    trap "rm -rf '$tree'" RETURN
    # Nothing is wrong with these.
    mkdir -p "$tree"/src/{cache,memory,observe,trace,bench,gguf,window,ggml,selftest,api,run,cli,preload} "$tree"/include "$tree"/tests/gates "$tree"/tools
    printf '#include <stdio.h>\n#include "cache/error.h"\n#include "sluice.h"\n/* #include "llama.h" in a comment */\n' \
        | tee "$tree/src/cache/good.c" "$tree/src/bench/good.c" >"$tree/src/memory/good.c"
    printf '#include "cache/policy.h"\n#include "cache/classes.h"\n#include "cache/error.h"\n' >"$tree/src/trace/good.c"
    printf '#include "window/impl.h"\n#include "memory/address.h"\n#include "cache/clock.h"\n#include "cache/check.h"\n#include <microhttpd.h>\n' >"$tree/src/window/good.c"
    printf '#include "gguf.h"\n#include "gguf/gguf_reader.h"\n#include "cache/error.h"\n' >"$tree/src/gguf/good.c"
    printf '#include "gguf/gguf_check.h"\n#include "ggml-backend-impl.h"\n#include "cache/engine.h"\n#include "window/watch.h"\n#include "memory/budget.h"\n#include "trace/trace.h"\n' >"$tree/src/ggml/good.c"
    printf '#include "gguf/gguf_check.h"\n#include "preload/mapping.h"\n' >"$tree/src/cli/good.c"
    printf '#include "llama.h"\n#include "sluice.h"\n' | tee "$tree/src/run/good.c" "$tree/tools/good.c" >"$tree/tests/gates/good.c"
    found=$(violations "$tree")
    [ -z "$found" ] || { echo "self-test: refused what is allowed: $found"; return 1; }
    # Each of these is.
    while read -r file header; do
        printf '#include <stdint.h>\n  #  include "%s" // x\n' "$header" >"$tree/$file"
        found=$(violations "$tree")
        if [ "$(grep -c . <<<"$found")" -lt 1 ] || ! grep -qF "$file includes $header: " <<<"$found"; then
            echo "self-test: $file may include $header"
            missed=1
        fi
        rm "$tree/$file"
    done <<'RULES'
src/cache/bad.c ggml.h
src/cache/bad.h ggml-backend.h
src/cache/bad.c ggml-backend-impl.h
src/cache/bad.c llama.h
src/cache/bad.c memory/limits.h
src/cache/bad.c ggml/backend.h
src/cache/bad.c run/runner.h
src/cache/bad.c ../memory/limits.h
src/memory/bad.c ggml.h
src/memory/bad.c gguf.h
src/memory/bad.c llama.h
src/memory/bad.c ggml/maps.h
src/memory/bad.c cache/engine.h
src/observe/bad.c ggml.h
src/observe/bad.c ggml/backend.h
src/observe/bad.c window/window.h
src/trace/bad.c ggml.h
src/trace/bad.c llama.h
src/trace/bad.c cache/engine.h
src/trace/bad.c cache/slots.h
src/trace/bad.c memory/limits.h
src/trace/bad.c ggml/tracing.h
src/cache/bad.c trace/trace.h
src/memory/bad.c trace/trace.h
src/bench/bad.c ggml.h
src/bench/bad.c llama.h
src/bench/bad.c cache/io.h
src/bench/bad.c run/runner.h
src/window/bad.c ggml.h
src/window/bad.c llama.h
src/window/bad.c cache/slots.h
src/window/bad.c memory/limits.h
src/window/bad.c ggml/backend.h
src/ggml/bad.c window/impl.h
src/ggml/bad.c microhttpd.h
src/cli/bad.c microhttpd.h
src/cli/bad.c window/window.h
src/cache/bad.c window/window.h
src/gguf/bad.c llama.h
src/gguf/bad.c cache/engine.h
src/cache/bad.c gguf/gguf_check.h
src/memory/bad.c gguf/gguf_check.h
src/trace/bad.c gguf/gguf_check.h
src/ggml/bad.c bench/stats.h
src/run/bad.c bench/stats.h
src/ggml/bad.c llama.h
src/ggml/bad.c selftest/selftest.h
src/ggml/bad.c api/api.h
src/selftest/bad.c ggml-backend-impl.h
src/selftest/bad.c api/api.h
src/api/bad.c ggml-backend-impl.h
src/api/bad.c llama.h
src/run/bad.c api/api.h
src/ggml/bad.c run/runner.h
src/ggml/bad.c cli/args.h
src/run/bad.c ggml-backend-impl.h
src/run/bad.c cli/args.h
src/cli/bad.c llama.h
src/cli/bad.c llama-cpp.h
src/cli/bad.c ggml-backend-impl.h
src/cli/bad.c cache/engine.h
src/preload/bad.c ggml.h
src/preload/bad.c cache/error.h
include/bad.h llama.h
include/bad.h cache/error.h
tests/gates/bad.c ggml-backend-impl.h
tools/bad.c ggml-backend-impl.h
RULES
    return $missed
}

root=${1:-$(cd "$(dirname "$0")/.." && pwd)}
self_test || exit 1
[ "$(includes "$root" | grep -c .)" -gt 50 ] || { echo "include-rules: no sources in $root"; exit 1; }
found=$(violations "$root")
[ -z "$found" ] || { echo "$found"; exit 1; }
echo "include rules hold: $(includes "$root" | grep -c .) includes in $(includes "$root" | cut -d' ' -f1 | sort -u | grep -c .) files"
