"""A few pictures of a finished run: views as clients train on them, what the model is surest of, and where it errs."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import torch
from PIL import Image
from torch import Tensor

from semifl.data.augment import beta_weights, mix, strong, weak
from semifl.data.dataset import UNKNOWN
from semifl.durable import replace_file
from semifl.federation.sites import infer
from semifl.learning.targets import PseudoLabels, pseudo_labels
from semifl.learning.weights import Snapshot
from semifl.randomness import Seed
from semifl.running.context import RunContext

PICTURES = 6  # of the server, each in all its views
SHOWN = 12  # pseudo-labels of a kind
CLIENTS, LOOKED_AT = 4, 250  # whose pictures are labeled, and how many of each
OF_SITES = (
    "Pictures of the sites are not shown, neither those the model is surest of nor its mistakes: they are the sites' "
    "own, and this page may be passed on."
)
LARGEST = 64  # pixels of a side; a page with larger ones takes long to open


class Sheet(NamedTuple):
    """Pictures of one size and what to say of each."""

    pictures: Tensor  # uint8 [n, c, s, s]
    captions: list[str]
    across: int  # pictures in a row


class Labeled(NamedTuple):
    """Pictures of a few clients and what the final model says of them."""

    client: Tensor
    images: Tensor
    truth: Tensor  # UNKNOWN where nobody knows
    pseudo: PseudoLabels
    confident: Tensor


def write_gallery(context: RunContext, model: Snapshot, index: int, of_clients: bool = True) -> None:
    """Fill RUN/gallery. The model is kept by now, so whatever goes wrong here is an event and no error.

    Where clients' pictures may not be seen (`of_clients` false) there are only the server's.
    """
    try:
        sheets: dict[str, Sheet | None] = {"views": _views(context)}
        if of_clients and "client_labels" not in context.method.needs:
            labeled = _label(context, model)
            sheets |= {"confident": _surest(context, labeled), "mistakes": _mistakes(context, labeled)}
        _write(context, {name: sheet for name, sheet in sheets.items() if sheet is not None}, index, of_clients)
    except Exception as error:
        with suppress(OSError):  # on a full disk there is no room for an event either
            context.directory.add_event("no gallery", reason=f"{type(error).__name__}: {error}")


def _views(context: RunContext) -> Sheet:
    """Some of the server's pictures, one class after the other, in the views that the method trains on."""
    data, seed = context.world.data, _seed(context)
    held, labels = context.world.division.server, context.server.labels
    order = torch.randperm(len(labels), generator=seed.at("order"))
    chosen = order[_taking_turns(labels[order], PICTURES)]
    images, facts = data.images[held[chosen]], data.facts
    names = [facts.class_names[label] for label in labels[chosen].tolist()]
    weak_views = weak(images, facts, seed.at("weak"))
    views = {"as it is": images, "weak view": weak_views}
    preview = context.method.preview()
    if preview.strong_view:
        views["strong view"] = strong(images, facts, preview.strong_view, seed.at("strong"))
    captions = [[f"{name}: {view}" for view in views] for name in names]
    if preview.mix_beta:
        shares = beta_weights(preview.mix_beta, len(images), seed.numpy_at("mix"))
        views["mixed"] = mix(weak_views.float(), weak_views.roll(-1, 0).float(), shares).round().to(torch.uint8)
        for i, share in enumerate(shares.tolist()):
            captions[i].append(f"mixed: {100 * share:.0f} % {names[i]}, the rest {names[(i + 1) % len(names)]}")
    return Sheet(torch.stack(list(views.values()), dim=1).flatten(0, 1), list(chain(*captions)), len(views))


def _label(context: RunContext, model: Snapshot) -> Labeled:
    """Let the final model label pictures of a few clients as these would do it: weak views, once."""
    place, seed, data = context.place.of_pictures(), _seed(context), context.world.data
    holdings = context.world.division.clients
    clients = torch.randperm(len(holdings), generator=seed.at("clients"))[:CLIENTS].sort().values.tolist()
    held = {client: holdings[client][:LOOKED_AT] for client in clients}
    views = [weak(data.images[held[client]], data.facts, seed.at("client", client)) for client in clients]
    pseudo = pseudo_labels(torch.cat([logits.cpu() for logits in infer(place, model, torch.cat(views))]))
    positions = torch.cat(list(held.values()))
    owners = torch.cat([torch.full_like(part, client) for client, part in held.items()])
    return Labeled(
        owners,
        data.images[positions],
        data.labels[positions],
        pseudo,
        pseudo.confident(context.method.preview().threshold),
    )


def _surest(context: RunContext, labeled: Labeled) -> Sheet:
    """The highest confidence of each class, then the second highest, and so on."""
    order = labeled.pseudo.confidence.argsort(descending=True, stable=True)
    return _captioned(context, labeled, order[_taking_turns(labeled.pseudo.labels[order], SHOWN)])


def _mistakes(context: RunContext, labeled: Labeled) -> Sheet | None:
    """Confident and wrong; None where nobody knows the truth."""
    known = labeled.truth != UNKNOWN
    if not bool(known.any()):
        return None
    wrong = known & labeled.confident & (labeled.pseudo.labels != labeled.truth)
    order = labeled.pseudo.confidence.argsort(descending=True, stable=True)
    return _captioned(context, labeled, order[wrong[order]][:SHOWN])


def _captioned(context: RunContext, labeled: Labeled, chosen: Tensor) -> Sheet:
    names = context.world.data.facts.class_names
    captions = []
    for i in chosen.tolist():
        said, truth = int(labeled.pseudo.labels[i]), int(labeled.truth[i])
        caption = f"{names[said]}, {100 * float(labeled.pseudo.confidence[i]):.1f} %"
        caption += f", is {names[truth]}" if truth not in (said, UNKNOWN) else ""
        captions.append(f"{caption}; client {int(labeled.client[i])}")
    return Sheet(labeled.images[chosen], captions, SHOWN)


def _write(context: RunContext, sheets: dict[str, Sheet], index: int, of_clients: bool) -> None:
    """The list of pictures comes last and counts: without it there is no gallery."""
    folder = context.directory.path / "gallery"
    about: list[dict[str, Any]] = []
    for name, sheet in sheets.items():
        side = min(context.world.data.facts.size, LARGEST)
        about.append({"name": name, "side": side, "across": sheet.across, "captions": sheet.captions})
        if sheet.captions:
            grid = _grid(sheet, side)
            replace_file(folder / f"{name}.png", partial(grid.save, format="PNG", optimize=True))
    note = "" if of_clients else OF_SITES
    context.directory.write_facts("gallery/gallery.json", {"round": index, "galleries": about, "note": note})


def _grid(sheet: Sheet, side: int) -> Image.Image:
    mode = "L" if sheet.pictures.shape[1] == 1 else "RGB"
    rows = -(-len(sheet.pictures) // sheet.across)
    grid = Image.new(mode, (side * sheet.across, side * rows))
    for i, picture in enumerate(sheet.pictures):
        pixels = (picture[0] if mode == "L" else picture.permute(1, 2, 0)).numpy()
        tile = Image.fromarray(pixels).resize((side, side))
        grid.paste(tile, (side * (i % sheet.across), side * (i // sheet.across)))
    return grid


def _taking_turns(groups: Tensor, count: int) -> Tensor:
    """The first `count` positions when the groups take turns, each giving its own in order."""
    taken: dict[int, int] = {}
    turns = []
    for group in groups.tolist():
        turns.append(taken.get(group, 0))
        taken[group] = turns[-1] + 1
    return torch.tensor(turns).argsort(stable=True)[:count]


def _seed(context: RunContext) -> Seed:
    return Seed(context.world.config.run.seed).under("gallery")
