#!/usr/bin/env bash
# perplexity.sh MODELS - `sluice eval` says what stock llama-perplexity says of the demo model: perplexity, and the divergence
# of another quantisation. Environment: see lib.sh.
#
# The perplexity is printed there to four digits and summed in another precision: the last digit may differ. Its
# divergence comes from a file that leaves out tokens under e^-16 of the likeliest and rounds the probabilities of one
# side: measured under 0.5 % away from ours.
#
# That program ends without writing what its log still holds (v0.5.0 says so in common/log.cpp), so that on a busy machine
# its last lines are missing now and then: it is started again until they are there.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/gates/lib.sh
. "$here/lib.sh"

models=$(cd "$1" && pwd)
chunks=6
begin perplexity
text=(-f "$models/demo-heldout.txt" -c 512 -t 2 --chunks $chunks)

number() { grep -oE "\"$2\": *[-0-9.e+]+" "$1" | head -n 1 | sed 's/.*: *//'; }
mean() { sed -n "/\"$2\": {/,/}/p" "$1" | grep -oE '"mean": *[-0-9.e+]+' | sed 's/.*: *//'; }

# near LABEL OURS THEIRS TOLERANCE: equal to so much, and not nothing
near() {
    if awk -v a="$2" -v b="$3" -v t="$4" 'BEGIN { d = a - b; exit !(a > 0 && b > 0 && d <= t && -d <= t) }'; then
        ok "$1: $2, llama-perplexity $3"
    else
        fail "$1: ${2:-nothing}, llama-perplexity ${3:-nothing}"
    fi
}
share() { awk -v x="$1" -v s="$2" 'BEGIN { print x * s }'; }

stock() { # LINE ARGS...: until the log has a line that begins so
    local line=$1
    shift
    for _ in $(seq 12); do
        "$LLAMA_BIN/llama-perplexity" "${text[@]}" -b 512 --no-repack --kl-divergence-base "$dir/base.kld" "$@" \
            >"$dir/stock.log" 2>&1 </dev/null || break
        grep -qE "$line" "$dir/stock.log" && return
    done
    fail "llama-perplexity $*: $(last_line "$dir/stock.log")"
}

evaluate() { # FILE ARGS...
    local file=$1
    shift
    "$BIN/sluice" eval "${text[@]}" -q --json "$@" >"$file" 2>"$file.log" </dev/null || fail "sluice eval $*: $(last_line "$file.log")"
}

stock "\[$chunks\]" -m "$models/demo.gguf"
theirs=$(grep -oE "\[$chunks\][0-9.]+" "$dir/stock.log" | cut -d']' -f2)
evaluate "$dir/resident.json" -m "$models/demo.gguf" --resident --ref-save "$dir/demo.ref"
near "perplexity" "$(number "$dir/resident.json" perplexity)" "$theirs" 0.00015
for settings in "--cache 3" "--cache 0" "--cache 5 --cache-policy lru --no-lookahead"; do
    # shellcheck disable=SC2086 # words
    evaluate "$dir/streaming.json" -m "$models/demo.gguf" $settings --ref "$dir/demo.ref"
    if [ "$(number "$dir/streaming.json" perplexity)" = "$(number "$dir/resident.json" perplexity)" ] &&
        [ "$(number "$dir/streaming.json" kl_max)" = 0.0 ] && [ "$(mean "$dir/streaming.json" same_top)" = 1.0 ] &&
        grep -q '"streaming": true' "$dir/streaming.json"; then
        ok "streaming $settings: the same, at distance 0"
    else
        fail "streaming $settings: $(number "$dir/streaming.json" perplexity), resident $(number "$dir/resident.json" perplexity)"
    fi
done
# The same one token at a time, as generation computes.
evaluate "$dir/resident.json" -m "$models/demo.gguf" --resident --decode --chunks 2 --ref-save "$dir/decode.ref"
evaluate "$dir/streaming.json" -m "$models/demo.gguf" --cache 3 --decode --chunks 2 --ref "$dir/decode.ref"
if [ "$(number "$dir/streaming.json" perplexity)" = "$(number "$dir/resident.json" perplexity)" ] &&
    [ "$(number "$dir/streaming.json" kl_max)" = 0.0 ]; then
    ok "streaming, one token at a time: the same, at distance 0"
else
    fail "one token at a time: $(number "$dir/streaming.json" perplexity), resident $(number "$dir/resident.json" perplexity)"
fi

# Another quantisation against it.
"$LLAMA_BIN/llama-quantize" --allow-requantize "$models/demo.gguf" "$dir/q4.gguf" Q4_0 >"$dir/quantize.log" 2>&1 ||
    fail "llama-quantize: $(last_line "$dir/quantize.log")"
stock "^Same top p: " -m "$dir/q4.gguf" --kl-divergence
theirs() { grep -E "^$1" "$dir/stock.log" | sed -E 's/^[^:]*: *//' | awk '{ print $1 }' | tr -d '%'; }
evaluate "$dir/q4.json" -m "$dir/q4.gguf" --cache 2 --ref "$dir/demo.ref" --ref-other-model
near "perplexity of Q4_0" "$(number "$dir/q4.json" perplexity)" "$(theirs 'Mean PPL\(Q\) ')" 0.00015
kl=$(theirs 'Mean    KLD')
near "divergence" "$(mean "$dir/q4.json" kl)" "$kl" "$(share "$kl" 0.02)"
median=$(theirs 'Median  KLD')
near "its median" "$(sed -n '/"kl_median"/,/}/p' "$dir/q4.json" | grep -oE '"value": *[-0-9.e+]+' | sed 's/.*: *//')" "$median" "$(share "$median" 0.05)"
high=$(theirs '99.0%   KLD')
near "its 99 % quantile" "$(sed -n '/"kl_99"/,/}/p' "$dir/q4.json" | grep -oE '"value": *[-0-9.e+]+' | sed 's/.*: *//')" "$high" "$(share "$high" 0.05)"
near "its standard error" "$(sed -n '/"kl": {/,/}/p' "$dir/q4.json" | grep -oE '"standard_error": *[-0-9.e+]+' | sed 's/.*: *//')" \
    "$(grep -E '^Mean    KLD' "$dir/stock.log" | awk '{ print $NF }')" "$(share "$kl" 0.02)"
near "same likeliest token" "$(awk -v x="$(mean "$dir/q4.json" same_top)" 'BEGIN { print 100 * x }')" "$(theirs 'Same top p')" 0.15
finish
