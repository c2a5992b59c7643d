"""What every data set in the folder promises, without its files."""

import dataclasses

import pytest
import torch

from semifl import registry
from semifl.configuration.config import DATASETS
from semifl.data.dataset import UNKNOWN
from semifl.errors import UserError

EMBEDDED = "digits"


@pytest.mark.parametrize("name", registry.names(DATASETS))
def test_is_a_frozen_dataclass_of_plain_fields(name: str) -> None:
    cls = registry.find(DATASETS, name, "data.name")
    assert dataclasses.is_dataclass(cls)
    assert cls.__dataclass_params__.frozen
    assert all(isinstance(getattr(cls(), field.name), (str, int, float, bool)) for field in dataclasses.fields(cls))


@pytest.mark.parametrize("name", sorted(set(registry.names(DATASETS)) - {EMBEDDED}))
def test_says_in_one_sentence_what_is_missing(name: str, tmp_path) -> None:
    with pytest.raises(UserError) as error:
        registry.find(DATASETS, name, "data.name")(root=str(tmp_path)).load()
    assert str(tmp_path) in str(error.value)
    assert "\n" not in str(error.value)


def test_the_embedded_data_set_is_whole() -> None:
    data = registry.find(DATASETS, EMBEDDED, "data.name")().load()
    facts = data.facts
    assert len(data.images) + len(data.test_images) == 1797  # scikit-learn's digits
    assert data.images.dtype == data.test_images.dtype == torch.uint8
    assert data.images.shape[1:] == (facts.channels, facts.size, facts.size) == (1, 8, 8)
    assert not bool((data.labels == UNKNOWN).any())
    assert sorted(set(data.test_labels.tolist())) == list(range(facts.classes)) == list(range(10))
    pixels = data.images.double() / 255
    assert facts.mean[0] == pytest.approx(float(pixels.mean()))
    assert facts.std[0] == pytest.approx(float(pixels.std(correction=0)))
