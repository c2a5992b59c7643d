"""Pseudo-labels: the most likely class, and which of them to keep."""

import numpy as np
import pytest
import torch

from semifl.learning.targets import Beliefs, PseudoLabels, pseudo_labels


def test_pseudo_labels_are_the_softmax_at_its_maximum() -> None:
    logits = np.random.default_rng(0).normal(size=(50, 7)) * 4
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)

    pseudo = pseudo_labels(torch.from_numpy(logits))

    np.testing.assert_array_equal(pseudo.labels.numpy(), shares.argmax(axis=1))
    np.testing.assert_allclose(pseudo.confidence.numpy(), shares.max(axis=1), rtol=1e-12)
    assert pseudo.labels.dtype == torch.int64


def test_pseudo_labels_by_hand() -> None:
    # e^ln 3 : e^0 : e^0 is 3 : 1 : 1
    pseudo = pseudo_labels(torch.tensor([[0.0, np.log(3.0), 0.0], [1000.0, 0.0, 0.0]]))

    assert pseudo.labels.tolist() == [1, 0]
    assert pseudo.confidence.tolist() == pytest.approx([0.6, 1.0])


def test_large_logits_do_not_overflow() -> None:
    pseudo = pseudo_labels(torch.tensor([[3e38, -3e38], [-3e38, -3e38]]))

    assert pseudo.confidence.tolist() == [1.0, 0.5]


@pytest.mark.parametrize(
    ("threshold", "kept"),
    [
        (0.0, [True, True, True, True]),  # 0 keeps everything
        (0.5, [False, True, True, True]),  # the threshold itself is enough
        (0.75, [False, False, True, True]),
        (0.99, [False, False, False, True]),
        (1.0, [False, False, False, False]),  # 1 keeps nothing, even what rounds to 1
    ],
)
def test_what_is_confident(threshold: float, kept: list[bool]) -> None:
    pseudo = PseudoLabels(torch.tensor([0, 1, 2, 0]), torch.tensor([0.25, 0.5, 0.75, 1.0]))

    assert pseudo.confident(threshold).tolist() == kept


def test_a_model_that_diverged_is_confident_of_nothing() -> None:
    pseudo = pseudo_labels(torch.full((3, 4), float("nan")))

    assert pseudo.confident(0.95).tolist() == [False] * 3
    assert pseudo.confident(0.0).tolist() == [False] * 3


def test_no_pictures_no_labels() -> None:
    pseudo = pseudo_labels(torch.zeros(0, 4))

    assert pseudo.labels.shape == pseudo.confidence.shape == pseudo.confident(0.5).shape == (0,)


class Counter:
    def observe(self, pseudo: PseudoLabels, confident: torch.Tensor, positions: torch.Tensor | None = None) -> None:
        self.told = (pseudo.labels.tolist(), confident.tolist(), positions.tolist())


def test_beliefs_are_the_last_word_on_each_picture_that_was_seen() -> None:
    beliefs, client = Beliefs(5), Counter()
    beliefs.note(torch.tensor([3, 0]), PseudoLabels(torch.tensor([1, 2]), torch.tensor([0.9, 0.4])))
    beliefs.note(torch.tensor([0]), PseudoLabels(torch.tensor([1]), torch.tensor([0.8])))
    beliefs.tell(client, 0.85)
    assert client.told == ([1, 1], [False, True], [0, 3])  # pictures 1, 2 and 4 were never seen
