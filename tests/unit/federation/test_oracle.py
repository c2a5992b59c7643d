"""What the oracle says of pseudo-labels."""

import numpy as np
import torch

from semifl.data.dataset import UNKNOWN
from semifl.federation.oracle import Oracle
from semifl.learning.targets import PseudoLabels


def test_counts_by_hand() -> None:
    #                         right, right, wrong, wrong, unknown, unknown
    labels = torch.tensor([0, 1, 2, 0, UNKNOWN, UNKNOWN])
    taken = torch.tensor([0, 1, 1, 1, 1, 0])
    confident = torch.tensor([True, False, True, False, True, False])

    judged = Oracle(labels).judge(PseudoLabels(taken, torch.rand(6)), confident)

    assert judged == {"known": 4, "known_confident": 2, "right": 2, "right_confident": 1}


def test_a_label_nobody_knows_is_never_right() -> None:
    labels = torch.full((3,), UNKNOWN)

    judged = Oracle(labels).judge(PseudoLabels(labels.clone(), torch.ones(3)), torch.ones(3, dtype=torch.bool))

    assert judged == {"known": 0, "known_confident": 0, "right": 0, "right_confident": 0}


def test_sums_give_both_accuracies() -> None:
    rng = np.random.default_rng(0)
    labels, taken, confident = rng.integers(0, 4, 500), rng.integers(0, 4, 500), rng.random(500) < 0.3

    judged = Oracle(torch.from_numpy(labels)).judge(
        PseudoLabels(torch.from_numpy(taken), torch.ones(500)), torch.from_numpy(confident)
    )

    assert judged["right"] / judged["known"] == (labels == taken).mean()
    assert judged["right_confident"] / judged["known_confident"] == (labels == taken)[confident].mean()
    assert all(type(value) is int for value in judged.values())
