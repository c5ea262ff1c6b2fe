#!/usr/bin/env bash
# counters.sh - every output tells the same of one run: the summary and --json, --csv and SLUICE_CSV, SLUICE_STATS, the
# window's /stats and /metrics, `sluice top --json`. Also of four sequences that a program decodes together, which are
# generation in all of them. Sums are compared, so nothing here depends on time.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cli/lib.sh
. "$here/lib.sh"

command -v python3 >/dev/null || { echo "no python3: nothing is compared"; exit 77; }
export SLUICE_PUBLISH_DIR=$dir/shown SLUICE_LOOKAHEAD=0 # what is read ahead may land after the last step
mkdir -m 700 "$SLUICE_PUBLISH_DIR"
demand=$("$sluice" info --json "$model" | grep -oE '"token_demand_bytes": *[0-9]+' | grep -oE '[0-9]+$')

running=
trap 'if [ -n "$running" ]; then kill -KILL $running 2>/dev/null; fi' EXIT

cat >compare.py <<'PY'
# compare.py KIND: compares the files that the script left. Prints what differs.
import csv, json, re, sys

wrong = []
def same(what, a, b):
    if abs(a - b) > 2e-6 * max(1, abs(a)):  # texts have 6 or 7 digits
        wrong.append(f"{what}: {a} is not {b}")

PHASES = ("prompt", "generation")
COUNTS = ("read_bytes", "reads", "routed", "hits", "misses", "hit_bytes", "miss_bytes", "examined", "dropped",
          "avoided_bytes", "weight", "dropped_weight", "substituted")
rows = list(csv.DictReader(l for l in open("steps.csv") if not l.startswith("#")))
def total(phase, key, of=rows):
    return sum(float(r[key]) for r in of if r["phase"] == phase)

kind = sys.argv[1]
if kind == "run":
    out, text = json.load(open("out.json")), open("summary.txt").read()
    for p in PHASES:
        o, drop = out[p], out[p]["drop"]
        same(f"{p} steps", o["steps"], sum(r["phase"] == p for r in rows))
        for key in ("tokens", "evictions", "minor_faults", "major_faults", "cold_bytes") + COUNTS:
            same(f"{p} {key}", drop[key] if key in drop else o[key], total(p, key))
        for key, column in (("step_seconds", "wall_s"), ("wait_seconds", "stall_s"), ("other_seconds", "other_s"),
                            ("expert_compute_seconds", "expert_s"), ("bookkeeping_seconds", "bookkeeping_s")):
            same(f"{p} {key}", o[key], total(p, column))
        found = re.search(rf"^  {p} +(\d+) tokens", text, re.M)
        same(f"{p} tokens as text", float(found.group(1)), total(p, "tokens"))
else:
    stats, page = json.load(open("stats.json")), open("metrics.txt").read()
    top, = json.load(open("top.json"))["processes"]
    metrics = {}
    for line in page.splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            metrics[name] = float(value)
    # A stock program's last step ends when the context does: after these were asked.
    ended = rows[:-1] if kind == "stock" else rows
    named = {"hits": "sluice_expert_hits", "misses": "sluice_expert_misses", "hit_bytes": "sluice_expert_hit_bytes",
             "miss_bytes": "sluice_expert_miss_bytes", "reads": "sluice_reads", "read_bytes": "sluice_read_bytes",
             "examined": "sluice_routings_examined", "dropped": "sluice_routings_dropped",
             "avoided_bytes": "sluice_avoided_bytes", "substituted": "sluice_routings_substituted"}
    for p in PHASES:
        s, t = stats[p], top[p]
        for key in COUNTS:
            same(f"{p} {key} in /stats", s["dropped"][key] if key in s["dropped"] else s[key], total(p, key))
            same(f"{p} {key} in top", t[key], total(p, key, ended))
            if key in named:
                same(f"{p} {key} in /metrics", metrics[f'{named[key]}_total{{phase="{p}"}}'], total(p, key))
        same(f"{p} weight in /metrics", total(p, "weight"),
             sum(v for k, v in metrics.items() if k.startswith(f'sluice_router_weight_total{{phase="{p}"')))
        for key in ("steps", "tokens"):
            want = sum(r["phase"] == p for r in ended) if key == "steps" else total(p, key, ended)
            same(f"{p} {key} in /stats", s[key], want)
            same(f"{p} {key} in top", t[key], want)
            same(f"{p} {key} in /metrics", metrics[f'sluice_{key}_total{{phase="{p}"}}'], want)
        for key, part, column in (("wall", None, "wall_s"), ("stall", "stall", "stall_s"),
                                  ("other", "other", "other_s"), ("bookkeeping", "bookkeeping", "bookkeeping_s")):
            want = total(p, column, ended)
            same(f"{p} {key} in /stats", s[key + "_seconds"], want)
            same(f"{p} {key} in top", t[key + "_seconds"], want)
            if part:
                same(f"{p} {key} in /metrics",
                     metrics[f'sluice_step_seconds_total{{phase="{p}",part="{part}"}}'], want)
        same(f"{p} experts in top and /stats", t["expert_seconds"], s["compute_seconds"])
        if s["hits"] + s["misses"] != s["routed"]:
            wrong.append(f"{p}: {s['hits']} hits and {s['misses']} misses of {s['routed']}")
    for key in ("read_bytes", "hits", "misses", "blocks"):
        now = sum(stats[p][key] for p in PHASES)
        if kind == "stock" and key != "blocks":  # within a step it is written now and then
            least = sum(total(p, key, ended) for p in PHASES)
            if not least <= top[key] <= now:
                wrong.append(f"{key} of both in top: {top[key]} is not within {least} and {now}")
        elif kind != "stock":
            same(f"{key} of both in top", top[key], now)
    for key, where in (("cache_bytes", "bytes"), ("slots", "slots"), ("resident", "resident")):
        same(f"{key} in top", top[key], stats["cache"][where])
if kind == "stock":
    file = json.load(open("stats-file.json"))
    for p in PHASES:
        for key in COUNTS + ("tokens",):
            same(f"{p} {key} in SLUICE_STATS", file[f"{p}_{key}"], total(p, key))
    for key in ("hits", "misses", "read_bytes", "tokens"):
        same(f"{key} in SLUICE_STATS", file[f"{key}_total"], sum(total(p, key) for p in PHASES))
    same("evictions", file["evictions"], sum(total(p, "evictions") for p in PHASES))
    n = int(sys.argv[2])
    same("tokens generated", total("generation", "tokens"), 6 * n)
    same("tokens of the prompts", total("prompt", "tokens"), int(sys.argv[3]))
    if file["generation_routed"] == 0 or any(r["phase"] == "generation" and int(r["routed"]) == 0 for r in rows):
        wrong.append("generated tokens without experts")
print("\n".join(wrong))
sys.exit(bool(wrong))
PY
agree() { # LABEL ARGUMENTS...
    local label=$1
    shift
    if python3 compare.py "$@" >wrong.txt 2>&1; then ok "$label: all agree"; else fail "$label: $(cat wrong.txt)"; fi
}
# wait_for FILE TEXT: until it is there, or the process $pid is not
wait_for() {
    local i
    for i in $(seq 3000); do
        : "$i"
        if grep -q -- "$2" "$1"; then return 0; fi
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    fail "no $2 in $1: $(cat "$1" err.txt)"
    return 1
}
# ask: what the process $pid, which computes nothing at this moment, shows
ask() {
    local url
    url=$(grep -ohE 'window: http://[^/]+' err.txt | sed 's/window: //')
    curl -sS --max-time 60 "$url/stats" >stats.json && curl -sS --max-time 60 "$url/metrics" >metrics.txt &&
        "$sluice" top --json "$pid" >top.json || fail "cannot ask $url"
}

for settings in "--cache 0" "--cache ${demand}B --force-cache" "--cache ${demand}B --force-cache --drop-cold-experts 0.6"; do
    # shellcheck disable=SC2086 # words
    "$sluice" run -m "$model" -t 2 -c 512 -n 12 --temp 0 -p "Once upon a time there was a queen" $settings --json --csv steps.csv \
        >out.json 2>err.txt </dev/null || fail "run: $(cat err.txt)"
    # shellcheck disable=SC2086
    "$sluice" run -m "$model" -t 2 -c 512 -n 12 --temp 0 -p "Once upon a time there was a queen" $settings >/dev/null 2>summary.txt </dev/null
    agree "run $settings" run

    # A conversation whose user thinks: nothing is computed while the others are asked.
    rm -f in
    mkfifo in
    # shellcheck disable=SC2086
    "$sluice" chat -m "$model" -t 2 -c 512 -n 6 --temp 0 $settings --window 0 --csv steps.csv <in >chat.txt 2>err.txt &
    pid=$!
    running="$running $pid"
    exec 3>in
    echo "Hello" >&3
    wait_for err.txt '^\[.* tokens read' && ask
    exec 3>&-
    wait "$pid" || fail "chat: $(cat err.txt)"
    agree "chat $settings" chat
done

# Without preloading, as a host program loads the plug-in: one sequence, and four in each batch.
for n in 1 4; do
    for cache in off "${demand}B"; do
        rm -f in
        mkfifo in
        : >steps.txt
        GGML_BACKEND_PATH=$(realpath "$BIN/libggml-sluice.so") SLUICE_CACHE=$cache SLUICE_FORCE_CACHE=1 SLUICE_CSV=$dir/steps.csv \
            SLUICE_STATS=$dir/stats-file.json SLUICE_WINDOW=127.0.0.1:0 "$BIN/sluice-logits" --wait --seqs "$n" --join 5 --unified \
            --prefill 12 --decode 6 --out logits "$model" <in >steps.txt 2>err.txt &
        pid=$!
        running="$running $pid"
        exec 3>in
        wait_for steps.txt '^computed' && ask
        exec 3>&-
        wait "$pid" || fail "sluice-logits: $(cat err.txt)"
        # While the sequences join, each batch also has a token of those that are there: 3 batches for each.
        agree "$n sequences, cache $cache" stock "$n" $((12 * n + 3 * n * (n - 1) / 2))
    done
done
finish
