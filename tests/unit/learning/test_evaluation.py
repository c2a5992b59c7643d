"""Blocks and scores against NumPy and scikit-learn."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, balanced_accuracy_score, confusion_matrix, log_loss

from semifl.learning.evaluation import BLOCK, Score, blocks, score

# blocks


@pytest.mark.parametrize(
    ("count", "size", "expected"),
    [
        (0, 5, []),
        (1, 5, [(0, 1)]),  # one picture alone has no block to join
        (5, 5, [(0, 5)]),
        (6, 5, [(0, 6)]),  # a last block of one joins the one before
        (7, 5, [(0, 5), (5, 7)]),
        (10, 5, [(0, 5), (5, 10)]),
        (11, 5, [(0, 5), (5, 11)]),
        (12, 5, [(0, 5), (5, 10), (10, 12)]),
        (3, 2, [(0, 3)]),
    ],
)
def test_blocks_by_hand(count: int, size: int, expected: list[tuple[int, int]]) -> None:
    assert [(block.start, block.stop) for block in blocks(count, size)] == expected


@given(count=st.integers(1, 3000), size=st.integers(2, 400))
def test_blocks_cover_everything_once_and_none_has_one_picture(count: int, size: int) -> None:
    cuts = blocks(count, size)

    covered = [position for block in cuts for position in range(block.start, block.stop)]
    lengths = [block.stop - block.start for block in cuts]
    assert covered == list(range(count))
    assert all(length == size for length in lengths[:-1])
    assert lengths[-1] <= size + 1
    assert lengths[-1] > 1 or count == 1


def test_blocks_have_250_pictures_unless_told_otherwise() -> None:
    assert BLOCK == 250  # of the bit promise: changing it changes numbers
    assert [block.stop for block in blocks(1000)] == [250, 500, 750, 1000]


# score


def example(count: int = 400, classes: int = 5, absent: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(count)
    labels = rng.choice([c for c in range(classes) if c != absent], count, p=None)
    labels[: count // 2] = 1  # unbalanced, or both accuracies would agree
    logits = rng.normal(size=(count, classes))
    logits[np.arange(count), labels] += 1.0
    return logits, labels


def test_a_score_agrees_with_sklearn() -> None:
    logits, labels = example()
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    taken = logits.argmax(axis=1)

    result = score(torch.from_numpy(logits), torch.from_numpy(labels))

    assert result.count == 400
    assert result.accuracy == pytest.approx(100 * accuracy_score(labels, taken), rel=1e-12)
    assert result.balanced_accuracy == pytest.approx(100 * balanced_accuracy_score(labels, taken), rel=1e-12)
    assert result.loss == pytest.approx(log_loss(labels, shares), rel=1e-10)
    assert result.loss_sum == pytest.approx(400 * log_loss(labels, shares), rel=1e-10)
    np.testing.assert_array_equal(result.confusion.numpy(), confusion_matrix(labels, taken, labels=range(5)))


@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true")
@pytest.mark.parametrize("absent", [0, 2, 4])
def test_a_class_that_is_absent_does_not_count(absent: int) -> None:
    logits, labels = example(absent=absent)

    result = score(torch.from_numpy(logits), torch.from_numpy(labels))

    expected = np.mean([(logits.argmax(axis=1)[labels == c] == c).mean() for c in range(5) if c != absent])
    assert result.balanced_accuracy == pytest.approx(100 * expected, rel=1e-12)
    assert result.confusion.shape == (5, 5)
    assert result.confusion[absent].sum() == 0


def test_scores_by_hand() -> None:
    # Truth 0 0 0 1, taken 0 0 1 1: three of four right; class 0 two of three, class 1 one of one.
    shares = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.4, 0.6], [0.3, 0.7]])
    result = Score(2.0, torch.tensor([[2, 1], [0, 1]]), shares, torch.tensor([0, 0, 0, 1]))

    assert result.count == 4
    assert result.loss == 0.5
    assert result.accuracy == 75.0
    assert result.balanced_accuracy == pytest.approx(100 * (2 / 3 + 1) / 2)


def test_scores_of_blocks_add_up_to_the_score_of_all() -> None:
    logits, labels = (torch.from_numpy(each) for each in example(101))

    parts = [score(logits[cut], labels[cut]) for cut in blocks(101, 25)]
    total = sum(parts[1:], parts[0])
    at_once = score(logits, labels)

    assert len(parts) == 4
    assert torch.equal(total.confusion, at_once.confusion)
    assert total.loss_sum == pytest.approx(at_once.loss_sum, rel=1e-12)
    assert torch.equal(total.probabilities, at_once.probabilities)
    assert torch.equal(total.labels, at_once.labels)


def test_a_model_that_has_diverged_is_as_good_as_a_guess() -> None:
    logits = torch.tensor([[float("nan"), 1.0], [float("inf"), 0.0], [0.0, 1.0], [1.0, 0.0]])

    result = score(logits, torch.tensor([0, 1, 0, 1]))

    assert torch.equal(result.probabilities[:2], torch.full((2, 2), 0.5, dtype=torch.float64))
    # The zeros give class 1 shares of 0.5 and 0.731, the ones 0.5 and 0.269: one tie in four pairs, and no win.
    assert result.auc == pytest.approx(100 * 0.5 / 4)
