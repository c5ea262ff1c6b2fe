#!/usr/bin/env bash
# run-gates.sh GATE - logits with the plug-in are byte-identical to logits without it.
#
#   archs        every MoE fixture that llama.cpp's own test-llama-archs writes (streaming-models.txt)
#   types        every quantisation, from sluice-mkmoe
#   layouts      slices that fill no pages, odd offsets, fused gate/up, shards
#   shapes       top-k, batch widths, sequences, threads, who reads and how many at once, buffered reads
#   waves        every MoE fixture at micro-batches of 1, 2, 31, 32, 64 and 512 tokens, with least room to room for all;
#                one expert with all rows, a ragged last layer
#   slots        every MoE fixture with 4 and 8 sequences in a batch, that join one after another as in a server
#   concurrency  several models and contexts in one process
#   dense        dense weights in memory of the process and in the page cache, what is where in the end
#   matrix       kernel, who reads, policy, lookahead, dense weights, budget: each with each, and with several contexts
#   pages        a little of each on pages of 16 and 64 KiB, as far as pagesize.c can make a process believe in them
#   fuse         a model on a file system that a process serves (bindfs), which is read buffered; 77: none can be mounted here
#   subset       a little of each, for builds with sanitizers
#   aarch64      a little of each, for programs that an emulator runs (scripts/aarch64.sh): some fixtures, types
#   few          fixtures of each kind of block at two budgets, a token at a time, in micro-batches and with several sequences:
#                for other releases, and where waves and slots take too long
#
# One line per check, ok or FAIL; exit code 1 when any failed. Nothing here measures time. See lib.sh
# for the environment.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/gates/lib.sh
. "$here/lib.sh"

gate_archs() {
    local name tensors listed=0 info seen expect f
    fixtures
    streaming_models
    seen=" $unused "
    while read -r name tensors; do
        [ -n "$name" ] || continue
        seen="$seen$name "
        listed=$((listed + 1))
        model=$archs/$name.gguf
        if [ ! -f "$model" ]; then
            fail "$name: llama.cpp no longer writes this fixture"
            continue
        fi
        info=$("$BIN/sluice-logits" --info "$model")
        if [ "$(value_of tensors "$info")" != "$tensors" ]; then
            fail "$name: holds $(value_of tensors "$info") expert tensors, the list says $tensors"
            continue
        fi
        check "$name" "SLUICE_CACHE=off" "streams cold tensors=$tensors" "$model"
        expect="streams tensors=$tensors"
        [ "$(value_of evicts "$info")" = 0 ] || expect="$expect evicts"
        check "$name" "$(tight_cache "$model")" "$expect" "$model"
    done <<<"$models"
    [ "$listed" = "$due" ] || fail "streaming-models.txt lists $listed models and says $due"
    for name in $unused; do
        check "$name (experts never used)" "SLUICE_CACHE=off" unused "$archs/$name.gguf"
    done
    # A new fixture must not go untested, and a dense model must run as it always did.
    for f in "$archs"/*.gguf; do
        name=$(basename "$f" .gguf)
        case $seen in *" $name "*) continue ;; esac
        [ "$(value_of tensors "$("$BIN/sluice-logits" --info "$f")")" = 0 ] ||
            fail "$name: holds expert tensors and is not in streaming-models.txt"
    done
    check "llama-dense" "SLUICE_CACHE=off" "tensors=0" "$archs/llama-dense.gguf"
}

three_caches() { # LABEL EXPECT ARGS... MODEL
    local label=$1 expect=$2 model=${!#} cold=cold
    shift 2
    case " $* " in *" --parallel "*) cold="" ;; esac # contexts share what is being read for one of them
    check "$label" "SLUICE_CACHE=off" "streams $cold $expect" "$@"
    check "$label" "$(tight_cache "$model")" "streams evicts $expect" "$@"
    check "$label" "$(third_cache "$model")" "streams evicts hits $expect" "$@"
}

gate_types() {
    local t
    for t in F32 F16 Q8_0 Q4_0 Q4_K Q5_K Q6_K IQ4_XS IQ2_XXS MXFP4; do
        mkmoe "$t" --type-gate-up "$t" --type-down "$t" || continue
        three_caches "$t" tensors=9 "$model"
        rm -f "$model"
    done
    mkmoe mixed --type-down-odd Q6_K || return 0
    three_caches "Q4_K with Q6_K down on odd layers" tensors=9 "$model"
    mkmoe random --type-down-odd Q6_K --fill fast || return 0
    three_caches "random quants" tensors=9 "$model"
}

# The layout must be what it is meant to be, or the check would prove nothing.
require() { # LABEL KEY COMPARISON VALUE
    local got
    got=$(value_of "$2" "$("$BIN/sluice-logits" --info "$model")")
    test "$got" "$3" "$4" || fail "$1: $2 is $got, not $3 $4"
}

# Logits of a model are a function of its weights, not of its files.
same_as_one_file() { # LABEL MODEL
    if resident "$2" && cmp -s "$dir/want" "$dir/one-file"; then
        ok "$1: as in one file"
    else
        fail "$1: not as in one file"
    fi
}

gate_layouts() {
    local n fused="--arch hy_v3 --fused-gate-up"
    for n in 32 2080 4064; do
        mkmoe odd --type-gate-up MXFP4 --type-down Q8_0 --ff 96 --misalign "$n" || continue
        require "odd slices at $n" off_sector -gt 0
        require "odd slices at $n" off_page -eq 9
        three_caches "odd slices, data at $n mod 4096" tensors=9 "$model"
    done
    # Every tensor fills its pages, every tensor is 32 bytes off one.
    mkmoe off --misalign 32 || return 0
    require "32 bytes off" off_sector -eq 9
    three_caches "every tensor 32 bytes off a page" tensors=9 "$model"

    # shellcheck disable=SC2086
    mkmoe fused $fused || return 0
    three_caches "fused gate/up" tensors=6 "$model"
    resident "$model" && cp "$dir/want" "$dir/one-file"

    # shellcheck disable=SC2086
    mkmoe three $fused --shards 3 || return 0
    require "three shards" shards -eq 3
    same_as_one_file "three shards" "$model"
    three_caches "three shards" tensors=6 "$model"
    # shellcheck disable=SC2086
    mkmoe first $fused --shards 3 --metadata-first --misalign 96 || return 0
    require "metadata-only first shard" shards -eq 3
    same_as_one_file "metadata-only first shard" "$model"
    three_caches "metadata-only first shard" tensors=6 "$model"

    # Without mmap llama.cpp reads the experts into memory: nothing is left to stream, nothing may change.
    check "metadata-only first shard, not mapped" "SLUICE_CACHE=off" tensors=0 --load-mode none "$model"
    mkmoe plain || return 0
    check "one file, not mapped" "SLUICE_CACHE=off" tensors=0 --load-mode none "$model"
}

gate_shapes() {
    local n
    mkmoe one --top-k 1 || return 0
    three_caches "top-k 1" "" "$model"
    mkmoe all --experts 4 --top-k 4 || return 0
    check "every expert used" "SLUICE_CACHE=off" "streams cold" "$model"
    check "every expert used" "$(tight_cache "$model")" "streams evicts" "$model"

    mkmoe shapes --ff 96 --type-down Q8_0 --misalign 32 || return 0
    for n in 1 7 300; do
        three_caches "prefill $n" "" --prefill "$n" --decode 24 "$model"
    done
    three_caches "prefill 300 by 64" "" --prefill 300 --ubatch 64 "$model"
    three_caches "two sequences" "" --seqs 2 "$model"
    three_caches "two sequences, prefill 300" "" --seqs 2 --prefill 300 --decode 2 "$model"
    for n in 1 4 64; do
        check "$n in flight" "SLUICE_CACHE=off SLUICE_IO_THREADS=$n" "streams cold" "$model"
        check "$n in flight" "$(third_cache "$model") SLUICE_IO_THREADS=$n" "streams evicts hits" "$model"
    done
    for n in 1 4; do
        three_caches "$n compute threads" "" --threads "$n" "$model"
    done
    check "buffered" "SLUICE_CACHE=off SLUICE_DIRECT_IO=0" "streams cold buffered" "$model"
    check "buffered" "$(third_cache "$model") SLUICE_DIRECT_IO=0" "streams evicts hits buffered" "$model"
    # Every optimisation has a path without it, which must give the same bytes: the kernel, the policy.
    for n in SLUICE_KERNEL=reference SLUICE_CACHE_POLICY=lru; do
        check "without ($n)" "SLUICE_CACHE=off $n" "streams cold" "$model"
        check "without ($n)" "$(tight_cache "$model") $n" "streams evicts" "$model"
        check "without ($n)" "$(third_cache "$model") $n" "streams evicts hits" "$model"
    done
    check "room for all" "SLUICE_CACHE=1GiB" "streams hits" "$model"
    check "auto" "" "streams" "$model"
}

# Prompts at micro-batches of every kind: a token, what one kernel call takes, just below and at where it changes, many.
# Each prompt ends in a shorter batch, whose last layer has one row; nothing is kept, the least is kept (fewer bundles than
# threads could use, and no more than a token's pass through at once), all is.
gate_waves() {
    local name tensors n=0 width steps
    fixtures
    streaming_models
    while read -r name tensors; do
        [ -n "$name" ] || continue
        n=$((n + 1))
        model=$archs/$name.gguf
        for width in 1 2 31 32 64 512; do
            steps="--prefill $((width < 64 ? 67 : width + 5)) --ubatch $width --decode 2"
            # Diffusion models read a prompt both ways: llama.cpp wants it in one micro-batch.
            case $name in llada-* | rnd1-*) steps="--prefill $width --ubatch $width --decode 2" ;; esac
            # shellcheck disable=SC2086 # options are words
            check "$name by $width" "SLUICE_CACHE=off SLUICE_STAGING=1" "streams tensors=$tensors" $steps "$model"
            # shellcheck disable=SC2086
            check "$name by $width" "$(tight_cache "$model") SLUICE_STAGING=1" "streams tensors=$tensors" $steps "$model"
            # shellcheck disable=SC2086
            check "$name by $width" "$(whole_cache "$model")" "streams hits tensors=$tensors" $steps "$model"
        done
    done <<<"$models"
    [ "$n" = "$due" ] || fail "streaming-models.txt says $due models, $n were compared"

    # All tokens are alike: one expert of each layer has all rows, the others have none.
    mkmoe alike --top-k 1 --noise 0 --ff 96 --type-down Q8_0 --misalign 32 || return 0
    for width in 2 32 300; do
        check "one expert, by $width" "SLUICE_CACHE=off" "streams cold misses=$((3 * ((300 + width - 1) / width)))" --prefill 300 --decode 0 \
            --ubatch $width "$model"
        check "one expert, by $width" "$(whole_cache "$model")" "streams misses=3" --prefill 300 --decode 0 --ubatch $width "$model"
    done
    # Reading ahead for the next layer of a batch, and not.
    mkmoe waves --ff 96 --type-down Q8_0 --misalign 32 || return 0
    for width in 31 64 512; do
        steps="--prefill 600 --decode 2 --ubatch $width"
        # shellcheck disable=SC2086
        check "by $width, read ahead" "$(third_cache "$model")" "streams evicts hits foreseen" $steps "$model"
        # shellcheck disable=SC2086
        check "by $width, read ahead, reference" "$(third_cache "$model") SLUICE_KERNEL=reference" \
            "streams evicts hits foreseen" $steps "$model"
        # shellcheck disable=SC2086
        check "by $width, not read ahead" "$(third_cache "$model") SLUICE_LOOKAHEAD=0" "streams evicts hits unforeseen" \
            $steps "$model"
    done
}

# Batches as a server with several slots makes them, without its timing (--join of sluice-logits): one sequence's
# prompt beside the others' next tokens, then a token of each. Where a batch's experts do not all fit, a window
# moves over them; so both, for every architecture; and each optimisation off, for one.
gate_slots() {
    local name tensors n=0 off="SLUICE_CACHE=off"
    local four="--seqs 4 --join 5 --prefill 12 --decode 4" eight="--seqs 8 --join 5 --unified --prefill 12 --decode 4"
    fixtures
    streaming_models
    while read -r name tensors; do
        [ -n "$name" ] || continue
        n=$((n + 1))
        model=$archs/$name.gguf
        # shellcheck disable=SC2086 # options are words
        check "$name, 4 sequences" "$off" "streams tensors=$tensors" $four "$model"
        # shellcheck disable=SC2086
        check "$name, 4 sequences" "$(whole_cache "$model")" "streams hits tensors=$tensors" $four "$model"
        # shellcheck disable=SC2086
        check "$name, 8 sequences" "$(tight_cache "$model")" "streams tensors=$tensors" $eight "$model"
    done <<<"$models"
    [ "$n" = "$due" ] || fail "streaming-models.txt says $due models, $n were compared"

    mkmoe slots --ff 96 --type-down Q8_0 --misalign 32 || return 0
    for n in 4 8; do
        three_caches "$n sequences" "" --seqs $n --decode 24 "$model"
        # No batch has one token here: what is read ahead is guessed from several.
        check "$n sequences, read ahead" "$(third_cache "$model")" "streams evicts hits foreseen" --seqs $n --decode 48 "$model"
        check "$n sequences, not read ahead" "$(third_cache "$model") SLUICE_LOOKAHEAD=0" "streams evicts hits unforeseen" \
            --seqs $n --decode 48 "$model"
        three_caches "$n sequences, joining" "" --seqs $n --join 7 --unified --decode 24 "$model"
        three_caches "$n sequences, joining, a cache each" "" --seqs $n --join 7 --decode 24 "$model"
        for name in SLUICE_KERNEL=reference SLUICE_CACHE_POLICY=lru; do
            check "$n sequences, joining" "$(third_cache "$model") $name" "streams evicts hits" --seqs $n --join 7 --unified \
                --decode 24 "$model"
        done
    done
    check "budgets, 8 sequences" "$(third_cache "$model")" "streams resized" --seqs 8 --join 7 --unified --decode 24 \
        --resize 5 "$model"
    check "8 sequences, two contexts" "$(third_cache "$model")" "streams evicts" --seqs 8 --join 7 --parallel 2 --threads 1 \
        "$model"
}

gate_concurrency() {
    local a b
    mkmoe a --ff 96 --type-down Q8_0 --misalign 32 && a=$model || return 0
    mkmoe b --arch hy_v3 --fused-gate-up --shards 2 --seed 2 && b=$model || return 0
    three_caches "two models in turn" tensors=15 "$a" "$b"
    # Room for all: nothing of the first is read again.
    check "a model comes and goes" "SLUICE_CACHE=256MiB" "streams hits stays" --guest "$b" "$a"
    check "a model comes and goes" "SLUICE_CACHE=auto" "streams" --guest "$a" "$b"
    check "a model comes and goes" "SLUICE_CACHE=off" "streams cold" --guest "$b" "$a"
    check "a model comes and goes" "$(third_cache "$a")" "streams evicts" --guest "$b" "$a"
    check "a model comes and goes, its like" "$(tight_cache "$a")" "streams evicts" --guest "$a" "$a"
    check "one model loaded twice" "SLUICE_CACHE=off" "streams cold" "$a" "$a"
    check "one model loaded twice" "$(third_cache "$a")" "streams evicts" "$a" "$a"
    # One compute thread each: four contexts on two cores are enough of a crowd.
    three_caches "four contexts in four threads" tensors=9 --parallel 4 --threads 1 "$a"
    three_caches "four contexts, two threads each, prefill 300" tensors=9 \
        --parallel 4 --threads 2 --prefill 300 --decode 4 "$a"
    three_caches "two models, two contexts each" tensors=15 --parallel 2 --threads 1 "$a" "$b"
    check "four contexts" "$(third_cache "$a")" "streams evicts" --parallel 4 --threads 1 "$a"
    check "four contexts, one read at a time" "$(third_cache "$a") SLUICE_IO_THREADS=1" "streams evicts" --parallel 4 --threads 1 \
        "$a"
}

# What sluice-residency says with the plug-in; $facts.
residency() { # SETTINGS
    # shellcheck disable=SC2086 # settings are words
    facts=$(env GGML_BACKEND_PATH="$plugin" SLUICE_QUIET=1 $1 "$BIN/sluice-residency" "$model" 2>"$dir/residency.log") ||
        { fail "residency [$1]: $(last_line "$dir/residency.log")"; return 1; }
}

fact() { # LABEL KEY COMPARISON VALUE
    local got
    got=$(value_of "$2" "$facts")
    if [ "${got:-none}" "$3" "$4" ] 2>/dev/null; then ok "$1: $2 $got"; else fail "$1: $2 is ${got:-missing}, not $3 $4"; fi
}

gate_residency() {
    local where pages dense
    mkmoe pages --ff 256 || return 0
    for where in anon lock; do
        residency "SLUICE_CACHE=off SLUICE_DENSE=$where" || continue
        pages=$(value_of expert_pages "$facts")
        dense=$(value_of dense_pages "$facts")
        fact "dense $where" expert_pages -gt 500
        fact "dense $where" expert_closed -eq "$pages"
        fact "dense $where" dense_pages -gt 50
        fact "dense $where" dense_anon -eq "$dense"
        fact "dense $where" dense_writable -eq 0
        fact "dense $where" file_kib -eq 0
        fact "dense $where" get = ok
        fact "dense $where" touch = signal
        fact "dense $where" in_place = ok
        [ "$where" = anon ] || fact "dense $where" dense_locked_kib -eq $((dense * 4))
    done
    residency "SLUICE_CACHE=off SLUICE_DENSE=mmap" || return 0
    fact "dense mmap" expert_closed -eq 0
    fact "dense mmap" dense_anon -eq 0
    fact "dense mmap" file_kib -gt 100
    fact "dense mmap" get = ok
    fact "dense mmap" touch = ok
    fact "dense mmap" in_place = ok
    # Buffered reads use the page cache, but nothing of it is mapped.
    residency "SLUICE_CACHE=off SLUICE_DIRECT_IO=0" || return 0
    fact "buffered" expert_closed -eq "$pages"
    fact "buffered" dense_anon -eq "$dense"
}

# Repacked dense weights are copies in buffers of the program: streaming must not depend on where the originals are.
gate_repacked() {
    local where
    mkmoe repack --ff 256 || return 0
    for where in mmap anon; do
        # shellcheck disable=SC2046
        env GGML_BACKEND_PATH="$plugin" SLUICE_STATS="$dir/$where.json" SLUICE_QUIET=1 SLUICE_DENSE=$where \
            $(third_cache "$model") "$BIN/sluice-logits" --repack --prefill 40 --out "$dir/$where.logits" "$model" \
            >"$dir/log" 2>&1 || { fail "repacked, dense $where: $(last_line "$dir/log")"; return 0; }
    done
    cmp "$dir/mmap.logits" "$dir/anon.logits" && ok "repacked: dense anon computes what dense mmap does" ||
        fail "repacked: dense anon and mmap differ"
    [ "$(counter "$dir/anon.json" tensors)" = 9 ] || fail "repacked: does not stream"
    [ "$(counter "$dir/anon.json" dense_mapped)" = false ] || fail "repacked: dense weights are in the page cache"
    ok "repacked: $(counter "$dir/anon.json" dense_bytes) bytes of dense weights are used from the file"
}

gate_dense() {
    local a b where
    gate_residency
    gate_repacked
    mkmoe a --ff 96 --type-down Q8_0 --misalign 32 && a=$model || return 0
    mkmoe b --arch hy_v3 --fused-gate-up --shards 2 --seed 2 && b=$model || return 0
    for where in mmap:mapped anon:held lock:held; do
        check "dense ${where%:*}" "$(third_cache "$a") SLUICE_DENSE=${where%:*}" "streams evicts hits ${where#*:}" "$a"
        check "dense ${where%:*}, four contexts in four threads" "$(third_cache "$a") SLUICE_DENSE=${where%:*}" \
            "streams evicts ${where#*:}" --parallel 4 --threads 1 "$a"
        check "dense ${where%:*}, two models, two contexts each" "$(third_cache "$a") SLUICE_DENSE=${where%:*}" \
            "streams evicts ${where#*:}" --parallel 2 --threads 1 "$a" "$b"
        check "dense ${where%:*}, one model loaded twice" "SLUICE_CACHE=off SLUICE_DENSE=${where%:*}" \
            "streams cold ${where#*:}" "$a" "$a"
        check "dense ${where%:*}, buffered" "SLUICE_CACHE=off SLUICE_DIRECT_IO=0 SLUICE_DENSE=${where%:*}" \
            "streams cold buffered ${where#*:}" "$b"
    done
    # A ceiling under which only staging fits, and one with room.
    check "a ceiling" "SLUICE_MEMORY=1GiB SLUICE_CACHE=auto" "streams hits held" "$a"
}

# Every setting with every other. The budget is a third of the experts, or changed at random (--resize), when it is
# not known what is evicted or hit. What must be read ahead depends on where the disk is idle: with one context it is.
gate_matrix() {
    local a b kernel policy ahead where settings seen seed=0 expect
    mkmoe a --ff 96 --type-down Q8_0 --misalign 32 && a=$model || return 0
    mkmoe b --arch hy_v3 --fused-gate-up --shards 2 --seed 2 && b=$model || return 0
    for kernel in fused reference; do for policy in cycle lru; do for ahead in 1 0; do
        for where in anon mmap; do
            settings="SLUICE_KERNEL=$kernel SLUICE_CACHE_POLICY=$policy SLUICE_LOOKAHEAD=$ahead SLUICE_DENSE=$where"
            [ $where = mmap ] && seen=mapped || seen=held
            [ $ahead = 1 ] && expect="$seen foreseen" || expect="$seen unforeseen"
            check "one context" "$(third_cache "$a") $settings" "streams evicts hits $expect" --decode 24 "$a"
        done
    done; done; done
    # From here on each run has its own sequence of budgets.
    for kernel in fused reference; do for policy in cycle lru; do for ahead in 1 0; do
        settings="SLUICE_FORCE_CACHE=1 SLUICE_KERNEL=$kernel SLUICE_CACHE_POLICY=$policy SLUICE_LOOKAHEAD=$ahead"
        [ $ahead = 1 ] && expect=streams || expect="streams unforeseen"
        seed=$((seed + 1))
        check "budgets $seed" "$settings $(third_cache "$a")" "$expect resized held" --decode 24 --resize $seed "$a"
        check "budgets $seed, four contexts" "$settings SLUICE_CACHE=off SLUICE_DENSE=mmap" "$expect resized mapped" \
            --resize $seed --parallel 4 --threads 1 "$a"
        check "budgets $seed, two models, two contexts each" "$settings SLUICE_CACHE=off" "$expect resized held" \
            --resize $seed --parallel 2 --threads 2 "$a" "$b"
    done; done; done
    # Little is read ahead while everything changes; that something is, with what that may disturb, is seen here.
    check "budgets, long" "$(third_cache "$a")" "streams resized foreseen" --decode 200 --resize 99 "$a"
    check "budgets, many sequences and a long prompt" "SLUICE_CACHE=off" "streams resized" --prefill 300 --ubatch 64 --seqs 2 \
        --decode 24 --resize 98 "$a"
}

gate_subset() {
    local few="--prefill 7 --decode 3" a
    mkmoe odd --layers 2 --ff 96 --type-gate-up MXFP4 --type-down Q8_0 --misalign 32 && a=$model || return 0
    # shellcheck disable=SC2086
    three_caches "odd slices" tensors=6 $few "$model"
    # shellcheck disable=SC2086
    check "three contexts" "$(third_cache "$model")" "streams evicts" $few --parallel 3 --threads 1 "$model"
    # The budget changed at random; the other switch of lookahead.
    check "budgets" "$(third_cache "$model")" "streams resized" --prefill 7 --decode 24 --parallel 2 --threads 1 --resize 1 "$model"
    check "budgets, no lookahead" "SLUICE_FORCE_CACHE=1 SLUICE_CACHE=off SLUICE_LOOKAHEAD=0 SLUICE_CACHE_POLICY=lru" \
        "streams resized unforeseen" --prefill 7 --decode 24 --parallel 2 --threads 1 --resize 2 "$model"
    # shellcheck disable=SC2086
    check "two sequences" "SLUICE_CACHE=off SLUICE_DIRECT_IO=0" "streams buffered" $few --seqs 2 "$model"
    check "dense mmap" "$(third_cache "$model") SLUICE_DENSE=mmap" "streams evicts mapped" $few "$model"
    mkmoe fused --layers 2 --arch hy_v3 --fused-gate-up --shards 3 --metadata-first || return 0
    # shellcheck disable=SC2086
    three_caches "fused gate/up in shards" tensors=4 $few "$model"
    # shellcheck disable=SC2086
    check "two models, two contexts each" "$(third_cache "$model")" "streams evicts" $few --parallel 2 --threads 1 \
        "$a" "$model"
}

# check on larger pages, and nothing may have been given to the kernel that is not whole pages.
check_pages() { # LABEL SETTINGS EXPECT ARGS...
    local label=$1 settings=$2 page log=$dir/pages.log
    shift 2
    for page in 16384 65536; do
        rm -f "$log"
        check "$label, pages of $page" "$settings LD_PRELOAD=$BIN/libsluice-pagesize.so SLUICE_TEST_PAGE=$page SLUICE_TEST_PAGE_LOG=$log" "$@"
        grep -qE '^calls [0-9]+ wrong 0 plugin [1-9]' "$log" 2>/dev/null ||
            fail "$label, pages of $page: $(last_line "$log"); $(grep -m 1 pagesize: "$dir/got.log")"
    done
}

gate_pages() {
    local where
    mkmoe odd --layers 2 --ff 96 --type-gate-up MXFP4 --type-down Q8_0 --misalign 32 || return 0
    for where in anon:held mmap:mapped; do
        check_pages "odd slices, dense ${where%:*}" "SLUICE_CACHE=off SLUICE_DENSE=${where%:*}" "streams cold ${where#*:}" "$model"
        check_pages "odd slices, dense ${where%:*}" "$(third_cache "$model") SLUICE_DENSE=${where%:*}" \
            "streams evicts hits ${where#*:}" "$model"
    done
    check_pages "odd slices, buffered" "$(third_cache "$model") SLUICE_DIRECT_IO=0" "streams evicts hits buffered" "$model"
    check_pages "budgets" "$(third_cache "$model")" "streams resized held" --prefill 7 --decode 24 --resize 1 "$model"
    mkmoe fused --layers 2 --arch hy_v3 --fused-gate-up --shards 3 --metadata-first || return 0
    check_pages "fused gate/up in shards" "$(third_cache "$model")" "streams evicts hits held" "$model"
    fixtures
    check_pages "gpt-oss" "SLUICE_CACHE=off" "streams cold held" "$archs/gpt-oss-moe.gguf"
}

gate_fuse() {
    local mount=$dir/mount said
    mkmoe odd --layers 2 --ff 96 --type-gate-up MXFP4 --type-down Q8_0 --misalign 32 || return 0
    mkdir -p "$dir/served" "$mount"
    mv "$model" "$dir/served/odd.gguf"
    if ! command -v bindfs >/dev/null || ! bindfs --no-allow-other "$dir/served" "$mount" 2>"$dir/bindfs.log"; then
        echo "note: no FUSE file system can be mounted here: $(last_line "$dir/bindfs.log")"
        rm -rf "$dir"
        exit 77
    fi
    # shellcheck disable=SC2064
    trap "fusermount3 -u '$mount' || umount '$mount'" EXIT
    model=$mount/odd.gguf
    check "on FUSE" "SLUICE_CACHE=off" "streams cold buffered held" "$model"
    check "on FUSE" "$(third_cache "$model")" "streams evicts hits buffered held" "$model"
    check "on FUSE, dense mmap" "$(third_cache "$model") SLUICE_DENSE=mmap" "streams evicts hits buffered mapped" "$model"
    # Who looks is told why.
    said=$(GGML_BACKEND_PATH=$plugin SLUICE_CACHE=off "$BIN/sluice-logits" --out "$dir/got" --decode 1 "$model" 2>&1 | grep 'can be wrong' || true)
    case $said in
    *"direct reads of FUSE can be wrong"*) ok "the mode line: $said" ;;
    *) fail "the mode line does not say why reads are buffered" ;;
    esac
    fusermount3 -u "$mount" || umount "$mount"
    trap - EXIT
    # The same file where it really lies.
    check "where it really lies" "SLUICE_CACHE=off" "streams cold" "$dir/served/odd.gguf"
    [ "$(counter "$dir/stats.json" direct_io)" = true ] || echo "note: no direct reads there either"
}

# Decode and small micro-batches, some architectures, the types whose kernels ARM has of its own.
gate_aarch64() {
    local name t n few="--prefill 11 --ubatch 5 --decode 4 --threads 1" two="--prefill 11 --ubatch 5 --decode 4"
    fixtures
    for name in qwen3moe-moe gpt-oss-moe deepseek2-moe llama4-moe qwen3next-moe; do
        model=$archs/$name.gguf
        # shellcheck disable=SC2086 # options are words
        check "$name" "SLUICE_CACHE=off" "streams cold" $few "$model"
        # shellcheck disable=SC2086
        check "$name" "$(tight_cache "$model")" streams $few "$model"
    done
    for t in F16 Q8_0 Q4_0 Q4_K Q6_K IQ4_XS MXFP4; do
        mkmoe "$t" --layers 2 --type-gate-up "$t" --type-down "$t" || continue
        # shellcheck disable=SC2086
        three_caches "$t" tensors=6 $few "$model"
        rm -f "$model"
    done
    mkmoe odd --layers 2 --ff 96 --type-gate-up MXFP4 --type-down Q8_0 --misalign 32 || return 0
    for n in SLUICE_KERNEL=reference SLUICE_DIRECT_IO=0 SLUICE_DENSE=mmap; do
        # shellcheck disable=SC2086
        check "odd slices" "$(third_cache "$model") $n" "streams evicts hits" $two "$model"
    done
    check "odd slices, two sequences" "$(third_cache "$model")" "streams evicts hits" --seqs 2 "$model"
    check "odd slices, many rows" "$(third_cache "$model")" "streams evicts hits" --prefill 70 --decode 1 "$model"
    check "odd slices, budgets" "$(third_cache "$model")" "streams resized" --prefill 7 --decode 12 --resize 1 "$model"
}

# Architectures that differ in what this project looks at: separate, fused and no gates, biases, shared experts, weights
# before and after the experts, sigmoid and softmax routing, latent attention, states, a precision that is asked for.
gate_few() {
    local name few=" qwen3moe-moe gpt-oss-moe deepseek2-moe hy_v3-moe llama4-moe mistral4-moe qwen3next-moe grovemoe-moe "
    local tensors n=0 steps="--prefill 67 --ubatch 31 --decode 4 --threads 1"
    fixtures
    streaming_models
    while read -r name tensors; do
        case $few in *" $name "*) ;; *) continue ;; esac
        n=$((n + 1))
        model=$archs/$name.gguf
        check "$name" "SLUICE_CACHE=off" "streams cold tensors=$tensors" --prefill 7 --decode 6 "$model"
        # shellcheck disable=SC2086 # options are words
        check "$name by 31" "$(tight_cache "$model") SLUICE_STAGING=1" "streams tensors=$tensors" $steps "$model"
        # shellcheck disable=SC2086
        check "$name by 31" "$(whole_cache "$model")" "streams hits tensors=$tensors" $steps "$model"
        check "$name, 4 sequences" "$(tight_cache "$model")" "streams tensors=$tensors" --seqs 4 --join 5 --prefill 12 --decode 4 "$model"
    done <<<"$models"
    [ "$n" = 8 ] || fail "$n of the 8 fixtures were compared"
}

case ${1:-} in
archs | types | layouts | shapes | waves | slots | concurrency | dense | matrix | pages | fuse | subset | aarch64 | few)
    begin "gate-$1"
    "gate_$1"
    finish
    ;;
*)
    sed -n '2,23s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
