# machine.py owns what the numeric library must know about this machine. Import it before torch.
#
# Debian's OpenBLAS 0.3.21 does not know processors newer than itself and then computes with a kernel
# from 2005: measured 5 times slower here. One thread per process, see train.py.

import os


def kernel():
    try:
        with open("/proc/cpuinfo") as f:
            flags = next((line for line in f if line.startswith("flags")), "").split()
    except OSError:
        return None
    if {"avx512f", "avx512dq", "avx512bw", "avx512vl"} <= set(flags):
        return "SkylakeX"
    return "Haswell" if {"avx2", "fma"} <= set(flags) else None


if kernel():
    os.environ.setdefault("OPENBLAS_CORETYPE", kernel())
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")


def self_check():
    """GFLOPS of a plain product; stops if the product is wrong (some kernels are on some processors)."""
    import time

    import torch
    a, b = torch.randn(1024, 256), torch.randn(256, 512)
    err = float((a @ b - (a.double() @ b.double()).float()).abs().max())
    assert err < 1e-3, f"matrix product is wrong by {err}: set another OPENBLAS_CORETYPE"
    t = time.time()
    for _ in range(20):
        a @ b
    return 20 * 2 * 1024 * 256 * 512 / (time.time() - t) / 1e9
