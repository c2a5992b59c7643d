"""`semifl list`: what there is."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import typer


def command(
    kind: Annotated[
        Literal[
            "presets", "data", "models", "methods", "objectives", "partitions", "server_optimizers", "aggregations"
        ],
        typer.Argument(help="What to list."),
    ] = "presets",
    pattern: Annotated[str, typer.Argument(help="Only names that fit, e.g. 'cifar10*'.")] = "*",
) -> None:
    """List presets, data sets, models, methods, objectives, partitions, server optimizers or aggregations."""
    import fnmatch

    lines = [(name, about) for name, about in _known(kind) if fnmatch.fnmatch(name, pattern)]
    width = max((len(name) for name, _ in lines), default=0)
    for name, about in lines:
        typer.echo(f"{name:<{width}}  {about}".rstrip())
    if not lines:
        typer.echo(f"no {kind} with a name like {pattern!r}", err=True)


def _known(kind: str) -> list[tuple[str, str]]:
    if kind == "presets":
        from semifl.studies.presets import presets

        return [(preset.name, preset.about) for preset in presets()]
    from semifl import objectives, registry
    from semifl.configuration import config
    from semifl.data.partition import PARTITIONS
    from semifl.learning.aggregation import AGGREGATIONS
    from semifl.learning.server_optimizer import SERVER_OPTIMIZERS

    lists: dict[str, dict[str, type]] = {
        "partitions": dict(PARTITIONS),
        "server_optimizers": dict(SERVER_OPTIMIZERS),
        "aggregations": dict(AGGREGATIONS),
    }
    if kind in lists:
        return [(name, _first_sentence(cls)) for name, cls in lists[kind].items()]
    package = {
        "data": config.DATASETS,
        "models": config.MODELS,
        "methods": config.METHODS,
        "objectives": objectives.OBJECTIVES,
    }[kind]
    return [(name, _first_sentence(registry.load(package, name))) for name in registry.names(package)]


def _first_sentence(thing: object) -> str:
    """Return the first sentence of a docstring, over as many lines as it takes."""
    paragraph = " ".join((thing.__doc__ or "").strip().partition("\n\n")[0].split())
    return re.split(r"(?<=\.)\s(?=[A-Z`])", paragraph, maxsplit=1)[0]
