#!/usr/bin/env bash
# csv.sh - `--csv` and SLUICE_CSV: comments, header, a row per step, sums that are the summary's, parts of the
# time that add up to the whole. That is bookkeeping: a part that is forgotten or counted twice fails it,
# a slow machine does not.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cli/lib.sh
. "$here/lib.sh"

header=step,phase,tokens,wall_s,stall_s,expert_s,other_s,bookkeeping_s,read_bytes,reads,routed,hits,misses,hit_bytes,miss_bytes,evictions,queue_mean,queue_max,minor_faults,major_faults,cpu_s,examined,dropped,avoided_bytes,weight,dropped_weight,substituted,cold_bytes
demand=$("$sluice" info --json "$model" | grep -oE '"token_demand_bytes": *[0-9]+' | grep -oE '[0-9]+$')

# column NAME: its number in the header
column() { tr ',' '\n' <<<"$header" | grep -nx "$1" | cut -d: -f1; }
# sum FILE PHASE COLUMN: over the rows of a phase
sum() {
    grep -v '^#' "$1" | awk -F, -v phase="$2" -v c="$(column "$3")" '$2 == phase { s += $c } END { printf "%.7f", s }'
}
# phase FILE PHASE KEY: a number of the JSON summary's object of that phase
phase() { sed -n "/^  \"$2\": {/,/^  }/p" "$1" | grep -oE "\"$3\": *[-0-9.e+]+" | head -n 1 | sed 's/.*: *//'; }
# whole PHASE COLUMN: the same of slots.csv, a whole number
whole() { printf '%.0f' "$(sum slots.csv "$1" "$2")"; }
# near LABEL A B: equal to 3 %, and not both nothing
near() {
    if awk -v a="$2" -v b="$3" 'BEGIN { d = a - b; exit !(b > 0 && d <= 0.03 * b && -d <= 0.03 * b) }'; then
        ok "$1: $2, $3"
    else
        fail "$1: $2 is not $3"
    fi
}
# adds_up LABEL FILE: the parts, over the whole file, are the wall time; each part that must be there is
adds_up() {
    local part wall parts=0 s
    wall=$(awk -v a="$(sum "$2" prompt wall_s)" -v b="$(sum "$2" generation wall_s)" 'BEGIN { printf "%.7f", a + b }')
    for part in stall_s expert_s other_s bookkeeping_s; do
        s=$(awk -v a="$(sum "$2" prompt $part)" -v b="$(sum "$2" generation $part)" 'BEGIN { printf "%.7f", a + b }')
        parts=$(awk -v a="$parts" -v b="$s" 'BEGIN { printf "%.7f", a + b }')
        [ "$part" = stall_s ] || awk -v s="$s" 'BEGIN { exit !(s > 0) }' || fail "$1: no $part"
    done
    near "$1: parts and wall time" "$parts" "$wall"
}
# table LABEL FILE: comments, then the header, then rows of as many fields, numbered
table() {
    if [ "$(head -n 1 "$2")" = "# sluice-csv 1" ] && [ "$(grep -v '^#' "$2" | head -n 1)" = "$header" ] &&
        awk -F, -v n="$(tr ',' '\n' <<<"$header" | wc -l)" '
            /^#/ { if (table) exit 1; next }
            !table++ { next }
            NF != n || $1 != ++rows { exit 1 }' "$2"; then
        ok "$1: $(grep -vc '^#' "$2") lines after the comments"
    else
        fail "$1: not a table: $(head -n 30 "$2")"
    fi
}

run=("$sluice" run -m "$model" -t 2 -c 512 -n 12 --temp 0 --json --csv steps.csv)
text="Once upon a time there was a queen who"
for settings in "--cache 0" "--cache ${demand}B --force-cache" "--cache auto" "--cache 0 --ubatch 3"; do
    rm -f steps.csv
    # shellcheck disable=SC2086 # words
    works "$settings" "${run[@]}" -p "$text" $settings
    table "  a table" steps.csv
    for p in prompt generation; do
        rows=$(grep -v '^#' steps.csv | grep -c ",$p,")
        [ "$rows" = "$(phase out.txt $p steps)" ] || fail "  $p: $rows rows, $(phase out.txt $p steps) steps"
        [ "$(sum steps.csv $p tokens | cut -d. -f1)" = "$(phase out.txt $p tokens)" ] || fail "  $p: tokens differ"
        for key in read_bytes reads routed hits misses hit_bytes miss_bytes evictions minor_faults major_faults; do
            if [ "$(sum steps.csv $p $key | cut -d. -f1)" != "$(phase out.txt $p $key)" ]; then
                fail "  $p: $key is $(sum steps.csv $p $key) in the rows, $(phase out.txt $p $key) in the summary"
            fi
        done
        near "  $p: expert time as the backend counts it" "$(sum steps.csv $p expert_s)" \
            "$(phase out.txt $p expert_compute_seconds)"
        near "  $p: bookkeeping as the summary has it" "$(sum steps.csv $p bookkeeping_s)" \
            "$(phase out.txt $p bookkeeping_seconds)"
    done
    [ "$(grep -c ',generation,1,' steps.csv)" -eq 11 ] || fail "  not 11 generated tokens"
    adds_up "  $settings" steps.csv
    # The generation's seconds are measured by another clock reading around the same calls: never less.
    # How much more they are is up to the machine, which may take the core away in between. Rows are rounded to 0.1 us.
    if awk -v rows="$(sum steps.csv generation wall_s)" -v all="$(phase out.txt generation seconds)" \
        'BEGIN { exit !(rows > 0 && rows <= all + 1e-6) }'; then
        ok "  wall time is within the summary's"
    else
        fail "  wall time: $(sum steps.csv generation wall_s) in the rows, $(phase out.txt generation seconds) in the summary"
    fi
done
[ "$(grep -c ',prompt,3,' steps.csv)" -ge 2 ] || fail "--ubatch 3 is not in the rows"
# Without a cache there are reads, so there is a queue and something to wait for.
awk -F, -v q="$(column queue_mean)" -v m="$(column queue_max)" '/^[0-9]/ && !($q > 0 && $m >= $q) { exit 1 }' steps.csv ||
    fail "reads without a queue"
for fact in "model=$model" architecture=qwen3moe cache=off cache_policy=cycle threads=2 ubatch=3 lanes=4 dense=anon \
    "reads=(direct|buffered)" "io=pread" "lookahead=1" "llama=v[0-9.]+" "sluice=[0-9.]+" "start=20[0-9T:Z-]+" "cache_bytes=[1-9][0-9]*"; do
    expect "  # $fact" steps.csv "^# $fact\$"
done

works "resident" "${run[@]}" -p "$text" --resident
table "  a table" steps.csv
if grep -v '^#' steps.csv | tail -n +2 | awk -F, '$5 + $6 + $8 + $9 + $10 + $11 + $12 + $13 + $16 != 0 { exit 1 }'; then
    ok "  nothing streams in it"
else
    fail "resident: $(tail -n 1 steps.csv)"
fi
near "  other is all" "$(sum steps.csv generation other_s)" "$(sum steps.csv generation wall_s)"
works "the comparison adds no rows" "${run[@]}" -p "$text" --compare-resident
[ "$(grep -vc '^#' steps.csv)" -eq 13 ] || fail "not 13 lines: $(cat steps.csv)"
works "nothing generated" "${run[@]}" -p "$text" -n 0
[ "$(grep -vc '^#' steps.csv)" -eq 2 ] || fail "-n 0: $(cat steps.csv)"

printf 'Hello\nAnd now?\n' | "$sluice" chat -m "$model" -t 2 -c 512 -n 4 --temp 0 -q --csv steps.csv >out.txt 2>err.txt
table "chat" steps.csv
[ "$(grep -c ',prompt,' steps.csv)" -eq 2 ] || fail "chat: not two prompts: $(cat err.txt)"

if [ -w /dev/full ]; then
    try "$sluice" run -m "$model" -p Hello -n 4 -q --csv /dev/full
    if [ "$rc" -eq 1 ] && [ "$(cat err.txt)" = "sluice run: /dev/full: cannot write: No space left on device" ]; then
        ok "a full disk ends the run"
    else
        fail "a full disk: exit $rc: $(cat err.txt)"
    fi
fi

# A stock program: steps as the backend sees them. Its output and its counters are those of a run without.
if [ -f "$BIN/libsluice-preload.so" ] && ! ldd "$sluice" | grep -q 'lib[at]san'; then
    complete=("$LLAMA_BIN/llama-completion" -m "$model" -p "$text" -n 9 --temp 0 -no-cnv --no-repack -t 2 -c 256)
    SLUICE_CSV=$dir/stock.csv SLUICE_STATS=$dir/stock.json works "llama-completion" "$sluice" exec --cache 0 -- "${complete[@]}"
    table "  a table" stock.csv
    [ "$(grep -c ',generation,1,' stock.csv)" -eq 8 ] || fail "  not 8 tokens after the first: $(cat stock.csv)"
    for key in read_bytes misses; do
        total=$(awk -v a="$(sum stock.csv prompt $key)" -v b="$(sum stock.csv generation $key)" 'BEGIN { printf "%.0f", a + b }')
        if [ "$total" = "$(value stock.json ${key}_total)" ]; then ok "  $key: $total"; else fail "  $key: $total"; fi
    done
    adds_up "  as the backend sees it" stock.csv
    expect "  says what it cannot see" stock.csv '^# steps=seen by the backend'
    expect "  names the architecture" stock.csv '^# architecture=qwen3moe$'
    # Several sequences in a batch: a token of each is generation, one with a piece of a prompt in it is a prompt. Prompts of
    # 12 tokens by 5, of which the first two batches of a sequence want no logits but of the others: 12 batches.
    for n in 1 4; do
        GGML_BACKEND_PATH=$(realpath "$BIN/libggml-sluice.so") SLUICE_CACHE=$((2 * demand)) SLUICE_QUIET=1 \
            SLUICE_CSV=$dir/slots.csv SLUICE_STATS=$dir/slots.json SLUICE_ROUTE_TRACE=$dir/slots.trace SLUICE_DROP_COLD_EXPERTS=0.5 \
            works "$n sequences" "$BIN/sluice-logits" --seqs "$n" --join 5 --unified --prefill 12 --decode 6 --out logits "$model"
        table "  a table" slots.csv
        [ "$(grep -c ",generation,$n," slots.csv)" -eq 6 ] || fail "  not 6 steps of generation: $(cat slots.csv)"
        [ "$(grep -c ",prompt," slots.csv)" -eq $((3 * n)) ] || fail "  not 3 batches for each prompt: $(cat slots.csv)"
        # Every output has the same idea of what is generated: the steps, the counters, the trace, and what may be left out.
        routed=$(whole generation routed)
        [ "$routed" -gt 0 ] && [ "$routed" = "$(value slots.json generation_routed)" ] && ok "  $routed experts generated with" ||
            fail "  generation: $routed experts in the steps, $(value slots.json generation_routed) counted"
        for key in hits misses; do
            [ "$(whole generation $key)" = "$(value slots.json generation_$key)" ] ||
                fail "  generation: $(whole generation $key) $key in the steps, $(value slots.json generation_$key) counted"
        done
        examined=$(whole generation examined) rows=$(grep -c '^[0-9]*,1,' slots.trace)
        if [ "$examined" = "$rows" ] && [ "$examined" = "$(value slots.json examined)" ]; then
            ok "  and $examined rows of the trace, that might be left out"
        else
            fail "  generation: $examined routings looked at, $(value slots.json examined) counted, $rows in the trace"
        fi
        for key in prompt_examined prompt_dropped; do
            [ "$(value slots.json $key)" = 0 ] || fail "  $key: $(value slots.json $key)"
        done
    done
    SLUICE_CSV=$dir/nothing/x.csv try "$sluice" exec -- "${complete[@]}"
    expect "  a file that cannot be made fails the load" err.txt 'nothing/x.csv: cannot write: No such file'
    if [ "$rc" -ne 0 ]; then ok "  with exit code $rc"; else fail "  exit code 0"; fi
fi
finish
