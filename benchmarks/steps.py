"""How many pictures a second one thread trains, bare steps, in fp32 and in bf16: small networks on 3 × 32 × 32.

Batches of 50 for `fast_cnn`, which needs them, and of ten for Wide ResNets, as in the paper. One JSON line per network.
"""

from __future__ import annotations

from functools import partial

import torch
from arithmetic import MODELS
from measure import report, step_seconds

from semifl.models.fast_cnn import FastCnn


def main() -> None:
    torch.set_num_threads(1)
    for name, spec in MODELS.items():
        batch = 50 if isinstance(spec, FastCnn) else 10
        build = partial(spec.build, 3, 32, 10)
        plain, half = (step_seconds(build, 32, 1, precision, batch=batch) for precision in ("fp32", "bf16"))
        report("steps", name, fp32=batch / plain, bf16=batch / half, ratio=plain / half)


if __name__ == "__main__":
    main()
