"""A person's own views take the place of ours, by the same random streams, and are held to their promise."""

import dataclasses

import pytest
import torch

from semifl.configuration.build import build_world
from semifl.configuration.config import decode
from semifl.data.augment import strong, weak
from semifl.data.dataset import Facts
from semifl.data.epochs import labeled_epochs
from semifl.errors import UserError
from semifl.randomness import Seed
from toys import toy_table

FACTS = Facts(("a", "b"), (0.0,), (1 / 255,), True, 1, 4)  # normalised pictures are their uint8 values


def darker(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    images //= 2  # in place: the pictures themselves must not change
    return images


def noisy(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.randint(256, images.shape).to(torch.uint8)  # by nobody's generator


def floating(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return images.float()


def pictures(n: int = 3) -> torch.Tensor:
    return torch.full((n, 1, 4, 4), 100, dtype=torch.uint8)


def test_own_views_are_used_and_leave_the_pictures_alone() -> None:
    own = dataclasses.replace(FACTS, weak_view=darker, strong_view=noisy)
    images = pictures()
    assert (weak(images, own, torch.Generator()) == 50).all()
    assert strong(images, own, "fixmatch", torch.Generator()).unique().numel() > 5
    assert (images == 100).all()


def test_our_strong_view_stands_on_an_own_weak_one() -> None:
    own = dataclasses.replace(FACTS, weak_view=lambda images, generator: torch.zeros_like(images))
    on_ours, on_own = (strong(pictures(200), facts, "reference", torch.Generator()) for facts in (FACTS, own))
    assert (on_ours == 100).any()  # a picture of 100s often stays one
    assert not (on_own == 100).any()  # what has become black does not become 100 again


def test_views_without_a_generator_are_addressed_all_the_same() -> None:
    own = dataclasses.replace(FACTS, weak_view=noisy)
    first, again, other = (weak(pictures(), own, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_epochs_use_own_views() -> None:
    own = dataclasses.replace(FACTS, weak_view=darker)
    batches = labeled_epochs(pictures(5), torch.zeros(5, dtype=torch.int64), own, 2, 1, Seed(0))
    assert {value for batch in batches for value in batch.images.flatten().round().tolist()} == {50.0}


def test_a_view_that_breaks_its_promise_is_told() -> None:
    own = dataclasses.replace(FACTS, strong_view=floating)
    with pytest.raises(UserError, match=r"the strong view must return .* uint8 \[3, 1, 4, 4\], not torch\.float32"):
        strong(pictures(), own, "fixmatch", torch.Generator())
    own = dataclasses.replace(FACTS, weak_view=lambda images, generator: None)
    with pytest.raises(UserError, match=r"the weak view must return .* not NoneType"):
        weak(pictures(), own, torch.Generator())


def with_views(**views: str) -> dict:
    table = toy_table()
    return {**table, "data": {**table["data"], **views}}


def test_a_configuration_can_name_views() -> None:
    config = decode(with_views(weak_view="views_for_tests:darker"))
    assert config.table()["data"]["weak_view"] == "views_for_tests:darker"
    assert "strong_view" not in config.table()["data"]
    facts = build_world(config).data.facts
    assert (weak(torch.full((1, 3, 8, 8), 100).byte(), facts, torch.Generator()) == 50).all()


@pytest.mark.parametrize(
    ("views", "sentence"),
    [
        ({"weak_view": "darker"}, "data.weak_view = 'darker' is not of the form package.module:function"),
        ({"weak_view": "no_such_module:f"}, "data.weak_view = 'no_such_module:f' cannot be imported"),
        ({"strong_view": "views_for_tests:darkr"}, "data.strong_view = .* has no 'darkr'"),
        ({"strong_view": "views_for_tests:DARK"}, "is not a function of pictures and a generator"),
        ({"strong_view": "views_for_tests:floating"}, "the strong view must return pictures as it gets them"),
        ({"strong_view": "python:<lambda>"}, "data.strong_view was handed over by a Python program"),
        ({"weak_veiw": "a:b"}, "unknown key data.weak_veiw; did you mean 'weak_view'"),
    ],
)
def test_mistakes_in_naming_views_are_told(views: dict, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        build_world(decode(with_views(**views)))
