# shellcheck shell=bash
# The gates' common part: run one model without and with the plug-in, compare every byte, read the
# plug-in's counters. Sourced by run-gates.sh and stock-programs.sh, which are given by environment
#
#   BIN        sluice-logits, sluice-mkmoe and libggml-sluice.so
#   LLAMA_BIN  llama.cpp's programs, of the very build that the plug-in was linked against
#   LLAMA_SRC  llama.cpp's source, for its vocabulary files
#   LLAMA_VERSION  its release, v0.5.0 for example; the newest that streaming-models.txt knows when it is not given
#   ARCHS_BIN  where test-llama-archs is, when LLAMA_BIN has none: that of a build with its CPU backend linked in
#   FIXTURES   the directory of what it writes, when several releases are to use the same (gate few)
#   WORK       a directory for models and outputs; reused, never emptied from outside
#
# Why comparing is not enough: a plug-in that silently stops streaming compares equal. So every check
# also demands counters (SLUICE_STATS) that show expert tensors taken and bytes read, and each
# setting that is meant to force something - evictions, hits, buffered reads - demands its trace too.

set -euo pipefail
: "${BIN:?}" "${LLAMA_BIN:?}" "${LLAMA_SRC:?}" "${WORK:?}"
export LC_ALL=C
# OpenMP teams that spin at their barriers crawl when the machine is busy with other things (20 times as long was
# seen here); sleeping ones do not, and compute the same.
export OMP_WAIT_POLICY=passive
# Settings of the caller must not leak into either side.
for v in "${!SLUICE_@}"; do unset "$v"; done
unset GGML_BACKEND_PATH v

plugin=$(cd "$BIN" && pwd)/libggml-sluice.so
checks=0
failures=0

begin() { # NAME: use a fresh directory for this gate
    dir=$WORK/$1
    rm -rf "$dir"
    mkdir -p "$dir"
    [ -f "$plugin" ] || { echo "FAIL $1: $plugin does not exist"; exit 1; }
}

finish() { # the last line, and the exit code
    echo "$((checks - failures)) of $checks checks passed"
    # Outputs that differ are kept to be looked at; a passed gate leaves nothing but its verdict.
    if [ "$failures" -eq 0 ]; then rm -rf "$dir"; fi
    [ "$failures" -eq 0 ] && [ "$checks" -gt 0 ]
}

ok() { checks=$((checks + 1)); echo "ok   $*"; }
fail() { checks=$((checks + 1)); failures=$((failures + 1)); echo "FAIL $*"; }

value_of() { # KEY LINES: the value of one `key value` line
    awk -v key="$1" '$1 == key { print $2 }' <<<"$2"
}

counter() { # FILE KEY: a number, a word or true/false from the plug-in's flat JSON; nothing when it is not there
    grep -oE "\"$2\": *\"?[0-9a-z.]+" "$1" 2>/dev/null | head -n 1 | sed 's/.*: *"\{0,1\}//' || true
}

last_line() { # FILE
    grep -v '^$' "$1" | tail -n 1 || true
}

# A small model in $dir: 48 bundles, of which a token uses 9, and routing that spreads over them. Sets $model.
mkmoe() { # NAME OPTIONS...
    local name=$1
    shift
    model=$dir/$name.gguf
    "$BIN/sluice-mkmoe" --out "$model" --layers 3 --experts 16 --top-k 3 --vocab 256 --noise 3 "$@" >"$dir/mkmoe.log" 2>&1 || {
        fail "$name: sluice-mkmoe: $(last_line "$dir/mkmoe.log")"
        return 1
    }
    [ -f "$model" ] || model=$(ls "$dir/$name"-00001-of-*.gguf)
}

# The run without the plug-in. Its output is kept while the arguments stay the same, so that the
# settings of one model are compared with one resident run.
resident_key=
resident() { # ARGS...
    [ "$resident_key" != "$*" ] || return 0
    rm -f "$dir"/want*
    resident_key=
    "$BIN/sluice-logits" --out "$dir/want" "$@" >"$dir/want.log" 2>&1 || return 1
    resident_key=$*
}

# check LABEL SETTINGS EXPECT ARGS...
#   SETTINGS  environment of the plug-in, e.g. "SLUICE_CACHE=off SLUICE_IO_THREADS=1"
#   EXPECT    words: streams (tensors taken, bytes read), tensors=N, evicts, hits, cold (no hits, nothing kept),
#             buffered (no direct reads), foreseen (read ahead), unforeseen (not), resized (the budget
#             was changed between and during tokens), stays (nothing was evicted for --guest), misses=N; or unused: the experts are never multiplied by, only the bytes count
check() {
    local label=$1 settings=$2 expect=$3 stats=$dir/stats.json f word got bad=
    shift 3
    if ! resident "$@"; then
        fail "$label: resident run: $(last_line "$dir/want.log")"
        return 0
    fi
    rm -f "$dir"/got* "$stats"
    # shellcheck disable=SC2086 # settings are words
    if ! env GGML_BACKEND_PATH="$plugin" SLUICE_STATS="$stats" SLUICE_QUIET=1 $settings \
        "$BIN/sluice-logits" --out "$dir/got" "$@" >"$dir/got.log" 2>&1; then
        fail "$label [$settings]: $(last_line "$dir/got.log")"
        return 0
    fi
    for f in "$dir"/want "$dir"/want.[0-9]*; do
        [ -f "$f" ] || continue
        cmp "$f" "$dir/got${f#"$dir/want"}" >"$dir/cmp.log" 2>&1 || bad="$bad; $(last_line "$dir/cmp.log")"
    done
    for word in $expect; do
        case $word in
        streams) got=$(counter "$stats" tensors)
            [ "${got:-0}" -gt 0 ] && [ "$(counter "$stats" read_bytes_total)" -gt 0 ] || bad="$bad; did not stream" ;;
        tensors=*) got=$(counter "$stats" tensors)
            [ "$got" = "${word#*=}" ] || bad="$bad; ${got:-no} tensors stream, not ${word#*=}" ;;
        evicts) [ "$(counter "$stats" evictions)" -gt 0 ] || bad="$bad; nothing was evicted" ;;
        hits) [ "$(counter "$stats" hits_total)" -gt 0 ] || bad="$bad; no hits" ;;
        cold) [ "$(counter "$stats" hits_total)" = 0 ] || bad="$bad; hits without a cache" ;;
        buffered) [ "$(counter "$stats" direct_io)" = false ] || bad="$bad; reads were not buffered" ;;
        held) [ "$(counter "$stats" dense_mapped)" = false ] && [ "$(counter "$stats" dense_bytes)" -gt 0 ] ||
            bad="$bad; dense weights are in the page cache" ;;
        mapped) [ "$(counter "$stats" dense_mapped)" = true ] || bad="$bad; dense weights are not in the page cache" ;;
        foreseen) [ "$(counter "$stats" foreseen_begun)" -gt 0 ] || bad="$bad; nothing was read ahead" ;;
        unforeseen) [ "$(counter "$stats" foreseen_begun)" = 0 ] || bad="$bad; something was read ahead" ;;
        resized) grep -q "^resized [1-9][0-9]* between [1-9]" "$dir/got.log" || bad="$bad; the budget was not changed" ;;
        stays) # a guest came and went, and evicted nothing
            awk '$1 == "resident" { n = $2 > 0 && $4 >= $2 && $6 >= $2 } END { exit !n }' "$dir/got.log" ||
                bad="$bad; what was cached went with the guest: $(grep resident "$dir/got.log")" ;;
        misses=*) got=$(counter "$stats" misses_total)
            [ "$got" = "${word#*=}" ] || bad="$bad; ${got:-no} misses, not ${word#*=}" ;;
        unused) ;;
        *) bad="$bad; bad expectation $word" ;;
        esac 2>/dev/null
    done
    if [ -n "$bad" ]; then
        fail "$label [$settings]${bad/;/:}"
    else
        ok "$label [$settings] $(counter "$stats" tensors) tensors," \
            "$(counter "$stats" misses_total) misses, $(counter "$stats" hits_total) hits," \
            "$(counter "$stats" evictions) evictions"
    fi
}

# The three cache settings for a model: nothing kept; a quarter above one layer's demand, under which LRU hits
# next to nothing; a third of all experts, where hits and evictions mix.
tight_cache() { # MODEL
    echo "SLUICE_FORCE_CACHE=1 SLUICE_CACHE=$(value_of tight_cache "$("$BIN/sluice-logits" --info "$1")")B"
}

third_cache() { # MODEL
    echo "SLUICE_FORCE_CACHE=1 SLUICE_CACHE=$(($(value_of window_bytes "$("$BIN/sluice-logits" --info "$1")") / 3))B"
}

# Is RELEASE (v1.2.3) there in the llama.cpp that is tested?
has_release() { # RELEASE
    [ "$(printf '%s\n' "$1" "${LLAMA_VERSION:-v999}" | sort -V | head -n 1)" = "$1" ]
}

# Lines `name tensors` of the fixtures that must stream in the llama.cpp that is tested; $due is how many streaming-models.txt
# says they are, $unused the fixtures with experts that no graph uses.
# shellcheck disable=SC2034 # for those who source this
streaming_models() { # sets $models, $due, $unused
    local name tensors since
    models="" due="" unused=""
    while read -r name tensors since; do
        case $name in
        '' | '#'*) ;;
        models) ! has_release "$tensors" || due=$since ;;
        unused) unused="$unused $tensors" ;;
        *) [ -n "$since" ] && ! has_release "$since" || models="$models$name $tensors"$'\n' ;;
        esac
    done <"${BASH_SOURCE[0]%/*}/streaming-models.txt"
}

# The fixtures are the same for one build of llama.cpp: write them once, though several gates may begin at once. Where backends are loaded at run time, this program
# of llama.cpp's does not load any: the preloaded library does (backends.c). Releases before v0.5.0 do not know the
# tokenizer of the fixtures that later ones write: they get copies that say that there is none, a word of the same length.
fixtures() { # sets $archs
    local stamp writer=${ARCHS_BIN:-$LLAMA_BIN} preload=$BIN/libsluice-backends.so
    [ -z "${ARCHS_BIN:-}" ] || preload=
    archs=${FIXTURES:-$WORK/fixtures}
    mkdir -p "${archs%/*}"
    exec 7>"$archs.lock"
    flock 7
    stamp=$(stat -L -c '%n %s %Y' "$writer/test-llama-archs" "$writer/libllama.so")
    if [ "$(cat "$archs/stamp" 2>/dev/null)" != "$stamp" ]; then
        rm -rf "$archs"
        mkdir -p "$archs"
        # A seed, so that all machines have the same weights: what lossy settings leave out depends on them.
        LD_PRELOAD=$preload "$writer/test-llama-archs" -s 20261130 -o "$archs" >"$archs/log" 2>&1 || {
            echo "FAIL test-llama-archs: $(last_line "$archs/log")"
            exit 1
        }
        echo "$stamp" >"$archs/stamp"
    fi
    if [ -n "${FIXTURES:-}" ] && ! has_release v0.5.0; then
        archs=$WORK/fixtures
        if [ "$(cat "$archs/stamp" 2>/dev/null)" != "$stamp" ]; then
            rm -rf "$archs"
            mkdir -p "$archs"
            cp "$FIXTURES"/*-moe.gguf "$archs/"
            perl -0777 -pi -e 's/(tokenizer\.ggml\.model\x08\0\0\0\x04\0{7})test/${1}none/' "$archs"/*.gguf
            echo "$stamp" >"$archs/stamp"
        fi
    fi
    exec 7>&-
}

# Room for every expert.
whole_cache() { # MODEL
    echo "SLUICE_CACHE=$(($(value_of window_bytes "$("$BIN/sluice-logits" --info "$1")") * 5 / 4))B"
}

# Of the runs that a gate counted (counted), most gave something up (gave_up). Not all: the fixtures' weights are
# random, and what a few tokens of one pick can all be in the cache by chance.
most_runs() { # WHAT
    if [ $((4 * gave_up)) -ge $((3 * counted)) ] && [ "$counted" -gt 0 ]; then
        ok "in $gave_up of $counted runs $1"
    else
        fail "in $gave_up of $counted runs $1"
    fi
}
