# common.sh owns the two measurements that ship.sh makes and check.sh repeats. Sourced, with $bin set to
# the folder of llama.cpp's programs.

# Among 180 prompts the one whose 64 greedy tokens are farthest from a tie (0.078 between the best two
# logits at the closest step): other processors add up in another order.
prompt='There was once a curious lighthouse keeper called Mira, who lived in Birchwood. She trusted nobody more than'

# One thread: the model is so small that more help little, and on a busy machine threads that spin
# for each other take ten times as long.

# perplexity MODEL TEXT: llama-perplexity over the first 64 chunks of 512 tokens.
# It prints a running estimate per chunk, [64] among them. That one is taken and not "Final estimate",
# because v0.5.0's log thread loses its last lines at exit, most of the time when it writes to a pipe.
perplexity() {
    "$bin/llama-perplexity" -m "$1" -f "$2" -c 512 -b 512 --chunks 66 -t 1 2>&1 |
        tr ',' '\n' | sed -n 's/^\[64\]\([0-9.]*\)$/\1/p'
}

# greedy MODEL: the prompt and 64 tokens, always the most probable one
greedy() {
    "$bin/llama-completion" -m "$1" -p "$prompt" -n 64 --temp 0 -c 512 -t 1 -no-cnv --no-warmup 2>/dev/null < /dev/null
}
