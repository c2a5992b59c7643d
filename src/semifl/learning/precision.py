"""In which precision a network computes: single, or bfloat16 where the hardware is fast at it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch

Precision = Literal["fp32", "bf16"]
Wanted = Precision | Literal["auto"]
LOWER = {"bf16": torch.bfloat16}  # what a precision below single computes in


def casting(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """Within it, convolutions and matrix products are computed in `precision`; parameters and their sums stay fp32."""
    return torch.autocast(device.type, LOWER[precision]) if precision in LOWER else nullcontext()


def choose(wanted: Wanted, device: str) -> tuple[Precision, str]:
    """What "auto" is on this machine, and a sentence about it where it is not what a person may have hoped for."""
    if wanted != "auto":
        return wanted, ""
    if has_fast_bf16(torch.device(device).type):
        return "bf16", ""
    return "fp32", 'precision = "auto" stays at fp32: this machine has no fast bfloat16, which would only be slower'


def has_fast_bf16(kind: str) -> bool:
    """Whether a kind of device multiplies bfloat16 in hardware; a CPU without such instructions emulates it."""
    if kind == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if kind != "cpu":
        return kind == "mps"
    ask: Callable[[], dict[str, Any]] = getattr(torch.cpu, "get_capabilities", dict)  # not in every torch we run on
    can = ask()
    return any(can.get(instructions) for instructions in ("amx_bf16", "avx512_bf16"))
