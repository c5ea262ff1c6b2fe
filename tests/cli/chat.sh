#!/usr/bin/env bash
# chat.sh - `sluice chat`: piped input, what is kept between turns, /clear and /exit, the terminal and Ctrl-C.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cli/lib.sh
. "$here/lib.sh"

chat=("$sluice" chat -m "$model" -t 2 -c 512 -n 6 --temp 0 --chat-template chatml)

# say LINES COMMAND...: the lines as piped input
say() {
    local lines=$1
    shift
    printf '%b' "$lines" | "$@" >out.txt 2>err.txt
    rc=$?
}
# turns: "fed/context" of each turn, from the lines after the answers
turns() { sed -nE 's/^\[([0-9]+) tokens read .*context ([0-9]+)\/[0-9]+.*\]$/\1:\2/p' err.txt | tr '\n' ' '; }

say 'Hello\nHow are you?\nAnd now?\n' "${chat[@]}"
if [ "$rc" -eq 0 ]; then ok "three turns"; else fail "three turns: exit $rc: $(tail -n 1 err.txt)"; fi
cp out.txt three.txt
first=$(turns)
read -r -a t <<<"$first"
if [ "${#t[@]}" -eq 3 ]; then ok "  three answers: $first"; else fail "not three answers: $first: $(cat err.txt)"; fi
expect "  one mode line" err.txt '^streaming 6 expert tensors'
# What a turn computes is what is new: less than the whole context, and the context grows by it.
if [ "${#t[@]}" -eq 3 ] && [ "${t[2]%:*}" -lt "${t[1]#*:}" ] && [ "${t[1]#*:}" -gt "${t[0]#*:}" ] &&
    [ "${t[2]#*:}" -gt "${t[1]#*:}" ]; then
    ok "  the context is kept between turns"
else
    fail "the context was computed again: $first"
fi
# The same conversation by other means: resident, and without reuse would give these answers too.
say 'Hello\nHow are you?\nAnd now?\n' "${chat[@]}" --resident
if cmp -s out.txt three.txt; then ok "  resident: the same answers"; else fail "resident: other answers"; fi
say 'Hello\nHow are you?\nAnd now?\n' "${chat[@]}" --cache 0 --quiet
if cmp -s out.txt three.txt && [ ! -s err.txt ]; then ok "  no cache, quiet: the same"; else fail "quiet: $(head -c 200 err.txt)"; fi

say 'Hello\n/clear\nHello\n' "${chat[@]}"
read -r -a t <<<"$(turns)"
if [ "${#t[@]}" -eq 2 ] && [ "${t[0]}" = "${t[1]}" ]; then ok "/clear starts anew"; else fail "/clear: $(turns)"; fi
say '\n\nHello\n/exit\nnever said\n' "${chat[@]}"
read -r -a t <<<"$(turns)"
if [ "$rc" -eq 0 ] && [ "${#t[@]}" -eq 1 ]; then ok "/exit ends, empty lines say nothing"; else fail "/exit: exit $rc: $(turns)"; fi
say 'no newline at the end' "${chat[@]}"
read -r -a t <<<"$(turns)"
if [ "${#t[@]}" -eq 1 ]; then ok "a last line without a newline"; else fail "no newline: $(turns)"; fi
say '' "${chat[@]}"
if [ "$rc" -eq 0 ] && [ ! -s out.txt ]; then ok "no input"; else fail "no input: exit $rc"; fi
say 'Hello\n' "${chat[@]}" --system "You are a test."
read -r -a t <<<"$(turns)"
if [ "$rc" -eq 0 ] && [ "${t[0]%:*}" -gt "${first%%:*}" ]; then ok "a system message is read"; else fail "--system: $(turns)"; fi

# More than the context holds: said, and the conversation goes on.
long=$(seq 1 400 | tr '\n' ' ')
say "Hello\n$long\nBye\n" "${chat[@]}"
read -r -a t <<<"$(turns)"
expect "a message that does not fit" err.txt '^sluice chat: .* \(/clear starts anew, -c gives a larger context\)$'
if [ "$rc" -eq 0 ] && [ "${#t[@]}" -eq 2 ]; then ok "  and the next one is answered"; else fail "after it: exit $rc: $(turns)"; fi

# A template of the model that llama.cpp does not know, and none at all: said once, then ChatML.
say 'Hello\n' "$sluice" chat -m "$model" -t 2 -c 512 -n 2 --temp 0
expect "a model without a template" err.txt '^sluice chat: this model has no chat template: using ChatML$'

# On a terminal: a prompt, Ctrl-C in an answer and between answers, Ctrl-D.
# The context is so large that no answer fills it before it is interrupted.
terminal() { # LABEL SCRIPT [COMMAND TO START IT WITH...]
    printf '%b' "$2" | "$BIN/cli-terminal" "${@:3}" "$sluice" chat -m "$model" -t 2 -c 131072 -n -1 --temp 0 --chat-template chatml \
        >out.txt 2>err.txt
    rc=$?
    if [ "$rc" -eq 0 ]; then ok "$1"; else fail "$1: $(cat err.txt): $(tail -c 300 out.txt)"; fi
}
terminal "Ctrl-D ends" 'wait > \nkey d\nexit 0\n'
terminal "/exit ends" 'wait > \nsend /exit\nexit 0\n'
terminal "Ctrl-C at the prompt does not end" 'wait > \nkey c\nwait Ctrl-D or /exit ends\nwait > \nkey d\nexit 0\n'
# The same between the prompt and the wait for a line, by a library that cannot be preloaded where sanitizers are.
if [ -f "$BIN/libcli-early.so" ]; then
    terminal "  and not before it waits for a line" 'wait > \nwait Ctrl-D or /exit ends\nwait > \nkey d\nexit 0\n' \
        env LD_PRELOAD="$BIN/libcli-early.so"
fi
terminal "Ctrl-C stops the answer, not the program" \
    'wait > \nsend Hello\nwait streaming\npause\nkey c\nwait , interrupted]\nwait > \nsend /exit\nexit 0\n'
terminal "and the conversation goes on" \
    'wait > \nsend Hello\nwait streaming\npause\nkey c\nwait , interrupted]\nwait > \nsend More\nwait More\npause\npause\npause\nkey c\nwait , interrupted]\nwait > \nkey d\nexit 0\n'

# A model with recurrent state cannot take back a step that Ctrl-C cut short: the whole conversation is
# computed again at the next turn.
if "$LLAMA_BIN/test-llama-archs" -a qwen3next -o . >/dev/null 2>&1 && [ -f qwen3next-moe.gguf ]; then
    model=$dir/qwen3next-moe.gguf
    terminal "Ctrl-C with recurrent state" \
        'wait > \nsend Hello\nwait streaming\npause\nkey c\nwait , interrupted]\nwait > \nsend Hello\nwait Hello\npause\npause\npause\nkey c\nwait , interrupted]\nwait > \nkey d\nexit 0\n'
    tr -d '\r' <out.txt | grep -a 'tokens read' >err.txt
    read -r -a t <<<"$(turns)"
    if [ "${#t[@]}" -eq 2 ] && [ "${t[1]%:*}" -gt $((2 * ${t[0]%:*})) ]; then
        ok "  the conversation is computed again"
    else
        fail "recurrent state: $(cat err.txt)"
    fi
else
    fail "no model with recurrent state"
fi
finish
