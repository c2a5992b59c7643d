"""(FL)²'s own table as presets: its authors' setting, and SemiFL's cells beside them."""

import pytest

from semifl.configuration.config import decode
from semifl.studies.presets import find, presets


def test_every_cell_is_there_twice() -> None:
    """Five columns, three partitions, two methods."""
    names = [preset.name for preset in presets("fl2-*")]
    assert len(names) == len(set(names)) == 5 * 3 * 2
    assert sum(name.endswith("-semifl") for name in names) == 15


@pytest.mark.parametrize(("name", "width"), [("fl2-cifar10-40-iid", 2), ("fl2-cifar100-400-dir0.3", 8)])
def test_the_setting_is_its_authors(name: str, width: int) -> None:
    """800 rounds of five epochs, a tenth of 100 clients; batches of 32 and 10, lr 0.03, Nesterov 0.9, 5e-4, clip 1."""
    config = decode(find(name).table)
    method = config.method.thing
    assert (config.run.rounds, config.split.clients, config.table()["model"]["width"]) == (800, 100, width)
    assert (method.activity_rate, method.client_epochs, method.server_epochs) == (0.1, 5, 5)
    assert (method.client_batch, method.server_batch, method.clip_norm) == (32, 10, 1.0)
    assert (method.lr, method.momentum, method.nesterov, method.weight_decay) == (0.03, 0.9, True, 5e-4)
    assert (method.threshold, method.server_optimizer.momentum) == (0.95, 0.5)


@pytest.mark.parametrize(
    ("name", "value"),
    [("fl2-cifar10-40-iid", "81.5"), ("fl2-cifar10-40-iid-semifl", "75.3"), ("fl2-svhn-250-dir0.1", "88.0")],
)
def test_what_they_print_is_said(name: str, value: str) -> None:
    assert find(name).about.endswith(f"print {value}")
