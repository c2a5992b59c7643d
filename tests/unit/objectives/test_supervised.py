"""Cross-entropy against NumPy."""

import pytest

from semifl.objectives.supervised import Supervised
from unit.objectives.by_hand import assert_gradient, labeled_loss, linear_network, pair, parameters


def test_it_is_the_cross_entropy_of_the_labels() -> None:
    network, batch = linear_network(), pair(labeled=7, unlabeled=0, views=0)
    terms = Supervised().loss(network, batch, {}, progress=0.0)
    assert terms["loss"].item() == pytest.approx(labeled_loss(parameters(network), batch), rel=1e-5)
    assert_gradient(network, terms["loss"], lambda W: labeled_loss(W, batch))
