"""`seqstore`: the commands, the options they share, and the handling of errors.

Exit codes: 0 done, 1 failed, 2 usage, 3 conflict, 4 data rejected, 5 corruption. An error is one line on
standard error; `--debug` adds the trace.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from seqstore import __version__
from seqstore.cli import output, progress
from seqstore.cli.backup import backup, backups, restore, ship
from seqstore.cli.broker_load import broker_load
from seqstore.cli.changes import changes
from seqstore.cli.context import Server, Settings, keep, refuse_elsewhere
from seqstore.cli.demo_command import demo
from seqstore.cli.doctor.command import doctor
from seqstore.cli.load import stream_load
from seqstore.cli.load_files import load_files
from seqstore.cli.maintenance import optimize, repair, vacuum
from seqstore.cli.numpy_sorts import prefer_avx2_sorts
from seqstore.cli.plain_options import convert_plainly
from seqstore.cli.quick_end import run_and_end
from seqstore.cli.replay import replay_letters
from seqstore.cli.routine_load import app as routine_load
from seqstore.cli.serve import ServeCommand, serve
from seqstore.cli.sql import sql
from seqstore.cli.tables import check, history
from seqstore.cli.top import top

FAILED: Final = 1
INTERRUPTED: Final = 130
# These show by themselves what they do.
_WITHOUT_PROGRESS: Final = frozenset({"serve", "top", "demo"})
_FILES: Final = {
    "default.toml": "all settings, for serve --config",
    "loads": "example jobs of broker-load",
    "routine": "example jobs of routine-load",
    "operations": "unit, image, compose, dashboard",
}


class _Commands(TyperGroup):
    """Runs a command and turns its error into one line and an exit code."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Writes the files of the package below the help; a path is never wrapped."""
        conf = conf_directory()
        formatter.write("\nFiles:\n")
        for name, use in _FILES.items():
            formatter.write(f"  {use:34}{conf}/{name}\n")

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        convert_plainly(self.get_params(ctx))
        rest: list[str] = super().parse_args(ctx, args)
        return rest

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        convert_plainly(command.get_params(ctx) if command is not None else ())
        return command

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # the reader of our output has gone: `seqstore ... | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(FAILED) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            code = exit_code(error)
            settings = ctx.obj
            if code is None or (isinstance(settings, Settings) and settings.debug):
                raise
            output.error(_message(error))
            raise typer.Exit(code) from None


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{os.fspath(error.filename)}: {error.strerror[:1].lower()}{error.strerror[1:]}"
    return str(error)


def exit_code(error: Exception) -> int | None:
    """Returns the exit code of an error, None for those that are no fault of the user or the data."""
    errors = sys.modules.get("seqstore.store.errors")  # not loaded: it cannot have been raised
    if errors is not None and isinstance(error, errors.StoreError):
        codes = ((errors.ConflictError, 3), (errors.LoadRejectedError, 4), (errors.CorruptionError, 5))
        return next((code for kind, code in codes if isinstance(error, kind)), FAILED)
    return FAILED if isinstance(error, OSError) else None


def conf_directory() -> str:
    """Returns the directory of the settings with their reasons and of the example jobs."""
    from importlib.resources import files

    return str(files("seqstore") / "conf")


def _print_version(is_asked: bool) -> None:
    if is_asked:
        output.say(f"seqstore {__version__}")
        raise typer.Exit


app = typer.Typer(
    name="seqstore",
    cls=_Commands,
    help="A unique-key table store for data that arrives late, twice and out of order.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback()
def options(
    ctx: typer.Context,
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", envvar="SEQSTORE_DATA_DIR", metavar="DIR", help="Where the data is."),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            envvar="SEQSTORE_URL",
            metavar="URL",
            help="A store elsewhere, seqstore://host:port; SEQSTORE_PASSWORD has the password.",
        ),
    ] = None,
    user: Annotated[
        str, typer.Option("--user", envvar="SEQSTORE_USER", metavar="NAME", help="Of the store elsewhere.")
    ] = "root",
    certificates: Annotated[
        Path | None,
        typer.Option(
            "--certificates", metavar="FILE", help="Authorities to trust, in PEM, for seqstore+tls."
        ),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the trace of an error.")] = False,
    quiet: Annotated[
        bool,
        typer.Option("--quiet", envvar="SEQSTORE_QUIET", help="Show no progress on standard error."),
    ] = False,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """Shared options."""
    prefer_avx2_sorts()
    if url is not None and data_dir is not None and _is_given(ctx, "data_dir"):
        raise typer.BadParameter("give either --url or --data-dir")
    server = Server(url, user, certificates) if url is not None else None
    ctx.obj = keep(Settings(None if server is not None else data_dir, debug, server))
    name = ctx.invoked_subcommand
    refuse_elsewhere(name or "")
    if name is not None and name not in _WITHOUT_PROGRESS:
        ctx.with_resource(progress.shown(name, is_quiet=quiet))


def _is_given(ctx: typer.Context, name: str) -> bool:
    """Returns whether an option stands on the command line."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


app.command("sql")(sql)
app.command("load")(load_files)
app.command("stream-load")(stream_load)
app.command("broker-load")(broker_load)
app.add_typer(routine_load, name="routine-load", help="Jobs that keep loading: made, run and steered.")
app.command("serve", cls=ServeCommand)(serve)
app.command("history")(history)
app.command("top")(top)
app.command("changes")(changes)
app.command("replay")(replay_letters)
app.command("optimize")(optimize)
app.command("vacuum")(vacuum)
app.command("check")(check)
app.command("repair")(repair)
app.command("backup")(backup)
app.command("restore")(restore)
app.command("backups")(backups)
app.command("ship")(ship)
app.command("doctor")(doctor)
app.command("demo")(demo)


def run(name: str | None = None) -> None:
    """Runs the program `seqstore`.

    Args:
        name: what help calls it; by default as it was called.
    """
    _open_streams()
    run_and_end(partial(_run, name))


def _run(name: str | None) -> None:
    try:
        app(prog_name=name)
    except OSError as error:  # of the options, such as --version into a full disk
        if "--debug" in sys.argv:
            raise
        with suppress(OSError):
            output.error(_message(error))
        raise SystemExit(FAILED) from None


def _open_streams() -> None:
    """Opens the standard streams that the caller has closed: else the first file of a store would be one."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


if __name__ == "__main__":
    run()
