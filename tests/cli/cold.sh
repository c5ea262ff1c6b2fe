#!/usr/bin/env bash
# cold.sh - a cold model through the command: made by the documented llama-quantize, named wherever a user looks, counted the
# same everywhere, and nearer to the lossless text than leaving out. What is computed is tests/gates/cold.sh's.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cli/lib.sh
. "$here/lib.sh"
demo=$here/../../models/demo.gguf
run=("$sluice" run -m "$demo" -t 2 -c 512 -p "Once upon a time" -n 24 --temp 0 --cache 3MiB --force-cache)

# part FILE OBJECT KEY: a number of that phase
part() { sed -n "/^  \"$2\": {/,/^  }/p" "$1" | grep -oE "\"$3\": *[-0-9.e+]+" | head -n 1 | sed 's/.*: *//'; }

works "llama-quantize" "$LLAMA_BIN/llama-quantize" --allow-requantize "$demo" demo-Q2_K.gguf Q2_K
refused 2 "--cold-model" "no name" "${run[@]}" --drop-cold-experts 1 --cold-model ""
refused 1 "absent.gguf: No such file" "no file" "${run[@]}" --drop-cold-experts 1 --cold-model absent.gguf
refused 2 "demo.gguf is the model itself" "the model itself" "${run[@]}" --drop-cold-experts 1 --cold-model "$demo"

works "lossless" "${run[@]}" -q
cp out.txt plain.txt
works "nothing is dropped, so nothing substituted" "${run[@]}" --cold-model demo-Q2_K.gguf
cmp -s out.txt plain.txt && ok "  same text" || fail "  another text"
expect "  is lossless" err.txt ', lossless$'
works "below every weight" "${run[@]}" --cold-model demo-Q2_K.gguf --drop-cold-experts 0.000000001
cmp -s out.txt plain.txt && ok "  same text" || fail "  another text"

works "JSON" "${run[@]}" --cold-model demo-Q2_K.gguf --drop-cold-experts 1 --json --csv steps.csv --route-trace t.csv
mv out.txt run.json
expect "  is lossy" run.json '"lossless": false'
expect "  says from what" run.json 'lossy: cold experts below 1\.00/k from demo-Q2_K\.gguf \(Q2_K\), not reproducible'
n=$(part run.json generation substituted) bytes=$(part run.json generation avoided_bytes) cold=$(part run.json generation cold_bytes)
if [ "$n" -gt 0 ] && [ "$(part run.json generation dropped)" = 0 ] && [ "$(part run.json prompt substituted)" = 0 ]; then
    ok "  $n substituted, none dropped, none of the prompt"
else
    fail "  $n substituted, $(part run.json generation dropped) dropped, $(part run.json prompt substituted) in the prompt"
fi
[ "$bytes" = $((n * 52224)) ] && ok "  each avoids the read of one expert" || fail "  $bytes bytes for $n experts"
[ "$cold" -gt 0 ] && [ "$cold" -lt "$bytes" ] && ok "  by fewer bytes: $cold for $bytes" || fail "  $cold bytes of copies for $bytes"
sums=$(awk -F, '/^#/ { next } !head++ { for (i = 1; i <= NF; i++) c[$i] = i; next }
    { s += $c["substituted"]; b += $c["avoided_bytes"]; r += $c["cold_bytes"]; if ($c["cold_bytes"] > $c["read_bytes"]) print "more" }
    END { printf "%d %d %d", s, b, r }' steps.csv)
[ "$sums" = "$n $bytes $cold" ] && ok "  CSV: $sums" || fail "  CSV: $sums, not $n $bytes $cold"
expect "  CSV says what was set" steps.csv '^# cold_model=demo-Q2_K\.gguf$'
rows=$(awk -F, '/^#/ || /^turn/ { next } $10 == 2 { n++; if ($9 != 0 && $9 != 19968) print "bytes " $9 } $10 == 1 { print "left out" }
    END { print n }' t.csv)
[ "$rows" = "$n" ] && ok "  route trace: $rows rows marked 2" || fail "  route trace: $rows, not $n"
SLUICE_LOOKAHEAD=0 works "  without lookahead" "${run[@]}" --cold-model demo-Q2_K.gguf --drop-cold-experts 1 --route-trace t.csv
if awk -F, -v share=1 -v kind=2 -f "$here/../gates/dropped.awk" t.csv >awk.txt; then ok "  rules"; else fail "  $(cat awk.txt)"; fi

cp demo-Q2_K.gguf $'q\xff.gguf'
works "JSON, of a file whose name is no UTF-8" "${run[@]}" --cold-model $'q\xff.gguf' --drop-cold-experts 1 --json
expect "  names it as well as JSON can" out.txt 'below 1\.00/k from q.*gguf \(Q2_K\)'

# Substituted rows were never asked of the model's cache, and its part of the budget is what the trace says: so a replay has
# the engine's counters.
SLUICE_LOOKAHEAD=0 works "JSON, without lookahead" "${run[@]}" --cold-model demo-Q2_K.gguf --drop-cold-experts 1 --route-trace t.csv --json
mv out.txt run.json
budget=$(sed -n 's/.* cache_budget=\([0-9]*\) .*/\1/p' t.csv)
[ "$budget" -lt $((3 << 20)) ] && ok "  copies have a part of the cache: $budget bytes are left" || fail "  the budget is $budget"
works "  replay" "$sluice" replay t.csv --policy cycle --budget "${budget}B" --json
for key in hits misses routed; do
    a=$(part run.json generation $key)
    b=$(sed -n '/^ *"generation": {/,/}/p' out.txt | grep -oE "\"$key\": *[0-9]+" | head -n 1 | sed 's/.*: *//')
    [ -n "$a" ] && [ "$a" = "$b" ] && ok "  $key: $a" || fail "  $key: run $a, replay $b"
done

works "summary" "${run[@]}" --cold-model demo-Q2_K.gguf --drop-cold-experts 1
expect "  copies" err.txt 'copies for [1-9][0-9]* of [1-9][0-9]* routings \([0-9.]+ %\), [0-9.]+ % of the weight, [0-9.]+ MiB of experts not read, [0-9.]+ MiB of copies read$'

# A program that knows nothing of us.
works "exec" "$sluice" exec --cache 3MiB --force-cache --drop-cold-experts 1 --cold-model demo-Q2_K.gguf -- "$LLAMA_BIN/llama-completion" \
    -m "$demo" -t 2 -c 512 --no-repack -no-cnv -n 24 --temp 0 --seed 1 -p "Once upon a time"
expect "  is said" err.txt 'sluice: streaming .*lossy: cold experts below 1\.00/k from demo-Q2_K\.gguf \(Q2_K\)'
finish
