"""`semifl init`: a small project to put one's own pictures into."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from semifl.errors import UserError

CLASSES, SITES = ("first-class", "second-class"), ("first-site", "second-site")
LAYOUTS = {
    "hub": {"labeled": CLASSES, "clients": SITES, "test": CLASSES},
    "try": {"train": CLASSES, "test": CLASSES},
}
ABOUT = {
    "labeled": "labeled/<class>/   pictures whose class you know: the server learns from them, ten or more per class",
    "clients": "clients/<site>/    pictures without labels, one folder per site; folders below it are as you like",
    "train": "train/<class>/     pictures whose class you know; most labels will be hidden, to try the idea",
    "test": "test/<class>/      pictures whose class you know, only for measuring: none of them may lie elsewhere too",
}
SPLIT = """labeled = 20               # how many pictures keep their label, at the server; as many of each class
clients = 4                # how many clients the other pictures are dealt to
"""
CONFIG = """# A run of semifl. `semifl show {file}` prints these values and all that are left to their defaults.

seed = 0                   # the same seed gives the same result; another one shows how much is luck
rounds = 20                # how often server and clients train in turn: more rounds, better and slower
metric = "accuracy"        # what decides: "balanced_accuracy" or "auc" where one class is rare; see docs/metrics.md
labels_only = true         # also train without the clients, to see what they bring

[data]
name = "folder"
root = "pictures"          # the folder of pictures, as seen from this file
size = {size:<20}# pictures become squares of this many pixels: larger shows more and takes longer
channels = "auto"          # "grey" or "color"; auto: grey if labeled and test pictures are
flip = true                # false if a mirrored picture means something else: letters, digits, left and right hands
unreadable = "stop"        # "skip" leaves out files that cannot be read as pictures
{split}validation = 0.0           # share of the labels held out to choose the best round, if you have many: 0.2

{model}
[method]
name = "balanced"          # made for few labels and uneven sites; the paper's is "semifl"; others: semifl list methods
activity_rate = 1.0        # share of the clients that take part in each round
client_epochs = 5          # passes over the pictures in a round, at each client
server_epochs = 5          # … and at the server
{step}"""
MODEL = """[model]
name = "wide_resnet"       # others: semifl list models
depth = 10                 # 10, 16, 22, 28, …: deeper is slower
width = 1                  # 2 or more: stronger and slower
# weights = "start.safetensors"   # begin with trained weights
"""
STEP = "lr = 0.03                  # learning rate; 0.01 if the accuracy jumps up and down\n"
BACKBONE = """[model]
name = "pretrained"        # begins with what others have learned from a million photographs
source = "efficientnet_lite0"   # fetch it once with: semifl backbone get efficientnet_lite0
size = 160                 # pixels on a side that it sees
train = "head"             # the last layer; "norms", "lora" or "all" learn more, and take longer
views = 4                  # of each picture, whose way through the frozen part is computed once; 0: always new ones
"""
ADAM_STEP = """optimizer = "adamw"        # goes with backbones
lr = 0.001                 # learning rate of the last layer
backbone_lr = 0.2          # times lr: that of the rest, if it trains
"""
BACKBONE_SIZE = 160  # pixels: enough for most photographs, and half the cost of the 224 it was trained on
README = """# Your own pictures

Put pictures into these folders. Rename, add and remove folders as you need; their names are the names of your classes
and sites. PNG, JPEG, WEBP, GIF, BMP and TIFF of any size will do, and DICOM with `pip install 'semifl[dicom]'`.

```
pictures/
{tree}
```

Then:

```sh
{commands}
```

`config.toml` says what each setting does. The run directory holds the model (`model.safetensors`), the outcome
(`result.json`), one line per round (`rounds.jsonl`) and a picture of the curves (`curves.png`).
"""


def command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new or an empty directory.")],
    layout: Annotated[
        Literal["hub", "try"],
        typer.Option("--layout", help="hub: a labeled hub and unlabeled sites; try: all labeled, to try the idea."),
    ] = "hub",
    pretrained: Annotated[
        bool, typer.Option("--pretrained", help="Begin with a backbone that others have trained, for photographs.")
    ] = False,
) -> None:
    """Start a project: a configuration, folders for your pictures, and what to do next."""
    _refuse_what_is_there(directory)
    commands = _next(directory, layout, pretrained)
    tree = "\n".join(f"  {ABOUT[part]}" for part in LAYOUTS[layout])
    config = directory / "config.toml"
    try:
        for part, names in LAYOUTS[layout].items():
            for name in names:
                (directory / "pictures" / part / name).mkdir(parents=True)
        split = SPLIT if layout == "try" else ""
        model, step, size = (BACKBONE, ADAM_STEP, BACKBONE_SIZE) if pretrained else (MODEL, STEP, 32)
        text = CONFIG.format(file=shlex.quote(str(config)), split=split, model=model, step=step, size=size)
        config.write_text(text, encoding="utf-8")
        readme = README.format(tree=tree, commands="\n".join(commands))
        (directory / "README.md").write_text(readme, encoding="utf-8")
        (directory / "pictures" / "README.txt").write_text(f"What goes where:\n\n{tree}\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {error.filename or directory}: {error.strerror}") from error
    typer.echo(f"{directory} is ready: put your pictures into {directory / 'pictures'}")
    typer.echo(f"{tree}\nthen:")
    for line in commands:
        typer.echo(f"  {line}")


def _next(directory: Path, layout: str, pretrained: bool) -> list[str]:
    """The commands that lead from pictures to predictions."""
    config, run = (shlex.quote(str(directory / name)) for name in ("config.toml", "run"))
    asked = shlex.quote(str(directory / "pictures" / ("clients" if layout == "hub" else "test")))
    return [
        *(["semifl backbone get efficientnet_lite0"] if pretrained else []),
        f"semifl check {config}",
        f"semifl run {config} --out {run}",
        f"semifl predict {run} {asked} --csv",
    ]


def _refuse_what_is_there(directory: Path) -> None:
    if directory.exists() and not directory.is_dir():
        raise UserError(f"{directory} is a file: name a new or an empty directory")
    try:
        inside = sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []
    except OSError as error:
        raise UserError(f"cannot read {directory}: {error.strerror}") from error
    if inside:
        raise UserError(f"{directory} is not empty (it holds {inside[0]}): name a new or an empty directory")
