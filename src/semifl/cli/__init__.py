"""The command line: one file per verb. Nothing here imports torch until a verb runs, so that help is instant."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

import click
import typer
import typer.core

from semifl import __version__
from semifl.cli import (
    backbone,
    check,
    compare,
    data,
    deploy,
    evaluate,
    export,
    figure,
    init,
    list_,
    options,
    predict,
    report,
    resume,
    run,
    show,
    sweep,
    table,
    theory,
    trust,
)
from semifl.errors import RunStopped, UserError, error_sentence, full_traceback, own_code_location
from semifl.registry import did_you_mean
from semifl.words import printable

# Words people try first, and the verb they mean.
OTHER_WORDS = {
    "train": "run", "start": "run", "continue": "resume", "restart": "resume", "ls": "list", "info": "show",
    "download": "data get", "get": "data get", "fetch": "data get", "datasets": "list data", "presets": "list presets",
    "test": "evaluate", "eval": "evaluate", "infer": "predict", "classify": "predict", "estimate": "check",
    "new": "init", "create": "init", "help": "--help",
}  # fmt: skip


class Verbs(typer.core.TyperGroup):
    """Typer itself would make a Ctrl-C an exit code without a word."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise click.Abort from error


class Verb(typer.core.TyperCommand):
    """A verb that runs a person's code, and so can show where that raised an error (`_say_error`)."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        *own, last = super().get_params(ctx)
        return [*own, options.traceback_flag(), last]  # the last is --help


typer.core.HAS_RICH = False  # our help is plain text; for rich, typer would write "\\[required]"
app = typer.Typer(
    name="semifl",
    cls=Verbs,
    help="Train a classifier from a few labels at the server and many unlabeled clients.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for name, verb in {"init": init, "run": run, "resume": resume, "list": list_, "show": show, "check": check}.items():
    app.command(name, cls=Verb)(verb.command)
app.add_typer(data.app, name="data")
app.add_typer(backbone.app, name="backbone")
app.add_typer(theory.app, name="theory")
app.add_typer(deploy.app, name="deploy")
app.command("evaluate", cls=Verb)(evaluate.command)
app.command("predict", cls=Verb)(predict.command)
app.command("table", cls=Verb)(table.command)
app.command("figure", cls=Verb)(figure.command)
app.command("report", cls=Verb)(report.command)
app.command("export", cls=Verb)(export.command)
app.command("compare", cls=Verb)(compare.command)
app.command("sweep", cls=Verb)(sweep.command)
app.command("trust", cls=Verb)(trust.command)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"semifl {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
    traceback: bool = typer.Option(False, options.TRACEBACK, help="Show errors in full; verbs take it, too."),
) -> None:
    """Train a classifier from a few labels at the server and many unlabeled clients."""
    context.meta[options.TRACEBACK] = traceback


def main(arguments: Sequence[str] | None = None) -> None:
    sys.path.append(os.getcwd())  # a person's own `module:name` lies beside their configuration  # noqa: PTH109
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill is a Ctrl-C
    if isinstance(sys.stdout, io.TextIOWrapper):  # a name that a terminal cannot show must not end a verb half way
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(invoke(sys.argv[1:] if arguments is None else list(arguments)))


def invoke(arguments: list[str]) -> int:
    """Run a command line and give its exit code: 0 done, 1 stopped, 2 the user can put it right, 130 interrupted."""
    try:
        code = app(arguments, standalone_mode=False)
    except UserError as error:
        return _say_error(error, arguments, 2)
    except RunStopped as error:
        return _say_error(error, arguments, 1)
    except click.UsageError as error:
        return _say(_usage(error, arguments))
    except click.ClickException as error:
        return _say(error.format_message())
    except (KeyboardInterrupt, click.Abort):
        typer.echo("interrupted", err=True)
        return 130
    except Exception as error:
        if not own_code_location(error):  # a mistake of semifl's own: whoever repairs it needs the traceback
            raise
        return _say_error(error, arguments, 2)
    return code if isinstance(code, int) else 0


def _say_error(error: Exception, arguments: list[str], code: int) -> int:
    """Print one sentence, with --traceback everything."""
    whole = options.TRACEBACK in arguments
    if whole:
        typer.echo(full_traceback(error), err=True)
    told = isinstance(error, UserError | RunStopped)
    _say(
        f"{error if told else error_sentence(error)}{'' if whole or told else f'; {options.TRACEBACK} shows the rest'}"
    )
    return code


def _usage(error: click.UsageError, arguments: list[str]) -> str:
    message = error.format_message().rstrip(".")
    verb = next((word for word in arguments if not word.startswith("-")), "")
    known = [*OTHER_WORDS.values(), *(command.name or "" for command in app.registered_commands)]
    if "No such command" in message and error.ctx is not None and error.ctx.parent is None:
        hint = f"; use 'semifl {OTHER_WORDS[verb]}'" if verb in OTHER_WORDS else did_you_mean(verb, known)
        return f"there is no verb {verb!r}{hint or '; see: semifl --help'}"
    return f"{message} (see: semifl {verb} --help)"


def _say(message: str) -> int:
    typer.echo("\n".join(map(printable, f"semifl: {message}".splitlines())), err=True)
    return 2
