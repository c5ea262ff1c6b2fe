# evaluate.py owns the numbers about a checkpoint that llama.cpp's tools do not print: perplexity in
# torch over the same chunks as llama-perplexity (so that the two programs check each other), load per
# expert, and the hit rate of an LRU cache over (layer, expert) while the model writes text.
#
#   python3 evaluate.py CHECKPOINT.pt TOKENIZER.json HELDOUT.txt [--decode N] [--tokens FILE] [--trace FILE]
#
# --tokens FILE: token numbers of HELDOUT.txt from llama.cpp (tokens.c); must equal ours.
# --trace FILE: the experts chosen per decoded token, for other tools: one line per token, the layers
# separated by spaces, the experts of a layer by commas, highest weight first.

import argparse
import collections

import machine  # noqa: F401
import numpy as np
import torch
import torch.nn.functional as F

import bpe
import corpus
import lexicon
import stories
from model import Config, Model


def perplexity(model, ids, n_ctx=512):
    """As llama-perplexity computes it: chunks of n_ctx with the first token replaced by the end-of-text
    token, scored on the second half of each. Also the experts' shares of those tokens, per layer."""
    total, count, shares = 0.0, 0, 0
    chunks = len(ids) // n_ctx
    for c in range(chunks):
        x = torch.tensor(ids[c * n_ctx:(c + 1) * n_ctx])
        x[0] = 0
        logits, _, _, share = model(x[None])
        shares = shares + share / chunks
        nll = F.cross_entropy(logits[:-1], x[1:], reduction="none")[n_ctx // 2:]
        total, count = total + float(nll.sum()), count + len(nll)
    return float(np.exp(total / count)), count, shares


def by_document(model, tok):
    """Perplexity of the held-out documents one by one, as they were trained on (from the end-of-text token,
    which also ends each turn), apart for documents with and without names that training never had."""
    new = set(lexicon.HELD_SHE + lexicon.HELD_HE)
    sums = {False: [0.0, 0, 0], True: [0.0, 0, 0]}
    for i in range(corpus.HELD_DOCS):
        turns = stories.document(corpus.HELD_SEED, i, held_out=True)
        ids = [0] + [x for t in turns for x in tok.encode(t) + [0]]
        logits, _, _, _ = model(torch.tensor([ids[:-1]]))
        s = sums[any(n in t for t in turns for n in new)]
        s[0] += float(F.cross_entropy(logits, torch.tensor(ids[1:]), reduction="sum"))
        s[1] += len(ids) - 1
        s[2] += 1
    return {k: (float(np.exp(s[0] / s[1])), s[1], s[2]) for k, s in sums.items()}


def decode(model, tokens, seed, temperature=0.8):
    """Write documents one after another; -> list of [layers, top_k] expert choices per token"""
    gen = torch.Generator().manual_seed(seed)
    trace, text = [], []
    while len(trace) < tokens:
        caches, token = [[] for _ in range(model.c.layers)], 0
        for at in range(model.c.context):
            chosen = []
            logits = model(torch.tensor([[token]]), at, caches, chosen)[0]
            trace.append(torch.cat(chosen).numpy())
            token = int(torch.multinomial((logits[0] / temperature).softmax(-1), 1, generator=gen))
            text.append(token)
            if token == 0 or len(trace) >= tokens:
                break
    return np.array(trace), text


def lru(trace, slots):
    """Share of lookups that hit a global LRU of this many (layer, expert) slots."""
    cache, hits, n = collections.OrderedDict(), 0, 0
    for layers in trace:
        for key in ((i, e) for i, experts in enumerate(layers) for e in experts):
            n += 1
            if key in cache:
                hits += 1
                cache.move_to_end(key)
            else:
                cache[key] = True
                if len(cache) > slots:
                    cache.popitem(last=False)
    return hits / n


@torch.no_grad()
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("checkpoint")
    ap.add_argument("tokenizer")
    ap.add_argument("heldout")
    ap.add_argument("--decode", type=int, default=2400)
    ap.add_argument("--tokens")
    ap.add_argument("--trace")
    ap.add_argument("--seed", type=int, default=7)
    a = ap.parse_args()
    torch.set_num_threads(1)
    saved = torch.load(a.checkpoint)
    c, tok = Config(**saved["config"]), bpe.Tokenizer.load(a.tokenizer)
    model = Model(c)
    model.load_state_dict(saved["model"])
    ids = tok.encode(open(a.heldout, encoding="utf-8").read())
    print(f"step {saved['step']} of {saved['args']['steps']}; held-out text: {len(ids)} tokens")
    if a.tokens:
        theirs = [int(x) for x in open(a.tokens)]
        assert theirs == ids, "llama.cpp tokenises the held-out text differently"
        print("token numbers: the same as llama.cpp's")

    ppl, n, shares = perplexity(model, ids)
    print(f"perplexity in torch (float32): {ppl:.4f} over {n} tokens")
    for new, (p, tokens, docs) in by_document(model, tok).items():
        print(f"one document at a time, {'with names never trained on' if new else 'with known names only'}: {p:.4f} ({docs} documents, {tokens} tokens)")
    even = 1 / c.experts
    print("load per layer on held-out text, as a multiple of an even share: least, median, most used expert")
    for i, s in enumerate(shares.numpy()):
        print(f"  layer {i}: {s.min() / even:.2f} {np.median(s) / even:.2f} {s.max() / even:.2f}")

    if a.decode:
        trace, _ = decode(model, a.decode, a.seed)
        total, cycle = c.layers * c.experts, c.layers * c.top_k
        print(f"global LRU over (layer, expert) while decoding {len(trace)} tokens (temperature 0.8); {total} bundles, {cycle} used per token")
        for slots in sorted({cycle // 2, cycle, cycle * 3 // 2, total // 4, total * 3 // 8, total // 2, total * 5 // 8, total * 3 // 4, total * 7 // 8, total}):
            print(f"  {slots:4d} slots ({100 * slots / total:5.1f} % of the experts): {100 * lru(trace, slots):5.1f} % hits")
        same = np.mean([len(set(x) & set(y)) / c.top_k for p, q in zip(trace, trace[1:]) for x, y in zip(p, q)])
        print(f"experts chosen again at the next token: {100 * same:.1f} % (by chance {100 * c.top_k / c.experts:.1f} %)")
        if a.trace:
            with open(a.trace, "w") as f:
                for t in trace:
                    f.write(" ".join(",".join(map(str, l)) for l in t) + "\n")


if __name__ == "__main__":
    main()
