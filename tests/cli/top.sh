#!/usr/bin/env bash
# top.sh - `sluice top`: what it says of a running `sluice run` and of a stock program, of files that are damaged, stale
# or foreign, of nothing; and its live view on a terminal of any size.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cli/lib.sh
. "$here/lib.sh"

# A directory of this test alone: the usual ones hold other processes' files as well, of other tests and other builds.
export SLUICE_PUBLISH_DIR=$dir/shown XDG_RUNTIME_DIR=$dir/run TERM=xterm
mkdir -m 700 "$XDG_RUNTIME_DIR"
files=$SLUICE_PUBLISH_DIR

running=
trap 'if [ -n "$running" ]; then kill -KILL $running 2>/dev/null; fi' EXIT

# start COMMAND...: in the background; $pid is its process, of whom `sluice top` knows steps
start() {
    "$@" >running.txt 2>&1 </dev/null &
    pid=$!
    running="$running $pid"
    local i
    for i in $(seq 1200); do
        : "$i"
        if "$sluice" top --json "$pid" >top.json 2>/dev/null && [ "$(value top.json steps)" -gt 20 ]; then return 0; fi
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    fail "$1 never showed 20 steps: $(tail -n 3 running.txt)"
    return 1
}
stop() {
    kill -"$1" "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
}

refused 1 "does not stream" "no such process" "$sluice" top --once 2147483647
refused 1 "does not stream" "a process that does not stream" "$sluice" top --json $$
refused 1 "no process streams" "nothing" "$sluice" top --once
SLUICE_PUBLISH_DIR=shown refused 1 "no process streams" "a directory that is not absolute" "$sluice" top --once

forever=("$sluice" run -m "$model" -t 2 -p Hello -n -1 --ignore-eos -c 131072 --temp 1 --cache 0)
if start "${forever[@]}"; then
    ok "a run shows $(value top.json steps) steps"
    first=$pid
    [ "$(stat -c %a "$files")" = 700 ] || fail "the directory's mode is $(stat -c %a "$files")"
    [ "$(stat -c %a "$files/$pid.stat")" = 600 ] || fail "the file's mode is $(stat -c %a "$files/$pid.stat")"
    for key in '"program": "sluice"' "\"pid\": $pid" '"mode": "streaming 6 expert tensors' '"phase": "generation"' \
        '"experts": 8' '"threads": 2'; do
        grep -qF "$key" top.json || fail "no $key in: $(head -c 800 top.json)"
    done
    [ "$(grep -c '"resident":' top.json)" -eq 3 ] || fail "not two layers: $(cat top.json)"
    [ "$(value top.json misses)" -gt 0 ] && [ "$(value top.json read_bytes)" -gt 0 ] || fail "no reads: $(cat top.json)"
    if command -v python3 >/dev/null; then
        if python3 - top.json <<'PY'
import json, sys
p, = json.load(open(sys.argv[1]))["processes"]
g, last = p["generation"], p["last"]
assert p["model"].endswith("model.gguf") and p["memory_bytes"] > 1 << 20 and p["cache_bytes"] > 0
assert g["steps"] == g["tokens"] and g["steps"] + p["prompt"]["steps"] == p["steps"]
assert g["hits"] + g["misses"] == g["routed"] > 0 and g["read_bytes"] > 0
for o, names in ((last, ("stall", "experts", "other", "bookkeeping")),):
    assert abs(sum(o[n] for n in names) - 1) < 0.03, o
parts = sum(g[n + "_seconds"] for n in ("stall", "expert", "other", "bookkeeping"))
assert abs(parts - g["wall_seconds"]) <= 0.03 * g["wall_seconds"], g
assert last["tokens_per_second"] > 0 and last["read_bytes_per_second"] > 0
PY
        then ok "  the JSON object's numbers agree"; else fail "the JSON object: $(cat top.json)"; fi
    fi
    works "  as text" "$sluice" top --once "$pid"
    for line in "^sluice, pid $pid, " '^rate +generation [0-9.]+ tok/s, [0-9.]+ GB/s read, hits 0\.0 %' \
        '^time +\[[w#o.]+\]' '^memory +[0-9.]+ GiB resident; cache' '^total +[0-9]+ tokens read, [0-9]+ generated' \
        '^faults +[0-9]+ major' '^model +.*/model\.gguf$' '^mode +streaming 6 ' '^cache map' '^ \|..\|$'; do
        expect "  $line" out.txt "$line"
    done
    if LC_ALL=C grep -q '[^ -~]' out.txt; then fail "not ASCII: $(cat out.txt)"; fi
    TERM=dumb works "  TERM=dumb is text" "$BIN/cli-terminal" "$sluice" top "$pid"
    "$BIN/cli-terminal" env TERM=dumb "$sluice" top "$pid" <<<'exit 0' >out.txt 2>err.txt || fail "TERM=dumb: $(cat err.txt)"
    expect "  without control sequences" out.txt '^rate +generation'
    if grep -q $'\033' out.txt; then fail "TERM=dumb: escape sequences"; fi
    TERM=nonsense works "  an unknown TERM is text" "$sluice" top "$pid"

    # view LABEL SCRIPT: the live view on a terminal
    view() {
        printf '%b' "$2" | "$BIN/cli-terminal" "$sluice" top >out.txt 2>err.txt
        rc=$?
        if [ "$rc" -eq 0 ]; then ok "$1"; else fail "$1: $(cat err.txt): $(tail -c 400 out.txt | cat -v)"; fi
    }
    view "the live view, q quits" 'size 40 120\nwait sluice top\nwait cache map\npause\npause\ntype q\nexit 0\n'
    view "other sizes" 'size 24 80\nwait cache map\nsize 60 200\nwait cache map\nsize 30 100\nwait cache map\ntype q\nexit 0\n'
    view "a tiny terminal" 'size 24 80\nwait cache map\nsize 1 1\npause\nsize 3 10\npause\nsize 2 5\npause\nsize 24 80\nwait cache map\ntype q\nexit 0\n'

    # A second process, by which the arrows go.
    if start "${forever[@]}"; then
        view "two processes" 'size 40 120\nwait process 1 of\ntype \033[B\nwait 2\ntype 1\nwait 1\ntype \033OA\npause\ntype \t\npause\ntype q\nexit 0\n'
        printf 'size 40 120\nwait pid %s\ntype q\nexit 0\n' "$pid" | "$BIN/cli-terminal" "$sluice" top "$pid" >out.txt 2>err.txt
        rc=$?
        if [ "$rc" -eq 0 ]; then ok "one by its pid"; else fail "one by its pid: $(cat err.txt)"; fi
        stop KILL
        [ -e "$files/$pid.stat" ] || fail "SIGKILL removed the file"
        refused 1 "does not stream" "a process that was killed" "$sluice" top --once "$pid"
        if [ -e "$files/$pid.stat" ]; then fail "its file is still there"; else ok "  its file is removed"; fi
    fi

    # Files that are not what they should be, in the name of a process that is there.
    pid=$first
    cp "$files/$pid.stat" good.stat
    bad=$files/$$.stat
    damaged() { # LABEL TEXT
        refused 1 "$2" "$1" "$sluice" top --once $$
        works "  and the others are shown" "$sluice" top --once
        expect "  with a word on it" err.txt "^sluice top: .*/$$.stat: "
        rm -f "$bad"
    }
    cp good.stat "$bad"
    # Its start differs from this shell's: what it says is of another process.
    refused 1 "does not stream" "a reused pid" "$sluice" top --once $$
    [ ! -e "$bad" ] || fail "the stale file is still there"
    head -c 100 good.stat >"$bad"
    damaged "a truncated file" "not counters"
    : >"$bad"
    damaged "an empty file" "not counters"
    head -c 65536 /dev/urandom >"$bad"
    damaged "a file of noise" "not counters"
    { printf '\377'; tail -c +2 good.stat; } >"$bad"
    damaged "another magic number" "not counters"
    { head -c 8 good.stat; printf '\t'; tail -c +10 good.stat; } >"$bad"
    damaged "another version" "another version"
    { head -c 32 good.stat; head -c 4096 /dev/zero | tr '\0' '\377'; tail -c +4129 good.stat; } >"$bad"
    damaged "numbers out of range" "damaged counters"
    ln -s "$dir/good.stat" "$bad"
    damaged "a symbolic link" "symbolic links"
    mkfifo "$bad"
    damaged "a pipe" "not a file"
    mkdir "$bad"
    refused 1 "not a file" "a directory" "$sluice" top --once $$
    rmdir "$bad"
    touch "$files/12x.stat" "$files/0.stat" "$files/stat"
    works "other names are passed over" "$sluice" top --once "$pid"
    [ ! -s err.txt ] || fail "other names: $(cat err.txt)"
    rm -f "$files/12x.stat" "$files/0.stat" "$files/stat"
    # A directory that others could write to is not looked into.
    chmod 755 "$files"
    refused 1 "does not stream" "a directory that is open to others" "$sluice" top --once "$pid"
    chmod 700 "$files"
    works "  closed again" "$sluice" top --once "$pid"
    stop INT
    if [ -e "$files/$pid.stat" ]; then fail "Ctrl-C left the file"; else ok "Ctrl-C removes the file"; fi
fi
# Without it, the directory is below XDG_RUNTIME_DIR.
shown_in_xdg() { env -u SLUICE_PUBLISH_DIR "$@"; }
usual=$XDG_RUNTIME_DIR/sluice-$(id -u)
env -u SLUICE_PUBLISH_DIR "${forever[@]}" >running.txt 2>&1 </dev/null &
pid=$!
running="$running $pid"
for _ in $(seq 600); do
    if [ -e "$usual/$pid.stat" ] || ! kill -0 "$pid"; then break; fi
    sleep 0.1
done
[ "$(stat -c %a "$usual")" = 700 ] || fail "the usual directory's mode is $(stat -c %a "$usual")"
works "the usual directory" shown_in_xdg "$sluice" top --once "$pid"
refused 1 "does not stream" "  and not the other one" "$sluice" top --once "$pid"
stop KILL
# What a killed process left goes when the next one starts, though nobody looks.
works "a run after one that was killed" shown_in_xdg "$sluice" run -m "$model" -p Hello -n 4 -q
if [ -z "$(ls "$usual")" ]; then ok "  nothing is left"; else fail "it left $(ls "$usual")"; fi
works "a run that ends" "$sluice" run -m "$model" -p Hello -n 4 -q
[ -z "$(ls "$files")" ] || fail "it left $(ls "$files")"

# Not shown when it is not wanted: by flag and by the environment.
for how in "--no-publish" ""; do
    SLUICE_PUBLISH=$([ -n "$how" ] && echo 1 || echo 0) "${forever[@]}" ${how:+"$how"} >running.txt 2>&1 </dev/null &
    pid=$!
    running="$running $pid"
    for _ in $(seq 600); do
        [ "$(wc -c <running.txt)" -gt 300 ] && break # text comes: it has streamed
        sleep 0.1
    done
    if [ -e "$files/$pid.stat" ]; then fail "${how:-SLUICE_PUBLISH=0} shows"; else ok "${how:-SLUICE_PUBLISH=0} does not show"; fi
    stop KILL
done
# A directory that cannot be had is no reason not to run.
SLUICE_PUBLISH_DIR=$dir/nothing/here works "no directory" "$sluice" run -m "$model" -p Hello -n 4 -q

# A stock program.
if [ -f "$BIN/libsluice-preload.so" ] && ! ldd "$sluice" | grep -q 'lib[at]san'; then
    if start "$sluice" exec --cache 0 -- "$LLAMA_BIN/llama-completion" -m "$model" -p Hello -n -1 --ignore-eos -c 131072 \
        -no-cnv --no-repack -t 2 --temp 1; then
        works "a stock program" "$sluice" top --once "$pid"
        expect "  is named" out.txt "^llama-completio, pid $pid, "
        expect "  generates" out.txt '^rate +generation [0-9.]+ tok/s'
        expect "  streams" out.txt '^mode +streaming 6 expert tensors'
        stop TERM
    fi
fi
finish
