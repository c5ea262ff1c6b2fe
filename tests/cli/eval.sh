#!/usr/bin/env bash
# eval.sh - `sluice eval`: equal numbers however the experts are held, distance 0 to a run of equal bytes and not to others,
# references that do not fit refused, route traces and steps as of other commands.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cli/lib.sh
. "$here/lib.sh"

demand=$("$sluice" info --json "$model" | grep -oE '"token_demand_bytes": *[0-9]+' | grep -oE '[0-9]+$')
seq 400 >text.txt
eval=("$sluice" eval -m "$model" -f text.txt -t 2 -c 32 --chunks 4)

# has FILE KEY VALUE
has() { if [ "$(value "$1" "$2")" = "$3" ]; then ok "  $2 is $3"; else fail "$2 is $(value "$1" "$2"), not $3"; fi; }
# of FILE OBJECT KEY: a value inside of a named object
of() { sed -n "/\"$2\": {/,/}/p" "$1" | grep -oE "\"$3\": *[-0-9.e+a-z]+" | head -n 1 | sed 's/.*: *//'; }

works "resident" "${eval[@]}" --resident --json
cp out.txt resident.json
expect "  the summary" err.txt '^sluice: perplexity [0-9.]+ \+/- [0-9.]+ \([0-9.]+ by chunks\), 60 tokens scored in 4 chunks of 32, in batches, load'
expect "  and the speed" err.txt '^  eval +128 tokens in [0-9.]+ s, [0-9.]+ tok/s$'
has resident.json tokens_scored 60
has resident.json chunks 4
has resident.json batch 32
has resident.json lossless true
grep -q '"reference"' resident.json && fail "a reference without --ref"
perplexity=$(value resident.json perplexity)
for settings in "--cache 0" "--cache ${demand}B --force-cache" "--cache auto" "--cache 0 --io-threads 1 --no-direct-io"; do
    # shellcheck disable=SC2086 # words
    works "streaming $settings" "${eval[@]}" --json $settings
    has out.txt perplexity "$perplexity"
done
expect "  MiB per token and hits" err.txt '^  eval +128 tokens .* MiB read per token, hit rate'
for key in plan cache eval mib_per_token hit_rate perplexity_standard_error standard_error_by_chunk load_seconds; do
    grep -q "\"$key\":" out.txt || fail "the JSON object has no $key"
done
works "smaller batches" "${eval[@]}" --json --ubatch 8
has out.txt batch 8
works "from standard input" bash -c "'$sluice' eval -m '$model' -f - -t 2 -c 32 --chunks 4 --json --resident <text.txt"
has out.txt perplexity "$perplexity"
# One newline at the end is not part of the text, a second one is. All of the text, so that the end matters.
whole() { "$sluice" eval -m "$model" -f "$1" -t 2 -c 9 --json -q --resident 2>&1 | grep -E '"(chunks|perplexity|tokens_scored)"'; }
printf 'A text of some words, with an end that is cut. One two three four' >a.txt
{ cat a.txt; echo; } >b.txt
if [ "$(whole a.txt)" = "$(whole b.txt)" ] && [ -n "$(whole a.txt)" ]; then ok "a newline at the end does not count"; else fail "a newline at the end: $(whole a.txt), $(whole b.txt)"; fi
# Markup is text here, as in llama-perplexity.
printf '<|endoftext|>%.0s' $(seq 12) >markup.txt
works "markup is text" "$sluice" eval -m "$model" -f markup.txt -c 32 --json --resident

# A reference, and runs of equal bytes.
works "one token at a time" "${eval[@]}" --resident --decode --ref-save decode.ref --json
has out.txt batch 1
perplexity=$(value out.txt perplexity)
expect "  says so" err.txt 'one token at a time'
expect "  says where" err.txt '^  reference +written to decode.ref$'
tokens=$((4 * 31))
expect "  the last token of a chunk is not computed" err.txt "^  eval +$tokens tokens"
vocab=$(od -An -tu4 -j12 -N4 decode.ref | tr -d ' ')
if [ "$(stat -c %s decode.ref)" -eq $((64 + 4 * 4 * 32 + 60 * (16 + 2 * vocab))) ]; then ok "  as large as documented"; else fail "  $(stat -c %s decode.ref) bytes"; fi
zero() { # LABEL ARGS...: at distance 0
    local label=$1 key
    shift
    works "$label" "${eval[@]}" --ref decode.ref --json "$@"
    has out.txt perplexity "$perplexity"
    for key in log_perplexity_ratio kl; do
        [ "$(of out.txt $key mean)" = 0.0 ] || fail "  $key is $(of out.txt $key mean)"
    done
    for key in kl_median kl_99; do
        [ "$(of out.txt $key value)" = 0.0 ] || fail "  $key is $(of out.txt $key value)"
    done
    [ "$(value out.txt kl_max)" = 0.0 ] || fail "  kl_max is $(value out.txt kl_max)"
    if [ "$(of out.txt same_top mean)" = 1.0 ]; then ok "  the same in every token"; else fail "  same_top: $(of out.txt same_top mean)"; fi
}
zero "resident, to itself" --decode --resident
zero "streaming without a cache" --decode --cache 0
zero "streaming with a cache that evicts" --decode --cache "${demand}B" --force-cache
[ "$(value out.txt evictions)" -gt 0 ] || fail "  nothing was evicted"
zero "all experts but by number" --decode --n-expert-used 2
eval_shards=("$sluice" eval -m "$WORK/shards-00001-of-00003.gguf" -f text.txt -t 2 --ref decode.ref --decode --json)
works "the same model in three shards, context and chunks from the reference" "${eval_shards[@]}"
has out.txt perplexity "$perplexity"
has out.txt kl_max 0.0
works "fewer chunks" "${eval[@]}" --chunks 2 --ref decode.ref --decode --json
has out.txt tokens_scored 30
has out.txt kl_max 0.0

# And of others.
works "one expert" "${eval[@]}" --ref decode.ref --n-expert-used 1 --json
has out.txt lossless false
has out.txt batch 1
expect "  says lossy" err.txt ', lossy: 1 experts per token'
expect "  the distance" err.txt '^  divergence +mean 0\.[0-9]+ \+/- [0-9.]+ \([0-9.]+ by chunks\), median .* 99 % .* max [0-9.]+ nats \(KL\)$'
expect "  and agreement" err.txt '^  top token +the same in [0-9.]+ \+/- [0-9.]+ % of the tokens$'
if awk -v kl="$(of out.txt kl mean)" -v max="$(value out.txt kl_max)" -v same="$(of out.txt same_top mean)" \
    'BEGIN { exit !(kl > 1e-4 && max >= kl && same < 1 && same > 0) }'; then
    ok "  it is at a distance: $(of out.txt kl mean)"
else
    fail "one expert: kl $(of out.txt kl mean), max $(value out.txt kl_max), same $(of out.txt same_top mean)"
fi
if [ "$(value out.txt perplexity)" != "$perplexity" ]; then ok "  another perplexity"; else fail "the same perplexity"; fi
[ "$(sed -n '/"reference"/,$p' out.txt | value /dev/stdin perplexity)" = "$perplexity" ] || fail "the reference's perplexity"
works "batches against one at a time" "${eval[@]}" --ref decode.ref
expect "  are said to round differently" err.txt '^  note .* batches of 1 and 2 threads, this run of 32 and 2'
works "another number of threads" "${eval[@]}" --ref decode.ref --decode -t 1
expect "  is said to" err.txt '^  note .* of 1 and 1: '

# Leaving out: one token at a time by itself, counted; below every weight at distance 0; reproducible is reproducible.
demo=("$sluice" eval -m "$here/../../models/demo.gguf" -f "$here/../../models/demo-heldout.txt" -t 2 -c 64 --chunks 2 --cache 3MiB --json)
works "a reference of the demo model" "${demo[@]}" --decode --ref-save demo.ref
works "leaving out nothing" "${demo[@]}" --ref demo.ref --drop-cold-experts 0.000000001
has out.txt lossless false
has out.txt kl_max 0.0
works "leaving out much" "${demo[@]}" --ref demo.ref --drop-cold-experts 1
has out.txt batch 1
expect "  says how much" err.txt '^ +dropped [1-9][0-9]* of [1-9][0-9]* routings'
if [ "$(value out.txt dropped)" -gt 0 ] && awk -v kl="$(of out.txt kl mean)" 'BEGIN { exit !(kl > 1e-4) }'; then
    ok "  $(value out.txt dropped) dropped, divergence $(of out.txt kl mean)"
else
    fail "  $(value out.txt dropped) dropped, divergence $(of out.txt kl mean)"
fi
works "reproducible" "${demo[@]}" --ref demo.ref --drop-cold-experts 1 --drop-reproducible --no-lookahead
divergence=$(of out.txt kl mean)
works "reproducible, other reads" "${demo[@]}" --ref demo.ref --drop-cold-experts 1 --drop-reproducible --io-threads 1 --no-direct-io
if [ "$(of out.txt kl mean)" = "$divergence" ] && [ -n "$divergence" ]; then ok "  the same divergence: $divergence"; else fail "  $(of out.txt kl mean), not $divergence"; fi

# What does not fit.
refused 2 "no text" "no text" "$sluice" eval -m "$model"
refused 2 "no model" "no model" "$sluice" eval -f text.txt
refused 2 "contradict" "--ref and --ref-save" "${eval[@]}" --ref decode.ref --ref-save other.ref
refused 2 "without lossy settings" "a lossy reference" "${eval[@]}" --ref-save other.ref --n-expert-used 1
[ ! -e other.ref ] || fail "a refused reference was written"
refused 2 "chunks of 32 tokens" "another context" "$sluice" eval -m "$model" -f text.txt --ref decode.ref -c 64
refused 2 "8 tokens at least" "a context of 4" "$sluice" eval -m "$model" -f text.txt -c 4
refused 2 "less than one chunk" "a short text" "$sluice" eval -q -m "$model" -f a.txt -c 512
refused 2 "not 5" "more chunks than the reference has" "${eval[@]}" -q --ref decode.ref --chunks 5
refused 2 "are wanted" "more chunks than the text has" "${eval[@]}" -q --chunks 1000
seq 2 500 >other.txt
refused 2 "another text" "another text" "$sluice" eval -q -m "$model" -f other.txt --ref decode.ref
"$BIN/sluice-mkmoe" --out other.gguf --layers 2 --experts 8 --top-k 2 --vocab-from "$vocab_model" --seed 9 >mk.log 2>&1 || fail "$(cat mk.log)"
refused 2 "another model file" "another model" "$sluice" eval -q -m other.gguf -f text.txt -t 2 --ref decode.ref
works "another model on purpose" "$sluice" eval -m other.gguf -f text.txt -t 2 --ref decode.ref --ref-other-model --decode --json
has out.txt same_model false
expect "  says so" err.txt 'of another model file'
"$BIN/sluice-mkmoe" --out small.gguf --layers 2 --experts 8 --top-k 2 --vocab 256 >mk.log 2>&1 || fail "$(cat mk.log)"
try "$sluice" eval -q -m small.gguf -f text.txt --ref decode.ref --ref-other-model
if [ "$rc" -ne 0 ] && [ "$(wc -l <err.txt)" -eq 1 ]; then ok "another vocabulary: $(cat err.txt)"; else fail "another vocabulary: exit $rc: $(cat err.txt)"; fi
refused 1 "not a reference" "a model as reference" "${eval[@]}" --ref "$model"
refused 1 "not a reference" "an empty reference" "${eval[@]}" --ref /dev/null
refused 1 "No such file" "no reference" "${eval[@]}" --ref "$dir/nothing"
refused 1 "Is a directory" "a directory as reference" "${eval[@]}" --ref "$dir"
head -c 100000 decode.ref >cut.ref
refused 1 "its header says" "a cut reference" "${eval[@]}" --ref cut.ref
{ head -c 64 /dev/zero; tail -c +65 decode.ref; } >early.ref
refused 1 "not complete" "a reference that was not finished" "${eval[@]}" --ref early.ref
refused 1 "No such file" "a reference into nowhere" "${eval[@]}" -q --ref-save "$dir/nothing/x.ref"
refused 1 "No such file" "a text that is not there" "$sluice" eval -m "$model" -f "$dir/nothing"
refused 2 "nothing streams" "a route trace of nothing" "${eval[@]}" --resident --route-trace t.csv
if [ -w /dev/full ]; then
    refused 1 "No space left" "a reference on a full disk" "${eval[@]}" -q --ref-save /dev/full
    "${eval[@]}" -q --json --resident >/dev/full 2>err.txt </dev/null
    rc=$?
    if [ "$rc" -eq 1 ] && grep -q 'standard output: No space left' err.txt; then ok "JSON to a full disk"; else fail "JSON to a full disk: exit $rc"; fi
fi

# Traces and steps: a chunk is a turn, decoded tokens are generated ones.
works "a route trace" "${eval[@]}" --decode --chunks 2 --cache 0 --route-trace t.csv --csv steps.csv
rows=$(grep -c '^[0-9]' t.csv)
if [ "$rows" -eq $((2 * 31 * 2 * 2)) ]; then ok "  a row per chunk, token, layer and expert"; else fail "  $rows rows"; fi
if [ "$(grep '^[0-9]' t.csv | cut -d, -f1,2 | sort -u | tr '\n' ' ')" = "0,1 1,1 " ]; then ok "  turns"; else fail "  turns: $(grep '^[0-9]' t.csv | cut -d, -f1,2 | sort -u | tr '\n' ' ')"; fi
if [ "$(grep '^[0-9]' t.csv | cut -d, -f3 | sort -nu | tail -n 1)" = 30 ]; then ok "  positions"; else fail "  positions"; fi
works "  which replay reads" "$sluice" replay t.csv --budget 1
[ "$(grep -c ',generation,1,' steps.csv)" -eq 62 ] || fail "  not 62 steps: $(tail -n 1 steps.csv)"

# A terminal sees the progress; Ctrl-C ends with what the whole chunks say.
printf 'wait \033[Keval \nwait  tokens\nwait \r\033[K\nwait sluice: perplexity\nexit 0\n' |
    "$BIN/cli-terminal" "${eval[@]}" --decode >out.txt 2>err.txt
rc=$?
if [ "$rc" -eq 0 ]; then ok "progress on a terminal"; else fail "progress: $(cat err.txt)"; fi
seq 100000 >long.txt
printf 'wait \033[Keval \npause\nkey c\nwait nterrupted\nexit signal 2\n' |
    "$BIN/cli-terminal" "$sluice" eval -m "$model" -f long.txt -c 32 --decode --ref-save early.ref >out.txt 2>err.txt
rc=$?
if [ "$rc" -eq 0 ]; then ok "Ctrl-C: the summary, then death by the signal"; else fail "Ctrl-C: $(cat err.txt)"; fi
refused 1 "not complete" "  its reference is not complete" "${eval[@]}" --ref early.ref
finish
