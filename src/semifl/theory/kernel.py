"""The box-kernel Nadaraya–Watson estimate of P(Y = 1 | X = x), exact, and its classifier."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class BoxKernel:
    """Points of shape (n, d) with labels 0 or 1, and the bandwidth h: a point at distance exactly h is in reach."""

    points: Floats
    labels: Ints
    h: float

    def estimate(self, x: Floats) -> Floats:
        """m̂(x): the share of ones among the points in reach, and 0 where there are none."""
        total = _count(self._tree, x, self.h)
        ones = _count(self._tree_of_ones, x, self.h)
        return np.divide(ones, total, out=np.zeros(len(x)), where=total > 0)

    def classify(self, x: Floats) -> Ints:
        """Ĉ(x) = 1{m̂(x) ≥ 1/2}."""
        return (self.estimate(x) >= 0.5).astype(np.int64)

    def along(self, line: Floats) -> tuple[Floats, Ints]:
        """Ĉ on the line {(t, line)}: edges in t, and the class between each two that follow each other.

        The first class holds before the first edge and the last one after the last, so there is one class more
        than there are edges.
        """
        room = self.h**2 - ((self.points[:, 1:] - line) ** 2).sum(axis=1)
        near = room >= 0
        middle, half, labels = self.points[near, 0], np.sqrt(room[near]), self.labels[near]
        edges = np.concatenate([middle - half, middle + half])
        order = np.argsort(edges, kind="stable")
        total = np.cumsum(np.repeat([1, -1], len(middle))[order])
        ones = np.cumsum(np.concatenate([labels, -labels])[order])
        classes = ((total > 0) & (2 * ones >= total)).astype(np.int64)
        return edges[order], np.concatenate([[0], classes])

    # The labels are 0 or 1, so the sum of labels is a count too, and a second tree gives it without listing anyone.
    @cached_property
    def _tree(self) -> Any:
        return _tree(self.points)

    @cached_property
    def _tree_of_ones(self) -> Any:
        return _tree(self.points[self.labels == 1])


def _tree(points: Floats) -> Any:
    from sklearn.neighbors import KDTree

    return KDTree(points) if len(points) else None


def _count(tree: Any, x: Floats, h: float) -> Ints:
    if tree is None or not len(x):
        return np.zeros(len(x), dtype=np.int64)
    counts: Ints = tree.query_radius(x, h, count_only=True)
    return counts
