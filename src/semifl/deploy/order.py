"""What the hub asks of a site, checked by the site before anything of it is done.

An order is configuration and never code: names of what is built into semifl, numbers, and the facts of the pictures.
It comes with every packet, so a site needs no memory of earlier ones to know what is asked.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor, nn

from semifl import __version__, registry
from semifl.configuration.build import BYTES, COPIES, World, build_model
from semifl.configuration.config import Config, WarmStart, decode, refuse_unknown, spec_of
from semifl.data.dataset import Facts
from semifl.deploy import wire
from semifl.deploy.policy import Policy
from semifl.errors import UserError
from semifl.federation.world import Method
from semifl.learning.network import parameters_of, shapes_of
from semifl.learning.precision import Precision
from semifl.learning.weights import Shapes, Weights, misfit
from semifl.learning.whitening import PATCH, Rows
from semifl.randomness import Seed
from semifl.toml import Table, dotted

log = logging.getLogger(__name__)

RUN_KEYS = ("seed", "rounds", "precision")  # of the keys outside all sections, those that clients need
KEYS = ("semifl", "format", "run", "sites", "config", "facts")
FACTS = ("class_names", "mean", "std", "may_flip", "channels", "size", "bits", "whitening", "backbone")
BACKBONE = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{8}")  # a hash
SOURCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}(/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?")  # a name, and no path
LONGEST_NAME = 80  # characters of a run's name: what is added to it must still be the name of a file
NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{LONGEST_NAME - 1}}}")
RUN = re.compile(rf"{NAME.pattern}\.[0-9a-f]{{8}}")  # a name, and what tells the run from others of that name
LARGEST_NUMBER = 4096  # in a model's section: depths and widths far beyond any use
MANY = 10**9  # pictures; with few or with so many, what an order asks does not depend on whose they are
LARGEST_SETTING = 100_000  # in a method's section: steps, epochs and rates far beyond any use


class TooMuchHere(UserError):
    """Beyond a limit because of how many pictures this site has: elsewhere the same order would do.

    Its sentence names the limit and no number of the site's, and the number that is compared is rounded as all that
    leave are: else a hub could find the exact one by asking for a little more each time.
    """


@dataclass(frozen=True)
class Accepted:
    """An order that the site is willing to follow."""

    run: str
    client: int
    method: Method
    facts: Facts
    build: Callable[..., nn.Module]
    seed: Seed
    parameters: int  # of the model
    shapes: Shapes  # of its weights as they travel
    precision: Precision
    spec: Any = None  # the model's settings


def write_order(world: World, run: str, sites: tuple[str, ...]) -> Table:
    """What the hub tells every site: of the configuration only what clients need, and no path."""
    table = world.config.table()
    model = {key: value for key, value in table["model"].items() if key not in ("weights", "partial")}
    if world.data.facts.backbone:
        model |= spec_of(world.config.model).portable()
    facts = {name: value for name, value in vars(world.data.facts).items() if name in FACTS and value is not None}
    config = {**{key: table[key] for key in RUN_KEYS}, "model": model, "method": table["method"]}
    return {
        "semifl": __version__, "format": wire.FORMAT, "run": run, "sites": list(sites), "config": config, "facts": facts
    }  # fmt: skip


def accept(order: Any, name: str, policy: Policy) -> Accepted:
    """The order as this site will follow it, or a UserError that says in one sentence what is wrong with it."""
    if not isinstance(order, dict):
        raise UserError("the hub's packet has no order")
    if order.get("semifl") != __version__ or order.get("format") != wire.FORMAT:
        raise UserError(
            f"the hub runs semifl {order.get('semifl')} (packets of format {order.get('format')}) and {name} runs "
            f"{__version__} ({wire.FORMAT}): install the same version"
        )
    refuse_unknown(order, KEYS, "order")
    run, sites = order.get("run"), order.get("sites")
    if not isinstance(run, str) or not RUN.fullmatch(run):
        raise UserError("the order's run has no proper name")
    if not isinstance(sites, list) or name not in sites:
        raise UserError(f"{name} is not among the sites of the order")
    facts = _facts(order.get("facts"), policy)
    config = _config(order.get("config"), policy)
    spec = spec_of(config.model)
    _refuse_other_backbone(spec, facts, name)
    build = partial(build_model, config.model.thing, config.model_keys, facts, config.run.seed, WarmStart())
    parameters = _check_size(build, policy)
    # A site computes as the hub does, fast or not: "auto" of its own would be another run on every machine.
    precision: Precision = "fp32" if config.run.precision == "auto" else config.run.precision
    seed = Seed(config.run.seed)
    return Accepted(
        run, sites.index(name), config.method.thing, facts, build, seed, parameters, shapes_of(build), precision, spec
    )


def _refuse_other_backbone(spec: Any, facts: Facts, name: str) -> None:
    """Only what trains travels; the rest must be the same at both ends, to the bit."""
    if not hasattr(type(spec), "backbone"):
        return
    if facts.backbone is None:
        raise UserError("the order's model stands on a backbone, and the order does not say which")
    try:
        own = spec.backbone.hash
    except UserError as error:
        log.warning("%s", error)  # with this site's paths, which are not the hub's to know
        raise UserError(
            f"{name} does not hold the backbone {spec.source!r}: its owner brings it with `semifl backbone get`, "
            "or puts its folder where this site's log says"
        ) from error
    if own != facts.backbone:
        raise UserError(
            f"{name} holds another backbone {spec.source!r} than the hub ({own[:12]}… and not {facts.backbone[:12]}…): "
            "bring the hub's"
        )


def refuse_name(run: str) -> None:
    """A run's name is a folder's, at the hub and at every site."""
    if not NAME.fullmatch(run):
        raise UserError(f"{run!r} is no name for a run: use letters, digits, dots and dashes, {LONGEST_NAME} at most")


def refuse_needs(config: Config) -> None:
    """A method that needs more than the paper's world cannot leave the simulation."""
    needs = {"client_labels": "the clients' labels", "pooled_images": "the clients' pictures in one place"}
    for need in sorted(config.method.thing.needs):
        raise UserError(f"method {config.method.name!r} needs {needs.get(need, need)}, which no real site gives away")


def refuse_memory(parameters: int, facts: Facts, pictures: int, policy: Policy) -> None:
    """What the model and the pictures take at least, before anything is computed with them."""
    most, model = policy.limits.most_gigabytes, COPIES * BYTES * parameters
    if model + policy.rounded(pictures) * facts.channels * facts.size**2 > most * 1e9:
        sentence = f"the order asks for more memory than the {most:g} GB that this site's policy allows"
        raise (UserError if model > most * 1e9 else TooMuchHere)(f"{sentence} (limits.most_gigabytes)")


def refuse_work(method: Method, pictures: int, policy: Policy) -> None:
    """Whatever a method calls its settings, it says what they ask of a client with so many pictures."""
    work, few, many = (method.client_work(count) for count in (policy.rounded(pictures), 1, MANY))
    limits = policy.limits
    asked = (
        ("epochs", work.passes, limits.most_epochs, min(few.passes, many.passes)),
        ("steps", work.steps, limits.most_steps, min(few.steps, many.steps)),
    )
    for what, much, most, anywhere in asked:
        if much > most:
            log.warning("the order asks for %.4g %s in a round", much, what)
            sentence = f"the order asks for more {what} in a round than the {most} that this site's policy allows"
            raise (UserError if anywhere > most else TooMuchHere)(f"{sentence} (limits.most_{what})")


def refuse_other_weights(body: Any, expected: Shapes) -> None:
    """All weights in a message are of the order's model, in fp32.

    With others a site that trains would fail, or answer in another type, where one that abstains would not.
    """
    for weights in _weights_in(body):
        if reason := misfit(weights, expected):
            raise UserError(f"the hub's message does not hold the order's model: {reason}")


def _weights_in(nest: Any) -> Iterator[Weights]:
    if isinstance(nest, dict) and any(isinstance(each, Tensor) for each in nest.values()):
        if not all(isinstance(each, Tensor) for each in nest.values()):
            raise UserError("the hub's message has weights that are none")
        yield nest
    elif isinstance(nest, (dict, tuple)):
        for part in nest.values() if isinstance(nest, dict) else nest:
            yield from _weights_in(part)


def _facts(given: Any, policy: Policy) -> Facts:
    """The facts of the pictures, each of its type; anything else is an order nobody should follow."""
    try:
        refuse_unknown(given, FACTS, "facts")
        facts = Facts(
            class_names=tuple(str(name) for name in given["class_names"]),
            mean=tuple(float(value) for value in given["mean"]),
            std=tuple(float(value) for value in given["std"]),
            may_flip=bool(given["may_flip"]),
            channels=int(given["channels"]),
            size=int(given["size"]),
            bits=int(given.get("bits", 0)),
            whitening=_rows(given.get("whitening")),
            backbone=given.get("backbone"),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UserError("the order's facts of the pictures are not complete") from error
    if facts.channels not in (1, 3) or len(facts.mean) != facts.channels or len(facts.std) != facts.channels:
        raise UserError(f"the order asks for pictures of {facts.channels} channels: 1 or 3 can be had")
    if not 1 <= facts.size <= policy.limits.largest_picture:
        raise UserError(
            f"the order asks for pictures of {facts.size} pixels, and this site's policy allows "
            f"{policy.limits.largest_picture} (limits.largest_picture)"
        )
    if not 0 <= facts.bits <= 16:
        raise UserError(f"the order asks for greys of {facts.bits} bits: up to 16 can be had")
    if not 2 <= facts.classes <= LARGEST_NUMBER or not all(0 < value < 1e6 for value in facts.std):
        raise UserError(f"the order's facts of the pictures make no sense ({facts.classes} classes)")
    if facts.backbone is not None and not (isinstance(facts.backbone, str) and BACKBONE.fullmatch(facts.backbone)):
        raise UserError("the order's backbone is no hash")
    if facts.whitening is not None and not _whitens(facts.whitening, PATCH**2 * facts.channels):
        raise UserError(f"the order's whitening is not of pictures of {facts.channels} channels")
    return facts


def _rows(given: Any) -> Rows | None:
    return None if given is None else tuple(tuple(float(value) for value in row) for row in given)


def _whitens(rows: Rows, size: int) -> bool:
    """One filter for every pixel of a patch, of numbers that are finite and far beyond any use at most."""
    return len(rows) == size and all(
        len(row) == size and all(abs(value) <= LARGEST_NUMBER for value in row) for row in rows
    )


def _config(given: Any, policy: Policy) -> Config:
    if not isinstance(given, dict):
        raise UserError("the order has no configuration")
    refuse_unknown(given, (*RUN_KEYS, "model", "method"), "order.config")
    refuse_code(given, "")
    for part, largest in (("model", LARGEST_NUMBER), ("method", LARGEST_SETTING)):
        section = given.get(part)
        for key, value in dotted(section if isinstance(section, dict) else {}):
            for number in value if isinstance(value, list) else [value]:
                if isinstance(number, (int, float)) and not abs(number) <= largest:
                    raise UserError(f"the order's {part}.{key} = {number} is larger than any {part} needs")
    config = decode(given)
    refuse_needs(config)
    if config.method.thing.wants_statistics != "server" and not policy.shares_statistics:
        raise UserError(
            "the order asks for BatchNorm statistics, and this site's policy keeps them "
            '(share.statistics, privacy.noise): set method.statistics = "server"'
        )
    return config


def refuse_code(table: Table, where: str) -> None:
    """A name of the form module:thing would be imported: only what is built into semifl may run at a site."""
    for key, value in table.items():
        if isinstance(value, dict):
            refuse_code(value, f"{where}{key}.")
        elif isinstance(value, str) and _asks_for_code(key, value, where):
            raise UserError(f"the order asks for code, {where}{key} = {value!r}: a site runs what is built into semifl")
        elif key == "source" and not (isinstance(value, str) and SOURCE.fullmatch(value)):
            raise UserError(f"the order may not contain {where}{key} = {value!r}: a backbone is named, and found here")
        elif key in ("weights", "root", "weak_view", "strong_view") and where != "method." and value:
            raise UserError(f"the order may not contain {where}{key}")


def _asks_for_code(key: str, value: str, where: str) -> bool:
    """A choice within a section may be a name alone; outside all sections are words that name nothing."""
    return (key == "name" and ":" in value) or (where != "" and registry.names_code(value))


def _check_size(build: Callable[..., nn.Module], policy: Policy) -> int:
    """How many parameters the model has, if the policy allows as many."""
    try:
        parameters = parameters_of(build)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"the order's model cannot be built ({type(error).__name__})") from error
    if parameters > policy.limits.most_parameters:
        raise UserError(
            f"the order's model has {parameters} parameters, and this site's policy allows "
            f"{policy.limits.most_parameters} (limits.most_parameters)"
        )
    return parameters
