#!/usr/bin/env bash
# serve.sh - `sluice serve`: with llama-server, and with a server that misbehaves (fake-server.mjs): addresses, readiness, the
# end of either, what cannot be started, what is passed on. Also needs DEMO, the shipped model.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cli/lib.sh
. "$here/lib.sh"
: "${DEMO:?}"

fake=$here/fake-server.mjs
pid=  # of sluice serve
child= # of its server
trap 'for p in $pid $child; do kill -KILL "$p" 2>/dev/null || true; done' EXIT

alive() { kill -0 "$1" 2>/dev/null && [ "$(sed -E 's/.*\) (.).*/\1/' "/proc/$1/stat" 2>/dev/null)" != Z ]; }

# Wait until a command succeeds, two minutes at most: only a hang ends it.
until_true() { # COMMAND...
    for _ in $(seq 1200); do
        "$@" && return 0
        sleep 0.1
    done
    return 1
}
said_ready() { grep -qx ready out.txt || ! alive "$pid"; }
gone() { ! alive "$1"; }

# begin LABEL COMMAND...: in the background until it says ready. Sets $pid, $child and $url.
begin() {
    local label=$1
    shift
    : >out.txt # the job does it too, but perhaps after the first look
    "$@" >out.txt 2>err.txt </dev/null &
    pid=$!
    child=
    until_true said_ready || true
    url=$(sed -nE 's|^api +(http://[^ ]*)/v1$|\1|p' out.txt)
    child=$(pgrep -P "$pid" | head -n 1)
    if grep -qx ready out.txt && [ -n "$url" ] && [ -n "$child" ]; then
        ok "$label: ready at $url"
    else
        fail "$label: not ready: $(head -c 600 err.txt)"
    fi
}

# ends LABEL CODE: serve ends with the code and leaves no server behind
ends() {
    wait "$pid"
    rc=$?
    if [ "$rc" -eq "$2" ]; then ok "$1: exit $rc"; else fail "$1: exit $rc, not $2: $(tail -c 300 err.txt)"; fi
    if until_true gone "$child"; then ok "  no server is left"; else fail "$1: process $child is left"; kill -KILL "$child"; fi
    pid=
    child=
}

# A port that nobody has just now: the server that is played does not say which one it got.
free_port() { node -e 'const s = require("net").createServer().listen(0, "127.0.0.1", () => { console.log(s.address().port); s.close(); })'; }

plain=("$sluice" serve --server "$LLAMA_BIN/llama-server" -t 2 -c 512 --port 0)
serve=("${plain[@]}" --window 127.0.0.1:0)

# With llama-server and the shipped model: the answer of `sluice run`.
prompt='Request: Tell me a story about a baker.'
begin "llama-server" "${serve[@]}" -m "$DEMO" --cache 4MiB --parallel 2 -- --alias fixture
if [ "$(ps -o pgid= -p "$child" | tr -d ' ')" = "$child" ]; then
    ok "  a process group of its own: Ctrl-C comes once"
else
    fail "  Ctrl-C would reach the server twice"
fi
expect "  one line says where" out.txt '^api     http://127\.0\.0\.1:[0-9]+/v1$'
expect "  the mode line" err.txt '^sluice: streaming 18 expert tensors .*cache 3 MiB.*lossless$'
expect "  the memory plan" err.txt '^sluice: memory'
if grep -qE '^[0-9.]+ I ' err.txt; then fail "llama-server's log is passed on"; else ok "  llama-server's log is not passed on"; fi
window=$(sed -nE 's|^window +(http://127\.0\.0\.1:[0-9]+)/#token=.*$|\1|p' out.txt)
works "  the window answers" curl -sf "$window/stats"
expect "  and knows the model" out.txt '"name": *"demo\.gguf"'
expect "  and where the chat is" out.txt '"url": *"'"$url"'"'
if [ "$(grep -c 'window: ' err.txt)" -eq 0 ]; then ok "  its line comes once"; else fail "the window's line: $(cat err.txt)"; fi
works "  /health answers" curl -sf "$url/health"
works "  /v1/models answers" curl -sf "$url/v1/models"
expect "  an option after -- arrived" out.txt '"fixture"'
works "  /props answers" curl -sf "$url/props"
expect "  --parallel arrived" out.txt '"total_slots": *2[,}]'
expect "  --ctx arrived" out.txt '"n_ctx": *512[,}]'
works "  a completion" curl -sf "$url/completion" -H 'Content-Type: application/json' \
    -d '{"prompt": "'"$prompt"'\n\n", "n_predict": 48, "temperature": 0, "cache_prompt": false}'
node -e 'process.stdout.write(JSON.parse(require("fs").readFileSync("out.txt")).content)' >served.txt
works "  the same by sluice run" "$sluice" run -m "$DEMO" -t 2 -c 512 -q --temp 0 -n 48 --cache 4MiB -p "$prompt"$'\n\n'
if [ "$(wc -c <served.txt)" -gt 100 ] && [ "$(cat served.txt)" = "$(cat out.txt)" ]; then
    ok "  the same $(wc -c <served.txt) bytes"
else
    fail "llama-server: '$(head -c 200 served.txt)', sluice run: '$(head -c 200 out.txt)'"
fi
refused 1 "is in use: choose another with --port" "a second one on the same port" "$sluice" serve -m "$DEMO" --no-window --port "${url##*:}"
refused 1 "is in use: choose another with --window" "its window on the same port" "${serve[@]}" -m "$DEMO" --window "127.0.0.1:${url##*:}"
kill -TERM "$pid"
ends "SIGTERM" 0

begin "with defaults of the model" "${serve[@]}" -m "$model" --drop-cold-experts 0.5 --n-expert-used 1 -v
expect "  lossy settings are in the mode line" err.txt '^sluice: streaming .*lossy: drop.*1 experts per token \(--n-expert-used\)$'
expect "  --verbose passes the log on" err.txt '^[0-9.]+ I .*model loaded'
kill -INT "$pid"
ends "SIGINT" 0
begin "--resident" "${plain[@]}" -m "$model" --resident
expect "  the mode line" err.txt '^resident: plain llama.cpp, nothing streams, lossless$'
if grep -q '^sluice: streaming' err.txt; then fail "--resident streams"; else ok "  nothing streams"; fi
kill -KILL "$child"
ends "llama-server is killed" 1
expect "  and how it ended is said" err.txt '^sluice serve: llama-server was ended by signal 9 \(Killed\)'
begin "the llama-server of this build, unasked" "$sluice" serve -t 2 -c 512 --port 0 --window 127.0.0.1:0 -m "$model"
kill -KILL "$pid"
ends "serve is killed" 137
printf 'wait ready\nkey c\nexit 0\n' | "$BIN/cli-terminal" "${serve[@]}" -m "$model" >out.txt 2>err.txt
rc=$?
if [ "$rc" -eq 0 ]; then ok "Ctrl-C on a terminal ends it with 0"; else fail "Ctrl-C on a terminal: $(cat err.txt)"; fi

# What cannot be.
refused 2 "no model" "no model" "$sluice" serve
refused 1 "No such file" "a model that is not there" "$sluice" serve -m "$dir/nothing.gguf"
head -c 3000 "$DEMO" >cut.gguf
refused 1 "cut.gguf" "a model that is cut" "$sluice" serve -m cut.gguf
refused 1 "holds no tensors" "a model without weights" "${serve[@]}" -m "$vocab_model"
refused 2 "--server $dir/nothing: not a program" "a server that is not there" "${serve[@]}" -m "$model" --server "$dir/nothing"
SLUICE_LLAMA_SERVER=$here refused 2 "SLUICE_LLAMA_SERVER $here: not a program" "a server that is a directory" "$sluice" serve -m "$model"
refused 2 "unexpected argument more" "an argument before --" "${serve[@]}" -m "$model" more
refused 2 "unexpected argument more" "an argument before -- and one after" "${serve[@]}" -m "$model" more -- --slots
refused 2 "--port belongs before the --" "a port after --" "${serve[@]}" -m "$model" -- --port 1
refused 2 "--port 65536: must be 0..65535" "--port 65536" "${serve[@]}" -m "$model" --port 65536
refused 2 "--parallel 0: must be 1..256" "--parallel 0" "${serve[@]}" -m "$model" --parallel 0
refused 2 "--host 192.0.2.1: not an address of this machine" "another machine's address" "${serve[@]}" -m "$model" --host 192.0.2.1
refused 2 "--host no.such.host.invalid: " "a name that is none" "${serve[@]}" -m "$model" --host no.such.host.invalid
for value in here 127.0.0.1 :80 127.0.0.1:x 127.0.0.1:65536 ::1:80 '[::1]' ''; do
    refused 2 "--window $value: must be an address and a port" "--window=$value" "${serve[@]}" -m "$model" --window="$value"
done
refused 2 "--allow-remote" "a window for other machines" "$sluice" serve -m "$model" --port 0 --window 0.0.0.0:0
port=$(free_port)
refused 2 "cannot both have port" "one port for both" "$sluice" serve -m "$model" --port "$port" --window "127.0.0.1:$port"
refused 2 "--resident: nothing streams" "--window and --resident" "${serve[@]}" -m "$model" --resident
refused 2 "--window and --no-window contradict" "--window and --no-window" "${serve[@]}" -m "$model" --no-window
refused 2 "--n-expert-used 9" "more experts than there are" "${serve[@]}" -m "$model" --n-expert-used 9
SLUICE_CACHE=12x refused 2 "SLUICE_CACHE" "a bad environment" "${serve[@]}" -m "$model"
try "${serve[@]}" -m "$model" -- --no-such-option
if [ "$rc" -eq 1 ]; then ok "an unknown option of llama-server: exit 1"; else fail "an unknown option of llama-server: exit $rc"; fi
expect "  it is said" err.txt '^sluice serve: llama-server ended with exit code 1 before it was ready; its last lines:$'
expect "  in llama-server's words" err.txt '^  .*no-such-option'
try "${serve[@]}" -m "$model" --ubatch 64 --cache 64MiB --memory 64MiB
if [ "$rc" -eq 1 ]; then ok "a cache that does not fit: exit 1"; else fail "a cache that does not fit: exit $rc"; fi
expect "  before it is ready, with the plug-in's words" err.txt '^sluice: .*64 MiB'
expect "  and serve's" err.txt '^sluice serve: llama-server could not compute the first token'
if [ -s out.txt ]; then fail "  it says ready: $(cat out.txt)"; else ok "  it does not say ready"; fi

# With a server that behaves as we like.
window=$(free_port)
serve=(env FAKE_TOLD="$dir/told.txt" "$sluice" serve --server "$fake" --ubatch 64 --port 0 --window "127.0.0.1:$window" -m "$model")
FAKE=well begin "a server" "${serve[@]}" --cache 5MiB -t 3 -c 1024 -- --more 'two words'
expect "  the plug-in says where the window is" out.txt '^window  http://127\.0\.0\.1:'"$window"'/#token=abc$'
if grep -q 'window' err.txt; then fail "the window's line twice"; else ok "  once"; fi
if grep -q '^chat ' out.txt; then fail "a page that is not there"; else ok "  no page, no line about one"; fi
for line in --no-warmup --no-repack --kv-unified "two words" SLUICE_CACHE=5MiB "SLUICE_WINDOW=127.0.0.1:$window" "SLUICE_WINDOW_CHAT=$url"; do
    if grep -qxF -- "$line" told.txt; then ok "  gives $line"; else fail "does not give $line: $(tr '\n' ' ' <told.txt)"; fi
done
if tr '\n' ' ' <told.txt | grep -qF -- "--ctx-size 1024 --parallel 4 --kv-unified --threads 3 --batch-size 64 --ubatch-size 64 "; then
    ok "  gives numbers"
else
    fail "numbers: $(tr '\n' ' ' <told.txt)"
fi
expect "  SLUICE_PLUGIN" told.txt '^SLUICE_PLUGIN=/.*/libggml-sluice\.so$'
expect "  LD_PRELOAD" told.txt '^LD_PRELOAD=/.*/libsluice-preload\.so'
kill -TERM "$pid"
ends "it is asked to end" 0
window=$(free_port)
FAKE=page SLUICE_WINDOW="127.0.0.1:$window" begin "a server with a page" env FAKE_TOLD="$dir/told.txt" "$sluice" serve --server "$fake" --ubatch 64 --port 0 -m "$model"
expect "  its page" out.txt '^chat    http://127\.0\.0\.1:[0-9]+/$'
expect "  the window of the environment" out.txt '^window  http://127\.0\.0\.1:'"$window/"
kill -HUP "$pid"
ends "SIGHUP" 0
# The micro-batch is the one that a chat gets: with plenty of memory, and with little.
mkdir -p "$dir/run"
for settings in "-c 1024" "-c 4096 --cache auto --memory 120MiB"; do
    # shellcheck disable=SC2086 # words
    XDG_RUNTIME_DIR=$dir/run FAKE=well begin "no --ubatch, $settings" env FAKE_TOLD="$dir/told.txt" SLUICE_LLAMA_SERVER="$fake" \
        "$sluice" serve --port 0 --window "127.0.0.1:$window" -m "$DEMO" -t 2 $settings
    kill -TERM "$pid"
    ends "it is asked to end" 0
    # shellcheck disable=SC2086 # words
    echo Hello | "$sluice" chat -m "$DEMO" -t 2 -n 1 -q --csv chat.csv --chat-template chatml $settings >out.txt 2>err.txt
    chosen=$(sed -nE 's/^# ubatch=([0-9]+)$/\1/p' chat.csv)
    given=$(grep -A 1 -x -e --ubatch-size told.txt | tail -n 1)
    batch=$(grep -A 1 -x -e --batch-size told.txt | tail -n 1)
    if [ -n "$chosen" ] && [ "$given" = "$chosen" ] && [ "$batch" = "$chosen" ]; then
        ok "  the micro-batch of a chat, $chosen"
    else
        fail "  micro-batch $given of batch $batch, where a chat has $chosen: $(head -c 200 err.txt)"
    fi
done
left=$(find "$dir/run" -name '*.stat')
if [ -z "$left" ]; then ok "choosing it leaves nothing for sluice top"; else fail "left behind: $left"; fi
rm -f told.txt
FAKE=loading "${serve[@]}" >out.txt 2>err.txt </dev/null &
pid=$!
until_true test -s told.txt
child=$(pgrep -P "$pid" | head -n 1)
kill -INT "$pid"
ends "asked to end before it is ready" 0
if [ -s out.txt ]; then fail "  it said $(cat out.txt)"; else ok "  it said nothing of ready"; fi
FAKE=rude begin "a server that breaks connections" "${serve[@]}"
kill -TERM "$pid"
ends "it is asked to end" 0
FAKE=key begin "a server that wants a key" "${serve[@]}"
kill -TERM "$pid"
ends "it is asked to end" 0
FAKE=chatty begin "a server that talks much" "${serve[@]}"
kill -TERM "$pid"
ends "it is asked to end" 0
FAKE=dies begin "a server that dies" "${serve[@]}"
curl -s --max-time 60 "$url/die" >/dev/null
ends "it dies" 1
expect "  serve says how" err.txt '^sluice serve: llama-server ended with exit code 7; its last lines:$'
expect "  and passes on its last lines" err.txt '^  0\.00\.000\.004 I srv  main: a line before the last$'
expect "  errors at once, too" err.txt '^0\.00\.000\.005 E srv  main: the last words$'
FAKE=bad begin "a server that ends badly" "${serve[@]}"
kill -TERM "$pid"
ends "it is asked to end" 1
expect "  serve says how it ended" err.txt '^sluice serve: llama-server ended with exit code 9'
FAKE=early try "${serve[@]}"
if [ "$rc" -eq 1 ] && [ ! -s out.txt ]; then ok "a server that ends early: exit 1"; else fail "a server that ends early: exit $rc: $(cat out.txt)"; fi
expect "  serve says so" err.txt '^sluice serve: llama-server ended with exit code 3 before it was ready; its last lines:$'
FAKE=refuses try "${serve[@]}"
if [ "$rc" -eq 1 ] && [ ! -s out.txt ]; then ok "a first token that fails: exit 1"; else fail "a first token that fails: exit $rc"; fi
child=$(sed -n 's/^pid //p' told.txt)
if gone "$child"; then ok "  no server is left"; else fail "process $child is left"; fi
FAKE=stubborn begin "a server that does not want to end" "${serve[@]}"
kill -TERM "$pid"
sleep 0.5
kill -TERM "$pid"
ends "asked twice, it is killed" 1
expect "  serve says so" err.txt 'did not end in time and was killed$'
FAKE=stubborn begin "once more" "${serve[@]}"
kill -TERM "$pid"
ends "asked once, it is killed, later" 1
finish
