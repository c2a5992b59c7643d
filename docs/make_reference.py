"""Writes docs/reference.md: every key of a configuration, from the code itself. Run by `make docs`; a test compares.

A field's comment in the source is its explanation, so the page cannot say anything that the code does not.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from semifl import registry
from semifl.configuration import config
from semifl.configuration.health import Health
from semifl.data.partition import PARTITIONS
from semifl.learning.aggregation import AGGREGATIONS
from semifl.learning.server_optimizer import SERVER_OPTIMIZERS
from semifl.objectives import OBJECTIVES

HEAD = """# Every key of a configuration

Made from the code by `docs/make_reference.py`. A key of a section is set in TOML, or on the command line with
`--set section.key=value`. What is not set has the default. `semifl show PRESET|FILE` prints them all.
"""


def main() -> None:
    Path(__file__).with_name("reference.md").write_text(page(), encoding="utf-8")


def page() -> str:
    parts = [HEAD, _section("", config.Run, "Outside all sections"), _section("stop", config.Stop, "`[stop]`")]
    parts.append(_section("health", Health, "`[health]`"))
    parts.append(_section("data", config.Split, "`[data]`, whatever the data set"))
    parts.append(_section("data", config.Views, "`[data]`, your own views"))
    parts.append(_section("model", config.WarmStart, "`[model]`, whatever the model"))
    parts += _group("data", "data", config.DATASETS)
    parts += _list("data.partition", PARTITIONS)
    parts += _group("model", "models", config.MODELS)
    parts += _group("method", "methods", config.METHODS)
    parts += _group("method.objective", "objectives of `centralized`", OBJECTIVES)
    parts += _list("method.server_optimizer", SERVER_OPTIMIZERS)
    parts += _list("method.aggregation", AGGREGATIONS)
    return "\n".join(parts)


def _group(section: str, title: str, package: str) -> list[str]:
    parts = [f"## `[{section}]`: {title}\n"]
    for name in registry.names(package):
        cls = registry.find(package, name, section)
        about = (registry.load(package, name).__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")
        parts.append(_section(section, cls, f'`name = "{name}"`', level=3, about=about))
    return parts


def _list(section: str, classes: Mapping[str, type]) -> list[str]:
    """A section whose name is one of a short list."""
    about = {name: (cls.__doc__ or "").strip().split("\n\n")[0].replace("\n", " ") for name, cls in classes.items()}
    parts = [_section(section, cls, f'`name = "{name}"`', 3, about[name]) for name, cls in classes.items()]
    return [f"## `[{section}]`\n", *parts]


def _section(where: str, cls: Any, title: str, level: int = 2, about: str = "") -> str:
    prefix, comments = f"{where}." if where else "", _comments(cls)
    rows = [
        f"| `{prefix}{field.name}` | {_default(field)} | {_cell(comments.get(field.name, ''))} |"
        for field in dataclasses.fields(cls)
        if field.repr  # what is not shown is not set in a file either
    ]
    table = ["| key | default | meaning |", "|---|---|---|", *rows] if rows else ["No keys of its own."]
    return "\n".join([f"{'#' * level} {title}\n", *([about + "\n"] if about else []), *table, ""])


def _comments(cls: type) -> dict[str, str]:
    """The comment behind (or above) each field, of the class and of those it inherits from."""
    found: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        if not dataclasses.is_dataclass(each):
            continue
        source = textwrap.dedent(inspect.getsource(each))
        lines = source.splitlines()
        body = ast.parse(source).body[0]
        assert isinstance(body, ast.ClassDef)
        for node in body.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                line, above = lines[node.end_lineno - 1], lines[node.lineno - 2].strip()
                behind = re.search(r"#\s*(.+)$", line)
                comment = behind.group(1) if behind else above.lstrip("# ") if above.startswith("#") else ""
                if comment or node.target.id not in found:
                    found[node.target.id] = comment
    return found


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
        return "must be set"
    value = field.default if field.default is not dataclasses.MISSING else field.default_factory()
    if value is None:
        return "–"
    if dataclasses.is_dataclass(value):
        return f"a section: `{value!r}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str):
        return f'`"{value}"`'
    return f"`{list(value) if isinstance(value, tuple) else value}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    main()
