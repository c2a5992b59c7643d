"""Settings by name and by numbers."""

import pytest

from semifl.errors import UserError
from semifl.theory.settings import SETTINGS, find


def test_every_named_setting_is_within_the_theorem() -> None:
    assert len(SETTINGS) >= 4
    for setting in SETTINGS.values():
        assert setting.violations() == []
        assert setting.initial(min(setting.sizes)).error <= setting.schedule.delta(min(setting.sizes)) / 4


def test_a_setting_by_numbers() -> None:
    setting = find("alpha=2,q=0.5,d=2,s=1,v=0,r=0.4,c=0.2")
    assert setting.exponents.semi == pytest.approx(0.5 * 3 / (0.5 * 6 + 2))
    assert (setting.r, setting.problem.c) == (0.4, 0.2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("adequat", "did you mean 'adequate'"),
        ("xyz", "known: adequate"),
        ("alpha=one", "alpha = 'one' is not a number"),
        ("beta=1", "'beta' is not one of"),
        ("alpha=1,q=2", "q must be above 0 and at most 1"),
        ("alpha=0.1,s=6,v=0", r"\(A7\), first part"),
        ("r=0.1", r"\(A7\), second part"),
        ("delta_scale=5", "1/4"),
    ],
)
def test_mistakes_are_told_in_a_sentence(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        find(text)
