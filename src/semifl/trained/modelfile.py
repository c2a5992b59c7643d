"""A trained model as one .safetensors file that says by itself what it is: classes, picture size, architecture."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor, nn

from semifl.configuration.build import World, build_model, refuse_too_large
from semifl.configuration.code import refuse_foreign_code
from semifl.configuration.config import WarmStart, decode, spec_of
from semifl.data.dataset import Facts
from semifl.durable import replace_file
from semifl.errors import UserError
from semifl.learning import batchnorm
from semifl.learning.network import Network
from semifl.learning.tensorfile import TensorFile, read_metadata, read_tensors
from semifl.learning.weights import Snapshot
from semifl.parsing import from_json
from semifl.toml import Table

FORMAT = 1


@dataclass(frozen=True)
class TrainedModel:
    """A model ready for inference and what is known of it."""

    network: Network
    facts: Facts
    about: dict[str, Any]


def save_model(path: Path, world: World, network: Network, model: Snapshot, about: dict[str, Any]) -> None:
    """Write weights and statistics under the module's own names, and the rest as metadata."""
    network.load_snapshot(model)
    tensors = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in network.module.state_dict().items()}
    table = world.config.table()["model"]
    description = {
        "format": FORMAT,
        "facts": {each.name: getattr(world.data.facts, each.name) for each in fields(Facts) if each.repr},
        "model": {key: value for key, value in table.items() if key not in asdict(WarmStart())},
        **_on_backbone(world, table),
        **about,
    }
    metadata = {"semifl": json.dumps(description)}
    replace_file(path, lambda part: save_file(tensors, part, metadata))


def note_in_model(path: Path, **facts: Any) -> None:
    """Add facts to what a model file says of itself."""
    metadata, tensors = read_tensors(path)
    metadata["semifl"] = json.dumps({**from_json(metadata["semifl"]), **facts})
    replace_file(path, lambda part: save_file(tensors, part, metadata))


def _on_backbone(world: World, model: dict[str, Any]) -> dict[str, Any]:
    """Of a model on a backbone: its form, by which it is built without the backbone's folder, and where it is from."""
    spec = spec_of(world.config.model)
    if not world.data.facts.backbone:
        return {}
    plain = {"name": model["name"], **spec.portable()}
    backbone = {"hash": world.data.facts.backbone, "licence": spec.backbone.licence}
    return {"model": plain, "architecture": spec.backbone.config, "backbone": backbone}


def load_model(path: Path, device: str = "cpu", build: Callable[[Facts], nn.Module] | None = None) -> TrainedModel:
    """Build the model from the file alone, or by `build` where only the caller knows how to.

    Refuses files that do not describe themselves, and to import what a stranger's file names.
    """
    about, tensors = _read(path, read_tensors)
    try:
        facts = _facts(about["facts"])
        module = build(facts) if build else _build_described(about, facts, path)
        batchnorm.stop_tracking(module)  # first: a layer may have been built without room for the file's statistics
        module.load_state_dict(tensors)
    except (RuntimeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path} does not fit the model it describes") from error
    network = Network(module, device)
    network.module.eval()
    return TrainedModel(network, facts, about)


def model_table(path: Path) -> Table:
    """What a model file says of its model, as a configuration has it; nothing of it is imported."""
    return {"model": _section(_read(path, lambda path: TensorFile(read_metadata(path), {}))[0], path)}


def _read(path: Path, read: Callable[[Path], TensorFile]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        metadata, tensors = read(path)
        about = from_json(metadata["semifl"])
        written = about["format"]
    except FileNotFoundError as error:
        raise UserError(f"there is no model file {path}") from error
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is not a model written by semifl") from error
    if written != FORMAT:
        raise UserError(f"{path} has format {written}, this version reads {FORMAT}: use the version that wrote it")
    return about, tensors


def _section(about: dict[str, Any], path: Path) -> Table:
    section = about.get("model")
    if not isinstance(section, dict):  # what is no table could become one after it has been looked at
        raise UserError(f"{path} does not fit the model it describes")
    return section


def _build_described(about: dict[str, Any], facts: Facts, path: Path) -> nn.Module:
    table = {"model": _section(about, path)}
    refuse_foreign_code(table, path)
    config = decode(table)
    architecture = about.get("architecture")
    form = architecture if isinstance(architecture, dict) else None
    refuse_too_large(config.model, facts, form)
    return build_model(config.model.thing, config.model_keys, facts, 0, WarmStart(), architecture=form)


def _facts(raw: dict[str, Any]) -> Facts:
    plain: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()}
    facts = Facts(**plain)
    if not all(isinstance(number, int) and 0 < number < 10_000 for number in (facts.channels, facts.size)):
        raise ValueError("pictures of an impossible size")
    if len(facts.mean) != facts.channels or len(facts.std) != facts.channels or not facts.class_names:
        raise ValueError("facts that do not belong together")
    return facts
