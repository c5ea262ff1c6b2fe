#!/usr/bin/env bash
# bench.sh - `sluice bench` and the options of `sluice run` that it is built on: fixed lengths, the report against
# the raw files, what is refused, what fails, what an interruption leaves behind. No check looks at a speed.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cli/lib.sh
. "$here/lib.sh"

demo=$here/../../models/demo.gguf
export TMPDIR=$dir/tmp
mkdir -p "$TMPDIR"

# nothing_left LABEL: no temporary directory, no cgroup and no process of ours
nothing_left() {
    local left
    left=$(ls -A "$TMPDIR"; find /sys/fs/cgroup -maxdepth 6 -type d -name 'sluice-bench-*' 2>/dev/null |
        while read -r g; do # those of other benches on this machine have living parents
            pid=${g##*/sluice-bench-}
            [ -d "/proc/${pid%%-*}" ] || echo "$g"
        done; grep -slE "${TMPDIR}/[s]luice-bench-" /proc/[0-9]*/cmdline)
    if [ -z "$left" ]; then ok "$1: nothing is left behind"; else fail "$1: left behind: $left"; fi
}

# The options of run that make runs comparable.
run=("$sluice" run -m "$demo" -t 2 --temp 0 -p "Once upon a time" --json)
works "the demo model ends its story" "${run[@]}" -n 400
cp out.txt ended.json
expect "  by itself" ended.json '"stop": "end of text"'
n=$(value ended.json tokens_generated)
works "--ignore-eos" "${run[@]}" -n $((n + 20)) --ignore-eos
expect "  goes on" out.txt '"stop": "length"'
[ "$(value out.txt tokens_generated)" = $((n + 20)) ] || fail "--ignore-eos: $(value out.txt tokens_generated) tokens"
story=$(value ended.json text)
if grep -qF -- "${story%\"}" out.txt; then ok "  after the same story"; else fail "--ignore-eos changed the story"; fi
works "--prompt-tokens" "${run[@]}" -n 4 --prompt-tokens 3
if [ "$(sed -n '/"prompt"/,/}/p' out.txt | grep -oE '"tokens": *[0-9]+')" = '"tokens": 3' ]; then
    ok "  uses so many"
else
    fail "--prompt-tokens 3: $(tr '\n' ' ' <out.txt)"
fi

bench=("$sluice" bench -m "$demo" -t 2 --drop-caches model --probe-seconds 0.02)

# Refused before anything runs.
refused 2 "no model" "no model" "$sluice" bench
refused 1 "No such file" "a model that is not there" "$sluice" bench -m "$dir/nothing.gguf"
refused 1 "holds no tensors" "a vocabulary" "$sluice" bench -m "$vocab_model"
refused 2 "neither a size" "a budget that is none" "${bench[@]}" --budgets 0,many
refused 2 "neither a size" "an empty budget" "${bench[@]}" --budgets 0,
refused 2 "measured twice" "a budget twice" "${bench[@]}" --budgets 0,2MiB,0
refused 2 "resident, mmap" "an unknown baseline" "${bench[@]}" --baseline swap
refused 2 "NAME: options" "a variant without a name" "${bench[@]}" --variant "--cache-policy lru"
refused 2 "has no options" "a variant without options" "${bench[@]}" --variant "lru:"
refused 2 "set by the bench" "a variant that changes the budget" "${bench[@]}" --variant "x: --cache=1"
refused 2 "set by the bench" "a variant that changes the length" "${bench[@]}" --variant "x: -n 3"
refused 2 "unknown option --frobnicate" "a variant with an unknown option" "${bench[@]}" --variant "x: --frobnicate"
refused 2 "must be cycle or lru" "a variant with a bad value" "${bench[@]}" --variant "x: --cache-policy mru"
refused 2 "is no option" "a variant with another word" "${bench[@]}" --variant "x: --force-cache yes"
refused 2 "must be a size" "a limit that is none" "${bench[@]}" --memory lots
refused 2 "must be machine, model or no" "caches that are none" "${bench[@]}" --drop-caches all
refused 2 "must be 1..100" "no runs" "${bench[@]}" --runs 0
refused 2 "must be 1..100000" "nothing to generate" "${bench[@]}" --gen 0
refused 2 "unexpected argument" "an argument" "${bench[@]}" again
refused 1 "No such file" "a report that cannot be written" "${bench[@]}" --json "$dir/no/such/report.json"
refused 1 "No such file" "a prompt that is not there" "${bench[@]}" -f "$dir/nothing"
nothing_left "what was refused"

# A whole bench, kept, and its report against the raw files.
try "${bench[@]}" --budgets 0,2MiB,all --variant "lru: --cache-policy lru" --baseline resident,mmap --memory 512M \
    --gen 12 --prompt 20 --runs 2 --json report.json --keep kept
[ "$rc" -eq 0 ] || fail "a whole bench: exit $rc: $(tail -n 3 err.txt)"
cp out.txt table.txt
for row in resident mmap 0 '0 lru' 2MiB '2MiB lru' all 'all lru'; do
    expect "  a row $row" table.txt "^$row +([0-9.]+|-) "
done
expect "  a ratio to the reference" table.txt '^  2MiB lru / (resident|mmap): [0-9.]+ \('
expect "  a ratio to the plain row" table.txt '^  2MiB lru / 2MiB: [0-9.]+ \('
expect "  the disk" table.txt '^disk, random experts of this model, 4 lanes'
expect "  a line per run with the machine's state" err.txt '^round 2, all: [0-9.]+ tok/s; at start: load '
if grep -q $'\r\|\033' err.txt; then fail "progress without a terminal"; else ok "  no progress without a terminal"; fi
nothing_left "a whole bench"
if command -v python3 >/dev/null; then
    if python3 - report.json kept <<'PY'
import csv, json, statistics, sys
o = json.load(open(sys.argv[1]))
def near(a, b): return abs(a - b) <= 1e-6 * max(1, abs(a), abs(b))
assert o["sluice_bench"] == 1 and o["complete"] is True
s = o["settings"]
assert s["tokens"] == 12 and s["prompt_tokens"] == 20 and s["runs"] == 2 and s["memory_limit_bytes"] == 512 << 20
assert [v["name"] for v in o["variants"]] == ["resident", "mmap", "0", "0 lru", "2MiB", "2MiB lru", "all", "all lru"]
assert [p["when"] for p in o["bound"]["probes"]] == ["before"] * 3 + ["after"] * 3
disk = statistics.median(p["bytes_per_second"] for p in o["bound"]["probes"])
assert near(disk, o["bound"]["bytes_per_second"]) and all(p["bytes"] > 0 for p in o["bound"]["probes"])
measured = [v for v in o["variants"] if v["skipped"] is None]
orders = {}
for v in measured:
    assert len(v["runs"]) == 2, v["name"]
    for r in v["runs"]:
        assert r["state"] == "complete" and r["exit_code"] == 0, (v["name"], r["state"], r["message"])
        orders.setdefault(r["round"], []).append((r["order"], v["name"]))
        with open("%s/run-%d.csv" % (sys.argv[2], r["order"])) as f:
            rows = list(csv.DictReader(line for line in f if not line.startswith("#")))
        gen = [x for x in rows if x["phase"] == "generation"]
        prompt = sum(int(x["tokens"]) for x in rows if x["phase"] == "prompt")
        assert len(gen) == r["tokens"] == 12 and prompt == r["prompt_tokens"] == 20
        assert near(sum(float(x["wall_s"]) for x in gen), r["wall_seconds"])
        assert near(sum(float(x["stall_s"]) for x in gen), r["wait_seconds"])
        for column in "read_bytes", "hits", "misses":
            assert sum(int(x[column]) for x in gen) == r[column] == sum(r["steps"][column])
        assert [near(float(x["wall_s"]), w) for x, w in zip(gen, r["steps"]["wall_seconds"])] == [True] * 12
        assert near(r["tokens_per_second"], 12 / r["wall_seconds"])
        child = json.load(open("%s/run-%d.json" % (sys.argv[2], r["order"])))
        assert child["stop"] == "length" and child["tokens_generated"] == 13
        assert r["peak_bytes"] > 0 and r["dropped"] == ("nothing" if v["kind"] == "resident" else "the model's pages")
        assert r["warmed"] == (v["kind"] == "resident")
        if r["peak_of"] == "cgroup":
            assert v["kind"] != "resident" and r["peak_bytes"] <= 512 << 20
    runs = v["runs"]
    rates = [r["tokens_per_second"] for r in runs]
    t = v["tokens_per_second"]
    assert near(t["median"], statistics.median(rates)) and t["low"] <= t["median"] <= t["high"]
    assert near(v["slowest_run"], min(rates)) and near(v["fastest_run"], max(rates))
    if v["kind"] == "stream":
        assert near(v["read_bytes_per_token"], statistics.median(r["read_bytes"] / r["tokens"] for r in runs))
        hits, misses = sum(r["hits"] for r in runs), sum(r["misses"] for r in runs)
        assert near(v["hit_share"], hits / (hits + misses)) and 0 <= v["wait_share"] <= 1
        seconds = max(v["read_bytes_per_token"] / disk, o["bound"]["compute_seconds_per_token"] or 0)
        assert near(v["bound_tokens_per_second"] * seconds, 1)
        assert near(v["share_of_bound"], t["median"] / v["bound_tokens_per_second"])
    else:
        assert v["bound_tokens_per_second"] is None and v["hit_share"] is None
# Every second round is the first one reversed.
names = {k: [n for _, n in sorted(x)] for k, x in orders.items()}
assert names[2] == names[1][::-1], names
by = {v["name"]: v for v in o["variants"]}
assert by["0"]["hit_share"] == 0 and by["all"]["hit_share"] > by["2MiB"]["hit_share"] > 0
assert by["0 lru"]["options"] == ["--cache-policy", "lru"]
assert by["all"]["runs"][0]["cache_bytes"] >= o["model"]["bank_bytes"]
if by["resident"]["skipped"] is None:
    assert o["reference"] == "resident" and o["bound"]["compute_from"] == "resident baseline"
    assert near(o["bound"]["compute_seconds_per_token"], 1 / by["resident"]["tokens_per_second"]["median"])
PY
    then ok "  the report agrees with what the runs wrote"; else fail "the report is wrong"; fi
fi
texts=$(for f in kept/run-*.json; do value "$f" text; done | sort -u | wc -l)
if [ "$texts" -eq 1 ]; then ok "  all rows generated the same text"; else fail "$texts different texts"; fi

# Without a baseline: tokens of `all` that missed nothing, or the disk alone, and it says so.
works "the whole bank without a baseline" "${bench[@]}" -q --budgets all --gen 40 --runs 1 --json - --prompt 30
expect "  the object is on standard output" <(head -n 1 out.txt) '^\{$'
expect "  the table is on standard error" err.txt '^all +[0-9.]+ '
if [ "$(value out.txt compute_from)" != '"resident baseline"' ]; then ok "  computing: $(value out.txt compute_from)"; else fail "no baseline ran"; fi
works "no probes" "${bench[@]}" -q --budgets 0 --gen 2 --runs 1 --prompt 4 --probe-seconds 0
expect "  no bound" out.txt '^0 .* - +-$'
# Neither does the other row: the program itself needs more than 8 MiB. Where the kernel keeps the limit, it ends it.
try "${bench[@]}" -q --budgets 0,9MiB --memory 8M --gen 2 --runs 1 --prompt 4
expect "a limit that the cache exceeds" out.txt '^9MiB: left out: a cache of '
if grep -q 'kept by the kernel' out.txt; then
    if [ "$rc" -eq 1 ]; then ok "a limit that the program exceeds: exit 1"; else fail "a limit that the program exceeds: exit $rc"; fi
    expect "  says why" out.txt "^0, round 1: FAILED, .*(does not fit|signal 9: the kernel ended it)"
fi
works "mmap without a limit" "${bench[@]}" -q --budgets 0 --baseline mmap --gen 2 --runs 1 --prompt 4
expect "  is left out with the reason" out.txt '^mmap: left out: needs a limit'
printf 'Once upon' >short.txt
works "a prompt that is too short" "${bench[@]}" -q --budgets 0 --gen 2 --runs 1 --prompt 50 -f short.txt
expect "  is said" out.txt '^0, round 1: the prompt has only [0-9]+ tokens'

# A run that fails is reported, the others go on.
try "${bench[@]}" --budgets 0 --variant "greedy: --n-expert-used 999" --gen 3 --runs 1 --prompt 4 --json r.json
if [ "$rc" -eq 1 ]; then ok "a failing variant: exit 1"; else fail "a failing variant: exit $rc"; fi
expect "  with its message" out.txt '^0 greedy, round 1: FAILED, exit code 2: sluice run: --n-expert-used 999: must be 1'
expect "  and the other row" out.txt '^0 +[0-9.]+ '
expect "  in the object too" r.json '"state": "failed"'

# A run that takes too long is used as far as it came; that is no failure.
works "a run that is stopped" "${bench[@]}" -q --budgets 0 --gen 90000 --runs 1 --prompt 4 --max-seconds 1 --json r.json
expect "  says so" out.txt '^0, round 1: stopped after [0-9]+ tokens in [0-9]+ s'
expect "  in the object too" r.json '"state": "stopped"'
nothing_left "a run that is stopped"

# Ctrl-C: what was measured so far, marked as partial, and nothing left behind.
printf 'wait round 1/2, 0,\nkey c\nwait PARTIAL: interrupted after \nwait broken off by the user\nexit signal 2\n' |
    "$BIN/cli-terminal" "${bench[@]}" --budgets 0,2MiB --gen 90000 --runs 2 --prompt 4 --memory 512M --json part.json >out.txt 2>err.txt
rc=$?
if [ "$rc" -eq 0 ]; then ok "Ctrl-C: a partial report, then death by the signal"; else fail "Ctrl-C: $(cat err.txt)"; fi
expect "  the object is partial" part.json '"complete": false'
nothing_left "Ctrl-C"
"${bench[@]}" --budgets 0 --gen 90000 --runs 1 --prompt 4 --memory 512M >out.txt 2>err.txt &
pid=$!
until [ -n "$(find "$TMPDIR" -name run-1.csv)" ] || ! kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
kill -TERM "$pid"
wait "$pid"
rc=$?
if [ "$rc" -gt 128 ] && grep -q '^PARTIAL' out.txt; then ok "SIGTERM: the same"; else fail "SIGTERM: exit $rc: $(cat err.txt)"; fi
nothing_left "SIGTERM"

# Somebody who may neither make cgroups nor drop caches (where such a user can run the program at all).
user=(setpriv --reuid 65534 --regid 65534 --clear-groups)
chmod 777 "$TMPDIR"
if [ "$(id -u)" -eq 0 ] && "${user[@]}" "$sluice" info "$demo" >out.txt 2>err.txt; then
    works "without rights" "${user[@]}" "$sluice" bench -q -m "$demo" -t 2 --budgets 0 --baseline mmap --gen 2 --runs 1 \
        --prompt 4 --memory 512M --probe-seconds 0
    expect "  the limit is not the kernel's" out.txt '^memory limit 0.50 GiB, (kept by sluice itself|NOT KEPT BY ANYTHING)'
    expect "  the model's pages are dropped" out.txt "^dropped before each run: the model's pages \(1 runs\)"
    expect "  mmap is left out" out.txt '^mmap: left out: needs a limit that the kernel keeps'
    nothing_left "without rights"
fi
finish
