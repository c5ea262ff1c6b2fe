# test_model.py checks the hand-written gradients of model.py against autograd in double precision.
# Run: python3 test_model.py   (seconds; exits non-zero on a difference)

import machine  # noqa: F401
import torch
import torch.nn.functional as F

from model import Causal, Experts, Norm

torch.set_default_dtype(torch.double)
torch.manual_seed(0)


def same(name, a, b, inputs):
    c = torch.randn_like(a)
    worst = float((a - b).abs().max())
    for u, v in zip(torch.autograd.grad((a * c).sum(), inputs), torch.autograd.grad((b * c).sum(), inputs)):
        worst = max(worst, float((u - v).abs().max()))
    print(f"{name}: largest difference {worst:.1e}")
    assert worst < 1e-9


n, k, E, f, d = 50, 4, 8, 16, 32
x, gu = torch.randn(n, d, requires_grad=True), torch.randn(E, 2 * f, d, requires_grad=True)
dn, r = torch.randn(E, d, f, requires_grad=True), torch.randn(E, d, requires_grad=True)
w, i = (x @ r.t()).softmax(-1).topk(k, -1)
w = w / w.sum(-1, keepdim=True)
h = torch.einsum("nkfd,nd->nkf", gu[i], x)
h = F.silu(h[..., :f]) * h[..., f:]
want = (torch.einsum("nkdf,nkf->nkd", dn[i], h) * w.unsqueeze(-1)).sum(1)
w2, i2 = (x @ r.t()).softmax(-1).topk(k, -1)
same("experts", Experts.apply(x, w2 / w2.sum(-1, keepdim=True), i2, gu, dn), want, [x, gu, dn, r])

b, t, heads, kv, c = 2, 300, 4, 2, 8
q, k, v = (torch.randn(b, t, g, c, requires_grad=True) for g in (heads, kv, kv))
kk, vv = (y.repeat_interleave(heads // kv, 2).transpose(1, 2) for y in (k, v))
s = q.transpose(1, 2) @ kk.transpose(2, 3) + torch.full((t, t), float("-inf")).triu(1)
want = (s.softmax(-1) @ vv).transpose(1, 2).reshape(b, t, -1)
same("attention", Causal.apply(q, k, v), want, [q, k, v])

x, wt = torch.randn(3, 5, 16, requires_grad=True), torch.randn(16, requires_grad=True)
same("norm", Norm.apply(x, wt, 1e-6), x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * wt, [x, wt])

# With gradient arrays in place the experts' gradients are written there, also over what was there.
x, w = torch.randn(n, d), torch.rand(n, 4)
a, b = (torch.nn.Parameter(y.detach().clone()) for y in (gu, dn))
i = torch.randint(0, E - 1, (n, 4))                 # the last expert gets nothing
want = torch.autograd.grad(Experts.apply(x, w, i, gu, dn).pow(2).sum(), [gu, dn])
a.grad, b.grad = torch.randn_like(a), torch.randn_like(b)
Experts.apply(x, w, i, a, b).pow(2).sum().backward()
assert torch.allclose(a.grad, want[0]) and torch.allclose(b.grad, want[1])
print("experts, in place: the same")
