"""The box kernel against the sum it stands for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semifl.theory.kernel import BoxKernel


def brute_force(points: np.ndarray, labels: np.ndarray, h: float, x: np.ndarray) -> np.ndarray:
    """Σ K((x − X_i)/h) Y_i / Σ K((x − X_i)/h), written out."""
    estimate = []
    for each in x:
        reach = [sum((a - b) ** 2 for a, b in zip(each, point, strict=True)) <= h * h for point in points]
        votes = [label for label, near in zip(labels, reach, strict=True) if near]
        estimate.append(sum(votes) / len(votes) if votes else 0.0)
    return np.array(estimate)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_estimate_is_the_sum_written_out(d: int) -> None:
    rng = np.random.default_rng(d)
    points, labels = rng.random((150, d)), rng.integers(0, 2, 150)
    x = rng.random((60, d))
    for h in (0.01, 0.1, 0.4):
        np.testing.assert_array_equal(BoxKernel(points, labels, h).estimate(x), brute_force(points, labels, h, x))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_points_at_distance_exactly_h_are_in_reach(data: st.DataObject) -> None:
    # Multiples of 1/8 and their squares are exact in binary, so ties are ties.
    eighths = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=40)
    points = np.array(data.draw(eighths)) / 8
    labels = np.array(data.draw(st.lists(st.integers(0, 1), min_size=len(points), max_size=len(points))))
    x = np.array(data.draw(eighths)) / 8
    h = data.draw(st.integers(1, 8)) / 8
    np.testing.assert_array_equal(BoxKernel(points, labels, h).estimate(x), brute_force(points, labels, h, x))


def test_a_tie_of_votes_is_class_one_and_nobody_in_reach_is_class_zero() -> None:
    model = BoxKernel(np.array([[0.25], [0.75]]), np.array([0, 1]), 0.25)
    x = np.array([[0.5], [0.25], [0.0], [1.0]])
    np.testing.assert_array_equal(model.estimate(x), [0.5, 0, 0, 1])
    np.testing.assert_array_equal(model.classify(x), [1, 0, 0, 1])
    np.testing.assert_array_equal(BoxKernel(np.empty((0, 1)), np.empty(0, dtype=int), 0.1).classify(x), np.zeros(4))


@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_classes_along_a_line_are_those_of_its_points(d: int) -> None:
    rng = np.random.default_rng(10 + d)
    model = BoxKernel(rng.random((200, d)), rng.integers(0, 2, 200), 0.15)
    line = np.full(d - 1, 0.4)
    edges, classes = model.along(line)
    around = np.concatenate([[edges[0] - 0.1], (edges[1:] + edges[:-1]) / 2, [edges[-1] + 0.1]])
    wide = np.diff(edges, prepend=-1, append=2) > 1e-9  # not between edges that only rounding tells apart
    x = np.column_stack([around, np.tile(line, (len(around), 1))])
    assert wide[: len(around)].sum() > 20
    np.testing.assert_array_equal(model.classify(x)[wide], classes[wide])
