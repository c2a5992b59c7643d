"""Whether this machine can compile networks."""

from __future__ import annotations

import torch

from semifl.errors import UserError


def refuse_without_compiler(device: str) -> None:
    """By trying: which compiler is needed, and where it is looked for, is torch's matter."""
    try:
        torch.compile(lambda numbers: numbers + 1)(torch.zeros(2, device=device))
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise UserError(
            f"compile = true needs a compiler that torch finds here, such as g++ ({reason}); leave out compile"
        ) from error
