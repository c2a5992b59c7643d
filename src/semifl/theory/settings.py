"""Problems with a name, and what is chosen freely beside the theorem's rates."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from difflib import get_close_matches

from semifl.errors import UserError
from semifl.theory.problem import Problem
from semifl.theory.ssl import Initial, Schedule
from semifl.theory.theorem import Exponents, violations

SIZES = tuple(2**power for power in range(12, 19))
SIZES_PLANE = tuple(2**power for power in range(11, 17))


@dataclass(frozen=True)
class Setting:
    """A problem, an initial estimate from n_0 = n_u^init_power labels with rate r, and the constants of δ_n and h_n."""

    name: str
    problem: Problem
    sizes: tuple[int, ...] = SIZES
    r: float = 0.5
    init_power: float = 0.8
    c8: float = 0.25
    delta_scale: float = 0.5
    h_scale: float = 0.5

    @property
    def exponents(self) -> Exponents:
        p = self.problem
        return Exponents(p.alpha, p.q, p.d, p.s, p.v)

    @property
    def schedule(self) -> Schedule:
        return Schedule(self.exponents, self.delta_scale, self.h_scale)

    @property
    def digest(self) -> str:
        """Changes with every number that changes a result; the name and the sizes do not."""
        parts = [f"{field.name}={getattr(self, field.name)!r}" for field in fields(self)[1:] if field.name != "sizes"]
        return hashlib.blake2b(";".join(parts).encode(), digest_size=6).hexdigest()

    def initial(self, n_u: int) -> Initial:
        return Initial(self.problem, float(n_u) ** self.init_power, self.r, self.c8)

    def violations(self) -> list[str]:
        """What the smallest size breaks; the larger ones break nothing more, because δ_n falls."""
        return violations(self.exponents, self.r, self.init_power, self.schedule.delta(min(self.sizes)))


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting("adequate", Problem(alpha=1, q=1, d=1, s=0.5, v=0)),
        Setting("separated", Problem(alpha=2, q=1, d=1, s=0.5, v=0.5)),
        Setting("narrow", Problem(alpha=0.5, q=1, d=1, s=0.5, v=0.5)),
        Setting("rough", Problem(alpha=1, q=0.5, d=1, s=0.5, v=0.5)),
        Setting("scarce", Problem(alpha=1, q=1, d=1, s=1, v=1)),
        Setting("plane", Problem(alpha=1, q=1, d=2, s=0.5, v=0.5), SIZES_PLANE),
    )
}


def find(text: str) -> Setting:
    """A setting by its name, or by its numbers: alpha=1,q=0.5,d=1,s=0.5,v=0 (also r, init_power, c, tilt, …)."""
    if "=" not in text:
        if text not in SETTINGS:
            close = get_close_matches(text, SETTINGS, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(SETTINGS)}"
            raise UserError(f"there is no setting {text!r}; {hint}")
        return SETTINGS[text]
    numbers = _numbers(text)
    of_problem = {field.name for field in fields(Problem)}
    problem = Problem(**{key: value for key, value in numbers.items() if key in of_problem})  # type: ignore[arg-type]
    rest = {key: value for key, value in numbers.items() if key not in of_problem}
    setting = Setting(text, problem, SIZES if problem.d == 1 else SIZES_PLANE, **rest)
    if broken := setting.violations():
        raise UserError(f"setting {text!r} is outside the theorem: {'; '.join(broken)}")
    return setting


def _numbers(text: str) -> dict[str, float]:
    known = {field.name for field in (*fields(Problem), *fields(Setting))} - {"name", "problem", "sizes"}
    numbers: dict[str, float] = {}
    for part in text.split(","):
        key, _, value = (word.strip() for word in part.partition("="))
        if key not in known:
            raise UserError(f"setting {text!r}: {key!r} is not one of {', '.join(sorted(known))}")
        try:
            numbers[key] = int(value) if key == "d" else float(value)
        except ValueError:
            raise UserError(f"setting {text!r}: {key} = {value!r} is not a number") from None
    return numbers
