#!/usr/bin/env bash
# run-faults.sh WHAT - run models on a disk that misbehaves (faulty.c), and see that no byte comes out wrong.
#
#   harmless  short reads, EINTR, wrong bytes from direct reads, direct I/O refused: the same logits
#   fatal     EIO, an early end, a file cut while it runs: the run fails, says which file, offset and
#             tensor, and what was written before is right
#   cold      the same in the file of a cold model, while the model's own is read without faults
#   lost      the kernel takes a part of the mapping away: every token ends in an error, in every context
#   run       the same through the `sluice run` command
#
# Environment: BIN (our programs), LLAMA_SRC (llama.cpp's source, for a vocabulary), WORK (to write in).
# Every check looks into the fault library's log as well: a fault that did not happen proves nothing.
#
# Which read is the hundredth depends on time, since experts are prefetched where the disk is idle. What does not: an expert
# that the run has not used before must be read when it is first used. So faults are put on the bytes of such experts,
# whose steps a route trace of a run without faults names, and a run that fails must fail in exactly that step.
set -euo pipefail
: "${BIN:?}" "${LLAMA_SRC:?}" "${WORK:?}"
export LC_ALL=C
for v in "${!SLUICE_@}" "${!FAULTY_@}"; do unset "$v"; done
unset GGML_BACKEND_PATH v

bin=$(cd "$BIN" && pwd)
mkdir -p "$WORK/${1:-}"
dir=$(cd "$WORK/${1:-}" && pwd)
checks=0
failures=0
ok() { checks=$((checks + 1)); echo "ok   $*"; }
fail() { checks=$((checks + 1)); failures=$((failures + 1)); echo "FAIL $*"; }
finish() {
    echo "$((checks - failures)) of $checks checks passed"
    if [ "$failures" -eq 0 ]; then rm -rf "$dir"; fi
    [ "$failures" -eq 0 ] && [ "$checks" -gt 0 ]
}
die() { echo "FAIL $*"; exit 1; }

# 3 layers of 16 experts in slices that fill no pages, at odd offsets; the last tensor holds experts.
shape=(--layers 3 --experts 16 --top-k 3 --noise 3 --ff 96 --type-gate-up MXFP4 --type-down Q8_0)

counter() { # FILE KEY: of the plug-in's flat JSON
    sed -nE "s/.*\"$2\": *\"?([0-9a-z.]+).*/\1/p" "$1"
}
logged() { # KEY: of the fault library's log
    sed -nE "s/.*\<$1 ([0-9]+).*/\1/p" "$dir/faults.log" | tail -n 1
}

# Run COMMAND with faults; its exit code is in $rc, standard error in $dir/err.
faulty() { # "FAULTY_X=..." COMMAND...
    local faults=$1
    shift
    rm -f "$dir/faults.log" "$dir/stats.json"
    rc=0
    # shellcheck disable=SC2086 # faults are words
    env LD_PRELOAD="$bin/libsluice-faulty.so" FAULTY_LOG="$dir/faults.log" SLUICE_STATS="$dir/stats.json" $faults "$@" \
        2>"$dir/err" || rc=$?
}

# The plug-in in sluice-logits, with faults and settings. Output: $dir/got.
logits() { # "FAULTY_X=..." "SLUICE_X=..." MODEL
    rm -f "$dir/got"
    # shellcheck disable=SC2086 # settings are words
    faulty "$1" env GGML_BACKEND_PATH="$bin/libggml-sluice.so" $2 "$bin/sluice-logits" --out "$dir/got" "${run[@]}" "$3"
}
run=(--prefill 24 --decode 12)

make_model() {
    model=$dir/model.gguf
    "$bin/sluice-mkmoe" --out "$model" --vocab 256 "${shape[@]}" >"$dir/log" 2>&1 || die "sluice-mkmoe: $(cat "$dir/log")"
    "$bin/sluice-logits" --out "$dir/want" "${run[@]}" "$model" >"$dir/log" 2>&1 || die "resident run: $(cat "$dir/log")"
    logits FAULTY_MODE=none SLUICE_CACHE=off "$model"
    [ $rc -eq 0 ] || die "run without faults: $(tail -n 1 "$dir/err")"
    cmp -s "$dir/got" "$dir/want" || die "logits differ without faults"
    reads=$(logged reads)
    [ "$reads" -gt 300 ] || die "only $reads reads are seen: the library is not in their way"
    direct=$(counter "$dir/stats.json" direct_io)
    [ "$direct" = true ] || echo "note: $dir does not take direct I/O; its faults are not tested here"
    third="SLUICE_FORCE_CACHE=1 SLUICE_CACHE=$(("$(stat -c %s "$model")" / 3))B"
}

# ---- faults that must not be seen ------------------------------------------------------------

# Faults happened, nothing else did; direct_io in the counters is as expected.
check_same() { # LABEL "FAULTY_X=..." "SLUICE_X=..." DIRECT
    local bad=""
    logits "$2" "$3" "$model"
    [ $rc -eq 0 ] || bad="; exit $rc: $(tail -n 1 "$dir/err")"
    cmp -s "$dir/got" "$dir/want" || bad="$bad; logits differ"
    [ "$(logged faults)" -gt 0 ] || bad="$bad; no fault was injected"
    [ "$(counter "$dir/stats.json" tensors)" = 9 ] || bad="$bad; did not stream"
    [ "$direct" = false ] || [ "$(counter "$dir/stats.json" direct_io)" = "$4" ] || bad="$bad; direct_io is not $4"
    if [ "$4" = false ]; then
        grep -q "^sluice: streaming .*buffered reads ($5" "$dir/err" || bad="$bad; the mode line does not say why: $(grep '^sluice' "$dir/err")"
    fi
    [ -z "$bad" ] && ok "$1 [$3] $(cat "$dir/faults.log")" || fail "$1 [$3]${bad/;/:}"
}

harmless() {
    local settings
    make_model
    # The first 24 reads are those by which the file is recognised and direct reading is tried out.
    for settings in SLUICE_CACHE=off "$third" "SLUICE_CACHE=off SLUICE_IO_THREADS=1" "SLUICE_CACHE=off SLUICE_KERNEL=reference"; do
        check_same "short reads" "FAULTY_MODE=short FAULTY_AFTER=40" "$settings" true
        check_same "every third read short" "FAULTY_MODE=short FAULTY_AFTER=40 FAULTY_EVERY=3" "$settings" true
        check_same "EINTR every other time" "FAULTY_MODE=eintr FAULTY_AFTER=40 FAULTY_EVERY=2" "$settings" true
    done
    check_same "short buffered reads" "FAULTY_MODE=short FAULTY_AFTER=40" "SLUICE_CACHE=off SLUICE_DIRECT_IO=0" false "asked for"
    check_same "EINTR in buffered reads" "FAULTY_MODE=eintr FAULTY_AFTER=40 FAULTY_EVERY=2" \
        "SLUICE_CACHE=off SLUICE_DIRECT_IO=0" false "asked for"
    [ "$direct" = true ] || return 0
    for settings in SLUICE_CACHE=off "$third"; do
        check_same "wrong bytes in direct reads" "FAULTY_MODE=wrong FAULTY_DIRECT=1" "$settings" false "direct reads return wrong bytes"
        check_same "wrong bytes in every fourth direct read" "FAULTY_MODE=wrong FAULTY_DIRECT=1 FAULTY_EVERY=4" "$settings" \
            false "direct reads return wrong bytes"
        check_same "direct reads fail" "FAULTY_MODE=eio FAULTY_DIRECT=1" "$settings" false "direct reads fail"
        check_same "direct reads end at once" "FAULTY_MODE=end FAULTY_DIRECT=1" "$settings" false "direct reads fail"
        check_same "direct I/O refused" "FAULTY_MODE=refuse" "$settings" false "the file system refuses direct I/O"
        # A direct read that ends early is finished through the page cache: the file is still there.
        check_same "direct reads that end early" "FAULTY_MODE=end FAULTY_DIRECT=1 FAULTY_AFTER=40 FAULTY_EVERY=3" "$settings" true
    done
}

# ---- where ---------------------------------------------------------------------------------------

# Of the trace TRACE, "STEP LAYER EXPERT" of every expert in the order of first use. With KIND, only rows marked so.
first_uses() { # TRACE [KIND]
    awk -F, -v kind="${2:-}" '/^[0-9]/ && (kind == "" || $10 == kind) && !seen[$4, $6]++ { print $3, $4, $6 }' "$1" | sort -s -n -k1,1
}

# The byte in the middle of an expert's part of a tensor: nothing but that expert's read covers it.
byte_of() { # MODEL LAYER KIND EXPERT
    "$bin/faults-layout" "$1" | awk -v name="blk.$2.ffn_$3_exps.weight" -v e="$4" -v n=16 \
        '$1 == name { printf "%.0f\n", $2 + ($3 - $2) / n * (e + 0.5) }'
}

# Three places, "ROWS BYTE" each: of an expert first used in the prompt (in the last layer, when the reads that the load makes
# are long past), in the middle of the text, near its end. ROWS: logits that are written before it is needed.
find_places() { # MODEL TRACE PROMPT
    local uses step layer expert kind
    uses=$(first_uses "$2")
    places=()
    for kind in gate up down; do
        case $kind in
        gate) read -r step layer expert < <(awk -v n="$3" '$1 < n && $2 == 2' <<<"$uses" | tail -n 1) ;;
        up) read -r step layer expert < <(awk -v n="$3" '$1 >= n { u[k++] = $0 } END { print u[int(k / 3)] }' <<<"$uses") ;;
        down) read -r step layer expert < <(tail -n 1 <<<"$uses") ;;
        esac
        [ -n "$expert" ] || die "no expert is first used there: $(tr '\n' ',' <<<"$uses")"
        places+=("$((step < $3 ? 0 : step)) $(byte_of "$1" "$layer" $kind "$expert")")
    done
    [ "${places[1]%% *}" -gt 0 ] && [ "${places[2]%% *}" -gt "${places[1]%% *}" ] || die "the places are all the same: ${places[*]}"
}

# The bytes of all experts that the run of a trace never uses, of the model.
never_used() { # MODEL TRACE
    local uses layer expert
    uses=$(first_uses "$2" | cut -d' ' -f2-)
    for layer in 0 1 2; do
        for ((expert = 0; expert < 16; expert++)); do
            grep -qx "$layer $expert" <<<"$uses" || byte_of "$1" $layer gate $expert
        done
    done | paste -sd,
}

# ---- faults that must end the run ------------------------------------------------------------

names_the_place() { # FILE TENSOR-PATTERN: does $dir/err say where, in one line?
    grep -E "^sluice: .*$1: reading expert [0-9]+ of tensor $2 at offset [0-9]+ failed: ." "$dir/err" >/dev/null
}

# The run failed and said so; what it wrote is the beginning of what it should have written: ROWS of it, when that is known.
check_failed() { # LABEL "FAULTY_X=..." "SLUICE_X=..." REASON [ROWS [MODEL TENSOR]]
    local bad="" file=${6:-$model} size row=$((256 * 4))
    logits "$2" "$3" "$file"
    [ $rc -ne 0 ] && [ $rc -lt 128 ] || bad="; exit $rc"
    [ "$(logged faults)" -gt 0 ] || bad="$bad; no fault was injected"
    names_the_place "$file" "${7:-blk\.[0-2]\.ffn_(gate|up|down)_exps\.weight}" || bad="$bad; does not say where: $(grep '^sluice' "$dir/err")"
    grep -q "failed: $4" "$dir/err" || bad="$bad; does not say why"
    size=$(stat -c %s "$dir/got" 2>/dev/null || echo 0)
    [ "$size" -lt "$(stat -c %s "$dir/want")" ] || bad="$bad; logits of all steps were written"
    [ $((size % row)) -eq 0 ] && cmp -s -n "$size" "$dir/got" "$dir/want" || bad="$bad; wrong logits were written"
    [ -z "${5:-}" ] || [ $((size / row)) -eq "$5" ] || bad="$bad; failed after $((size / row)) rows, not $5"
    [ -z "$bad" ] && ok "$1 [$3] after $((size / row)) rows" || fail "$1 [$3]${bad/;/:}"
}

# A fault that passes, while experts are prefetched: if the read was wanted the run fails, and what it wrote is right; if it
# was a guess nothing is to be seen of it.
check_right() { # LABEL "FAULTY_X=..." "SLUICE_X=..." [whole]
    local bad="" size
    logits "$2" "$3" "$model"
    [ $rc -eq 0 ] || { [ $rc -lt 128 ] && [ -z "${4:-}" ] && names_the_place "$model" ".*"; } || bad="; exit $rc: $(tail -n 1 "$dir/err")"
    size=$(stat -c %s "$dir/got" 2>/dev/null || echo 0)
    [ $rc -ne 0 ] || [ "$size" -eq "$(stat -c %s "$dir/want")" ] || bad="$bad; not all logits were written"
    cmp -s -n "$size" "$dir/got" "$dir/want" || bad="$bad; wrong logits were written"
    [ -z "$bad" ] && ok "$1 [$3] exit $rc, $(cat "$dir/faults.log")" || fail "$1 [$3]${bad/;/:}"
}

# Cut a copy of the model, within its last tensor. Sets $cut, $last, $size.
copy_to_cut() {
    local start
    read -r last start _ < <("$bin/faults-layout" "$model" | sort -n -k2,2 | tail -n 1)
    [[ $last == *_exps.weight ]] || die "the last tensor of the model is $last: no test of truncation"
    size=$((start + 100))
    cut=$dir/cut.gguf
    cp "$model" "$cut"
}

fatal() {
    local settings n place at rows seen="FAULTY_AFTER=40" # not of the reads by which the file is recognised
    run=(--prefill 4 --decode 32)
    make_model
    # What was asked for and cannot be had is an error: the program does not go on with its weights in memory.
    logits FAULTY_MODE=none "SLUICE_CACHE=off SLUICE_IO=uring" "$model"
    if [ $rc -ne 0 ] && [ $rc -lt 128 ] && grep -q "SLUICE_IO: 'uring' is not a value .*uring was removed" "$dir/err"; then
        ok "io_uring was removed: $(grep -m 1 "SLUICE_IO: " "$dir/err")"
    else
        fail "io_uring was removed: exit code $rc, $(tail -n 1 "$dir/err")"
    fi
    logits FAULTY_MODE=none "$third SLUICE_LOOKAHEAD=0 SLUICE_ROUTE_TRACE=$dir/trace.csv" "$model"
    find_places "$model" "$dir/trace.csv" 4
    for settings in SLUICE_CACHE=off "$third" "$third SLUICE_LOOKAHEAD=0" "SLUICE_CACHE=off SLUICE_DIRECT_IO=0" \
        "SLUICE_CACHE=off SLUICE_IO_THREADS=1 SLUICE_KERNEL=reference"; do
        n=0
        for place in "${places[@]}"; do
            read -r rows at <<<"$place"
            n=$((n + 1))
            check_failed "EIO at place $n" "FAULTY_MODE=eio $seen FAULTY_AT=$at" "$settings" "Input/output error" "$rows"
            check_failed "the file ends at place $n" "FAULTY_MODE=end $seen FAULTY_AT=$at" "$settings" "the file ended early" "$rows"
            # A prefetched read that fails once is no failure: the expert is read again when it is asked for.
            if [ "$settings" = "$third" ]; then
                check_right "EIO once, at place $n" "FAULTY_MODE=eio $seen FAULTY_AT=$at FAULTY_COUNT=1" "$settings"
            else
                check_failed "EIO once, at place $n" "FAULTY_MODE=eio $seen FAULTY_AT=$at FAULTY_COUNT=1" "$settings" "Input/output error" "$rows"
            fi
            [ $n -lt 3 ] || continue # after the last one nothing more need be read
            copy_to_cut
            check_failed "cut to $size bytes at place $n" "FAULTY_MODE=truncate FAULTY_SIZE=$size $seen FAULTY_AT=$at FAULTY_COUNT=1" \
                "$settings" "the file ended early" "" "$cut" "${last//./\\.}"
        done
    done
    # Guesses at experts that the run never uses fail, each and always.
    check_right "EIO in every expert that is not used" "FAULTY_MODE=eio $seen FAULTY_AT=$(never_used "$model" "$dir/trace.csv")" "$third" whole

    # In a prompt, whose experts pass through a few at a time: at the 9th read of the middle layer's experts. More of them than
    # that are used, so others are still needed, whatever was read before. Without a cache every micro-batch reads all of its
    # experts, so a few reads later is in the second one.
    run=(--prefill 130 --ubatch 64 --decode 2)
    "$bin/sluice-logits" --out "$dir/want" "${run[@]}" "$model" >"$dir/log" 2>&1 || die "resident run: $(cat "$dir/log")"
    at=$("$bin/faults-layout" "$model" | awk '$1 == "blk.1.ffn_up_exps.weight" { print $2 + 8192 "-" $3 - 8192 }')
    logits FAULTY_MODE=none "SLUICE_CACHE=off SLUICE_ROUTE_TRACE=$dir/trace.csv" "$model"
    n=$(awk -F, '/^[0-9]/ && $4 == 1 && $3 < 64 { print $6 }' "$dir/trace.csv" | sort -u | wc -l)
    [ "$n" -ge 10 ] || die "the first micro-batch uses only $n experts of the middle layer"
    local second=$((n + 3))
    for settings in "SLUICE_CACHE=off SLUICE_LOOKAHEAD=0" "$third" "$third SLUICE_LOOKAHEAD=0" "$third SLUICE_LOOKAHEAD=0 SLUICE_KERNEL=reference"; do
        n="$seen FAULTY_AT=$at FAULTY_PAST=8"
        [ "${settings%% *}" != SLUICE_CACHE=off ] || n="$seen FAULTY_AT=$at FAULTY_PAST=$second"
        settings="$settings SLUICE_STAGING=1B"
        check_failed "prompt: EIO" "FAULTY_MODE=eio $n" "$settings" "Input/output error" 0
        check_failed "prompt: the file ends" "FAULTY_MODE=end $n" "$settings" "the file ended early" 0
        case $settings in
        *LOOKAHEAD=0*) check_failed "prompt: EIO once" "FAULTY_MODE=eio $n FAULTY_COUNT=1" "$settings" "Input/output error" 0 ;;
        *) check_right "prompt: EIO once" "FAULTY_MODE=eio $n FAULTY_COUNT=1" "$settings" ;;
        esac
    done
    # Four contexts share the engine: each of them fails or is right, and the process ends in order. A fault that
    # passes may go unnoticed: a context that asks for the part anew, before those that waited for it looked, gets
    # it read again for all. Then all must be whole.
    run=(--prefill 24 --decode 12 --parallel 4 --threads 1)
    "$bin/sluice-logits" --out "$dir/want" "${run[@]}" "$model" >"$dir/log" 2>&1 || die "resident run: $(cat "$dir/log")"
    local count
    for settings in SLUICE_CACHE=off "$third" "$third SLUICE_LOOKAHEAD=0"; do
        for count in 1 1000000; do
            rm -f "$dir"/got.*
            logits "FAULTY_MODE=eio $seen FAULTY_AT=$at FAULTY_PAST=8 FAULTY_COUNT=$count" "$settings" "$model"
            local bad="" c
            [ "$(logged faults)" -gt 0 ] || bad="; no fault was injected"
            if [ $rc -ne 0 ] || [ "$count" -ne 1 ]; then
                [ $rc -ne 0 ] && [ $rc -lt 128 ] || bad="$bad; exit $rc"
                names_the_place "$model" "blk.*" || bad="$bad; does not say where"
            fi
            for c in 0 1 2 3; do
                size=$(stat -c %s "$dir/got.$c")
                [ $rc -ne 0 ] || [ "$size" = "$(stat -c %s "$dir/want.$c")" ] || bad="$bad; context $c is not whole"
                cmp -s -n "$size" "$dir/got.$c" "$dir/want.$c" || bad="$bad; wrong logits in context $c"
            done
            [ -z "$bad" ] && ok "EIO $count times, four contexts [$settings] exit $rc" ||
                fail "EIO $count times, four contexts [$settings]${bad/;/:}"
        done
    done
}

# ---- in a cold model's file --------------------------------------------------------------------

# Settings that substitute reproducibly, so that what was written before a fault can be compared.
cold_failed() { # LABEL "FAULTY_X=..." "SLUICE_X=..." REASON ROWS
    local bad="" size row=$((256 * 4))
    logits "FAULTY_FILE=/cold.gguf $2" "$lossy $3" "$model"
    [ $rc -ne 0 ] && [ $rc -lt 128 ] || bad="; exit $rc"
    [ "$(logged faults)" -gt 0 ] || bad="$bad; no fault was injected"
    grep -E "^sluice: $dir/cold.gguf: reading (expert [0-9]+ of )?tensor blk\.[0-2]\.ffn_(gate|up|down)_exps\.weight (at offset [0-9]+ )?failed: $4" \
        "$dir/err" >/dev/null || bad="$bad; does not say where and why: $(grep '^sluice' "$dir/err")"
    size=$(stat -c %s "$dir/got" 2>/dev/null || echo 0)
    [ "$size" -lt "$(stat -c %s "$dir/base")" ] || bad="$bad; logits of all steps were written"
    [ "$size" -eq 0 ] || cmp -s -n "$size" "$dir/got" "$dir/base" || bad="$bad; wrong logits were written"
    [ $((size / row)) -eq "$5" ] || bad="$bad; failed after $((size / row)) rows, not $5"
    [ -z "$bad" ] && ok "$1 [$3] after $((size / row)) rows" || fail "$1 [$3]${bad/;/:}"
}

cold() {
    local settings n first at rows uses layer expert
    shape=(--layers 3 --experts 16 --top-k 3 --noise 3)
    make_model
    "$bin/sluice-mkmoe" --out "$dir/cold.gguf" --vocab 256 "${shape[@]}" --type-gate-up Q2_K --type-down Q3_K >"$dir/log" 2>&1 ||
        die "sluice-mkmoe: $(cat "$dir/log")"
    cp "$dir/cold.gguf" "$dir/whole.gguf"
    lossy="$third SLUICE_DROP_COLD_EXPERTS=1 SLUICE_DROP_REPRODUCIBLE=1 SLUICE_COLD_MODEL=$dir/cold.gguf"
    run=(--prefill 24 --decode 40)
    for settings in SLUICE_KERNEL=reference SLUICE_DIRECT_IO=0 ""; do
        logits "FAULTY_FILE=/cold.gguf FAULTY_MODE=none" "$lossy $settings SLUICE_DROP_COLD_EXPERTS=0" "$model"
        [ $rc -eq 0 ] || die "run without faults, off: $(tail -n 1 "$dir/err")"
        first=$(logged reads) # those by which the file is looked at
        logits "FAULTY_FILE=/cold.gguf FAULTY_MODE=none" "$lossy $settings SLUICE_ROUTE_TRACE=$dir/trace.csv" "$model"
        [ $rc -eq 0 ] || die "run without faults: $(tail -n 1 "$dir/err")"
        [ "$(logged reads)" -gt $((first + 20)) ] || die "only $(logged reads) reads are seen, $first of them at first"
        cp "$dir/got" "$dir/base"
        # At the first substitution of all, in the middle, at the last one that is an expert's first.
        uses=$(first_uses "$dir/trace.csv" 2)
        for n in 1 $((($(wc -l <<<"$uses") + 1) / 2)) $(wc -l <<<"$uses"); do
            read -r rows layer expert < <(sed -n "${n}p" <<<"$uses")
            at="FAULTY_AFTER=$first FAULTY_AT=$(byte_of "$dir/cold.gguf" "$layer" up "$expert")"
            cold_failed "EIO in copy $n" "FAULTY_MODE=eio $at" "$settings" "Input/output error" "$rows"
            cold_failed "the file ends in copy $n" "FAULTY_MODE=end $at" "$settings" "the file ended early" "$rows"
            cold_failed "cut at copy $n" "FAULTY_MODE=truncate FAULTY_SIZE=4096 $at FAULTY_COUNT=1" "$settings" "the file ended early" "$rows"
            cp "$dir/whole.gguf" "$dir/cold.gguf"
        done
        logits "FAULTY_FILE=/cold.gguf FAULTY_MODE=short FAULTY_AFTER=$first FAULTY_EVERY=2" "$lossy $settings" "$model"
        [ $rc -eq 0 ] && [ "$(logged faults)" -gt 0 ] && cmp -s "$dir/got" "$dir/base" && ok "short reads [$settings]" ||
            fail "short reads [$settings] exit $rc"
    done
    # While the file is looked at. Its headers are read first, then it is tried for direct reading, then compared.
    for n in 0 1 $((first - 2)); do
        logits "FAULTY_FILE=/cold.gguf FAULTY_MODE=eio FAULTY_AFTER=$n" "$lossy" "$model"
        [ $rc -eq 1 ] && [ "$(logged faults)" -gt 0 ] && grep -q "^sluice: .*cold.gguf: .*Input/output error" "$dir/err" &&
            ok "EIO at read $n, while it is looked at" || fail "EIO at read $n, while it is looked at: exit $rc: $(tail -n 1 "$dir/err")"
    done
}

# ---- through the command ---------------------------------------------------------------------

command_run() { # "FAULTY_X=..." MODEL CACHE [OPTION...]
    faulty "$1" "$bin/sluice" run -m "$2" -p "The quick brown fox" -n 24 --temp 0 -t 2 --ubatch 64 -c 256 --cache "$3" --force-cache \
        "${@:4}" >"$dir/out" </dev/null
}

check_command() { # LABEL "FAULTY_X=..." MODEL CACHE REASON
    local bad="" message size
    command_run "$2" "$3" "$4"
    [ $rc -eq 1 ] || bad="; exit $rc"
    [ "$(logged faults)" -gt 0 ] || bad="$bad; no fault was injected"
    message=$(grep -E "reading expert [0-9]+ of tensor blk\.[0-9]+\.ffn_[a-z]+_exps\.weight at offset [0-9]+ failed: $5" "$dir/err" || true)
    [ "$(grep -c . <<<"$message")" -eq 1 ] || bad="$bad; not one line that says where and why: $(tail -n 2 "$dir/err")"
    [[ $message == *"$3"* ]] || bad="$bad; does not name the file"
    # The text so far is the beginning of the right text (a line may be ended).
    size=$(head -c -1 "$dir/out" | wc -c)
    cmp -s -n "$size" "$dir/out" "$dir/right" || bad="$bad; wrong text"
    [ -z "$bad" ] && ok "$1 [--cache $4] after $size bytes of text" || fail "$1 [--cache $4]${bad/;/:}"
}

through_the_command() {
    local vocabulary=$LLAMA_SRC/models/ggml-vocab-gpt-2.gguf cache n place
    if [ ! -x "$bin/sluice" ]; then
        echo "no sluice command in $bin"
        exit 1
    fi
    model=$dir/model.gguf
    "$bin/sluice-mkmoe" --out "$model" --vocab-from "$vocabulary" "${shape[@]}" >"$dir/log" 2>&1 ||
        die "sluice-mkmoe: $(cat "$dir/log")"
    for cache in 0 "$(("$(stat -c %s "$model")" / 8))B"; do
        command_run FAULTY_MODE=none "$model" "$cache" --route-trace "$dir/trace.csv"
        [ $rc -eq 0 ] || die "run without faults: $(tail -n 1 "$dir/err")"
        reads=$(logged reads)
        [ "$reads" -gt 100 ] || die "only $reads reads are seen: the library is not in their way"
        cp "$dir/out" "$dir/right"
        command_run "FAULTY_MODE=short FAULTY_AFTER=40 FAULTY_EVERY=2" "$model" "$cache"
        [ $rc -eq 0 ] && cmp -s "$dir/out" "$dir/right" && ok "short reads [--cache $cache]" || fail "short reads [--cache $cache]"
        command_run "FAULTY_MODE=wrong FAULTY_DIRECT=1" "$model" "$cache"
        [ $rc -eq 0 ] && cmp -s "$dir/out" "$dir/right" && grep -q "buffered reads (direct reads return wrong bytes" "$dir/err" &&
            ok "wrong bytes in direct reads [--cache $cache]" || fail "wrong bytes in direct reads [--cache $cache]: $(tail -n 2 "$dir/err")"
        find_places "$model" "$dir/trace.csv" "$(awk -F, '$2 == 0 && $1 == 0 && $3 >= n { n = $3 + 1 } END { print n }' "$dir/trace.csv")"
        n=0
        for place in "${places[@]}"; do
            n=$((n + 1))
            check_command "EIO at place $n" "FAULTY_MODE=eio FAULTY_AFTER=40 FAULTY_AT=${place#* }" "$model" "$cache" "Input/output error"
        done
        copy_to_cut
        check_command "cut at place 2" "FAULTY_MODE=truncate FAULTY_SIZE=$size FAULTY_AFTER=40 FAULTY_AT=${places[1]#* } FAULTY_COUNT=1" \
            "$cut" "$cache" "the file ended early"
    done
}

# Dense weights are moved over the mapping, and the kernel loses pages instead.
lost() {
    make_model
    for how in sound lost; do
        rc=0
        GGML_BACKEND_PATH=$bin/libggml-sluice.so SLUICE_CACHE=off "$bin/faults-lost" "$model" $how >"$dir/out" 2>"$dir/err" || rc=$?
        case $how-$rc-$(grep -c '^decode 0$' "$dir/out")-$(grep -c '^sluice: .*a part of the mapping was lost' "$dir/err") in
        sound-0-3-0) ok "sound: three tokens" ;;
        lost-1-0-3) ok "lost: three errors, each with its reason" ;;
        *) fail "$how: exit $rc: $(tr '\n' ' ' <"$dir/out") $(grep -a sluice "$dir/err" | head -c 300)" ;;
        esac
    done
}

case ${1:-} in
lost) lost ;;
harmless) harmless ;;
fatal) fatal ;;
cold) cold ;;
run) through_the_command ;;
*)
    sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
finish
