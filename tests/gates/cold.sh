#!/usr/bin/env bash
# cold.sh PART... - experts that would be left out are computed from their copies in a cold model, and nothing else is.
#
#   archs    every MoE fixture that llama.cpp's own test-llama-archs writes, with a copy of the file for a cold model
#   types    copies of other types; kernels, readers, contexts, prompts, budgets, shards
#   refused  files that are not a smaller copy of the model: other shapes, names, counts, values; damaged ones
#   subset   a little of each, for builds with sanitizers
#
# What is promised (docs/quality.md), and how it is seen here:
#   - copies of the same type change no byte, whatever is substituted: compared with the resident run. So the pairs that
#     are split off, their rows, weights and order are right, on every path
#   - a threshold below every weight reads nothing of the cold model's file (counters) and changes no byte
#   - at full strength experts are read only for a token's strongest; every row of the route trace is checked (dropped.awk)
#   - with drop_reproducible the same bytes whatever the real caches do
#   - a file that is no copy fails the model with a message that names file and tensor
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/gates/lib.sh
. "$here/lib.sh"

drop=SLUICE_DROP_COLD_EXPERTS

# The plug-in's run: output $dir/NAME, counters NAME.json, trace NAME.csv, what it says NAME.log.
run() { # NAME SETTINGS ARGS...
    local name=$1 settings=$2
    shift 2
    rm -f "$dir/$name" "$dir/$name".[0-9]* "$dir/$name".json "$dir/$name".csv "$dir/$name".log
    # shellcheck disable=SC2086 # settings are words
    timeout 300 env GGML_BACKEND_PATH="$plugin" SLUICE_STATS="$dir/$name.json" SLUICE_ROUTE_TRACE="$dir/$name.csv" $settings \
        "$BIN/sluice-logits" --out "$dir/$name" "$@" >"$dir/$name.log" 2>&1
}

# The same, which must succeed; then words: same=NAME (equal bytes), other=NAME (not), substituted (something was, and copies
# were read), none (nothing was, and no byte of the cold model read), no-prompts (nothing was in prompts), prompts (something
# was), rules (the trace obeys dropped.awk), mode=TEXT (the mode line says so)
counted=0 gave_up=0 # runs that may substitute something, and that did; rows may be missing from their traces
expect() { # LABEL NAME SETTINGS WORDS ARGS...
    local label=$1 name=$2 settings=$3 words=$4 word bad= json=$dir/$2.json f
    shift 4
    if ! run "$name" "$settings" "$@"; then
        fail "$label [$settings]: $(last_line "$dir/$name.log")"
        return 0
    fi
    for word in $words; do
        case $word in
        same=*) for f in "$dir/${word#*=}" "$dir/${word#*=}".[0-9]*; do
            [ ! -f "$f" ] || cmp -s "$f" "$dir/$name${f#"$dir/${word#*=}"}" || bad="$bad; not the bytes of $(basename "$f")"
        done ;;
        other=*) ! cmp -s "$dir/$name" "$dir/${word#*=}" || bad="$bad; the bytes of ${word#*=}" ;;
        substituted) [ "$(counter "$json" substituted)" -gt 0 ] && [ "$(counter "$json" cold_read_bytes)" -gt 0 ] &&
            [ "$(counter "$json" avoided_bytes)" -gt 0 ] && [ "$(counter "$json" dropped)" = 0 ] ||
            bad="$bad; nothing was substituted" ;;
        counted) counted=$((counted + 1)) && [ "$(counter "$json" substituted)" = 0 ] || gave_up=$((gave_up + 1)) ;;
        none) [ "$(counter "$json" substituted)" = 0 ] && [ "$(counter "$json" cold_read_bytes)" = 0 ] &&
            [ "$(counter "$json" cold_tensors)" -gt 0 ] ||
            bad="$bad; $(counter "$json" substituted) substituted, $(counter "$json" cold_read_bytes) bytes of copies read" ;;
        no-prompts) [ "$(counter "$json" prompt_substituted)" = 0 ] || bad="$bad; substituted in prompts" ;;
        prompts) [ "$(counter "$json" prompt_substituted)" -gt 0 ] || bad="$bad; nothing was substituted in prompts" ;;
        rules) awk -F, -v share=1 -v kind=2 -v maybe="$counted" -f "$here/dropped.awk" "$dir/$name.csv" >"$dir/awk.log" 2>&1 ||
            bad="$bad; $(head -n 1 "$dir/awk.log")" ;;
        mode=*) grep -q "lossy: cold experts below .*/k from ${word#*=}" "$dir/$name.log" || bad="$bad; the mode line does not say so" ;;
        *) bad="$bad; bad word $word" ;;
        esac 2>/dev/null
    done
    if [ -n "$bad" ]; then
        fail "$label [$settings]${bad/;/:}"
    else
        ok "$label [${settings//"$dir/"/}] $(counter "$json" substituted) of $(counter "$json" examined) substituted," \
            "$(counter "$json" cold_copies) copies, $(counter "$json" cold_hits) in memory"
    fi
}

gate_archs() {
    local name tensors tight
    fixtures
    streaming_models
    while read -r name tensors; do
        # llama4 weights its experts' input: nothing is ever given up. All these tokens of laguna pick the same two experts.
        case $name in '' | llama4-moe | laguna-moe) continue ;; esac
        model=$archs/$name.gguf
        tight=$(tight_cache "$model")
        cp "$model" "$dir/copy.gguf"
        # One token of prompt looks like a generated one: so even the smallest fixtures miss something.
        if ! resident --prefill 1 --decode 8 "$model"; then
            fail "$name: resident run: $(last_line "$dir/want.log")"
            continue
        fi
        expect "$name, its copy" got "$tight SLUICE_COLD_MODEL=$dir/copy.gguf $drop=1 SLUICE_LOOKAHEAD=0" \
            "counted same=want rules" --prefill 1 --decode 8 "$model"
        expect "$name, its copy" got "$tight SLUICE_COLD_MODEL=$dir/copy.gguf $drop=1 SLUICE_KERNEL=reference SLUICE_DROP_IN_PREFILL=1" \
            "counted same=want" --prefill 1 --decode 8 "$model"
    done <<<"$models"
    most_runs "something was substituted"
    counted=0
}

# A model and cold models of it: the same weights, made again with other types (values follow from the seed).
shape="--ff 256 --misalign 32"
cold_models() { # OPTIONS...
    resident_key= # the models are others now, though their names are not
    # shellcheck disable=SC2086
    mkmoe q2 $shape "$@" --type-gate-up Q2_K --type-down Q2_K && mkmoe mixed $shape "$@" --type-gate-up IQ2_XXS --type-down Q3_K &&
        mkmoe shards $shape "$@" --type-gate-up Q3_K --type-down Q2_K --shards 3 && mkmoe main $shape "$@" && cp "$model" "$dir/copy.gguf"
}

gate_types() {
    local k third tight few="--prefill 24 --decode 24" long="--prefill 300 --ubatch 64 --decode 8" file settings other
    for k in 2 3 6; do
        cold_models --top-k $k || return 0
        tight=$(tight_cache "$model") third=$(third_cache "$model")
        # shellcheck disable=SC2086
        resident $few "$model" || return 0
        for settings in "$tight" "$third"; do
            # shellcheck disable=SC2086
            expect "top-k $k, off" got "$settings $drop=0 SLUICE_COLD_MODEL=$dir/q2.gguf" "none same=want" $few "$model"
            # shellcheck disable=SC2086
            expect "top-k $k, below every weight" got "$settings $drop=0.000000001 SLUICE_COLD_MODEL=$dir/q2.gguf" "none same=want" $few "$model"
            # shellcheck disable=SC2086
            expect "top-k $k, a copy" got "$settings $drop=1 SLUICE_COLD_MODEL=$dir/copy.gguf" \
                "substituted same=want no-prompts mode=copy.gguf.*Q4_K" $few "$model"
            for file in q2 mixed shards-00001-of-00003; do
                # shellcheck disable=SC2086
                expect "top-k $k, $file" got "$settings $drop=1 SLUICE_LOOKAHEAD=0 SLUICE_COLD_MODEL=$dir/$file.gguf" \
                    "substituted other=want no-prompts rules mode=$file.gguf" $few "$model"
            done
        done
    done

    # The same bytes whatever the caches do, on every path.
    settings="$third $drop=1 SLUICE_DROP_REPRODUCIBLE=1"
    for file in q2 mixed; do
        # shellcheck disable=SC2086
        expect "reproducible, $file" base "$settings SLUICE_COLD_MODEL=$dir/$file.gguf" "substituted other=want" $few "$model"
        for other in SLUICE_KERNEL=reference SLUICE_LOOKAHEAD=0 SLUICE_IO_THREADS=1 SLUICE_DIRECT_IO=0; do
            # shellcheck disable=SC2086
            expect "reproducible, $file" got "$settings $other SLUICE_COLD_MODEL=$dir/$file.gguf" "substituted same=base" $few "$model"
        done
        # More copies at once than there are slots: they pass through in turns.
        # shellcheck disable=SC2086
        expect "prompts too, $file" base "$tight $drop=1 SLUICE_DROP_IN_PREFILL=1 SLUICE_DROP_REPRODUCIBLE=1 SLUICE_COLD_MODEL=$dir/$file.gguf" \
            "substituted prompts" $long "$model"
        # shellcheck disable=SC2086
        expect "prompts too, $file" got "$tight $drop=1 SLUICE_DROP_IN_PREFILL=1 SLUICE_DROP_REPRODUCIBLE=1 SLUICE_KERNEL=reference SLUICE_COLD_MODEL=$dir/$file.gguf" \
            "substituted prompts same=base" $long "$model"
    done

    # Copies of the same type, in crowds.
    settings="$drop=1 SLUICE_DROP_IN_PREFILL=1 SLUICE_COLD_MODEL=$dir/copy.gguf"
    # shellcheck disable=SC2086
    resident $long "$model" && expect "a copy, prompts too" got "$tight $settings" "substituted prompts same=want" $long "$model"
    resident --seqs 2 "$model" && expect "a copy, two sequences" got "$tight $settings" "substituted prompts same=want" --seqs 2 "$model"
    resident --parallel 4 --threads 1 --decode 48 "$model" &&
        expect "a copy, four contexts" got "$tight $settings" "substituted same=want" --parallel 4 --threads 1 --decode 48 "$model"
    gate_budgets "$third $settings"
}

# While the budget changes: the same bytes. Turning the cache off is refused, since something is lossy, and nothing else is.
gate_budgets() { # SETTINGS
    resident --parallel 2 --threads 1 --decode 48 "$model" || return 0
    if ! run got "$1" --parallel 2 --threads 1 --decode 48 --resize 7 "$model" && ! grep -q "needs a cache" "$dir/got.log"; then
        fail "a copy, budgets: $(last_line "$dir/got.log")"
    elif cmp -s "$dir/want.0" "$dir/got.0" && cmp -s "$dir/want.1" "$dir/got.1" && grep -q "^resized [1-9][0-9]* between [1-9]" "$dir/got.log" &&
        [ "$(counter "$dir/got.json" substituted)" -gt 0 ]; then
        ok "a copy, budgets: $(grep '^resized' "$dir/got.log"), $(counter "$dir/got.json" substituted) substituted"
    else
        fail "a copy, budgets: other bytes, no changes or nothing substituted"
    fi
}

# The model fails to give a context, with a message, and is not quietly run without.
refused() { # LABEL FILE MESSAGE
    if run bad "$third $drop=0.5 SLUICE_COLD_MODEL=$2" --prefill 2 --decode 1 "$model"; then
        fail "$1: was accepted"
    elif grep -qE "^sluice: .*$3" "$dir/bad.log"; then
        ok "$1: $(grep -m 1 '^sluice: ' "$dir/bad.log" | sed "s|$dir/||g")"
    else
        fail "$1: $(last_line "$dir/bad.log")"
    fi
}

gate_refused() {
    local size at k n=0 refusals=0 bad=0 rc main
    # shellcheck disable=SC2086
    mkmoe main $shape --layers 2 || return 0
    main=$model
    third=$(third_cache "$main")
    # shellcheck disable=SC2086
    mkmoe q2 $shape --layers 2 --type-gate-up Q2_K --type-down Q2_K && mkmoe three $shape --layers 3 && mkmoe one $shape --layers 1 &&
        mkmoe experts $shape --layers 2 --experts 8 && mkmoe wide --layers 2 --ff 512 && mkmoe seed $shape --layers 2 --seed 77 &&
        mkmoe fused --arch hy_v3 --fused-gate-up $shape --layers 2 && mkmoe shards $shape --layers 2 --shards 3 || return 0
    model=$main
    resident --prefill 24 --decode 8 "$model" || return 0
    expect "more layers than the model" got "$third $drop=0 SLUICE_COLD_MODEL=$dir/three.gguf" "none same=want" --prefill 24 --decode 8 "$model"
    refused "no file" "$dir/absent.gguf" "absent.gguf: No such file"
    refused "a folder" "$dir" "is a directory"
    refused "no name" "" "SLUICE_COLD_MODEL: .* is not a value"
    refused "the model itself" "$main" "main.gguf is the model itself"
    ln -s main.gguf "$dir/link.gguf"
    refused "the model itself, by another name" "$dir/link.gguf" "link.gguf is the model itself"
    refused "a layer missing" "$dir/one.gguf" "one.gguf: has no tensor blk.1.ffn_[a-z]*_exps.weight"
    refused "fewer experts" "$dir/experts.gguf" "experts.gguf: tensor blk.0.ffn_[a-z]*_exps.weight is .* with 8 experts, the model's .* with 16"
    refused "another shape" "$dir/wide.gguf" "wide.gguf: tensor blk.0.ffn_[a-z]*_exps.weight is "
    refused "another layout" "$dir/fused.gguf" "fused.gguf: (holds none of the model's expert tensors|has no tensor blk)"
    refused "no experts" "$LLAMA_SRC/models/ggml-vocab-gpt-2.gguf" "holds no"
    refused "another model of the same shape" "$dir/seed.gguf" "seed.gguf: its experts are not this model's"
    refused "the second shard" "$dir/shards-00002-of-00003.gguf" "name the first shard"
    rm "$dir/shards-00003-of-00003.gguf"
    refused "a shard missing" "$dir/shards-00001-of-00003.gguf" "shard 3 of 3 is missing"
    printf 'not a model' >"$dir/text.gguf"
    refused "no GGUF" "$dir/text.gguf" "not a GGUF"
    : >"$dir/empty.gguf"
    refused "an empty file" "$dir/empty.gguf" "empty"
    mkfifo "$dir/fifo.gguf"
    refused "a pipe" "$dir/fifo.gguf" "not a regular file"
    size=$(stat -c %s "$dir/q2.gguf")
    for at in 3 20 200 1000 $((size / 2)) $((size - 1)); do
        head -c "$at" "$dir/q2.gguf" >"$dir/cut.gguf"
        refused "cut to $at bytes" "$dir/cut.gguf" "cold model: .*cut.gguf: (truncated|not a GGUF)"
    done

    # Damaged headers: whatever the bytes are, it is refused with a message, or the text is finite.
    RANDOM=20261130
    for ((k = 0; k < ${damages:-150}; k++)); do
        cp "$dir/q2.gguf" "$dir/damaged.gguf"
        for ((n = 0; n <= RANDOM % 3; n++)); do
            at=$(((RANDOM * 32768 + RANDOM) % 3000))
            # shellcheck disable=SC2059 # the byte is the format
            printf "\\$(printf '%o' $((RANDOM % 4 ? RANDOM % 256 : 255)))" |
                dd of="$dir/damaged.gguf" bs=1 seek=$at conv=notrunc status=none
        done
        rc=0
        run bad "$third $drop=1 SLUICE_COLD_MODEL=$dir/damaged.gguf" --prefill 2 --decode 4 "$model" || rc=$?
        [ $rc -eq 0 ] || refusals=$((refusals + 1))
        if [ $rc -gt 1 ] || { [ $rc -eq 1 ] && ! grep -q "^sluice: cold model: \|is not finite\|^sluice: .*damaged.gguf" "$dir/bad.log"; }; then
            bad=$((bad + 1))
            cp "$dir/damaged.gguf" "$dir/bad-$k.gguf"
            echo "  copy $k: exit $rc: $(last_line "$dir/bad.log")"
        fi
    done
    [ $bad -eq 0 ] && [ $refusals -gt $((k / 10)) ] && ok "$k damaged copies, $refusals refused" || fail "$bad of $k damaged copies, $refusals refused"
}

gate_subset() {
    local few="--prefill 7 --decode 12" tight third
    cold_models --layers 2 || return 0
    tight=$(tight_cache "$model") third=$(third_cache "$model")
    # shellcheck disable=SC2086
    resident $few "$model" || return 0
    # shellcheck disable=SC2086
    expect "below every weight" got "$tight $drop=0.000000001 SLUICE_COLD_MODEL=$dir/q2.gguf" "none same=want" $few "$model"
    # shellcheck disable=SC2086
    expect "a copy" got "$tight $drop=1 SLUICE_DROP_IN_PREFILL=1 SLUICE_COLD_MODEL=$dir/copy.gguf" "substituted prompts same=want" $few "$model"
    # shellcheck disable=SC2086
    expect "mixed types" base "$third $drop=1 SLUICE_DROP_REPRODUCIBLE=1 SLUICE_COLD_MODEL=$dir/mixed.gguf" "substituted other=want" $few "$model"
    # shellcheck disable=SC2086
    expect "mixed types" got "$third $drop=1 SLUICE_DROP_REPRODUCIBLE=1 SLUICE_KERNEL=reference SLUICE_COLD_MODEL=$dir/mixed.gguf" \
        "substituted same=base" $few "$model"
    gate_budgets "$third $drop=1 SLUICE_DROP_IN_PREFILL=1 SLUICE_COLD_MODEL=$dir/copy.gguf"
    damages=20 gate_refused
}

[ $# -gt 0 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
begin "gate-cold-$1"
for part in "$@"; do
    "gate_$part"
done
finish
