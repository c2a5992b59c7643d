"""What to compute on."""

from __future__ import annotations

import torch

from semifl.errors import UserError


def find_device(device: str) -> str:
    """The name of a device that this machine has; auto takes the fastest."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device == "auto":
        return next(name for name in ("cuda", "mps", "cpu") if available[name])
    if device.split(":")[0] not in available:
        raise UserError(f"device {device!r} is not one of auto, cpu, cuda, mps")
    if not available[device.split(":")[0]]:
        raise UserError(f"device {device!r}: this machine has none that torch can use")
    try:
        torch.empty(0, device=device)
    except RuntimeError as error:
        raise UserError(f"device {device!r} is not a device of this machine") from error
    return device
