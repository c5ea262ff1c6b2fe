#!/usr/bin/env bash
# window.sh - the window of a `sluice run` and of a stock program: every path, numbers that move, settings that arrive in
# the engine, every refusal, readers that do not read, and the same text whether anybody watches or not.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cli/lib.sh
. "$here/lib.sh"

running=
trap 'if [ -n "$running" ]; then kill -KILL $running 2>/dev/null; fi' EXIT

# start COMMAND...: in the background; $pid is its process, $url and $token where its window is
start() {
    : >running.err # or the last one's address might be found
    "$@" >running.txt 2>running.err </dev/null &
    pid=$!
    running="$running $pid"
    local i line
    for i in $(seq 1200); do
        : "$i"
        line=$(grep -oE 'window: http://[^ ]+' running.err | head -n 1)
        if [ -n "$line" ]; then
            url=${line#window: } token=${line#*token=} url=${url%/#token=*} port=${url##*:}
            return 0
        fi
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    fail "$1 opened no window: $(tail -n 3 running.err)"
    return 1
}
stop() {
    kill -"$1" "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
    rc=$?
}

# ask PATH [CURL OPTIONS]: body in body.txt, headers in head.txt, $code
ask() {
    local path=$1
    shift
    code=$(curl -sS --max-time 60 -o body.txt -D head.txt -w '%{http_code}' "$@" "$url$path" 2>curl.txt)
}
# answers CODE LABEL PATH [CURL OPTIONS]
answers() {
    local want=$1 label=$2
    shift 2
    ask "$@"
    if [ "$code" = "$want" ]; then ok "$label: $code"; else fail "$label: $code, not $want: $(cat curl.txt body.txt | head -c 300)"; fi
}
# post CODE LABEL JSON: change settings
post() { answers "$1" "$2" /settings -H "X-Sluice-Token: $token" -H 'Content-Type: application/json' -d "$3"; }
# part OBJECT KEY: a number of an object in body.txt that has only numbers before that key (the settings have texts)
part() { grep -oE "\"$1\":\{(\"[a-z_]+\":[-0-9.e+]+,)*\"$2\":[-0-9.e+]+" body.txt | sed 's/.*://' | head -n 1; }
# more LABEL OBJECT KEY: /stats shows more of it than now, soon
more() {
    local before now i
    ask /stats
    before=$(part "$2" "$3")
    for i in $(seq 600); do
        : "$i"
        ask /stats
        now=$(part "$2" "$3")
        if awk -v a="${before:-0}" -v b="${now:-0}" 'BEGIN { exit !(b > a) }'; then ok "$1: $before, then $now"; return; fi
        sleep 0.1
    done
    fail "$1: stays at $before"
}
# listen STATS MAPS: the window's events until there are so many of each, in events.txt
listen() {
    local reader i
    : >events.txt
    curl -sSN --max-time 600 "$url/events" >events.txt 2>/dev/null &
    reader=$!
    for i in $(seq 6000); do
        : "$i"
        [ "$(grep -c '^event: stats$' events.txt)" -ge "$1" ] && [ "$(grep -c '^event: map$' events.txt)" -ge "$2" ] && break
        sleep 0.1
    done
    kill "$reader" 2>/dev/null
    wait "$reader" 2>/dev/null
}
# becomes LABEL REGEX: /stats shows it, soon
becomes() {
    local i
    for i in $(seq 1200); do
        : "$i"
        ask /stats
        if grep -qE -- "$2" body.txt; then ok "$1"; return; fi
        sleep 0.1
    done
    fail "$1: no $2 in $(cat body.txt)"
}

# ---- wrong settings: one line, before anything is loaded
run=("$sluice" run -m "$model" -t 2 -p Hello)
for value in 127.0.0.1 example.org:80 127.0.0.1:99999 99999 ''; do
    refused 2 "--window $value: must be an address" "--window=$value" "${run[@]}" "--window=$value"
    SLUICE_WINDOW=$value refused 2 "SLUICE_WINDOW" "SLUICE_WINDOW=$value" "${run[@]}"
done
for command in run chat; do
    args=(-m "$model" --window 0.0.0.0:0)
    [ "$command" = chat ] || args+=(-p Hello)
    refused 2 "add --allow-remote" "a remote address ($command)" "$sluice" "$command" "${args[@]}"
done
refused 2 "add --allow-remote" "a remote address (exec)" "$sluice" exec --window 0.0.0.0:0 -- true
SLUICE_WINDOW='[::]:0' refused 2 "add --allow-remote" "a remote address in the environment" "${run[@]}"
SLUICE_WINDOW_ALLOW_REMOTE=yes refused 2 "SLUICE_WINDOW_ALLOW_REMOTE" "neither 0 nor 1" "${run[@]}"
refused 2 "nothing streams" "resident" "${run[@]}" --resident --window 0
SLUICE_WINDOW_TOKEN=short refused 2 "SLUICE_WINDOW_TOKEN" "a short token" "${run[@]}" --window 0 -q
SLUICE_WINDOW_CHAT=ftp://x:1 refused 2 "SLUICE_WINDOW_CHAT" "a chat that is none" "${run[@]}" --window 0 -q
works "the option alone is the usual address" "$sluice" exec --window --allow-remote -- env
expect "  in the environment" out.txt '^SLUICE_WINDOW=127\.0\.0\.1:8090$'
expect "  and the other one too" out.txt '^SLUICE_WINDOW_ALLOW_REMOTE=1$'
works "a port" "$sluice" exec --window 1234 -- env
expect "  in the environment" out.txt '^SLUICE_WINDOW=1234$'
works "off" env SLUICE_WINDOW=1.2.3.4:5 "$sluice" run -m "$model" -t 2 -p Hello -n 2 --window=off -q
[ ! -s err.txt ] && ok "  says nothing" || fail "off: $(cat err.txt)"

# ---- a run, of the demo model: it has a router that does not always like the same experts
demo=$here/../../models/demo.gguf
forever=("$sluice" run -m "$demo" -t 2 -p "Once upon a time" -n -1 --ignore-eos -c 131072 --temp 1 --cache 64MiB --window 0)
if start "${forever[@]}"; then
    ok "a run opens its window: $url"
    answers 200 "the page" /
    expect "  is HTML" head.txt '^Content-Type: text/html; charset=utf-8'
    expect "  with a policy" head.txt "^Content-Security-Policy: default-src 'none'; script-src 'nonce-[0-9a-f]{32}'"
    nonce=$(grep -oE "script-src 'nonce-[0-9a-f]+" head.txt | sed 's/.*nonce-//')
    expect "  whose nonce is in it" body.txt "<script nonce=\"$nonce\">"
    if grep -qF '@NONCE@' body.txt; then fail "a place for a nonce is left"; else ok "  everywhere"; fi
    if grep -qE '(src|href|url)[=(] *.?https?:' body.txt; then fail "the page asks others"; else ok "  and it asks nobody else"; fi

    becomes "/stats knows the model" '"model":\{"name":"demo\.gguf","architecture":"qwen3moe","layers":6,"experts":32,"experts_used":4,'
    becomes "  and the phase" '"phase":"generation"'
    becomes "  and the speed" '"generation_tokens_per_second":[0-9.e+-]+'
    becomes "  and the plan" '"plan":\{"total_bytes":[1-9]'
    becomes "  and the mode" '"mode":"streaming 18 expert tensors [^"]*, lossless","lossy":false'
    more "  tokens move" generation tokens
    more "  time moves" generation wall_seconds
    if command -v python3 >/dev/null; then
        if python3 - body.txt <<'PY'
import json, sys
s = json.load(open(sys.argv[1]))
g = s["generation"]
parts = sum(g[n + "_seconds"] for n in ("compute", "stall", "other", "bookkeeping"))
assert abs(parts - g["wall_seconds"]) <= 0.02 * g["wall_seconds"], g
assert g["hits"] + g["misses"] == g["routed"] > 0 and g["steps"] == g["tokens"] > 0
assert 0 <= g["tokens_done"] - g["tokens"] < 50 + 0.1 * g["tokens"], g
p = s["memory"]["plan"]
assert p["total_bytes"] == sum(p[n + "_bytes"] for n in ("process", "files", "untouched", "dense", "cache", "scratch"))
u = s["memory"]["used"]
assert u["total_bytes"] == u["anonymous_bytes"] + u["file_bytes"] + u["shared_bytes"] > 1 << 20
n = s["now"]
assert abs(sum(n[k + "_share"] for k in ("compute", "stall", "other", "bookkeeping")) - 1) < 1e-6
assert 0 < s["cache"]["resident"] <= s["cache"]["slots"] == 192
assert s["settings"]["cache"] == {"value": "64MiB", "changeable": True, "lossy": False, "reason": "", "bytes": 64 << 20}
assert not s["settings"]["n_expert_used"]["changeable"] and s["settings"]["n_expert_used"]["value"] == 4
assert s["chat"] is None and s["pid"] > 0 and s["program"] == "sluice"
PY
        then ok "  the numbers agree"; else fail "/stats: $(cat body.txt)"; fi
    fi

    answers 200 "/metrics" /metrics
    expect "  is for Prometheus" head.txt '^Content-Type: text/plain; version=0\.0\.4'
    if n=$(awk -f "$here/prometheus.awk" body.txt); then ok "  $n series"; else fail "/metrics: $n"; fi
    expect "  counts tokens" body.txt '^sluice_tokens_total\{phase="generation"\} [1-9]'
    # The check itself must be able to fail.
    { cat body.txt; tail -n 1 body.txt; } >wrong1.txt
    sed 's/_total{/_sum{/' body.txt >wrong2.txt
    sed '/^# TYPE sluice_tokens_total/d' body.txt >wrong3.txt
    sed 's/^sluice_cache_bytes .*/& NaN/' body.txt >wrong4.txt
    for i in 1 2 3 4; do
        if awk -f "$here/prometheus.awk" "wrong$i.txt" >/dev/null; then fail "the check takes wrong$i.txt"; fi
    done

    listen 4 3
    n=$(grep -c '^event: stats$' events.txt) maps=$(grep -c '^event: map$' events.txt)
    if [ "$n" -ge 4 ] && [ "$maps" -ge 3 ]; then ok "/events: $n times stats, $maps maps"; else fail "/events: $n times stats, $maps maps"; fi
    if command -v python3 >/dev/null; then
        if python3 - events.txt <<'PY'
import base64, json, sys
maps, stats, name = [], [], None
for line in open(sys.argv[1]):
    if line.startswith("event: "):
        name = line[7:].strip()
    elif line.startswith("data: ") and line.endswith("\n"):
        (maps if name == "map" else stats).append(json.loads(line[6:]))
m = maps[-1]
data = base64.b64decode(m["data"], validate=True)
assert m["layers"] == [{"first": 32 * i, "experts": 32} for i in range(6)] and len(data) == 192
assert sum(b >> 6 >= 2 for b in data) > 0 and max(b & 63 for b in data) > 10
tokens = [s["generation"]["tokens"] for s in stats]
assert tokens == sorted(tokens) and tokens[-1] > tokens[0]
# Twice a second and once a second by the program's own clock; the first of each comes at once.
seconds = stats[-1]["uptime_seconds"] - stats[0]["uptime_seconds"]
assert len(stats) - 2 <= 4 * seconds and len(maps) - 2 <= 2 * seconds, (len(stats), len(maps), seconds)
PY
        then ok "  what is in them agrees"; else fail "/events: $(tail -c 600 events.txt)"; fi
    fi

    # ---- settings arrive in the engine
    ask /stats
    slots=$(part cache slots) bytes=$(part cache bytes)
    [ "$slots" = 192 ] && ok "the cache holds all 192 experts" || fail "$slots slots"
    post 200 "a smaller cache" "{\"cache\":\"$((bytes / 2))B\"}"
    expect "  is answered" body.txt '"changed":\["cache"\]'
    ask /stats
    if [ "$(part cache slots)" -lt 192 ] && [ "$(part cache bytes)" -le $((bytes / 2)) ]; then
        ok "  is there at once: $(part cache slots) experts"
    else
        fail "  $(part cache slots) slots of $(part cache bytes) bytes, of $((bytes / 2))"
    fi
    more "  and misses now" generation misses
    more "  it reads" generation read_bytes
    becomes "  at a rate" '"read_bytes_per_second":[0-9.]*[1-9]'
    post 200 "a threshold" '{"drop_cold_experts":1,"drop_renorm":true,"lookahead":false}'
    becomes "  makes it lossy" '"mode":"[^"]*, lossy: drop cold experts below 1\.00/k, renormalised'
    becomes "  in the flags too" '"lossy":true.*"drop_cold_experts":\{"value":1\.0,"changeable":true,"lossy":true'
    becomes "  and counted" '"generation":\{.*"dropped":\{"examined":[1-9][0-9]*,"dropped":[1-9]'
    asked=$(part lookahead asked)
    more "  misses go on" generation misses
    [ "$(part lookahead asked)" = "$asked" ] && ok "  nothing is read ahead" || fail "  read ahead: $asked, then $(part lookahead asked)"
    answers 200 "by a form, lossless again" /settings -H "Authorization: Bearer $token" -d 'drop_cold_experts=0&drop_renorm=off&lookahead=1&cache=64MiB'
    becomes "  is told" ', lossless","lossy":false'
    becomes "  the cache has grown" '"slots":192,"resident":'
    post 409 "a cache that cannot be had" '{"cache":"1KiB"}'
    expect "  says why" body.txt '"setting":"cache"'
    becomes "  and all is as it was" '"cache":\{"value":"64MiB"'
    post 409 "experts per token" '{"n_expert_used":1}'
    post 400 "not a value" '{"cache":"12x"}'

    # ---- refusals
    settings=(-H 'Content-Type: application/json' -d '{"lookahead":true}')
    answers 401 "no token" /settings "${settings[@]}"
    answers 403 "a wrong token" /settings "${settings[@]}" -H "X-Sluice-Token: ${token%?}x"
    answers 421 "a foreign Host" /stats -H 'Host: evil.example'
    answers 421 "the name of another port" /stats -H 'Host: 127.0.0.1'
    answers 403 "a foreign Origin" /stats -H 'Origin: http://evil.example'
    answers 403 "a foreign Origin, with the token" /settings "${settings[@]}" -H "X-Sluice-Token: $token" -H 'Origin: http://evil.example'
    answers 200 "its own Origin" /settings "${settings[@]}" -H "X-Sluice-Token: $token" -H "Origin: $url"
    head -c 5000 /dev/zero | tr '\0' ' ' >large.txt
    answers 413 "a body that is too large" /settings -H "X-Sluice-Token: $token" -H 'Content-Type: application/json' -H 'Expect:' --data-binary @large.txt
    answers 411 "a body of unknown length" /settings -H "X-Sluice-Token: $token" -H 'Content-Type: application/json' -H 'Transfer-Encoding: chunked' -H 'Expect:' -d '{}'
    answers 404 "an unknown path" /etc/passwd
    answers 404 "a path upwards" /../../../../etc/passwd --path-as-is
    answers 405 "a wrong method" /stats -X DELETE
    answers 405 "reading settings" /settings
    answers 405 "what a foreign page's browser asks first" /settings -X OPTIONS -H "Origin: $url"
    if grep -qi '^access-control' head.txt; then fail "CORS headers"; else ok "  no CORS headers"; fi
    answers 200 "HEAD" / -I

    # ---- readers that do not read, connections that say nothing: the generation goes on
    for fd in $(seq 20 59); do
        eval "exec $fd<>/dev/tcp/127.0.0.1/$port" || break
        [ "$fd" -lt 24 ] && printf 'GET /events HTTP/1.1\r\nHost: 127.0.0.1:%s\r\n\r\n' "$port" >&"$fd"
    done
    before=$(stat -c %s running.txt)
    for _ in $(seq 600); do
        [ "$(stat -c %s running.txt)" -gt $((before + 2000)) ] && break
        sleep 0.1
    done
    after=$(stat -c %s running.txt)
    [ "$after" -gt $((before + 2000)) ] && ok "40 connections that say nothing: $((after - before)) bytes of text meanwhile" || fail "the text stopped"
    for fd in $(seq 20 59); do eval "exec $fd>&-"; done
    answers 200 "  and when they are gone, all is well" /stats

    # ---- a second one cannot have the same port
    refused 1 "choose another port with --window" "the port is taken" "${run[@]}" -q -n 1 --window "127.0.0.1:$port"
    stop INT
    grep -q 'interrupted\|generated' running.err && ok "Ctrl-C ends it" || fail "Ctrl-C: $(tail -n 3 running.err)"
    if curl -s --max-time 5 "$url/stats" >/dev/null; then fail "the window is still open"; else ok "  and its window"; fi
fi

# ---- the same text, watched or not, with a cache that changes meanwhile
text=("$sluice" run -m "$demo" -t 2 -p "Hello there" -n 1500 --ignore-eos -c 4096 --temp 0 --cache 64MiB -q)
works "a text" "${text[@]}"
mv out.txt plain.txt
changes=0
for _ in $(seq 20); do # again, where it was over before the first change arrived
    start "${text[@]}" --window 0 || break
    curl -sN --max-time 600 "$url/events" >events.txt 2>/dev/null &
    reader=$!
    exec 20<>"/dev/tcp/127.0.0.1/$port" && printf 'GET /events HTTP/1.1\r\nHost: 127.0.0.1:%s\r\n\r\n' "$port" >&20
    while kill -0 "$pid" 2>/dev/null; do
        for cache in off 64MiB auto; do
            ask /settings -H "X-Sluice-Token: $token" -d "cache=$cache"
            [ "$code" = 200 ] && changes=$((changes + 1))
        done
    done
    wait "$pid"
    rc=$?
    exec 20>&-
    wait "$reader" 2>/dev/null
    if [ "$rc" -eq 0 ] && cmp -s running.txt plain.txt; then
        ok "  is the same when it is watched: $(wc -c <plain.txt) bytes, $(grep -c '^event' events.txt) events, $changes changes of the cache"
    else
        fail "another text when it is watched: exit $rc: $(tail -n 2 running.err)"
    fi
    [ "$changes" -eq 0 ] || break
done
[ "$changes" -gt 0 ] || fail "the cache was never changed"

# ---- a run that lost something is not called lossless, whatever its settings are when it ends
if start "$sluice" run -m "$demo" -t 2 -p "Hello there" -n -1 --ignore-eos -c 131072 --temp 0 --cache 3MiB --json --window 0; then
    post 200 "a threshold for a while" '{"drop_cold_experts":1}'
    becomes "  experts are dropped" '"generation":\{.*"dropped":\{"examined":[1-9][0-9]*,"dropped":[1-9]'
    post 200 "  and none any more" '{"drop_cold_experts":0}'
    stop INT
    expect "  the run was not lossless" running.txt '"lossless": false'
    expect "  though the settings are now" running.txt '"mode": "[^"]*, lossless"'
fi

# ---- from other machines, if that is wanted
if start "${forever[@]}" --window 0.0.0.0:0 --allow-remote; then
    url=http://127.0.0.1:$port
    answers 200 "an address for all" /stats
    answers 200 "  by another address" /stats -H "Host: 192.0.2.1:$port"
    answers 421 "  not by a name" /stats -H "Host: evil.example:$port"
    stop KILL
fi

# ---- a stock program
if [ -f "$BIN/libsluice-preload.so" ] && ! ldd "$sluice" | grep -q 'lib[at]san'; then
    export SLUICE_WINDOW_TOKEN=0123456789abcdef SLUICE_WINDOW_CHAT=http://127.0.0.1:8080 SLUICE_WINDOW_DISK=1500
    complete=("$LLAMA_BIN/llama-completion" -m "$model" -p Hello -c 131072 -no-cnv --no-repack -t 2 --temp 1)
    if start "$sluice" exec --cache 0 --window 0 -- "${complete[@]}" -n -1 --ignore-eos; then
        [ "$token" = 0123456789abcdef ] && ok "a stock program, with a token that was given" || fail "token $token"
        becomes "  is named" '"program":"llama-completio"'
        becomes "  generates" '"generation_tokens_per_second":[0-9.e+-]+'
        more "  reads" generation read_bytes
        becomes "  its disk was measured" '"probed_bytes_per_second":1572864000\.0'
        becomes "  its chat is known" '"chat":\{"url":"http://127\.0\.0\.1:8080","port":8080\}'
        post 200 "  gets a cache" '{"cache":"64MiB"}'
        becomes "  at once" '"slots":16,"resident":'
        try "$sluice" exec --cache 0 --window "127.0.0.1:$port" -- "${complete[@]}" -n 2
        [ "$rc" -ne 0 ] && ok "  a second one on its port fails" || fail "two windows on one port"
        expect "  and says so" err.txt "^sluice: window: 127\.0\.0\.1:$port: Address already in use; choose another port"
        stop TERM
    fi
fi
finish
