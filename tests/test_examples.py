"""The prototype's own parts, by hand; the other examples are run where their subject is tested."""

import importlib.util
import math
from pathlib import Path
from types import ModuleType

import pytest
import torch

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture(scope="module")
def prototype() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prototype", EXAMPLES / "multilabel/prototype.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_unknown_findings_teach_nothing(prototype: ModuleType) -> None:
    logits = torch.tensor([[2.0, -1.0], [0.0, 3.0]])
    batch = prototype.Batch(torch.zeros(2, 1), torch.tensor([[1.0, -1.0], [0.0, -1.0]]))
    # −log σ(2) and −log (1 − σ(0)); the second finding is known of nobody.
    expected = (math.log(1 + math.exp(-2)) + math.log(2)) / 2
    assert float(prototype.masked_loss(lambda _: logits, batch)["loss"]) == pytest.approx(expected, rel=1e-6)
    nothing = prototype.Batch(torch.zeros(2, 1), torch.full((2, 2), -1.0))
    assert prototype.masked_loss(lambda _: logits, nothing) == {}


def test_each_finding_is_believed_by_itself(prototype: ModuleType) -> None:
    shares = torch.tensor([[0.95, 0.5, 0.04], [0.89, 0.11, 0.9]])
    assert prototype.believed(shares).tolist() == [[1.0, -1.0, 0.0], [-1.0, -1.0, 1.0]]


def test_findings_of_a_digit(prototype: ModuleType) -> None:
    # 8 is even, five or more and has loops; 7 only is five or more.
    assert prototype.findings_of(torch.tensor([8, 7])).tolist() == [[1.0, 1.0, 1.0], [0.0, 1.0, 0.0]]
