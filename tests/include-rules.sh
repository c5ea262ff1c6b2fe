#!/usr/bin/env bash
# include-rules.sh [ROOT] - which folder may include what (docs/architecture.md: dependencies point down only).
#
#   src/stream, src/plan   nothing of ggml and llama.cpp
#   src/stream             nothing of the other folders
#   src/plan               of the other folders only stream/error.h
#   src/trace              of the other folders only stream/error.h, stream/policy.h and stream/classes.h; no ggml and llama.cpp
#   src/window             of the other folders only stream/error.h, stream/clock.h, plan/address.h and plan/settings.h; no
#                          ggml and llama.cpp; alone it includes microhttpd.h
#   src/bench              of the other folders only stream/error.h and stream/clock.h; no ggml and llama.cpp
#   src/gguf               of the other folders nothing; ggml, but not llama.cpp
#   src/backend            stream, plan, trace, gguf and window/window.h; alone it includes ggml's backend interface; not llama.h
#   src/runner             no ggml-backend-impl.h and nothing of cli; alone it includes llama.h
#   src/cli                runner, plan, bench, trace, gguf and preload's mapping, but neither llama.h nor ggml nor stream
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
            ours = top ~ /^(stream|plan|trace|bench|gguf|window|backend|runner|cli|preload)$/
            llama = !ours && base ~ /^llama.*\.h$/
            ggml = !ours && base ~ /^(ggml|gguf).*\.h$/
        }
        header ~ /\.\.\// { bad("paths start at src/ or include/") }
        base == "ggml-backend-impl.h" && folder !~ /^src\/backend/ { bad("only src/backend knows the backend interface") }
        llama && folder !~ /^(src\/runner|tests|tools)/ { bad("only src/runner (and tests, tools) may use llama.cpp") }
        ggml && folder ~ /^(src\/(stream|plan|trace|bench|window|preload|cli)|include)/ && base != "ggml-backend-impl.h" { bad("no ggml here") }
        folder ~ /^src\/stream/ && ours && top != "stream" { bad("src/stream stands on nothing") }
        folder ~ /^src\/plan/ && ours && top != "plan" && header != "stream/error.h" { bad("src/plan may use stream/error.h only") }
        folder ~ /^src\/trace/ && ours && top != "trace" && header !~ /^stream\/(error|policy|classes)\.h$/ { bad("src/trace may use stream/error.h, stream/policy.h and stream/classes.h only") }
        folder ~ /^src\/bench/ && ours && top != "bench" && header !~ /^stream\/(error|clock)\.h$/ { bad("src/bench may use stream/error.h and stream/clock.h only") }
        folder ~ /^src\/window/ && ours && top != "window" && header !~ /^(stream\/(error|clock)|plan\/(address|settings))\.h$/ { bad("src/window may use stream/error.h, stream/clock.h, plan/address.h and plan/settings.h only") }
        base == "microhttpd.h" && folder !~ /^src\/window/ { bad("only src/window serves HTTP") }
        folder ~ /^src\/gguf/ && ours && top != "gguf" { bad("src/gguf stands on nothing but ggml") }
        folder ~ /^src\/backend/ && ours && top !~ /^(backend|stream|plan|trace|gguf)$/ && header !~ /^window\/(window|source)\.h$/ { bad("dependencies point down") }
        folder ~ /^src\/runner/ && ours && top !~ /^(runner|backend|stream|plan|gguf)$/ { bad("dependencies point down") }
        folder ~ /^src\/cli/ && ours && top ~ /^(stream|backend|window)$/ { bad("the command asks the runner") }
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
    mkdir -p "$tree"/src/{stream,plan,trace,bench,gguf,window,backend,runner,cli,preload} "$tree"/include "$tree"/tests/gates "$tree"/tools
    printf '#include <stdio.h>\n#include "stream/error.h"\n#include "sluice.h"\n/* #include "llama.h" in a comment */\n' \
        | tee "$tree/src/stream/good.c" "$tree/src/bench/good.c" >"$tree/src/plan/good.c"
    printf '#include "stream/policy.h"\n#include "stream/classes.h"\n#include "stream/error.h"\n' >"$tree/src/trace/good.c"
    printf '#include "window/impl.h"\n#include "plan/address.h"\n#include "stream/clock.h"\n#include <microhttpd.h>\n' >"$tree/src/window/good.c"
    printf '#include "gguf.h"\n#include "gguf/gguf_reader.h"\n' >"$tree/src/gguf/good.c"
    printf '#include "gguf/gguf_check.h"\n#include "ggml-backend-impl.h"\n#include "stream/engine.h"\n#include "window/window.h"\n#include "plan/budget.h"\n#include "trace/trace.h"\n' >"$tree/src/backend/good.c"
    printf '#include "gguf/gguf_check.h"\n#include "preload/mapping.h"\n' >"$tree/src/cli/good.c"
    printf '#include "llama.h"\n#include "sluice.h"\n' | tee "$tree/src/runner/good.c" "$tree/tools/good.c" >"$tree/tests/gates/good.c"
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
src/stream/bad.c ggml.h
src/stream/bad.h ggml-backend.h
src/stream/bad.c ggml-backend-impl.h
src/stream/bad.c llama.h
src/stream/bad.c plan/limits.h
src/stream/bad.c backend/backend.h
src/stream/bad.c runner/runner.h
src/stream/bad.c ../plan/limits.h
src/plan/bad.c ggml.h
src/plan/bad.c gguf.h
src/plan/bad.c llama.h
src/plan/bad.c backend/maps.h
src/plan/bad.c stream/engine.h
src/trace/bad.c ggml.h
src/trace/bad.c llama.h
src/trace/bad.c stream/engine.h
src/trace/bad.c stream/slots.h
src/trace/bad.c plan/limits.h
src/trace/bad.c backend/tracing.h
src/stream/bad.c trace/trace.h
src/plan/bad.c trace/trace.h
src/bench/bad.c ggml.h
src/bench/bad.c llama.h
src/bench/bad.c stream/lanes.h
src/bench/bad.c runner/runner.h
src/window/bad.c ggml.h
src/window/bad.c llama.h
src/window/bad.c stream/engine.h
src/window/bad.c plan/limits.h
src/window/bad.c backend/backend.h
src/backend/bad.c window/impl.h
src/backend/bad.c microhttpd.h
src/cli/bad.c microhttpd.h
src/cli/bad.c window/window.h
src/stream/bad.c window/window.h
src/gguf/bad.c llama.h
src/gguf/bad.c stream/error.h
src/stream/bad.c gguf/gguf_check.h
src/plan/bad.c gguf/gguf_check.h
src/trace/bad.c gguf/gguf_check.h
src/backend/bad.c bench/stats.h
src/runner/bad.c bench/stats.h
src/backend/bad.c llama.h
src/backend/bad.c runner/runner.h
src/backend/bad.c cli/args.h
src/runner/bad.c ggml-backend-impl.h
src/runner/bad.c cli/args.h
src/cli/bad.c llama.h
src/cli/bad.c llama-cpp.h
src/cli/bad.c ggml-backend-impl.h
src/cli/bad.c stream/engine.h
src/preload/bad.c ggml.h
src/preload/bad.c stream/error.h
include/bad.h llama.h
include/bad.h stream/error.h
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
