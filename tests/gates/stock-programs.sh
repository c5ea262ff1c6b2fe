#!/usr/bin/env bash
# stock-programs.sh - llama.cpp's own programs stream with nothing but the plug-in loaded, and print what
# they print without it.
#
# Programs whose CPU backend is linked in look at GGML_BACKEND_PATH only when an option makes them list
# their backends. -ot with a pattern that matches no tensor is such an option; llama-bench looks
# unasked. Both sides get the same options, and repacking is off on both (--no-repack; llama-bench
# prints no text to compare). Environment: see lib.sh; needs curl.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/gates/lib.sh
. "$here/lib.sh"

server=
trap 'if [ -n "$server" ]; then kill -KILL "$server" 2>/dev/null || true; fi' EXIT

common=()
settings=()
stats=

# with NAME COMMAND...: the command with the plug-in and room for a third of the experts; counters in $stats
with() {
    stats=$dir/$1.json
    shift
    rm -f "$stats"
    env GGML_BACKEND_PATH="$plugin" SLUICE_STATS="$stats" SLUICE_QUIET=1 "${settings[@]}" "$@"
}

streamed() { # NAME: the counters show expert reads, hits and evictions
    local key
    for key in tensors read_bytes_total hits_total evictions; do
        if ! [ "$(counter "$stats" "$key")" -gt 0 ] 2>/dev/null; then
            fail "$1: $key is $(counter "$stats" "$key") in $stats"
            return 1
        fi
    done
}

# compare NAME PATTERN COMMAND...: what the program prints, less the lines (times, log) that do not match PATTERN,
# is equal without and with the plug-in, and not empty
compare() {
    local name=$1 pattern=$2
    shift 2
    "$@" >"$dir/$name.want.all" 2>"$dir/$name.want.log" </dev/null || {
        fail "$name without the plug-in: $(last_line "$dir/$name.want.log")"
        return 0
    }
    with "$name" "$@" >"$dir/$name.got.all" 2>"$dir/$name.got.log" </dev/null || {
        fail "$name: $(last_line "$dir/$name.got.log")"
        return 0
    }
    grep -hoE "$pattern" "$dir/$name.want.all" "$dir/$name.want.log" >"$dir/$name.want" || true
    grep -hoE "$pattern" "$dir/$name.got.all" "$dir/$name.got.log" >"$dir/$name.got" || true
    [ -s "$dir/$name.want" ] || { fail "$name prints nothing"; return 0; }
    cmp "$dir/$name.want" "$dir/$name.got" || { fail "$name prints something else"; return 0; }
    streamed "$name" && ok "$name: $(wc -c <"$dir/$name.want") equal bytes"
}

# Start a server (COMMAND is `env` and its settings) on a free port that it picks itself. False: it does not answer.
url=
start_server() { # SLOTS LOG COMMAND...
    local slots=$1 log=$2
    shift 2
    url=
    "$@" "$LLAMA_BIN/llama-server" "${common[@]}" --host 127.0.0.1 --port 0 -c $((512 * slots)) -np "$slots" >"$log" 2>&1 </dev/null &
    server=$!
    for _ in $(seq 600); do
        url=$(grep -oE 'http://127\.0\.0\.1:[0-9]+' "$log" | head -n 1 || true)
        [ -n "$url" ] && curl -sf "$url/health" >/dev/null && break
        kill -0 "$server" 2>/dev/null || break
        url=
        sleep 0.2
    done
    [ -n "$url" ]
}

# Completions of a text, or of a list of texts, which are begun in one batch. The answer goes to FILE.json, its tokens
# and their probabilities to FILE.
ask() { # FILE PROMPT
    curl -sf "$url/completion" -H 'Content-Type: application/json' -d '{
        "prompt": '"$2"', "n_predict": 24, "ignore_eos": true, "temperature": 0,
        "seed": 1, "cache_prompt": false, "return_tokens": true, "n_probs": 4}' >"$1.json" || true
    grep -oE '"tokens": *\[[0-9, ]+\]|"logprob": *[-0-9.e]+' "$1.json" >"$1" || true
    [ -s "$1" ]
}

# Start a server with one slot, ask it for one completion, stop it.
ask_server() { # FILE LOG COMMAND...
    local file=$1 log=$2
    shift 2
    rm -f "$file"
    if start_server 1 "$log" "$@"; then
        ask "$file" '"The quick brown fox jumps over the lazy dog."' || true
    fi
    stop_server
    [ -s "$file" ]
}

# SIGTERM lets the server leave its loop, so that the plug-in writes its counters. One that does not is killed, and
# the counters that it never wrote fail the check.
stop_server() {
    kill -TERM "$server" 2>/dev/null || true
    for _ in $(seq 300); do
        kill -0 "$server" 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=
}

check_server() {
    rm -f "$dir"/server.*
    ask_server "$dir/server.want" "$dir/server.want.log" env || {
        fail "llama-server without the plug-in: $(last_line "$dir/server.want.log")"
        return 0
    }
    stats=$dir/server.json
    ask_server "$dir/server.got" "$dir/server.got.log" env GGML_BACKEND_PATH="$plugin" SLUICE_STATS="$stats" \
        SLUICE_QUIET=1 "${settings[@]}" || {
        fail "llama-server: $(last_line "$dir/server.got.log")"
        return 0
    }
    cmp "$dir/server.want" "$dir/server.got" || { fail "llama-server answers something else"; return 0; }
    streamed llama-server && ok "llama-server: $(wc -l <"$dir/server.want") equal lines of tokens and probabilities"
}

# The i-th of several different texts.
text() { # I
    head -c $((300 + 60 * $1)) "$here/lib.sh" | tail -c $((40 + 20 * $1)) | tr -cd 'a-z \n' | tr '\n' ' '
}

# Does an answer hold N completions of 24 tokens each?
complete() { # FILE N
    [ "$(grep -oE '"tokens_predicted": *24[^0-9]' "$1.json" | wc -l)" = "$2" ] && [ "$(grep -c '"tokens"' "$1")" = "$2" ] &&
        ! grep -q '"error"' "$1.json"
}

# Several slots at once. One request with a list of texts makes batches that do not depend on timing - the server
# begins all of them together - so every token and probability must be that of the server without the plug-in. Requests that
# come by themselves share batches as it happens, and other batches may round otherwise: of these is
# asked that each is answered in full.
check_slots() { # SLOTS
    local n=$1 i list="" pids=() pid rc=0
    for ((i = 0; i < n; i++)); do list="$list${list:+, }\"$(text "$i")\""; done
    start_server "$n" "$dir/slots.want.log" env && ask "$dir/slots.want" "[$list]" && complete "$dir/slots.want" "$n" || rc=1
    stop_server
    [ "$rc" = 0 ] || { fail "llama-server, $n slots, without the plug-in: $(last_line "$dir/slots.want.log")"; return 0; }
    stats=$dir/slots.json
    rm -f "$stats" "$dir"/slots.csv
    if start_server "$n" "$dir/slots.got.log" env GGML_BACKEND_PATH="$plugin" SLUICE_STATS="$stats" SLUICE_QUIET=1 \
        SLUICE_CSV="$dir/slots.csv" "${settings[@]}"; then
        ask "$dir/slots.got" "[$list]" || true
        for ((i = 0; i < n; i++)); do
            ask "$dir/alone.$i" "\"$(text "$i")\"" &
            pids+=($!)
        done
        for pid in "${pids[@]}"; do wait "$pid" || true; done
    fi
    stop_server
    if cmp "$dir/slots.want" "$dir/slots.got"; then
        ok "llama-server, $n slots at once: $(wc -l <"$dir/slots.want") equal lines of tokens and probabilities"
    else
        fail "llama-server, $n slots: answers something else: $(last_line "$dir/slots.got.log")"
    fi
    # The first token of each text comes from the prompts' batch.
    i=$(grep -c ",generation,$n," "$dir/slots.csv" || true)
    if [ "$i" -ge 23 ]; then ok "  $i batches of $n tokens"; else fail "  $i batches of $n tokens, not 23"; fi
    for ((i = 0; i < n; i++)); do
        complete "$dir/alone.$i" 1 || { fail "  request $i of $n by itself: $(head -c 300 "$dir/alone.$i.json")"; return 0; }
    done
    streamed "llama-server, $n slots" && ok "  $n requests by themselves are answered in full"
}

check_bench() {
    with llama-bench "$LLAMA_BIN/llama-bench" -m "$model" -t 2 -p 32 -n 8 -r 1 -o jsonl >"$dir/bench.got" \
        2>"$dir/bench.log" </dev/null || {
        fail "llama-bench: $(last_line "$dir/bench.log")"
        return 0
    }
    [ "$(grep -c '"n_gen"' "$dir/bench.got")" = 2 ] || { fail "llama-bench did not run its two tests"; return 0; }
    streamed llama-bench && ok "llama-bench: runs and streams"
}

begin stock-programs
mkmoe stock --vocab-from "$LLAMA_SRC/models/ggml-vocab-deepseek-coder.gguf" || exit 1
read -ra settings <<<"$(third_cache "$model")"
common=(-m "$model" -t 2 --no-repack -ot 'no_such_tensor=CPU')

# Any text of a few hundred tokens will do for a perplexity.
head -c 4000 "$here/lib.sh" >"$dir/text"
compare llama-perplexity '^\[1\].*|Final estimate.*' "$LLAMA_BIN/llama-perplexity" "${common[@]}" -f "$dir/text" -c 128 -b 128 --chunks 4
compare llama-completion '^The quick.*' "$LLAMA_BIN/llama-completion" "${common[@]}" -no-cnv -c 512 -n 32 --temp 0 --seed 1 \
    -p 'The quick brown fox jumps over the lazy dog.'
check_bench
check_server
check_slots 4
check_slots 8
finish
