# corpus.py owns the text on disk: it writes the training corpus as token numbers, learns the
# tokenizer first if there is none, and writes the held-out text. Everything follows from the seeds,
# so running it again gives the same bytes.
#
#   python3 corpus.py WORKDIR [--docs N] [--heldout FILE]
#
# WORKDIR gets tokenizer.json and train.bin (uint16, an end-of-text token before the first document
# and after every turn) with train.idx (uint32 start of each document in train.bin).

import argparse
import multiprocessing
import os

import numpy as np

import bpe
import stories

TRAIN_SEED, HELD_SEED = "sluice-demo-train", "sluice-demo-heldout"
VOCAB = 2560
BPE_DOCS = 12000        # documents the tokenizer learns from
HELD_DOCS = 150


def text_of(i):
    return stories.document(TRAIN_SEED, i)


def tokens_of(span):
    tok, (a, b) = span
    out = []
    for i in range(a, b):
        ids = []
        for turn in text_of(i):
            ids += tok.encode(turn) + [0]
        out.append(np.array(ids, dtype=np.uint16))
    return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("workdir")
    ap.add_argument("--docs", type=int, default=55000)
    ap.add_argument("--heldout")
    a = ap.parse_args()
    os.makedirs(a.workdir, exist_ok=True)
    path = lambda n: os.path.join(a.workdir, n)

    if a.heldout:
        docs = [stories.document(HELD_SEED, i, held_out=True) for i in range(HELD_DOCS)]
        with open(a.heldout, "w", encoding="utf-8") as f:
            # A plain text file has no end-of-text tokens: a blank line stands for them.
            f.write("\n\n".join(t for d in docs for t in d) + "\n")

    with multiprocessing.Pool(2) as pool:
        if not os.path.exists(path("tokenizer.json")):
            sample = pool.map(text_of, range(BPE_DOCS), chunksize=200)
            bpe.Tokenizer(bpe.train((t for d in sample for t in d), VOCAB)).save(path("tokenizer.json"))
        tok = bpe.Tokenizer.load(path("tokenizer.json"))
        spans = [(tok, (i, min(i + 500, a.docs))) for i in range(0, a.docs, 500)]
        docs = [d for part in pool.imap(tokens_of, spans) for d in part]

    starts = np.cumsum([1] + [len(d) for d in docs])[:-1].astype(np.uint32)
    starts.tofile(path("train.idx"))
    np.concatenate([np.zeros(1, np.uint16)] + docs).tofile(path("train.bin"))
    n = sum(map(len, docs))
    print(f"{len(docs)} documents, {n} tokens, vocabulary {len(tok.tokens)}, {n / len(docs):.0f} tokens each, longest {max(map(len, docs))}")


if __name__ == "__main__":
    main()
