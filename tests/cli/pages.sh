#!/usr/bin/env bash
# pages.sh - help pages, version, unknown commands and options, strict values, exit codes, output that fails.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cli/lib.sh
. "$here/lib.sh"

works "sluice --help" "$sluice" --help
for word in run chat serve exec bench eval replay info plan top; do
    expect "  lists $word" out.txt "^  $word "
done
works "sluice --version" "$sluice" --version
expect "  names both versions" out.txt '^sluice [0-9.]+ \(llama\.cpp v[0-9.]+\)$'
expect "  names ggml's" out.txt '^  ggml +[0-9.]+, commit '
expect "  says where the CPU backend is" out.txt '^  CPU backend +(linked in: .|loaded at run time$)'
refused 2 "only --json may follow" "sluice --version is strict" "$sluice" --version --jason
works "sluice --version --json" "$sluice" --version --json
expect "  is an object" out.txt '^  "ggml": "[0-9.]+",$'

for command in run chat serve exec bench eval replay info plan top; do
    for option in --help -h; do
        works "sluice $command $option" "$sluice" "$command" "$option"
    done
    expect "  says how it is called" out.txt "^usage: sluice $command "
    [ ! -s err.txt ] || fail "sluice $command --help printed to standard error"
    awk 'length > 100 { exit 1 }' out.txt || fail "sluice $command --help has lines over 100 columns"
    SLUICE_CACHE=nonsense works "  works with a bad environment" "$sluice" "$command" --help
done
# Every option that the parser knows is on the page: it is made from the same table. The issue's list:
try "$sluice" run --help
for option in -m -p -f -n -c -t --cache --cache-floor --memory --dense --cache-policy --force-cache --io --io-threads --no-direct-io --no-lookahead --n-expert-used \
    --temp --top-k --top-p --min-p --seed --ubatch --resident --compare-resident --json --quiet --csv --no-publish --prompt-cache --window --allow-remote; do
    grep -qE -- "(^| )$option(,| |$)" out.txt || fail "sluice run --help does not know $option"
done

for name in -c --ctx --ctx-size; do
    try "$sluice" run -m "$model" -p Hello -n 1 --temp 0 -q "$name" 256
    if [ "$rc" -eq 0 ]; then ok "$name"; else fail "$name: exit $rc: $(cat err.txt)"; fi
    refused 2 "$name 1e3: must be 0.." "$name is checked" "$sluice" run -m "$model" -p Hello "$name" 1e3
done

run=("$sluice" run -m "$model" -p Hello)
refused 2 "no command" "no command" "$sluice"
refused 2 "unknown command walk" "an unknown command" "$sluice" walk
refused 2 "unknown option --frobnicate" "an unknown option" "${run[@]}" --frobnicate
refused 2 "unknown option --cach" "no abbreviations" "${run[@]}" --cach 0
refused 2 "unknown option -z" "an unknown letter" "${run[@]}" -z
refused 2 "needs a value" "an option without its value" "${run[@]}" --cache
refused 2 "takes no value" "a value for an option without" "${run[@]}" --json=yes
refused 2 "unexpected argument" "an argument too many" "${run[@]}" again
refused 2 "unexpected argument" "arguments too many for info" "$sluice" info "$model" "$model"

refused 2 "--cache 12x: must be a size" "--cache 12x" "${run[@]}" --cache 12x
refused 2 "--cache -1: must be a size" "--cache -1" "${run[@]}" --cache -1
refused 2 "must be a size" "--cache with nothing" "${run[@]}" --cache=
refused 2 "--memory 0: must be a size" "--memory 0" "${run[@]}" --memory 0
refused 2 "--dense swap: must be anon, mmap or lock" "--dense swap" "${run[@]}" --dense swap
refused 2 "--cache-policy mru: must be cycle or lru" "--cache-policy mru" "${run[@]}" --cache-policy mru
for value in threads uring URING "" "pread "; do
    refused 2 "--io $value: must be auto or pread (uring was removed: it made no run faster, and some slower)" "--io '$value'" "${run[@]}" --io "$value"
done
for value in 0 65 x 4x "" 1.5 +4 " 4" 99999999999999999999; do
    refused 2 "must be 1..64" "--io-threads '$value'" "${run[@]}" --io-threads "$value"
done
refused 2 "--io-threads 0: must be 1..64" "--io-threads 0" "${run[@]}" --io-threads 0
refused 2 "-t 0: must be 1..512" "-t 0" "${run[@]}" -t 0
refused 2 "-n -2: must be -1.." "-n -2" "${run[@]}" -n -2
refused 2 "-c 1e3: must be 0.." "-c 1e3" "${run[@]}" -c 1e3
refused 2 "--ubatch 0: must be 1.." "--ubatch 0" "${run[@]}" --ubatch 0
for value in -1 nan inf 1e1 0x1 "" hot; do
    refused 2 "must be 0..100" "--temp '$value'" "${run[@]}" --temp "$value"
done
refused 2 "--top-p 1.5: must be 0..1" "--top-p 1.5" "${run[@]}" --top-p 1.5
refused 2 "--min-p 2: must be 0..1" "--min-p=2" "${run[@]}" --min-p=2
refused 2 "--seed 4294967295: must be 0..4294967294" "--seed 2^32-1" "${run[@]}" --seed 4294967295
refused 2 "contradict" "--resident --compare-resident" "${run[@]}" --resident --compare-resident
refused 2 "--n-expert-used 9: must be 1..8" "more experts than there are" "${run[@]}" --n-expert-used 9
refused 2 "--n-expert-used 0: must be 1..1024" "no experts" "${run[@]}" --n-expert-used 0

# The environment is as strict, and named.
SLUICE_CACHE=12x refused 2 "SLUICE_CACHE" "SLUICE_CACHE=12x" "${run[@]}"
SLUICE_DENSE=swap refused 2 "SLUICE_DENSE" "SLUICE_DENSE=swap" "${run[@]}"
SLUICE_IO=threads refused 2 "SLUICE_IO" "SLUICE_IO=threads" "${run[@]}"
SLUICE_IO_THREADS=0 refused 2 "SLUICE_IO_THREADS" "SLUICE_IO_THREADS=0" "${run[@]}"
SLUICE_CACHE=12x refused 2 "SLUICE_CACHE" "SLUICE_CACHE=12x exec" "$sluice" exec -- true
refused 2 "--cache 12x" "exec --cache 12x" "$sluice" exec --cache 12x -- true
refused 2 "no program" "exec without a program" "$sluice" exec --cache 0
refused 2 "no program" "exec without a program after --" "$sluice" exec --
refused 127 "No such file" "exec of nothing" "$sluice" exec -- "$dir/nothing"
refused 126 "Permission denied" "exec of a file that is no program" "$sluice" exec -- "$model"
SLUICE_PLUGIN_DIR=$dir refused 1 "SLUICE_PLUGIN_DIR" "exec without the plug-in" "$sluice" exec -- true

refused 2 "not a process id" "top of no number" "$sluice" top 12x
refused 2 "not a process id" "top of 0" "$sluice" top 0
refused 2 "not a process id" "top of a number that is too large" "$sluice" top 99999999999
refused 2 "--csv : must be a file name" "--csv with nothing" "${run[@]}" --csv=
refused 1 "No such file" "--csv into nowhere" "${run[@]}" --csv "$dir/nothing/steps.csv"
refused 2 "no model" "run without a model" "$sluice" run -p Hello
refused 2 "no model" "serve without a model" "$sluice" serve
refused 2 "no model" "chat without a model" "$sluice" chat
refused 2 "no model" "info without a model" "$sluice" info
refused 2 "no model" "plan without a model" "$sluice" plan
refused 2 "no prompt" "no prompt" "$sluice" run -m "$model"
refused 2 "more than one prompt" "two prompts" "${run[@]}" -f "$0"
refused 2 "the prompt is empty" "an empty prompt" "$sluice" run -m "$model" -p ""
refused 2 "the prompt is empty" "an empty standard input" "$sluice" run -m "$model" -
refused 1 "No such file" "a prompt file that is not there" "$sluice" run -m "$model" -f "$dir/nothing"
refused 1 "Is a directory" "a prompt file that is a directory" "$sluice" run -m "$model" -f "$dir"
refused 2 "the context 256" "a prompt that does not fit" "$sluice" run -m "$model" -c 256 -q -p "$(seq 1000)"
refused 2 "--chat-template nonsense" "an unknown template" "$sluice" chat -m "$model" --chat-template nonsense

# Output that cannot be written is a failure, never silence.
if [ -w /dev/full ]; then
    for args in "--help" "--version" "run --help" "info $model" "info --json $model" "run -q -n 4 -m $model -p Hello" \
        "run -q -n 4 --json -m $model -p Hello"; do
        # shellcheck disable=SC2086 # words
        "$sluice" $args >/dev/full 2>err.txt </dev/null
        rc=$?
        if [ "$rc" -eq 1 ] && [ "$(wc -l <err.txt)" -eq 1 ] && grep -q 'standard output: No space left' err.txt; then
            ok "sluice ${args%% -*} > /dev/full: $(cat err.txt)"
        else
            fail "sluice $args > /dev/full: exit $rc: $(cat err.txt)"
        fi
    done
fi
finish
