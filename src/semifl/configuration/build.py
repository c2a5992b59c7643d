"""From a configuration to a world: data loaded and divided, a model that any process can build, sites to visit."""

from __future__ import annotations

import hashlib
import inspect
import json
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from semifl import machine, registry
from semifl.configuration.config import VIEWS, Chosen, Config, Views, WarmStart, spec_of
from semifl.data.augment import strong, weak
from semifl.data.dataset import UNKNOWN, Dataset, Facts, Source
from semifl.data.labels import balanced_draw, hold_out
from semifl.data.partition import BySite, Holdings, Iid
from semifl.errors import UserError
from semifl.federation.features import FrozenFeatures
from semifl.federation.memory import ClientMemory
from semifl.federation.sites import Place
from semifl.federation.world import Method
from semifl.learning.network import parameters_of
from semifl.learning.precision import choose
from semifl.learning.tensorfile import read_tensors
from semifl.learning.whitening import PATCH, Rows, as_rows, whitening_rows
from semifl.randomness import Seed
from semifl.regular import why
from semifl.toml import Table

COPIES = 4  # of every weight while a model trains: itself, its gradient, its momentum, the model as it was sent
BYTES = 4  # of a weight
PICKLES = (".pth", ".pt", ".ckpt", ".bin", ".pkl")
NAMED = 6  # tensors that a message names
SMALLEST = 2  # side of a picture, in pixels: less cannot be shifted
LABELED, CLIENTS = 250, 100  # where neither the configuration nor the data say


@dataclass(frozen=True)
class Division:
    """Who has which pictures, as positions into the data set."""

    server: Tensor
    validation: Tensor
    clients: Holdings


@dataclass(frozen=True)
class World:
    """Everything an experiment runs on; `config` has every value filled in that was left to the data."""

    config: Config
    data: Dataset
    division: Division

    def place(self, memory: ClientMemory | None, device: str, features: Path | None = None) -> Place:
        """What a process needs to act for any site; frozen features lie below the folder `features`."""
        data, held = self.data, self.division.validation
        graded = {"test": (data.test_images, data.test_labels)}
        if len(held):
            graded["validation"] = (data.images[held], data.labels[held])
        place = Place(
            facts=data.facts,
            images=data.images,
            holdings=self.division.clients,
            hidden_labels=data.labels,
            graded=graded,
            build=self.model_factory(),
            device=device,
            memory=memory,
            needs=self.config.method.thing.needs,
            precision=choose(self.config.run.precision, device)[0],
            compiled=self.config.run.compile,
            labeled=torch.cat([self.division.server, held]).sort().values,
        )
        views: int = getattr(spec_of(self.config.model), "views", 0)
        if features is not None and views:
            return self._with_features(place, features)
        return place

    def _with_features(self, place: Place, folder: Path) -> Place:
        config, spec = self.config, spec_of(self.config.model)
        kept = frozen_features(folder, place.facts, spec, config.method.thing, Seed(config.run.seed), place.precision)
        pictures = sum(len(each) for each in (self.division.server, self.division.validation, place.holdings.order))
        tested = sum(len(labels) for _, labels in place.graded.values())
        kept.disk_bytes = refuse_large_features(kept, place, pictures, tested, spec.cache_gb, "model.cache_gb")
        return replace(place, facts=kept.facts_of_tickets(), features=kept)

    def deciding(self) -> dict[str, str]:
        """What decides bits though no key says it: classes, greys, a stem of pictures, a backbone may change."""
        facts = self.data.facts
        rows, backbone = facts.whitening, facts.backbone
        found = {"the list of classes": ", ".join(facts.class_names), "the number of channels": str(facts.channels)}
        found |= {"the number of bits of greys": str(facts.bits)} if facts.bits else {}
        found |= {"the model's whitening": hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]} if rows else {}
        return found | ({"the model's backbone": backbone} if backbone else {})

    def model_factory(self) -> partial[nn.Module]:
        """Any process can build the model with it; one that is too large for this machine is refused here."""
        config = self.config
        refuse_too_large(config.model, self.data.facts)
        return partial(
            build_model, config.model.thing, config.model_keys, self.data.facts, config.run.seed, config.warm_start
        )


def build_world(config: Config) -> World:
    """Load the data and divide it."""
    data = build_data(config.data.thing, config.views)
    data = replace(data, facts=_with_backbone(config, data.facts))
    seed = Seed(config.run.seed).under("data")
    _check_facts(data.facts)
    config = _resolve(config, data)
    positive_class(config, data.facts)
    labeled = _draw_labeled(config, data, seed)
    _check_labels(data, labeled)
    server, validation = hold_out(labeled, data.labels, config.split.validation, data.facts.class_names, seed)
    divided = torch.ones(len(data.labels), dtype=torch.bool)
    divided[validation if config.split.clients_hold == "everything" else labeled] = False
    assert config.split.clients is not None
    assert config.split.partition is not None
    partition = config.split.partition
    holdings = partition.divide(data, torch.nonzero(divided).flatten(), config.split.clients, seed).spilled()
    _check_needs(config, data, holdings)
    if _asks_for("whitening", config.model.thing):
        rows = _kept_whitening(config, data.facts) or whitening_rows(data.images[server], data.facts.std)
        data = replace(data, facts=replace(data.facts, whitening=rows))
    return World(config, data, Division(server, validation, holdings))


def _with_backbone(config: Config, facts: Facts) -> Facts:
    """A backbone sees pictures as it saw those it learned from; grey ones by the mean over its three channels."""
    backbone = getattr(spec_of(config.model), "backbone", None)
    if backbone is None:
        return facts
    mean, std = backbone.normalisation
    if facts.channels == 1:
        mean, std = (sum(mean) / 3,), (sum(std) / 3,)
    return replace(facts, mean=mean, std=std, backbone=backbone.hash)


def frozen_features(
    folder: Path, facts: Facts, spec: Any, method: Method, seed: Seed, precision: str
) -> FrozenFeatures:
    settings = json.dumps([facts.backbone, spec.picture_size(), precision])
    return FrozenFeatures(folder, facts, spec.views, method.preview().strong_view, seed.under("views"), settings)


def refuse_large_features(
    kept: FrozenFeatures, place: Place, pictures: int, tested: int, gigabytes: float, limit: str
) -> int:
    """Told before anything is computed; `limit` is whose word the gigabytes are. Else: how many bytes it will be."""
    facts, network = place.facts, place.network
    one = network.frozen(torch.zeros(1, facts.channels, facts.size, facts.size, device=network.device))
    needed = kept.bytes_of(pictures, tested, one.numel())
    if needed > gigabytes * 1e9:
        raise UserError(
            f"the frozen features of {pictures} pictures in {kept.views} weak and as many strong views take "
            f"{needed / 1e9:.2g} GB of disk, and {limit} allows {gigabytes:g}: lower model.views"
        )
    return needed


def refuse_too_large(model: Chosen[Any], facts: Facts, architecture: Table | None = None) -> None:
    """A model of ours that this machine could not train; one of a person's own is not built twice to find out."""
    spec = spec_of(model)
    if spec is None:
        return
    more = {"architecture": architecture} if architecture else {}
    keys = ", ".join(f"model.{each.name} = {getattr(spec, each.name)!r}" for each in fields(spec))
    try:
        parameters = parameters_of(partial(model.thing, facts.channels, facts.size, facts.classes, **more))
    except (RuntimeError, TypeError, OverflowError) as error:  # more than a tensor of any kind can count
        raise UserError(f"a model with {keys} is too large for any machine") from error
    needed, there = COPIES * BYTES * parameters, machine.memory()
    if needed > there:
        raise UserError(
            f"a model with {keys} has {parameters:,} parameters, and to train it takes at least "
            f"{needed / 1e9:,.1f} GB of memory: this machine has {there / 1e9:,.1f} GB"
        )


def build_model(
    factory: Any,
    keys: dict[str, Any],
    facts: Facts,
    seed: int,
    warm_start: WarmStart,
    width: float = 1.0,
    architecture: Table | None = None,
) -> nn.Module:
    """The model with its first weights, the same in every process; or its narrower kin, whose weights come by message.

    A model can be cut if its factory takes the share of the channels to build, as ours do but for backbones. With
    `architecture` a backbone is built in that form and not read: its weights are about to come.
    """
    offered: dict[str, Any] = {"channels": facts.channels, "size": facts.size, "classes": facts.classes}
    if facts.whitening:
        offered["whitening"] = facts.whitening
    if architecture:
        offered["architecture"] = architecture
    if width != 1:
        if not _asks_for("share", factory):
            raise UserError(
                "this model cannot be cut to a narrower one: "
                "heterofl needs one of our models other than pretrained, or one that is built with a parameter 'share'"
            )
        offered["share"] = width
    arguments = offered if hasattr(factory, "__self__") else _accepted(factory, offered) | keys
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(Seed(seed).under("model").number())
        try:
            module = factory(**arguments)
        except (TypeError, ValueError, RuntimeError, MemoryError, OverflowError) as error:
            told = {name: value for name, value in arguments.items() if name not in ("whitening", "architecture")}
            raise UserError(f"the model cannot be built with {told}: {why(error)}") from error
    if not isinstance(module, nn.Module):
        raise UserError(f"the model must be a torch.nn.Module, not {type(module).__name__}")
    if warm_start.weights and width == 1:
        load_weights(module, Path(warm_start.weights), warm_start.partial)
    return module


def load_weights(module: nn.Module, path: Path, partial: bool) -> None:
    """Copy a .safetensors file into the module; `partial` leaves out what does not fit."""
    given, own = _read_weights(path), module.state_dict()
    misfits = _misfits(own, given)
    if misfits and not partial:
        raise UserError(
            f"{path} does not fit the model at {misfits[0]!r} and {len(misfits) - 1} other names: "
            "set model.partial = true to load only what fits"
        )
    fitting = {name: tensor for name, tensor in given.items() if name in own and _fits(own[name], tensor)}
    if not fitting:
        raise UserError(f"nothing in {path} fits the model")
    module.load_state_dict(fitting, strict=False)


def _misfits(own: dict[str, Tensor], given: dict[str, Tensor]) -> list[str]:
    """Names that only one of them has, or that have different shapes."""
    found = [name for name in own.keys() | given.keys() if not _fits(own.get(name), given.get(name))]
    # Statistics are computed anew in every round, so a file without them is complete.
    return sorted(name for name in found if not _is_statistic(name))


def what_was_loaded(world: World) -> str:
    """Of a warm start: how much of the model begins with the file's weights, and what does not, by name."""
    start = world.config.warm_start
    if not start.weights:
        return ""
    own, given = world.model_factory()().state_dict(), _read_weights(Path(start.weights))
    left = _misfits(own, given)
    count = sum(name in own and not _is_statistic(name) for name in given.keys() - set(left))
    if not left:
        return f"{start.weights}: all {count} tensors were loaded"
    words = [f"{name} ({_shape(given.get(name))} in the file, {_shape(own.get(name))} in the model)" for name in left]
    more = f" and {len(words) - NAMED} more" if len(words) > NAMED else ""
    return f"{start.weights}: {count} tensors were loaded, not these: {', '.join(words[:NAMED])}{more}"


def _shape(tensor: Tensor | None) -> str:
    return "nothing" if tensor is None else str(list(tensor.shape))


def _read_weights(path: Path) -> dict[str, Tensor]:
    if path.suffix.lower() in PICKLES and path.exists():
        raise UserError(
            f"{path} is a pickle, which can run code of whoever made it, and is not read here: if you trust it, "
            f'convert it once, by python -c "import torch; from safetensors.torch import save_file; '
            f"w = torch.load('{path.name}', map_location='cpu', weights_only=True); w = w.get('state_dict', w); "
            f"save_file({{k: v.contiguous() for k, v in w.items()}}, '{path.stem}.safetensors')\""
        )
    try:
        return read_tensors(path).tensors
    except FileNotFoundError as error:
        raise UserError(f"there is no weights file {path}") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is not a readable .safetensors file: {why(error)}") from error


def _kept_whitening(config: Config, facts: Facts) -> Rows | None:
    """The filters of a warm start, also for the narrower kin, which never see its file: its weights belong to them."""
    if not config.warm_start.weights:
        return None
    shape = (facts.channels * PATCH**2, facts.channels, PATCH, PATCH)
    for name, tensor in _read_weights(Path(config.warm_start.weights)).items():
        if name.rsplit(".", 1)[-1] == "whitening" and tensor.shape == shape:
            return as_rows(tensor)
    return None


def _asks_for(name: str, factory: Any) -> bool:
    return name in inspect.signature(factory).parameters


def _fits(own: Tensor | None, given: Tensor | None) -> bool:
    return own is not None and given is not None and own.shape == given.shape


def _is_statistic(name: str) -> bool:
    return name.rsplit(".", 1)[-1] in {"running_mean", "running_var", "num_batches_tracked"}


def _accepted(factory: Any, offered: dict[str, Any]) -> dict[str, Any]:
    """Of what we can tell a user's model factory, the part it asks for."""
    parameters = inspect.signature(factory).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return offered
    return {name: value for name, value in offered.items() if name in parameters}


def build_data(source: Source, views: Views) -> Dataset:
    """The data with a person's own views, tried at once: one that fails should not do so hours later at a client."""
    data = source.load()
    weak_view, strong_view = (views.find(kind) for kind in VIEWS)
    if not weak_view and not strong_view:
        return data
    facts = replace(data.facts, weak_view=weak_view, strong_view=strong_view)
    weak(data.images[:2], facts, torch.Generator())
    strong(data.images[:2], facts, "fixmatch", torch.Generator())
    return replace(data, facts=facts)


def _resolve(config: Config, data: Dataset) -> Config:
    """Fill in what was left to the data."""
    split = config.split
    if data.labeled is not None and split.labeled not in (None, len(data.labeled)):
        raise UserError(
            f"data.labeled = {split.labeled}, but the data come with {len(data.labeled)} labeled pictures: "
            "leave it out, or in a run that has begun put the pictures back as they were"
        )
    labeled = len(data.labeled) if data.labeled is not None else split.labeled or LABELED
    partition = split.partition or (BySite() if data.sites else Iid())
    clients = split.clients or len(data.sites) or CLIENTS
    return replace(config, split=replace(split, labeled=labeled, clients=clients, partition=partition))


def _check_facts(facts: Facts) -> None:
    """What no classifier can be made of."""
    if facts.classes < 2:
        raise UserError(
            f"there is one class only, {facts.class_names[0]!r}: to tell apart takes two or more, "
            "each with labeled and with test pictures"
        )
    if facts.size < SMALLEST:
        raise UserError(f"pictures of {facts.size} × {facts.size} pixels show nothing: {SMALLEST} is the least")


def positive_class(config: Config, facts: Facts) -> int:
    """Of two classes the one whose finding counts as positive; with more there is none, and the last stands in."""
    name = config.run.positive
    if not name:
        return facts.classes - 1
    if facts.classes != 2:
        raise UserError(f"positive = {name!r} is for two classes, and there are {facts.classes}")
    if name not in facts.class_names:
        raise registry.unknown(name, "positive", facts.class_names)
    return facts.class_names.index(name)


def _draw_labeled(config: Config, data: Dataset, seed: Seed) -> Tensor:
    if data.labeled is not None:
        return data.labeled
    assert config.split.labeled is not None
    return balanced_draw(data.labels, config.split.labeled, data.facts.class_names, seed)


def _check_needs(config: Config, data: Dataset, holdings: Holdings) -> None:
    """A method that trains on the clients' labels cannot do without one, and the guard has no baseline for it."""
    if config.run.guard and "client_labels" in config.method.thing.needs:
        raise UserError(
            f"guard = true does not go with method {config.method.name!r}, which learns nothing without clients"
        )
    if "client_labels" in config.method.thing.needs and bool((data.labels[holdings.order.long()] == UNKNOWN).any()):
        raise UserError(f"method {config.method.name!r} needs the clients' labels, and some pictures have none")


def _check_labels(data: Dataset, labeled: Tensor) -> None:
    """A class nobody labeled could never be learned, and one that is never tested could never be judged."""
    for label, name in enumerate(data.facts.class_names):
        if not bool((data.labels[labeled] == label).any()):
            raise UserError(f"class {name!r} has no labeled picture")
        if not bool((data.test_labels == label).any()):
            raise UserError(f"class {name!r} has no test picture")
    if bool((data.test_labels == UNKNOWN).any()):
        raise UserError("a test picture has no label")
