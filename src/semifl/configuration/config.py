"""The configuration of an experiment: frozen dataclasses are the schema, TOML comes in and goes out, strictly.

A section with a `name` (data, model, method, and every field that is itself a choice, such as data.partition) takes the
keys of the class that the name stands for.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar, cast, get_type_hints

from pydantic import TypeAdapter, ValidationError

from semifl import registry, toml
from semifl.configuration.code import refuse_foreign_code
from semifl.configuration.health import Health
from semifl.data.arrays import InMemory
from semifl.data.dataset import OwnView, Source
from semifl.data.partition import PARTITIONS, Partition
from semifl.errors import UserError
from semifl.federation.world import Method
from semifl.fields import Checked, Choice, Count, NotNegative, Range, ShareBelowOne, Whole, choices
from semifl.learning.precision import Wanted
from semifl.parsing import DEEPEST, TooDeep, from_toml, shallow
from semifl.plain import too_large
from semifl.records.directory import RunDirectory
from semifl.records.metrics import Metric
from semifl.registry import HANDED_OVER, did_you_mean, only_in_python
from semifl.regular import read_text
from semifl.toml import Table

T = TypeVar("T")
LARGEST_FILE = 4 << 20  # bytes of a configuration; a thousand sites need a hundredth
PATHS = (("data", "root"), ("model", "weights"))  # keys whose values name files
DATASETS, MODELS, METHODS = "semifl.data.datasets", "semifl.models", "semifl.methods"
MOVED = {  # keys of the first edition
    "method.server_rule": "method.server_optimizer.name",
    "method.server_lr": "method.server_optimizer.lr",
    "method.server_momentum": "method.server_optimizer.momentum (beta1 of adam, yogi and adagrad)",
    "method.server_beta2": "method.server_optimizer.beta2",
    "method.server_epsilon": "method.server_optimizer.epsilon",
    "method.trim": "method.aggregation.share",
    "method.order": 'method.name = "semifl_released" for the released program\'s order',
    "method.training": 'method.name = "semifl_ablated"',
    "method.labeling": 'method.name = "semifl_ablated"',
    "method.mix_draw": 'method.name = "semifl_released"',
    "method.mix_view": 'method.name = "semifl_released"',
    "method.mix_pool": "nothing: partners are drawn from all pictures",
}
VIEWS = ("weak_view", "strong_view")
Threads = Annotated[int, Range(0, 1024)]  # a system that cannot have more ends the program without a word
DEFAULT_MODEL = "wide_resnet"
DEFAULT_METHOD = "semifl"


@dataclass(frozen=True)
class Stop(Checked):
    """When to end before the last round; 0 means never."""

    minutes: NotNegative = 0.0  # of training; 0 means no limit
    patience: Whole = 0  # rounds without a better metric on the validation part


@dataclass(frozen=True)
class Split(Checked):
    """Who is labeled and who holds what; None leaves it to the data, which may come split."""

    labeled: Count | None = None  # pictures whose labels the server keeps, as many of each class
    clients: Count | None = None  # among whom the other pictures are divided
    clients_hold: Literal["unlabeled", "everything"] = "unlabeled"  # "everything": the labeled pictures too
    validation: ShareBelowOne = 0.0  # share of the labels held out to choose a model
    partition: Annotated[Partition, Choice(PARTITIONS)] | None = None  # who holds what


@dataclass(frozen=True)
class Views:
    """A person's own views, `module:function` each; None leaves them to the method."""

    weak_view: str | None = None  # package.module:function of (pictures, generator), instead of crop and flip
    strong_view: str | None = None  # likewise, instead of the method's strong view
    handed_over: dict[str, OwnView] = field(default_factory=dict, repr=False)  # from a Python program

    def find(self, kind: str) -> OwnView | None:
        """The weak_view or strong_view itself."""
        name = getattr(self, kind)
        if name is None or kind in self.handed_over:
            return self.handed_over.get(kind)
        if ":" not in name:
            raise UserError(f"data.{kind} = {name!r} is not of the form package.module:function")
        view: OwnView = registry.find(DATASETS, name, f"data.{kind}")
        if not callable(view):
            raise UserError(f"data.{kind} = {name!r} is not a function of pictures and a generator")
        return view


@dataclass(frozen=True)
class WarmStart:
    """Weights to begin with: a .safetensors file that fits the model, or with `partial` the part of it that does."""

    weights: str = ""  # a .safetensors file to begin with
    partial: bool = False  # load only what fits


@dataclass(frozen=True)
class Run(Checked):
    """The keys outside all sections."""

    seed: Whole = 0  # of everything random: who is labeled, the first weights, cohorts, views
    rounds: Count = 800  # of communication
    threads: Threads = 0  # Threads of the server's own training, part of the bits; 0 chooses by a step's size.
    precision: Wanted = "fp32"  # of a network's passes; auto: bf16 where hardware is fast
    stack: Count = 1  # clients that one process trains side by side, for a GPU; part of the result's last bits
    compile: bool = False  # networks by torch.compile, which needs a compiler; part of the result's last bits
    metric: Metric = "accuracy"  # what decides: the best round, patience, the guard, and what reports show first
    test_every: Count = 1  # rounds; the first, the best by labels held out and the final model are tested in any case
    positive: str = ""  # of two classes the one whose finding counts as positive; the second if left out
    start: Literal["model", "labels"] = "model"  # of the rounds: the model as it is, or once the labels have trained it
    labels_only: bool = True  # also train the same model without clients, to see what they bring
    guard: bool = False  # judge the clients' work by held-out labels and go back where it does harm
    max_failures: Whole = 0  # clients whose code may raise before the run stops

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.compile and self.stack > 1:
            raise ValueError("compile has no effect on clients that are stacked: leave out compile, or set stack = 1")


@dataclass(frozen=True)
class Chosen(Generic[T]):
    """A thing and the name it was chosen by."""

    name: str
    thing: T


@dataclass(frozen=True)
class Config:
    run: Run
    stop: Stop
    health: Health
    split: Split
    data: Chosen[Source]
    model: Chosen[Callable[..., Any]]
    warm_start: WarmStart
    method: Chosen[Method]
    views: Views = field(default_factory=Views)
    model_keys: Table = field(default_factory=dict)  # the keys of a user's own model factory

    def __post_init__(self) -> None:
        if self.stop.patience and not self.split.validation:
            raise UserError(
                "stop.patience needs data.validation: a part of the labels to tell whether the model still improves"
            )
        if getattr(self.method.thing, "activity_rate", None) == 0:
            raise UserError("method.activity_rate = 0 asks no client at all: it must be above 0, up to 1 for everybody")
        if self.run.start == "labels" and "client_labels" in getattr(self.method.thing, "needs", ()):
            raise UserError(f'start = "labels" needs a server that learns; {self.method.name} learns at clients alone')
        if self.run.guard and not self.split.validation:
            raise UserError("guard = true needs data.validation: a part of the labels to judge the clients' work by")

    def table(self) -> Table:
        """As nested tables with every value written out, ready for TOML."""
        data = {"name": self.data.name, **_leaves(self.data.thing), **_leaves(self.views), **_leaves(self.split)}
        model = {"name": self.model.name, **self.model_keys, **_leaves(self.warm_start)}
        return {
            **_leaves(self.run),
            "stop": _leaves(self.stop),
            "health": _leaves(self.health),
            "data": data,
            "model": model,
            "method": {"name": self.method.name, **_leaves(self.method.thing)},
        }


def read(path: Path) -> Table:
    """The raw tables of a TOML file; paths in it are relative to the file."""
    try:
        table = from_toml(read_text(path, largest=LARGEST_FILE))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a text file in UTF-8") from error
    except ValueError as error:  # bad syntax, endless numbers, endless nesting
        raise UserError(f"{path} is not valid TOML: {error}") from error
    return _with_whole_paths(table, path.absolute().parent)


def of_run(run: RunDirectory) -> Config:
    """The configuration of a run, to go on with it; code that it names is imported only if it is this person's."""
    run.refuse_unreadable()
    path = run.path / "config.toml"
    table = read(path)
    if not {"data", "model", "method"} <= table.keys():
        raise UserError(f"{path} is damaged: a run's configuration has the sections data, model and method")
    refuse_foreign_code(table, path.parent)
    try:
        return decode(table)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def override(table: Table, settings: Sequence[str], notify: Callable[[str], None] = lambda sentence: None) -> Table:
    """Return a copy with `--set section.key=value` applied; a value that is not TOML is taken as a string.

    Names are applied first, outer ones before inner ones. A name that changes discards the other keys of its section:
    another method, model or partition begins with its own defaults, and not with what was tuned for the former one.
    `notify` is called with a sentence that names the discarded values that the new method has a key for.
    """
    result = _copy(table)
    for setting in sorted(settings, key=_names_first):
        dotted, equals, text = setting.partition("=")
        keys = dotted.strip().split(".")
        if not equals or not all(keys) or not _is_text(setting):
            raise UserError(f"--set {setting!r} is not of the form section.key=value")
        if len(keys) > DEEPEST:
            raise UserError(f"--set {setting[:40]!r}… is nested more than {DEEPEST} levels deep")
        inner = result
        for key in keys[:-1]:
            inner = inner.setdefault(key, {})
            if not isinstance(inner, dict):
                raise UserError(f"--set {setting!r}: {key!r} is a value, not a section")
        try:
            value = _value(text.strip())
        except TooDeep as error:
            raise UserError(f"--set {setting[:40]!r}… cannot be followed: {error}") from error
        if len(keys) > 2 and keys[-1] == "name" and inner.get("name", value) != value:
            inner.clear()
        if keys == ["model", "name"] and inner.get("name", DEFAULT_MODEL) != value:  # another one has other keys
            result["model"] = inner = _take(inner, _names(WarmStart))
        if keys == ["method", "name"] and inner.get("name", DEFAULT_METHOD) != value:
            _notify_of_discarded(inner, value, settings, notify)
            inner.clear()
        inner[keys[-1]] = value
    return result


def _names_first(setting: str) -> tuple[bool, int]:
    key = setting.partition("=")[0].strip()
    return not key.endswith(".name"), key.count(".")


def _notify_of_discarded(method: Table, name: str, settings: Sequence[str], notify: Callable[[str], None]) -> None:
    """Name the values of the former method that the new one has a key for, unless a setting replaces them."""
    replaced = {each.partition("=")[0].strip() for each in settings}
    known = _keys_of("method", {"name": name})
    cls = registry.find(METHODS, name, "method.name") if known else None
    discarded = [
        f"method.{key}={toml.scalar(value)}"
        for key, value in toml.dotted(method)
        if key.partition(".")[0] in known and f"method.{key}" not in replaced and getattr(cls, key, None) != value
    ]
    if discarded:
        former = method.get("name", DEFAULT_METHOD)
        notify(
            f"method.name = {name!r} begins with its own defaults and drops what was set for {former!r}: "
            f"{', '.join(discarded)}; keep a value with --set {discarded[0]}"
        )


def _with_whole_paths(table: Table, folder: Path) -> Table:
    """Paths that hold wherever a run is continued from; relative ones begin at `folder`."""
    for section, key in PATHS:
        inner = table.get(section)
        if isinstance(inner, dict) and isinstance(inner.get(key), str) and inner[key]:
            with suppress(RuntimeError):  # "~nobody": there is no such home
                inner[key] = str(folder / Path(inner[key]).expanduser())
    _with_whole_source(table.get("model"), folder)
    return table


def _with_whole_source(model: Any, folder: Path) -> None:
    """A backbone is named, or it is a folder: what begins like a path, or is there, is one."""
    source = model.get("source") if isinstance(model, dict) else None
    if not isinstance(source, str) or not source:
        return
    with suppress(RuntimeError, OSError, ValueError):
        path = folder / Path(source).expanduser()
        if source.startswith((".", "/", "~")) or path.is_dir():
            model["source"] = str(path)


def decode(table: Table) -> Config:
    """Check every key and type, fill in the defaults; relative paths begin where the program runs."""
    try:
        shallow(table)
    except TooDeep as error:
        raise UserError(f"the configuration cannot be followed: {error}") from error
    return _decode(_with_whole_paths(_copy(table), Path.cwd()))


def _decode(table: Table) -> Config:
    sections = {name: table.pop(name, {}) for name in ("stop", "health", "data", "model", "method")}
    for name, section in sections.items():
        if not isinstance(section, dict):
            raise UserError(f"{name} must be a section, [{name}], not a value")
    _refuse_misplaced(table, [*_names(Run), *sections], sections)
    data, model, method = sections["data"], sections["model"], sections["method"]
    split = from_section(Split, _take(data, _names(Split)), "data")
    views = from_section(Views, _take(data, VIEWS), "data")
    warm_start = from_section(WarmStart, _take(model, _names(WarmStart)), "model")
    chosen_model, model_keys = _choose_model(model)
    _let_backbone_choose_size(data, chosen_model)
    return Config(
        run=from_section(Run, table, ""),
        stop=from_section(Stop, sections["stop"], "stop"),
        health=from_section(Health, sections["health"], "health"),
        split=split,
        data=_choose_data(data),
        model=chosen_model,
        warm_start=warm_start,
        method=_choose(Choice(METHODS, "round"), method, "method", DEFAULT_METHOD),
        views=views,
        model_keys=model_keys,
    )


def _refuse_misplaced(table: Table, known: Sequence[str], sections: dict[str, Table]) -> None:
    """A key outside all sections that belongs into one is told its place."""
    for key in (key for key in table if key not in known):
        places = [f"{name}.{key}" for name, section in sections.items() if key in _keys_of(name, section)]
        if places:
            raise UserError(f"unknown key {key}; did you mean {places[0]!r}?")
    refuse_unknown(table, known, "")


def _keys_of(name: str, section: Table) -> list[str]:
    """What a section may hold, by the choice that it names; nothing if that is unknown."""
    if name in ("stop", "health"):
        return _names(Stop if name == "stop" else Health)
    package, default, more = {
        "data": (DATASETS, "digits", [*_names(Split), *VIEWS]),
        "model": (MODELS, DEFAULT_MODEL, _names(WarmStart)),
        "method": (METHODS, DEFAULT_METHOD, []),
    }[name]
    chosen = section.get("name", default)
    with suppress(UserError):
        cls = registry.find(package, chosen, name) if isinstance(chosen, str) else None
        return [*(_names(cls) if isinstance(cls, type) and dataclasses.is_dataclass(cls) else []), *more]
    return []


def spec_of(model: Chosen[Any]) -> Any:
    """The dataclass of a model of ours; None for one of a person's own."""
    return getattr(model.thing, "__self__", None)


def _let_backbone_choose_size(data: Table, model: Chosen[Callable[..., Any]]) -> None:
    """A folder's pictures are read at the size that the backbone sees, unless somebody says another."""
    side = getattr(spec_of(model), "picture_size", None)
    name = data.get("name")
    if side is None or "size" in data or not isinstance(name, str) or name.startswith(HANDED_OVER):
        return
    with suppress(UserError):  # an unknown name is told where the data are chosen
        source = registry.find(DATASETS, name, "data.name")
        if dataclasses.is_dataclass(source) and "size" in _names(cast(type, source)):
            data["size"] = side()


def _choose_data(section: Table) -> Chosen[Source]:
    name = section.get("name")
    if isinstance(name, str) and name.startswith(HANDED_OVER):
        return Chosen(section.pop("name"), from_section(InMemory, section, "data"))
    return _choose(Choice(DATASETS, "load"), section, "data", "digits", known=[*_names(Split), *VIEWS])


def _choose(
    choice: Choice, section: Table, where: str, default: str, start: Any = None, known: Sequence[str] = ()
) -> Chosen[Any]:
    """What a section with a `name` stands for; keys left out are those of `start`, if it has that name."""
    name = _text(section.pop("name", default), f"{where}.name")
    cls = choice.find(name, f"{where}.name")
    if not isinstance(cls, type) or not dataclasses.is_dataclass(cls) or not hasattr(cls, choice.duty):
        raise UserError(f"{where}.name = {name!r} is not a dataclass with a method {choice.duty!r}")
    return Chosen(name, from_section(cls, section, where, [*known, "name"], start if type(start) is cls else None))


def _choose_model(section: Table) -> tuple[Chosen[Callable[..., Any]], Table]:
    """A model of ours is a dataclass with `build`; a user's own may be any function that returns a module."""
    name = section.pop("name", DEFAULT_MODEL)
    if isinstance(name, str) and name.startswith(HANDED_OVER):
        return Chosen(name, _handed_over), section
    factory = registry.find(MODELS, _text(name, "model.name"), "model.name")
    if dataclasses.is_dataclass(factory) and hasattr(factory, "build"):
        spec: Any = from_section(factory, section, "model", _names(WarmStart))  # type: ignore[arg-type]
        return Chosen(name, spec.build), _leaves(spec)
    if not callable(factory):
        raise UserError(f"model.name = {name!r} is not a function or class that builds a model")
    try:
        parameters = inspect.signature(factory).parameters
    except ValueError as error:  # something written in another language, which cannot be asked
        raise UserError(f"model.name = {name!r} is not a function or class that builds a model") from error
    for key, value in section.items():
        if not isinstance(value, (bool, int, float, str)):
            raise UserError(f"model.{key} = {value!r} is not right: it should be a number, a string, true or false")
        _check(type(value), value, f"model.{key}")
    if not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        refuse_unknown(section, [*parameters, *_names(WarmStart)], "model")
    return Chosen(name, factory), section


def _handed_over(**_: Any) -> Any:
    """Stands for a model that only a Python program has."""
    raise UserError(only_in_python("the model"))


def from_section(cls: type[T], section: Table, where: str, known: Sequence[str] = (), start: T | None = None) -> T:
    """An instance of a dataclass from a table: unknown keys, wrong types and bad values are one sentence each.

    Keys left out are those of `start`, or the defaults.
    """
    refuse_unknown(section, [*_names(cls), *known], where)
    types, chosen = get_type_hints(cls, include_extras=True), choices(cls)
    values: Table = {}
    for key, value in section.items():
        dotted = f"{where}.{key}" if where else key
        if key in chosen:
            values[key] = _nested(chosen[key], value, dotted, getattr(start or cls, key, None))
        else:
            values[key] = _check(types[key], value, dotted)
    try:
        return dataclasses.replace(start, **values) if start is not None else cls(**values)  # type: ignore[type-var]
    except ValueError as error:  # from __post_init__, which names the field itself
        raise UserError(f"{where}.{error}" if where else str(error)) from error


def _nested(choice: Choice, value: Any, dotted: str, start: Any) -> Any:
    """A field that is itself a choice: a section, or a name alone."""
    section = {"name": value} if isinstance(value, str) else value
    if not isinstance(section, dict):
        raise UserError(f"{dotted} must be a section, [{dotted}], not a value")
    default = choice.names()[0] if start is None else choice.name_of(start)
    return _choose(choice, dict(section), dotted, default, start).thing


def _check(wanted: Any, value: Any, dotted: str) -> Any:
    if too_large(value):
        raise UserError(f"{dotted} is not right: the number is too large")
    plain = tuple(value) if isinstance(value, list) else value
    try:
        return TypeAdapter(wanted).validate_python(plain, strict=True)
    except ValidationError as error:
        message = error.errors()[0]["msg"].replace("Input should be", "it should be")
        raise UserError(f"{dotted} = {value!r} is not right: {message}") from error


def refuse_unknown(section: Table, known: Sequence[str], where: str) -> None:
    for key in section:
        if key not in known:
            dotted = f"{where}.{key}" if where else key
            if dotted in MOVED:
                raise UserError(f"there is no key {dotted} any more: use {MOVED[dotted]}")
            hint = did_you_mean(key, known) or f"; known are {', '.join(known)}"
            raise UserError(f"unknown key {dotted}{hint}")


def _names(cls: type) -> list[str]:
    return [each.name for each in dataclasses.fields(cls)]


def _leaves(thing: Any) -> Table:
    """The shown fields that have a value; one that was itself chosen by name is a section of its own, at the end."""
    values = {each.name: getattr(thing, each.name) for each in dataclasses.fields(thing) if each.repr}
    given = {key: value for key, value in values.items() if value is not None}
    chosen = {key: choice for key, choice in choices(type(thing)).items() if key in given}
    plain = {key: value for key, value in given.items() if key not in chosen}
    return plain | {key: {"name": choice.name_of(given[key]), **_leaves(given[key])} for key, choice in chosen.items()}


def _take(section: Table, keys: Sequence[str]) -> Table:
    return {key: section.pop(key) for key in keys if key in section}


def _text(value: Any, key: str) -> str:
    if not isinstance(value, str):
        raise UserError(f"{key} = {value!r} is not right: it must be a string")
    return value


def _value(text: str) -> Any:
    try:
        return from_toml(f"value = {text}")["value"]
    except TooDeep:
        raise
    except ValueError:
        return text


def _is_text(word: str) -> bool:
    """Whether a word of the command line can be written to a file at all."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _copy(table: Table) -> Table:
    return {key: _copy(value) if isinstance(value, dict) else value for key, value in table.items()}
