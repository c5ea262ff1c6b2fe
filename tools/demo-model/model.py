# model.py owns the network: llama.cpp's "qwen3moe" in torch, term for term (RMS norms on the residual,
# on each head of q and k, NEOX rotation, softmax router over all experts, top-k weights normalised to
# sum 1, SiLU-gated experts).
#
# MoE block, attention and norms have their own backward passes because this has to train on two CPU
# cores. Rows are sorted by expert once, and each expert is a handful of plain matrix products on its
# slice with the elementwise steps between them while the slice is in the core's cache. test_model.py
# checks every hand-written gradient against autograd.

import math
from dataclasses import asdict, dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    vocab: int = 2560
    layers: int = 6
    dim: int = 256
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    experts: int = 32
    top_k: int = 4
    expert_ff: int = 64
    context: int = 512
    rope_base: float = 10000.0
    eps: float = 1e-6

    def dict(self):
        return asdict(self)


class Norm(torch.autograd.Function):
    """RMS norm of the last dimension."""

    @staticmethod
    def forward(ctx, x, weight, eps):
        x2 = x.reshape(-1, x.shape[-1])
        r = torch.rsqrt(torch.linalg.vector_norm(x2, dim=1, keepdim=True).pow_(2).div_(x2.shape[1]).add_(eps))
        xn = x2 * r
        ctx.save_for_backward(xn, r, weight)
        return (xn * weight).view(x.shape)

    @staticmethod
    def backward(ctx, grad):
        xn, r, weight = ctx.saved_tensors
        g = grad.reshape(xn.shape)
        gx = g * xn
        g_weight = gx.sum(0)
        mean = (gx @ weight).div_(xn.shape[1]).unsqueeze(1)
        return g.mul(weight).addcmul_(xn, mean, value=-1).mul_(r).view(grad.shape), g_weight, None


class RMSNorm(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(dim)), eps

    def forward(self, x):
        return Norm.apply(x, self.weight, self.eps)


class Causal(torch.autograd.Function):
    """Causal attention of whole rows. q [b,t,h,c] (scaled), k, v [b,t,g,c] -> [b,t,h*c]

    One row and key head at a time, in query blocks: the scores of a block (1 MB) stay in the core's
    cache through all their steps, and blocks above the diagonal are never computed."""

    BLOCK = 128

    @staticmethod
    def pieces(q, k):
        (b, t, h, _), g = q.shape, k.shape[2]
        for i in range(b):
            for j in range(g):
                heads = slice(j * h // g, (j + 1) * h // g)
                for a in range(0, t, Causal.BLOCK):
                    yield i, j, heads, slice(a, min(a + Causal.BLOCK, t))

    @staticmethod
    def weights(q, k, i, j, heads, rows):
        qb = q[i, rows, heads].transpose(0, 1).contiguous()                     # [r, n, c]
        r, n, c = qb.shape
        qb, kb = qb.view(r * n, c), k[i, :rows.stop, j]
        s = qb @ kb.t()
        end = s.view(r, n, -1)[:, :, rows.start:]
        end += torch.full((n, n), float("-inf"), dtype=s.dtype).triu_(1)
        return qb, kb, s.softmax(1), r, n, c

    @staticmethod
    def forward(ctx, q, k, v):
        out = torch.empty_like(q)
        for i, j, heads, rows in Causal.pieces(q, k):
            _, _, p, r, n, c = Causal.weights(q, k, i, j, heads, rows)
            out[i, rows, heads] = (p @ v[i, :rows.stop, j]).view(r, n, c).transpose(0, 1)
        ctx.save_for_backward(q, k, v, out)
        return out.view(q.shape[0], q.shape[1], -1)

    @staticmethod
    def backward(ctx, grad):
        q, k, v, out = ctx.saved_tensors
        grad = grad.view(out.shape)
        gq, gk, gv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        delta = (grad * out).sum(-1)
        for i, j, heads, rows in Causal.pieces(q, k):
            qb, kb, p, r, n, c = Causal.weights(q, k, i, j, heads, rows)
            go = grad[i, rows, heads].transpose(0, 1).reshape(r * n, c)
            gv[i, :rows.stop, j] += p.t() @ go
            gs = (go @ v[i, :rows.stop, j].t()).sub_(delta[i, rows, heads].t().reshape(-1, 1)).mul_(p)
            gk[i, :rows.stop, j] += gs.t() @ qb
            gq[i, rows, heads] = (gs @ kb).view(r, n, c).transpose(0, 1)
        return gq, gk, gv


class Experts(torch.autograd.Function):
    """x [n,d], w [n,k] weights, idx [n,k] experts, gate_up [e,2f,d], down [e,d,f] -> [n,d]"""

    @staticmethod
    def forward(ctx, x, w, idx, gate_up, down):
        n, k = idx.shape
        n_exp, f2, d = gate_up.shape
        f = f2 // 2
        flat = idx.reshape(-1)
        order = torch.argsort(flat)
        bounds = [0] + torch.bincount(flat, minlength=n_exp).cumsum(0).tolist()
        xs = x.index_select(0, order.div(k, rounding_mode="floor"))
        ws = w.reshape(-1).index_select(0, order).unsqueeze(1)
        gu, h = x.new_empty(n * k, f2), x.new_empty(n * k, f)
        y = x.new_empty(n * k, d)
        for e in range(n_exp):
            a, b = bounds[e], bounds[e + 1]
            if a < b:
                torch.mm(xs[a:b], gate_up[e].t(), out=gu[a:b])
                torch.mul(F.silu(gu[a:b, :f]), gu[a:b, f:], out=h[a:b])
                torch.mm(h[a:b] * ws[a:b], down[e].t(), out=y[a:b])
        inverse = torch.empty_like(order)
        inverse[order] = torch.arange(n * k)
        out = y.index_select(0, inverse).view(n, k, d).sum(1)
        ctx.save_for_backward(xs, ws, gu, h, order, inverse, gate_up, down)
        ctx.bounds, ctx.shape, ctx.into = bounds, (n, k, d, f), (gate_up.grad, down.grad)
        return out

    @staticmethod
    def backward(ctx, grad):
        xs, ws, gu, h, order, inverse, gate_up, down = ctx.saved_tensors
        bounds, (n, k, d, f) = ctx.bounds, ctx.shape
        gy = grad.contiguous().index_select(0, order.div(k, rounding_mode="floor"))
        g_ws, gxs = ws.new_empty(n * k), torch.empty_like(xs)
        # Where the parameters already have gradient arrays, these are overwritten, not added to: most of
        # the model is experts, and adding would touch all of it several times more at each step.
        direct = ctx.into[0] is not None
        g_gate_up, g_down = ctx.into if direct else (torch.empty_like(gate_up), torch.empty_like(down))
        for e in range(len(bounds) - 1):
            a, b = bounds[e], bounds[e + 1]
            if a == b:
                g_gate_up[e].zero_()
                g_down[e].zero_()
                continue
            x, w, ga, hb = xs[a:b], ws[a:b], gy[a:b], h[a:b]
            g, u = gu[a:b, :f], gu[a:b, f:]
            gh = ga @ down[e]
            torch.mm(ga.t(), hb * w, out=g_down[e])
            torch.sum(gh * hb, 1, out=g_ws[a:b])
            gh.mul_(w)
            s = torch.sigmoid(g)
            silu = g * s
            # d silu/dg = s + silu * (1 - s)
            ggu = torch.cat((gh * u * (s + silu - silu * s), gh * silu), 1)
            torch.mm(ggu, gate_up[e], out=gxs[a:b])
            torch.mm(ggu.t(), x, out=g_gate_up[e])
        gx = gxs.index_select(0, inverse).view(n, k, d).sum(1)
        gw = g_ws.index_select(0, inverse).view(n, k)
        return (gx, gw, None) + ((None, None) if direct else (g_gate_up, g_down))


class MoE(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.router = nn.Parameter(torch.randn(c.experts, c.dim) * 0.02)
        self.gate_up = nn.Parameter(torch.randn(c.experts, 2 * c.expert_ff, c.dim) * 0.02)
        self.down = nn.Parameter(torch.randn(c.experts, c.dim, c.expert_ff) * 0.02 / math.sqrt(2 * c.layers))

    def forward(self, x, trace=None):
        logits = x @ self.router.t()
        probs = logits.softmax(-1)
        w, idx = probs.topk(self.c.top_k, dim=-1)
        if trace is not None:
            trace.append(idx)
        w = w / w.sum(-1, keepdim=True)
        # Load balance (Switch): n_expert * sum of share routed x mean probability, 1 when even.
        share = torch.bincount(idx.reshape(-1), minlength=self.c.experts).float() / idx.numel()
        balance = self.c.experts * (share * probs.mean(0)).sum()
        z = logits.logsumexp(-1).pow(2).mean()
        return Experts.apply(x, w, idx, self.gate_up, self.down), balance, z, share


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        init = lambda o, i, s=1.0: nn.Parameter(torch.randn(o, i) * 0.02 * s)
        self.q = init(c.heads * c.head_dim, c.dim)
        self.k = init(c.kv_heads * c.head_dim, c.dim)
        self.v = init(c.kv_heads * c.head_dim, c.dim)
        self.o = init(c.dim, c.heads * c.head_dim, 1 / math.sqrt(2 * c.layers))
        self.q_norm, self.k_norm = RMSNorm(c.head_dim, c.eps), RMSNorm(c.head_dim, c.eps)

    def forward(self, x, cos, sin, cache=None):
        c, (b, t, _) = self.c, x.shape
        rot = lambda y: y * cos + torch.cat((-y[..., c.head_dim // 2:], y[..., :c.head_dim // 2]), -1) * sin
        q = rot(self.q_norm((x @ self.q.t()).view(b, t, c.heads, c.head_dim))) * c.head_dim ** -0.5
        k = rot(self.k_norm((x @ self.k.t()).view(b, t, c.kv_heads, c.head_dim)))
        v = (x @ self.v.t()).view(b, t, c.kv_heads, c.head_dim)
        if cache is None:
            return Causal.apply(q, k, v) @ self.o.t()
        # Generation: one token at a time against everything before it.
        assert t == 1
        if cache:
            k, v = torch.cat((cache[0], k), 1), torch.cat((cache[1], v), 1)
        cache[:] = [k, v]
        q = q.view(b, c.kv_heads, c.heads // c.kv_heads, c.head_dim)
        p = torch.einsum("bgrc,btgc->bgrt", q, k).softmax(-1)
        return torch.einsum("bgrt,btgc->bgrc", p, v).reshape(b, 1, -1) @ self.o.t()


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.embed = nn.Parameter(torch.randn(c.vocab, c.dim) * 0.05)
        self.head = nn.Parameter(torch.randn(c.vocab, c.dim) * 0.02)
        self.attn = nn.ModuleList(Attention(c) for _ in range(c.layers))
        self.moe = nn.ModuleList(MoE(c) for _ in range(c.layers))
        self.attn_norm = nn.ModuleList(RMSNorm(c.dim, c.eps) for _ in range(c.layers))
        self.ffn_norm = nn.ModuleList(RMSNorm(c.dim, c.eps) for _ in range(c.layers))
        self.out_norm = RMSNorm(c.dim, c.eps)
        freq = c.rope_base ** (-torch.arange(0, c.head_dim, 2).float() / c.head_dim)
        angle = torch.outer(torch.arange(4 * c.context).float(), freq)
        angle = torch.cat((angle, angle), -1).unsqueeze(1)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

        self.begin_with_copying()

    @torch.no_grad()
    def begin_with_copying(self):
        """Start the first two layers as an induction pair: a head that finds the token before, and a head
        that looks for the place where the present token stood and copies what followed it.

        Such heads are what keeps "Mira" Mira. Left to chance they come late: a first model of this project
        (tied head, usual start, no drills) wrote fluent sentences after 2 million tokens and gave the hero
        another name in each. On the drills of train.py alone (two layers, 512 tokens) this start reaches
        loss 3.6 in 40 steps where the usual start stays above 4.7 for 240. On stories alone it changed
        nothing within 200 steps; together with the drills names were copied from step 350 on. Everything
        set here is only a start and is trained on."""
        c, s = self.c, 0.05
        n, half, per = c.head_dim, c.head_dim // 2, c.heads // c.kv_heads
        spare = c.dim - n                       # the last n channels are free for "the token before"
        self.embed[:, 0] = 8 * s                # a constant that queries and keys can use
        self.embed[:, spare:] = 0
        seen = torch.zeros(n, c.dim)            # a code for the token, read from its channels
        seen[:, 1:spare] = torch.randn(n, spare - 1) / math.sqrt(spare)

        # Layer 0, head 0: the score depends on distance only and is highest at distance 1.
        a = self.attn[0]
        theta = c.rope_base ** (-torch.arange(4).float() / half)
        a.q[:n] *= 0.1
        a.k[:n] *= 0.1
        a.q[:4, 0], a.q[half:half + 4, 0], a.k[:4, 0] = theta.cos(), -theta.sin(), 1.0
        a.q_norm.weight.fill_(1.5)
        a.k_norm.weight.fill_(1.5)
        a.v[:n] = seen
        a.o[:, :n] = 0
        a.o[spare:, :n] = torch.eye(n) * s

        # Layer 1, head 0: the present token's code against the code of the token before each place, in
        # the slow channels of the rotation, so that distance matters little.
        a = self.attn[1]
        slow = [i for i in range(n) if i % half >= half * 5 // 8]
        a.q[:n] *= 0.1
        a.k[:n] *= 0.1
        a.q[slow] = seen[:len(slow)]
        a.k[slow] = 0
        a.k[slow, spare:] = torch.eye(n)[:len(slow)]
        a.q_norm.weight.fill_(1.5)
        a.k_norm.weight.fill_(1.5)

        # What the first key head of each later layer carries is the token's code, and the output head
        # understands that code as "this token next".
        speak = torch.randn(c.dim, n) / math.sqrt(n)
        for a in self.attn[1:]:
            a.v[:n] = seen
            a.o[:, :per * n] = (speak * s).repeat(1, per)
        code = self.embed @ seen.t()
        self.head.copy_(0.01 * torch.randn_like(self.head) + 0.02 * (code / code.std()) @ speak.t())

    def forward(self, ids, start=0, caches=None, trace=None):
        """ids [b,t] -> logits [b*t,vocab], and the mean balance loss, z loss and expert shares"""
        b, t = ids.shape
        cos, sin = self.cos[start:start + t], self.sin[start:start + t]
        x = F.embedding(ids, self.embed)
        balance, z, shares = 0.0, 0.0, []
        for i in range(self.c.layers):
            x = x + self.attn[i](self.attn_norm[i](x), cos, sin, None if caches is None else caches[i])
            y, bl, zl, share = self.moe[i](self.ffn_norm[i](x).view(b * t, -1), trace)
            x = x + y.view(b, t, -1)
            balance, z = balance + bl, z + zl
            shares.append(share)
        logits = self.out_norm(x).view(b * t, -1) @ self.head.t()
        return logits, balance / self.c.layers, z / self.c.layers, torch.stack(shares)
