# train.py owns the training run: it reads what corpus.py wrote, and leaves WORKDIR/checkpoint.pt
# every few minutes. Run again after a stop, it goes on where the checkpoint ended, with the same data
# in the same order. The learning rate is held and then falls to nothing over the last part of the
# run, so a run can be made longer or shorter (--steps) while it is in its constant part.
#
#   python3 train.py WORKDIR [--steps N] [--rows R] ...
#
# One process per core with one thread each, and not one process with two threads: the matrices are
# small, and two threads that wait for each other 5,000 times a step lose more than they win, above all
# on a machine that others use too. The processes share the parameters; each computes gradients for
# its half of the rows and then applies the optimiser to its half of the parameters.

import argparse
import math
import os
import time

import machine  # noqa: F401  (must come before torch: chooses the BLAS kernel)
import numpy as np
import torch
import torch.multiprocessing as mp
import torch.nn.functional as F

import bpe
from model import Config, Model


class Rows:
    """Training rows of context+1 tokens. Each begins with the end-of-text token and a whole document,
    as a prompt does, and is filled with the documents that follow."""

    def __init__(self, workdir, context, seed):
        self.data = np.fromfile(os.path.join(workdir, "train.bin"), dtype=np.uint16)
        starts = np.fromfile(os.path.join(workdir, "train.idx"), dtype=np.uint32).astype(np.int64)
        rows, at = [], 0
        for s in starts:
            if s >= at and s + context <= len(self.data):
                rows.append(s - 1)
                at = s + context - 60       # a document cut by less than 60 tokens is not repeated
        self.rows, self.context, self.seed, self.epoch = np.array(rows), context, seed, None

    def batch(self, first, n):
        """Rows number first .. first+n-1 of the endless shuffled sequence."""
        out = []
        for i in range(first, first + n):
            epoch, k = divmod(i, len(self.rows))
            if self.epoch != epoch:
                self.epoch = epoch
                self.perm = np.random.RandomState(self.seed + epoch).permutation(len(self.rows))
            s = self.rows[self.perm[k]]
            out.append(self.data[s:s + self.context + 1].astype(np.int64))
        return torch.from_numpy(np.stack(out))


def drill(seed, n, length, vocab):
    """Rows that teach to look back: pairs of random tokens, drawn again and again from a small set.

    Who is who depends on attention heads that copy from earlier in the text. In stories these pay late,
    after every turn of phrase has been learned; in these rows there is nothing else to learn. Measured
    as the probability of the right name where a name comes next that has come before (chance 0.7 %):
    without drills still chance after 200 steps; with them 1.6 % after 250, 8 % after 350, 34 % after
    600, and on stories alone from there on 68 % after 800 and 84 % after 1,350."""
    r = np.random.RandomState(seed)
    out = np.zeros((n, length + 1), dtype=np.int64)
    for row in out:
        pairs = r.randint(257, vocab, size=(r.randint(4, 17), 2))
        row[1:] = pairs[r.randint(len(pairs), size=length // 2 + 1)].reshape(-1)[:length]
    return torch.from_numpy(out)


class Shared:
    """Parameters, gradients (one set per process) and optimiser state as flat shared tensors."""

    def __init__(self, model, ranks):
        free = lambda name, p: p.dim() == 1 or name == "embed"      # no weight decay on these
        params = sorted(model.named_parameters(), key=lambda kv: free(*kv))
        self.names = [(n, p.shape) for n, p in params]
        self.decayed = sum(p.numel() for n, p in params if not free(n, p))     # these come first
        n = sum(p.numel() for _, p in params)
        make = lambda *s: torch.zeros(*s).share_memory_()
        self.flat, self.m, self.v, self.grad = make(n), make(n), make(n), make(ranks, n)
        self.squares = make(ranks).double().share_memory_()
        at = 0
        for _, p in params:
            self.flat[at:at + p.numel()] = p.data.reshape(-1)
            at += p.numel()

    def attach(self, model, rank):
        named, at = dict(model.named_parameters()), 0
        for name, shape in self.names:
            n = shape.numel()
            named[name].data = self.flat[at:at + n].view(shape)
            if rank is not None:
                named[name].grad = self.grad[rank, at:at + n].view(shape)
            at += n


@torch.no_grad()
def adamw(sh, rank, ranks, t, lr, clip, wait, decay=0.1, b1=0.9, b2=0.95):
    """One optimiser step by all processes together; returns the gradient norm before clipping."""
    n = sh.flat.numel()
    a, b = n * rank // ranks, n * (rank + 1) // ranks
    wait()
    # In pieces that fit the core's cache, since all of this only moves memory.
    pieces = [slice(i, min(i + 65536, b)) for i in range(a, b, 65536)]
    total = 0.0
    for s in pieces:
        g = sh.grad[0, s]
        for r in range(1, ranks):
            g += sh.grad[r, s]
        total += float(g.dot(g))
    sh.squares[rank] = total
    wait()
    norm = math.sqrt(float(sh.squares.sum())) / ranks
    scale = min(1.0, clip / (norm + 1e-9)) / ranks
    c1, c2 = 1 - b1 ** t, math.sqrt(1 - b2 ** t)
    for s in pieces:
        p, g, m, v = sh.flat[s], sh.grad[0, s], sh.m[s], sh.v[s]
        m.mul_(b1).add_(g, alpha=(1 - b1) * scale)
        v.mul_(b2).addcmul_(g, g, value=(1 - b2) * scale * scale)
        if s.start < sh.decayed:
            p[:sh.decayed - s.start].mul_(1 - lr * decay)
        p.addcdiv_(m, v.sqrt().add_(1e-8 * c2), value=-lr * c2 / c1)
    wait()
    return norm


def save(path, sh, step, config, args):
    named, at = {}, 0
    for name, shape in sh.names:
        named[name] = sh.flat[at:at + shape.numel()].view(shape)
        at += shape.numel()
    torch.save({"model": {k: v.clone() for k, v in named.items()}, "m": sh.m, "v": sh.v, "step": step,
                "config": config.dict(), "args": vars(args)}, path + ".new")
    os.replace(path + ".new", path)


def work(rank, ranks, sh, barrier, config, first_step, args):
    torch.set_num_threads(1)
    model = Model(config)
    sh.attach(model, rank)
    short = Rows(args.workdir, args.short, args.seed)
    full = Rows(args.workdir, config.context, args.seed + 1000)
    tokens = args.tokens // ranks
    began, seen, shares, losses = time.time(), 0, 0, 0
    # The experts' gradients are overwritten at each step (model.py), all others are added to.
    added = [p for n, p in model.named_parameters() if not n.endswith(("gate_up", "down"))]
    parent = os.getppid()
    for step in range(first_step, args.steps):
        if os.getppid() != parent:
            return                  # the run was stopped
        rows = full if step >= args.steps * (1 - args.long) else short
        n = tokens // rows.context
        b = rows.batch((step * ranks + rank) * n, n)
        lr = args.lr * min(1.0, (step + 1) / args.warmup, (args.steps - step) / (args.cooldown * args.steps))
        drills = args.drill_rows if args.drill_from <= step < args.drill_to else 0
        if drills:
            b[:drills] = drill(args.seed * 1000003 + step * ranks + rank, drills, rows.context, config.vocab)
        for p in added:
            p.grad.zero_()
        logits, balance, z, share = model(b[:, :-1])
        loss = F.cross_entropy(logits, b[:, 1:].reshape(-1), reduction="none").view(len(b), -1)
        drill_loss = float(loss[:drills].mean()) if drills else 0.0
        story_loss = float(loss[drills:].mean())
        loss = loss.mean()
        (loss + args.balance * balance + 1e-4 * z).backward()
        norm = adamw(sh, rank, ranks, step + 1, lr, 1.0, barrier.wait)
        seen += n * rows.context * ranks
        shares = 0.95 * shares + 0.05 * share
        losses += story_loss
        if rank:
            continue
        if (step + 1) % 20 == 0:
            least, most = float(shares.min() / shares.mean()), float(shares.max() / shares.mean())
            print(f"step {step + 1} loss {losses / 20:.4f} drill {drill_loss:.3f} balance {float(balance):.3f} norm {norm:.2f} lr {lr:.5f} "
                  f"tok/s {seen / (time.time() - began):.0f} experts {least:.2f}..{most:.2f} {time.time() - began:.0f} s", flush=True)
            losses = 0
        if (step + 1) % args.save_every == 0 or step + 1 == args.steps:
            save(os.path.join(args.workdir, "checkpoint.pt"), sh, step + 1, config, args)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("workdir")
    ap.add_argument("--steps", type=int, default=1600)
    ap.add_argument("--tokens", type=int, default=2560, help="tokens per step")
    ap.add_argument("--short", type=int, default=320, help="row length until the last part of the run")
    ap.add_argument("--long", type=float, default=0.25, help="last part of the run with full-length rows")
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--warmup", type=int, default=100)
    ap.add_argument("--cooldown", type=float, default=0.3, help="last part of the run in which the rate falls")
    ap.add_argument("--balance", type=float, default=0.03, help="weight of the load-balancing loss")
    ap.add_argument("--drill-from", type=int, default=0, help="steps in which some rows are drills")
    ap.add_argument("--drill-to", type=int, default=600)
    ap.add_argument("--drill-rows", type=int, default=1, help="per process and step")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--save-every", type=int, default=50)
    ap.add_argument("--processes", type=int, default=2)
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    print(f"matrix products: {machine.self_check():.0f} GFLOPS on one core", flush=True)

    config = Config(vocab=len(bpe.Tokenizer.load(os.path.join(args.workdir, "tokenizer.json")).tokens))
    model, step = Model(config), 0
    path = os.path.join(args.workdir, "checkpoint.pt")
    saved = torch.load(path) if os.path.exists(path) else None
    if saved:
        model.load_state_dict(saved["model"])
    sh = Shared(model, args.processes)
    if saved:
        sh.m.copy_(saved["m"])
        sh.v.copy_(saved["v"])
        step = saved["step"]
        print("going on from step", step, flush=True)
    print(f"{sh.flat.numel()} parameters", flush=True)
    barrier = mp.get_context("fork").Barrier(args.processes, timeout=600)
    mp.start_processes(work, (args.processes, sh, barrier, config, step, args), nprocs=args.processes, start_method="fork")


if __name__ == "__main__":
    main()
