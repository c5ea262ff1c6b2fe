#!/usr/bin/env bash
# lossy.sh PART... - leaving out experts does what it promises, and nothing else.
#
#   archs    every MoE fixture that llama.cpp's own test-llama-archs writes
#   shapes   top-k 1, several sequences, contexts and prompts, kernels, readers; what is refused
#   subset   a little of the latter, for builds with sanitizers
#
# What is promised (docs/quality.md), and how it is seen here:
#   - a threshold below every weight changes no byte: compared with the resident run
#   - at full strength nothing that is missing is read but what must not be left out, a token's strongest expert never is
#     left out, and neither is what is in memory: every row of the route trace is checked (dropped.awk)
#   - the output stays finite: sluice-logits fails otherwise
#   - prompts are left alone: compared, and counted
#   - drop_reproducible: the same bytes whatever the real cache does (kernel, reading ahead, who reads, other contexts)
#   - where weights cannot be found nothing is left out, and the mode line says so
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/gates/lib.sh
. "$here/lib.sh"

# The plug-in's run: output $dir/NAME, counters NAME.json, trace NAME.csv, what it says NAME.log.
lossy() { # NAME SETTINGS ARGS...
    local name=$1 settings=$2
    shift 2
    rm -f "$dir/$name"*
    # shellcheck disable=SC2086 # settings are words
    env GGML_BACKEND_PATH="$plugin" SLUICE_STATS="$dir/$name.json" SLUICE_ROUTE_TRACE="$dir/$name.csv" $settings \
        "$BIN/sluice-logits" --out "$dir/$name" "$@" >"$dir/$name.log" 2>&1
}

# The same, which must succeed; then words as in `check`: same=NAME (equal bytes), other=NAME (not), dropped, none (nothing
# dropped), examined, unexamined, prompts (dropped in prompts), no-prompts, alike (the cache that decides holds what the
# real one holds), rules=F or F,TOKENS (the trace obeys dropped.awk)
counted=0 gave_up=0 # runs that may leave something out, and that did; rows may be missing from their traces
expect() { # LABEL NAME SETTINGS WORDS ARGS...
    local label=$1 name=$2 settings=$3 words=$4 word bad= share tokens json=$dir/$2.json
    shift 4
    if ! lossy "$name" "$settings" "$@"; then
        fail "$label [$settings]: $(last_line "$dir/$name.log")"
        return 0
    fi
    for word in $words; do
        case $word in
        same=*) cmp -s "$dir/$name" "$dir/${word#*=}" || bad="$bad; not the bytes of ${word#*=}" ;;
        other=*) ! cmp -s "$dir/$name" "$dir/${word#*=}" || bad="$bad; the bytes of ${word#*=}" ;;
        dropped) [ "$(counter "$json" dropped)" -gt 0 ] && [ "$(counter "$json" avoided_bytes)" -gt 0 ] ||
            bad="$bad; nothing was dropped" ;;
        counted) counted=$((counted + 1)) && [ "$(counter "$json" dropped)" = 0 ] || gave_up=$((gave_up + 1)) ;;
        none) [ "$(counter "$json" dropped)" = 0 ] || bad="$bad; $(counter "$json" dropped) dropped" ;;
        examined) [ "$(counter "$json" examined)" -gt 0 ] || bad="$bad; nothing was examined" ;;
        unexamined) [ "$(counter "$json" examined)" = 0 ] || bad="$bad; something was examined" ;;
        prompts) [ "$(counter "$json" prompt_dropped)" -gt 0 ] || bad="$bad; nothing was dropped in prompts" ;;
        no-prompts) [ "$(counter "$json" prompt_examined)" = 0 ] || bad="$bad; prompts were examined" ;;
        alike) [ "$(counter "$json" dropped_there)" = 0 ] || bad="$bad; dropped what was in memory" ;;
        rules=*)
            IFS=, read -r share tokens <<<"${word#*=}"
            awk -F, -v share="$share" -v tokens="$tokens" -v maybe="$counted" -f "$here/dropped.awk" "$dir/$name.csv" >"$dir/awk.log" 2>&1 ||
            bad="$bad; $(head -n 1 "$dir/awk.log")" ;;
        *) bad="$bad; bad word $word" ;;
        esac 2>/dev/null
    done
    if [ -n "$bad" ]; then
        fail "$label [$settings]${bad/;/:}"
    else
        ok "$label [$settings] $(counter "$json" examined) examined, $(counter "$json" dropped) dropped"
    fi
}

gate_archs() {
    local name tensors tight weights drops steps="--prefill 24 --decode 8" one="--prefill 1 --decode 8"
    local tiny="SLUICE_DROP_COLD_EXPERTS=0.000000001" full="SLUICE_DROP_COLD_EXPERTS=1 SLUICE_LOOKAHEAD=0"
    local same="SLUICE_DROP_COLD_EXPERTS=1 SLUICE_DROP_REPRODUCIBLE=1"
    fixtures
    streaming_models
    while read -r name tensors; do
        [ -n "$name" ] || continue
        model=$archs/$name.gguf
        tight=$(tight_cache "$model")
        # shellcheck disable=SC2086
        if ! resident $steps "$model"; then
            fail "$name: resident run: $(last_line "$dir/want.log")"
            continue
        fi
        weights=examined
        [ "$name" = llama4-moe ] && weights=unexamined # weights its experts' input
        # shellcheck disable=SC2086
        expect "$name, below every weight" got "$tight $tiny" "same=want none no-prompts $weights" $steps "$model"
        if [ $weights = unexamined ]; then
            grep -q "lossy: .*nothing is dropped: .*weights" "$dir/got.log" && ok "$name: it is said" || fail "$name: it is not said"
            continue
        fi
        drops="counted rules=1"
        # One token of prompt looks like a generated one: so even the smallest fixtures miss something.
        # shellcheck disable=SC2086
        expect "$name, all" full "$tight $full" "$drops examined" $one "$model"
        # shellcheck disable=SC2086
        expect "$name, all, reproducible" base "$tight $same SLUICE_LOOKAHEAD=0" "$drops alike same=full" $one "$model"
        # shellcheck disable=SC2086
        expect "$name, all, reproducible" other "$tight $same SLUICE_KERNEL=reference SLUICE_DIRECT_IO=0" "examined same=base" $one "$model"
        # shellcheck disable=SC2086
        expect "$name, prompts too" base "$tight $same SLUICE_DROP_IN_PREFILL=1" "examined" $steps "$model"
        # shellcheck disable=SC2086
        expect "$name, prompts too" other "$tight $same SLUICE_DROP_IN_PREFILL=1 SLUICE_KERNEL=reference SLUICE_LOOKAHEAD=0" \
            "same=base" $steps "$model"
        # shellcheck disable=SC2086
        resident --prefill 24 --decode 0 "$model" &&
            expect "$name, a prompt" got "$tight $full" "same=want none no-prompts" --prefill 24 --decode 0 "$model"
    done <<<"$models"
    most_runs "something was left out"
    counted=0
}

# A bad setting fails the model's load with a message, and does not run as if it were not there.
refused() { # LABEL SETTINGS MESSAGE
    if lossy bad "$2" --prefill 2 --decode 1 "$model"; then
        fail "$1: was accepted"
    elif grep -q "$3" "$dir/bad.log"; then
        ok "$1: $(grep -m 1 "$3" "$dir/bad.log")"
    else
        fail "$1: $(last_line "$dir/bad.log")"
    fi
}

gate_refused() {
    local f
    mkmoe plain --layers 2 || return 0
    for f in 1.01 2 -0.5 nan NaN inf 0x1 0,5 "" 1e-1 .5; do
        refused "drop '$f'" "SLUICE_DROP_COLD_EXPERTS=$f" "SLUICE_DROP_COLD_EXPERTS: .* is not a value"
    done
    refused "no cache" "SLUICE_DROP_COLD_EXPERTS=0.5 SLUICE_CACHE=off" "needs a cache"
    refused "no cache" "SLUICE_DROP_COLD_EXPERTS=0.5 SLUICE_CACHE=0" "needs a cache"
    refused "renorm" "SLUICE_DROP_RENORM=1" "on or off"
    refused "prefill" "SLUICE_DROP_IN_PREFILL=yes" "0 or 1"
    refused "reproducible" "SLUICE_DROP_REPRODUCIBLE=2" "0 or 1"
}

gate_shapes() {
    local third tight few="--prefill 24 --decode 24" drop=SLUICE_DROP_COLD_EXPERTS k
    gate_refused
    # Nothing to leave out: a token's only expert is its strongest.
    mkmoe one --top-k 1 || return 0
    # shellcheck disable=SC2086
    resident $few "$model" && expect "top-k 1" got "$(tight_cache "$model") $drop=1" "same=want none examined" $few "$model"

    for k in 2 3 4 8; do
        mkmoe "k$k" --top-k $k --ff 96 --type-down Q8_0 --misalign 32 || return 0
        tight=$(tight_cache "$model") third=$(third_cache "$model")
        # shellcheck disable=SC2086
        resident $few "$model" || return 0
        for f in 1 0.5; do
            # shellcheck disable=SC2086
            expect "top-k $k" got "$tight $drop=$f SLUICE_LOOKAHEAD=0" "no-prompts dropped other=want rules=$f" $few "$model"
            # shellcheck disable=SC2086
            expect "top-k $k" got "$third $drop=$f SLUICE_LOOKAHEAD=0" "no-prompts dropped other=want rules=$f" $few "$model"
        done
        grep -q "warning: .*experts per token" "$dir/got.log" && warned=yes || warned=no
        [ $warned = "$([ $k -le 4 ] && echo yes || echo no)" ] && ok "top-k $k: warned: $warned" || fail "top-k $k: warned: $warned"
        # shellcheck disable=SC2086
        expect "top-k $k, off" got "$tight $drop=0" "same=want none unexamined" $few "$model"
    done

    # Nothing to leave out: after the first token all experts are in memory.
    mkmoe all --experts 4 --top-k 4 || return 0
    # shellcheck disable=SC2086
    resident $few "$model" && expect "every expert used" got "SLUICE_CACHE=1GiB $drop=1" "same=want none examined" $few "$model"

    mkmoe shapes --ff 96 --type-down Q8_0 --misalign 32 || return 0
    tight=$(tight_cache "$model") third=$(third_cache "$model")
    # The next tokens of several sequences are no prompt: all of them want logits, in a context where prompts do not.
    resident --seqs 2 --join 24 "$model" &&
        expect "two sequences" got "$tight $drop=1" "other=want dropped no-prompts rules=1,2" --seqs 2 --join 24 "$model"
    # Where prompts want all logits as well, nothing tells the two apart, and nothing is left out.
    resident --seqs 2 "$model" && expect "two sequences, all logits" got "$tight $drop=1" "same=want none unexamined" --seqs 2 "$model"
    expect "two sequences, a prompt" base "$tight $drop=1" "none no-prompts unexamined" --seqs 2 --decode 0 "$model"
    expect "two sequences, prompts too" got "$tight $drop=1 SLUICE_DROP_IN_PREFILL=1" "dropped prompts rules=1" --seqs 2 "$model"
    gate_reproducible "$third" 24 24
    gate_changed "$third"
    gate_reproducible "$tight" 300 12
    expect "long prompt in parts" base "$third $drop=1 SLUICE_DROP_IN_PREFILL=1 SLUICE_DROP_REPRODUCIBLE=1" "dropped prompts" \
        --prefill 300 --ubatch 64 --decode 8 "$model"
    expect "long prompt in parts" got "$third $drop=1 SLUICE_DROP_IN_PREFILL=1 SLUICE_DROP_REPRODUCIBLE=1 SLUICE_KERNEL=reference" \
        "same=base" --prefill 300 --ubatch 64 --decode 8 "$model"
    expect "not renormalised" got "$third $drop=1 SLUICE_DROP_REPRODUCIBLE=1" "dropped" --decode 24 "$model"
    expect "renormalised" base "$third $drop=1 SLUICE_DROP_REPRODUCIBLE=1 SLUICE_DROP_RENORM=on" "dropped other=got" --decode 24 "$model"
    # Changed budgets and crowds: not reproducible, but finite and by the rules.
    # A cache switched off meanwhile as well.
    expect "budgets" got "$third $drop=1" "examined" --decode 48 --resize 5 "$model"
}

# The threshold changed while it runs, from the next block on.
gate_changed() { # CACHE
    local drop=SLUICE_DROP_COLD_EXPERTS first=$(((24 + 12) * 256 * 4)) before # bytes of the logits until then
    resident --decode 24 "$model" || return 0
    expect "switched on later" got "$1" "dropped other=want no-prompts" --decode 24 --drop-later 100 "$model"
    cmp -s -n "$first" "$dir/want" "$dir/got" && ok "switched on later: and nothing before" || fail "switched on later: something before"
    expect "never switched off" base "$1 $drop=1 SLUICE_LOOKAHEAD=0" "dropped" --decode 24 "$model"
    before=$(counter "$dir/base.json" examined)
    expect "switched off later" got "$1 $drop=1 SLUICE_LOOKAHEAD=0" "dropped other=base" --decode 24 --drop-later 0 "$model"
    cmp -s -n "$first" "$dir/base" "$dir/got" && ok "switched off later: and not before" || fail "switched off later: before that"
    [ "$(counter "$dir/got.json" examined)" -eq $((before / 2)) ] && ok "switched off later: half as many examined" ||
        fail "switched off later: $(counter "$dir/got.json" examined) examined, of $before"
    lossy got "$1 SLUICE_CACHE=off" --decode 24 --drop-later 50 "$model" && fail "switched on without a cache: was accepted"
    grep -q "needs a cache" "$dir/got.log" && ok "switched on without a cache: $(grep "needs a cache" "$dir/got.log")" ||
        fail "switched on without a cache: $(last_line "$dir/got.log")"
}

# The same bytes whatever the real cache holds.
gate_reproducible() { # CACHE PREFILL DECODE
    local settings="$1 SLUICE_DROP_COLD_EXPERTS=1 SLUICE_DROP_REPRODUCIBLE=1" steps="--prefill $2 --decode $3" other
    # shellcheck disable=SC2086
    expect "reproducible, prompt of $2" base "$settings SLUICE_LOOKAHEAD=0" "dropped no-prompts" $steps "$model"
    for other in SLUICE_LOOKAHEAD=1 "SLUICE_KERNEL=reference SLUICE_DENSE=mmap" SLUICE_IO_THREADS=1 SLUICE_DIRECT_IO=0; do
        # shellcheck disable=SC2086
        expect "reproducible, prompt of $2" got "$settings $other" "dropped same=base" $steps "$model"
    done
    # Another context's experts are in the same cache, and its own are evicted by them. (One thread each, and one alone:
    # llama.cpp's own results for long prompts depend on the number.)
    # shellcheck disable=SC2086
    expect "reproducible, prompt of $2, alone" base "$settings" "dropped" $steps --threads 1 "$model"
    # shellcheck disable=SC2086
    if lossy got "$settings" $steps --parallel 2 --threads 1 "$model" && cmp -s "$dir/base" "$dir/got.0"; then
        ok "reproducible, prompt of $2, beside another context"
    else
        fail "reproducible, prompt of $2, beside another context: $(last_line "$dir/got.log")"
    fi
}

gate_subset() {
    local few="--prefill 7 --decode 8" drop=SLUICE_DROP_COLD_EXPERTS
    mkmoe odd --layers 2 --ff 96 --type-gate-up MXFP4 --type-down Q8_0 --misalign 32 || return 0
    # shellcheck disable=SC2086
    resident $few "$model" || return 0
    # shellcheck disable=SC2086
    expect "below every weight" got "$(tight_cache "$model") $drop=0.000000001" "same=want none no-prompts examined" $few "$model"
    # shellcheck disable=SC2086
    expect "all" got "$(tight_cache "$model") $drop=1 SLUICE_LOOKAHEAD=0" "dropped no-prompts rules=1" $few "$model"
    # shellcheck disable=SC2086
    expect "all, prompts too" got "$(tight_cache "$model") $drop=1 SLUICE_DROP_IN_PREFILL=1" "dropped prompts rules=1" $few "$model"
    # shellcheck disable=SC2086
    lossy got "$(third_cache "$model") $drop=1" $few --parallel 3 --threads 1 "$model" && ok "three contexts" ||
        fail "three contexts: $(last_line "$dir/got.log")"
    gate_reproducible "$(third_cache "$model")" 7 8
}

[ $# -gt 0 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
begin "gate-lossy-$1"
for part in "$@"; do
    "gate_$part"
done
finish
