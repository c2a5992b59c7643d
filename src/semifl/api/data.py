"""FederatedData: who has which pictures, from arrays or from a folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from semifl.api.names import name_of
from semifl.configuration.build import build_data
from semifl.configuration.config import VIEWS, Chosen, Split, Views, decode
from semifl.data.arrays import InMemory, as_labels, as_pictures, channels_of, fingerprint, to_square
from semifl.data.dataset import UNKNOWN, Dataset, Facts, OwnView, moments
from semifl.data.labels import hold_out
from semifl.data.pictures import LARGEST_SIDE
from semifl.errors import UserError
from semifl.fields import Range
from semifl.randomness import Seed
from semifl.registry import HANDED_OVER

Pictures = Any  # a tensor or an array of pictures, or a list of single ones
Labels = Any  # whole numbers from 0 on
View = OwnView | str
SIDES = Range(2, LARGEST_SIDE)  # as those of a folder


class FederatedData:
    """A server's labeled pictures, clients' unlabeled ones, and labeled pictures to test with.

    Pictures are tensors or arrays [n, channels, height, width], [n, height, width, channels] or (grey) [n, height,
    width], or lists of single pictures that need not be of one size; uint8, or floats between 0 and 1, which are
    rounded to 256 steps. A Pillow image is seen as its file would be: upright, in its palette's colours, white where it
    is transparent. With a `size` what is not square is cropped to its center and all are resized to `size` × `size`;
    without one, arrays must be square, and the first labeled picture gives the size. Everything is gray if every
    picture is.

    labeled        the server's pictures and their labels, whole numbers from 0 on
    clients        the pictures of each client
    test           pictures and labels to measure with, or the share of the labeled ones to set aside for it
    class_names    in the order of the labels; "0", "1", … if left out
    client_labels  for simulations: each client's true labels (or None), for methods that need them; they show how often
                   the clients' own labels are right
    client_names   "client 0", "client 1", … if left out
    flip           whether a mirrored picture is as good an example as the original
    validation     share of the server's labels held out to choose the best round
    weak, strong   own views: functions of (pictures uint8 [n, channels, size, size], torch.Generator) that return
                   pictures of the same shape and type; a strong view gets the pictures as they are
    """

    def __init__(
        self,
        labeled: tuple[Pictures, Labels],
        clients: Iterable[Pictures],
        test: tuple[Pictures, Labels] | float,
        class_names: Iterable[str] | None = None,
        *,
        client_labels: Iterable[Labels | None] | None = None,
        client_names: Iterable[str] | None = None,
        size: int | None = None,
        flip: bool = True,
        validation: float = 0.0,
        weak: View | None = None,
        strong: View | None = None,
    ) -> None:
        if hasattr(clients, "shape"):  # one tensor or array
            raise UserError("clients must be a list with the pictures of each client, not one array of pictures")
        parts = _listed(clients, "clients")
        classes, hidden, names = (
            None if given is None else _listed(given, what)
            for what, given in (
                ("class_names", class_names),
                ("client_labels", client_labels),
                ("client_names", client_names),
            )
        )
        _check_lengths(len(parts), hidden, names)
        try:
            split = Split(validation=validation)
        except ValueError as error:  # it names the argument itself
            raise UserError(str(error)) from error
        held = _gather(labeled, parts, test, classes, hidden, names, _checked(size), flip)
        source = InMemory(fingerprint(held), held)
        self._set(Chosen(f"{HANDED_OVER}arrays", source), split, weak, strong)

    @classmethod
    def from_folder(
        cls,
        path: str | Path,
        *,
        size: int = 32,
        unreadable: Literal["stop", "skip"] = "stop",
        channels: Literal["auto", "grey", "color"] = "auto",
        flip: bool = True,
        weak: View | None = None,
        strong: View | None = None,
        **split: Any,
    ) -> FederatedData:
        """Pictures in labeled/<class>/, clients/<site>/ and test/<class>/, or in train/<class>/ and test/<class>/.

        `split` are more keys of a configuration's [data], such as validation=0.2 or, for the second layout,
        labeled=30 and clients=10.
        """
        root = str(Path(path).expanduser().absolute())
        keys = {"root": root, "size": size, "unreadable": unreadable, "channels": channels, "flip": flip, **split}
        return cls.from_name("folder", weak=weak, strong=strong, **keys)

    @classmethod
    def from_name(
        cls, name: str, *, weak: View | None = None, strong: View | None = None, **keys: Any
    ) -> FederatedData:
        """A data set by its name (`semifl list data`) with the keys of a configuration's [data]."""
        config = decode({"data": {"name": name, **keys}})
        data = cls.__new__(cls)
        data._set(config.data, config.split, weak, strong)
        return data

    def _set(self, source: Chosen[Any], split: Split, weak: View | None, strong: View | None) -> None:
        self.source, self.split = source, split
        given = {kind: view for kind, view in zip(VIEWS, (weak, strong), strict=True) if callable(view)}
        self.views = Views(_name(weak), _name(strong), given)

    def load(self) -> Dataset:
        """All pictures as one data set, read from disk if they lie there."""
        return build_data(self.source.thing, self.views)

    def __repr__(self) -> str:
        if not isinstance(self.source.thing, InMemory):
            return f"FederatedData({self.source.thing!r})"
        data = self.load()
        assert data.labeled is not None
        return (
            f"FederatedData({data.facts.classes} classes, {len(data.labeled)} labeled, {len(data.sites)} clients with "
            f"{len(data.images) - len(data.labeled)} pictures, {len(data.test_images)} to test, "
            f"{data.facts.channels} × {data.facts.size} × {data.facts.size})"
        )


def _name(view: View | None) -> str | None:
    return view if view is None or isinstance(view, str) else name_of(view)


def _listed(given: Any, what: str) -> list[Any]:
    """A generator can be asked only once, and not how long it is."""
    if not isinstance(given, Iterable):
        raise UserError(f"{what} must be a list with an entry for each, not {type(given).__name__}")
    return list(given)


def _check_lengths(clients: int, labels: Sequence[Any] | None, names: Sequence[str] | None) -> None:
    if clients == 0:
        raise UserError("clients is empty: a federation needs at least one client with pictures")
    for key, given in (("client_labels", labels), ("client_names", names)):
        if given is not None and len(given) != clients:
            raise UserError(f"{key} has {len(given)} entries for {clients} clients")
    if names is not None and len(set(names)) < clients:
        raise UserError("client_names must differ from each other")


def _checked(size: Any) -> int | None:
    if size is None:
        return None
    if isinstance(size, bool) or not isinstance(size, Integral):
        raise UserError(f"size must be a whole number of pixels, not {size!r}")
    if complaint := SIDES.complaint(int(size)):
        raise UserError(f"size {complaint}")
    return int(size)


def _gather(
    labeled: tuple[Pictures, Labels],
    clients: Sequence[Pictures],
    test: tuple[Pictures, Labels] | float,
    class_names: Sequence[str] | None,
    client_labels: Sequence[Labels | None] | None,
    client_names: Sequence[str] | None,
    size: int | None,
    flip: bool,
) -> Dataset:
    """Everything in one data set: the server's pictures first, then client by client."""
    asked = "size" if size is None else ""
    parts = [as_pictures(_pair(labeled, "labeled")[0], "labeled", asked)]
    parts += [as_pictures(images, f"clients[{number}]", asked) for number, images in enumerate(clients)]
    if not isinstance(test, float):
        parts.append(as_pictures(_pair(test, "test")[0], "test", asked))
    side, channels = min(parts[0][0].shape[2:]) if size is None else size, channels_of(parts)
    images = [to_square(part, side, channels) for part in parts]
    known = as_labels(labeled[1], len(images[0]), "the labels of labeled")
    if isinstance(test, float):
        images, known, tested = _set_aside(images, known, test, class_names)
    else:
        tested = as_labels(test[1], len(images[-1]), "the labels of test")
    training, held = images[:-1], len(images[0])
    hidden = [
        _hidden(given, len(part), f"client_labels[{number}]")
        for number, (part, given) in enumerate(zip(training[1:], client_labels or [None] * len(clients), strict=True))
    ]
    names = _class_names(class_names, torch.cat([known, tested, *hidden]))
    pictures = torch.cat(training)
    mean, std = moments(images[0])  # the server cannot know those of the clients
    owners = torch.arange(-1, len(clients)).repeat_interleave(torch.tensor([len(part) for part in training]))
    return Dataset(
        Facts(names, mean, std, flip, channels, side),
        *(pictures, torch.cat([known, *hidden])),
        *(images[-1], tested),
        labeled=torch.arange(held),
        sites=tuple(client_names or (f"client {number}" for number in range(len(clients)))),
        site_of=owners,
        names=(
            *(f"labeled[{place}]" for place in range(held)),
            *(f"clients[{at}][{place}]" for at, part in enumerate(training[1:]) for place in range(len(part))),
        ),
        test_names=tuple(f"test[{place}]" for place in range(len(tested))),
    )


def _pair(given: Any, what: str) -> tuple[Pictures, Labels]:
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise UserError(f"{what} must be a pair (pictures, labels), not {type(given).__name__}")
    return given[0], given[1]


def _set_aside(
    images: list[Tensor], known: Tensor, share: float, class_names: Sequence[str] | None
) -> tuple[list[Tensor], Tensor, Tensor]:
    """A share of every class's labeled pictures, drawn once and for all, becomes the test pictures."""
    if not 0 < share < 1:
        raise UserError(f"test = {share} is no share of the labeled pictures: it must lie between 0 and 1")
    names = _class_names(class_names, known)
    kept, tested = hold_out(torch.arange(len(known)), known, share, names, Seed(0).under("test"), "test")
    return [images[0][kept], *images[1:], images[0][tested]], known[kept], known[tested]


def _hidden(given: Labels | None, count: int, what: str) -> Tensor:
    return torch.full((count,), UNKNOWN) if given is None else as_labels(given, count, what)


def _class_names(given: Sequence[str] | None, labels: Tensor) -> tuple[str, ...]:
    """One name per label."""
    classes = int(labels.max()) + 1
    if given is None:
        return tuple(str(label) for label in range(classes))
    names = tuple(str(name) for name in given)
    if len(set(names)) < len(names):
        raise UserError("class_names must differ from each other")
    if classes > len(names):
        raise UserError(f"there is a label {classes - 1}, but class_names has only {len(names)} entries, for 0 and up")
    return names
