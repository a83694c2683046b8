"""The `penstock` command: lists the commands without importing them, and imports only the requested one.

Whatever goes wrong outside the streams themselves (a pipe that closes, Ctrl-C, a full disk) ends in one line or none,
never in a traceback.
"""

import os
import sys
from importlib import import_module
from io import TextIOWrapper

import click

# Name → the module that defines it as `command`, and its line in `penstock --help`.
COMMANDS: dict[str, tuple[str, str]] = {
    "serve": ("penstock.cli.serve", "Run the gateway."),
    "open": ("penstock.cli.open", "Open the page of the running gateway."),
    "chat": ("penstock.cli.chat", "Chat with a model, on a terminal or in a pipe."),
    "model": ("penstock.cli.model", "Fetch the local model, or show its state."),
    "usage": ("penstock.cli.usage", "Sum up tokens and cost."),
    "ledger": ("penstock.cli.ledger", "List the calls in the ledger, or show one in full."),
    "keys": ("penstock.cli.keys", "Create, list, rotate and revoke client keys."),
    "teams": ("penstock.cli.teams", "Create, list, change and delete teams."),
    "apply": ("penstock.cli.apply", "Make the teams and keys that a file declares."),
    "tokens": ("penstock.cli.tokens", "Create, list and revoke API tokens of the admin API."),
    "requests": ("penstock.cli.requests", "List, approve and refuse requests of members for more."),
    "sessions": ("penstock.cli.sessions", "List and end the sessions of users who signed in."),
    "roles": ("penstock.cli.roles", "Say which roles a user with some groups gets."),
    "audit": ("penstock.cli.audit", "List who changed what, and who looked at content."),
    "users": ("penstock.cli.users", "Find or erase an end user."),
    "import": ("penstock.cli.import_", "Import the configuration of another gateway."),
    "check": ("penstock.cli.check", "Check the configuration without starting the gateway."),
    "explain": ("penstock.cli.explain", "Say where a request would go, and why, without a call."),
    "shadow": ("penstock.cli.shadow", "Compare the targets that calls were repeated at."),
    "doctor": ("penstock.cli.doctor", "Check what the gateway needs here, and say what to do."),
    "inspect": ("penstock.cli.inspect", "Explain a recorded stream: answer, usage, ending, defects."),
    "lint": ("penstock.cli.lint", "List the defects of streams, for CI and support tickets."),
    "replay": ("penstock.cli.replay", "Serve recorded responses in place of their providers."),
}
# Standard library modules that Windows lacks.
_POSIX = frozenset(("fcntl", "grp", "pwd", "readline", "resource", "termios"))
# The exit status of a program that Ctrl-C ended, as in shells: 128 + SIGINT.
INTERRUPTED = 130


class CommandTable(click.Group):
    """A group whose commands are rows of `COMMANDS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        command = import_module(COMMANDS[cmd_name][0]).command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The requested command. If there is none of that name, the error suggests a similar one."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            near = get_close_matches(name, COMMANDS, n=1)
            ctx.fail(f"No such command {name!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the table of commands for `--help`."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, short_help) for name, (_, short_help) in COMMANDS.items()])


def _print_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from penstock.installation import version

    found = version()
    click.echo(f"penstock {found}" if found is not None else "penstock, running from source, not installed")
    ctx.exit()


@click.group(cls=CommandTable, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show the version and exit.",
)
def commands() -> None:
    """A gateway for language models that corrects providers' streams and reports every defect."""


def main() -> None:
    """Run the command of the arguments, and exit with its status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # None if the shell closed it
            stream.reconfigure(errors="backslashreplace")  # characters that cannot be encoded are escaped
    try:
        status = commands.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except ModuleNotFoundError as error:
        if error.name not in _POSIX:
            raise
        click.echo(
            "penstock: this command runs on Linux and macOS, or in WSL; only `inspect` and `lint` run on Windows",
            err=True,
        )
        status = 1
    except (click.Abort, KeyboardInterrupt):  # click converts the latter into the former, but not everywhere
        status = INTERRUPTED
    except OSError as error:
        # Python flushes the buffer at exit, which would fail again: redirect it to /dev/null.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        click.echo(f"penstock: could not write the output: {error.strerror}", err=True)
        status = 2
    sys.exit(status)
