#!/usr/bin/env bash
# lossy.sh - the settings that change the output: named wherever a user looks, refused where they mean nothing,
# counted the same everywhere, and reproducible where that is promised. What they compute is tests/gates/lossy.sh's.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cli/lib.sh
. "$here/lib.sh"
demo=$here/../../models/demo.gguf
run=("$sluice" run -m "$demo" -t 2 -c 512 -p "Once upon a time" -n 24 --temp 0 --cache 3MiB --force-cache)
text() { "${run[@]}" -q "$@" 2>err.txt || fail "exit $?: $(tail -n 1 err.txt)"; }

# part FILE OBJECT KEY: a number of the drop object of that phase
part() { sed -n "/^  \"$2\": {/,/^  }/p" "$1" | sed -n '/"drop": {/,/}/p' | grep -oE "\"$3\": *[-0-9.e+]+" | sed 's/.*: *//'; }

for f in 1.1 -1 nan 0,5 half ''; do
    refused 2 "--drop-cold-experts" "a threshold of '$f'" "${run[@]}" --drop-cold-experts "$f"
done
refused 2 "--drop-renorm" "a renorm that is none" "${run[@]}" --drop-renorm maybe
refused 2 "needs a cache" "no cache" "${run[@]}" --drop-cold-experts 0.5 --cache off
refused 2 "--resident" "resident" "${run[@]}" --drop-cold-experts 0.5 --resident
SLUICE_DROP_COLD_EXPERTS=2 refused 2 "SLUICE_DROP_COLD_EXPERTS" "by the environment" "${run[@]}"
SLUICE_DROP_COLD_EXPERTS=1 refused 2 "needs a cache" "by the environment, no cache" "${run[@]}" --cache 0
refused 2 "needs a cache" "exec" "$sluice" exec --drop-cold-experts 1 --cache 0 -- true

text >plain.txt
works "0 is off" "${run[@]}" --drop-cold-experts 0
cmp -s out.txt plain.txt && ok "  same text" || fail "  another text"
expect "  lossless" err.txt ', lossless$'
works "below every weight" "${run[@]}" --drop-cold-experts 0.000000001
cmp -s out.txt plain.txt && ok "  same text" || fail "  another text"
expect "  is said" err.txt ', lossy: drop cold experts below 1e-09/k, not renormalised, not reproducible$'
expect "  and counted" err.txt ' dropped 0 of [1-9][0-9]* routings \(0\.0 %\), 0\.00 % of the weight, 0\.0 MiB not read$'
works "half" "${run[@]}" --drop-cold-experts 0.5 --drop-renorm on --drop-in-prefill
expect "  is said" err.txt ', lossy: drop cold experts below 0\.50/k, prompts too, renormalised, not reproducible$'
expect "  with a warning: 4 experts a token" err.txt '^sluice run: warning: .* 4 experts per token'

# The same counts everywhere, and in reach of each other.
works "JSON" "${run[@]}" --drop-cold-experts 1 --json --csv steps.csv --route-trace t.csv
mv out.txt run.json
expect "  is lossy" run.json '"lossless": false'
examined=$(part run.json generation examined) dropped=$(part run.json generation dropped) bytes=$(part run.json generation avoided_bytes)
if [ "$examined" -eq $((23 * 6 * 4)) ] && [ "$dropped" -gt 0 ] && [ "$dropped" -lt "$examined" ]; then
    ok "  $dropped of $examined dropped: all routings of 23 tokens were examined"
else
    fail "  $dropped of $examined dropped"
fi
[ "$(part run.json prompt examined)" = 0 ] && ok "  none of the prompt's" || fail "  the prompt's: $(part run.json prompt examined)"
sums=$(awk -F, '/^#/ { next } !head++ { for (i = 1; i <= NF; i++) c[$i] = i; next }
    { e += $c["examined"]; d += $c["dropped"]; b += $c["avoided_bytes"]; w += $c["weight"]; x += $c["dropped_weight"] }
    END { printf "%d %d %d %.3f %.3f", e, d, b, w, x }' steps.csv)
want=$(printf '%d %d %d %.3f %.3f' "$examined" "$dropped" "$bytes" "$(part run.json generation weight)" "$(part run.json generation dropped_weight)")
[ "$sums" = "$want" ] && ok "  CSV: $sums" || fail "  CSV: $sums, not $want"
rows=$(awk -F, '/^#/ || /^turn/ { next } { w += $2 == 1 ? $7 : 0 } $10 { n++; x += $7 } END { printf "%d %.3f %.3f", n, w, x }' t.csv)
want=$(printf '%d %.3f %.3f' "$dropped" "$(part run.json generation weight)" "$(part run.json generation dropped_weight)")
[ "$rows" = "$want" ] && ok "  route trace: $rows" || fail "  route trace: $rows, not $want"
[ "$bytes" = $((dropped * 52224)) ] && ok "  each drop avoids the read of one expert" || fail "  $bytes bytes for $dropped experts"
expect "  CSV says what was set" steps.csv '^# drop_cold_experts=1\.000000$'

# With fewer experts per token the threshold is of that number, and a token's strongest expert stays.
works "two experts per token" "${run[@]}" --drop-cold-experts 1 --n-expert-used 2 --route-trace t.csv
expect "  both are said" err.txt ', lossy: drop cold experts below 1\.00/k, .*, lossy: 2 experts per token'
SLUICE_LOOKAHEAD=0 works "  without lookahead" "${run[@]}" --drop-cold-experts 1 --n-expert-used 2 --route-trace t.csv
if awk -F, -v share=1 -f "$here/../gates/dropped.awk" t.csv >awk.txt; then ok "  rules"; else fail "  $(cat awk.txt)"; fi
works "one expert per token" "${run[@]}" --drop-cold-experts 1 --n-expert-used 1
cp out.txt lossy.txt
text --n-expert-used 1 >one.txt
cmp -s lossy.txt one.txt && ok "  nothing to leave out" || fail "  another text"

# The same prompt, the same text: reading ahead, threads, the kernel, and in a conversation after other turns.
text --drop-cold-experts 1 --drop-reproducible --no-lookahead >base.txt
cmp -s base.txt plain.txt && fail "reproducible: nothing changed" || ok "reproducible: another text than the lossless one"
for other in "" "--io-threads 1" "--no-direct-io" "--io-threads 16 --dense mmap"; do
    # shellcheck disable=SC2086 # words
    text --drop-cold-experts 1 --drop-reproducible $other >got.txt
    cmp -s got.txt base.txt && ok "reproducible $other" || fail "reproducible $other: another text"
done
SLUICE_KERNEL=reference text --drop-cold-experts 1 --drop-reproducible >got.txt
cmp -s got.txt base.txt && ok "reproducible, reference kernel" || fail "reproducible, reference kernel: another text"
works "is said" "${run[@]}" --drop-cold-experts 1 --drop-reproducible
expect "  in the mode line" err.txt ', not renormalised, reproducible for this size of cache$'

# A conversation: the first answer again after another turn was answered and forgotten.
printf 'Who was Vera?\n/clear\nWhere is the mill?\nAnd then?\n/clear\nWho was Vera?\n' |
    "$sluice" chat -m "$demo" -t 2 -c 512 -n 16 --temp 0 -q --cache 3MiB --drop-cold-experts 1 --drop-reproducible >chat.txt 2>err.txt ||
    fail "chat: $(tail -n 1 err.txt)"
printf 'Who was Vera?\n' |
    "$sluice" chat -m "$demo" -t 2 -c 512 -n 16 --temp 0 -q --cache 3MiB --drop-cold-experts 1 --drop-reproducible >first.txt 2>err.txt
size=$(stat -c %s first.txt)
if [ "$size" -gt 20 ] && cmp -s -n "$((size - 2))" first.txt chat.txt && [ "$(tail -c "$size" chat.txt)" = "$(cat first.txt)" ]; then
    ok "chat: the same answer after other turns"
else
    fail "chat: $(cat first.txt) / $(cat chat.txt)"
fi

# `sluice top` of a run that leaves out.
export XDG_RUNTIME_DIR=$dir/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
"$sluice" run -m "$demo" -t 2 -p Hello -n -1 --ignore-eos -c 131072 --temp 1 --cache 3MiB --drop-cold-experts 1 >/dev/null 2>running.txt &
pid=$!
trap 'kill -KILL $pid 2>/dev/null' EXIT
for i in $(seq 1200); do
    : "$i"
    if "$sluice" top --once "$pid" >top.txt 2>/dev/null && grep -q '^dropped ' top.txt; then break; fi
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
done
"$sluice" top --json "$pid" >top.json 2>/dev/null
kill -KILL "$pid"
wait "$pid" 2>/dev/null
expect "top" top.txt '^dropped +[0-9.]+ % of the routings examined, [0-9.]+ % of their weight, [0-9.]+ GB not read$'
expect "  its mode" top.txt '^mode .* lossy: drop cold experts below 1\.00/k'
expect "  its JSON" top.json '"dropped_weight": [0-9.]*[1-9]'
finish
