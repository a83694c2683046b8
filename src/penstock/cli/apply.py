"""`penstock apply`: makes the teams and keys that a file declares, in the ledger or over the admin API of a gateway."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import click
from msgspec import structs

from penstock.amounts import clock_ms
from penstock.cli.book import book_errors, book_of, load_config
from penstock.cli.declared.file import DeclarationFile, read_declaration
from penstock.cli.declared.plan_text import plan_lines
from penstock.cli.declared.secret_keeping import SecretCommand, SecretFile, SecretKeeper
from penstock.cli.declared.target import ApplyTarget, GatewayTarget, LedgerTarget, UnknownOutcomeError
from penstock.cli.options import config_option, json_option
from penstock.cli.text import counted, one_line, to_json
from penstock.errors import AdminError, ConfigError, Problem
from penstock.gateway.declared.declaration import Prune
from penstock.gateway.declared.plan import ENDS, PlanReport, SecretDigest
from penstock.gateway.keys.key_secret import digest_of, new_secret

TOKEN = "PENSTOCK_ADMIN_TOKEN"
ERRORS, CHANGES = 1, 2
_MOST_PROBLEMS = 50
_PATH = click.Path(path_type=Path, dir_okay=False)
# How often a plan is made anew because something else changed meanwhile.
_TRIES = 5
_NO_KEEPER = (
    "a new key has a secret, which is never shown: say where it goes, with --secrets FILE, "
    "--kubernetes-secrets FILE or --secret-command COMMAND; nothing was changed"
)


class _Options(NamedTuple):
    dry_run: bool
    detailed: bool
    yes: bool
    adopt: bool
    as_json: bool


@click.command(short_help="Make the teams and keys that a file declares.")
@click.option(
    "-f", "--file", "declared", metavar="FILE", required=True, type=_PATH, help="The teams and keys, as TOML."
)
@config_option
@click.option("--gateway", metavar="URL", help="Use this admin API, not the ledger.")
@click.option("--dry-run", is_flag=True, help="Only print the plan.")
@click.option("--detailed-exitcode", "detailed", is_flag=True, help="Dry run: exit with 2 if there are changes.")
@click.option("--yes", is_flag=True, help="Do not ask before a key or team ends.")
@click.option("--adopt", is_flag=True, help="Take over what no file manages.")
@click.option("--prune", type=click.Choice(["delete", "block", "keep"]), help="Keys and teams that left the file.")
@click.option("--secrets", metavar="FILE", type=_PATH, help="Add new secrets to this JSON file.")
@click.option("--kubernetes-secrets", "manifest", metavar="FILE", type=_PATH, help="Add them to this manifest.")
@click.option("--secret-command", "command_line", metavar="COMMAND", help="Run this for each, which is its input.")
@json_option
def command(  # noqa: PLR0913 - each is an option
    declared: Path,
    *,
    file: Path | None,
    gateway: str | None,
    prune: Prune | None,
    secrets: Path | None,
    manifest: Path | None,
    command_line: str | None,
    **options: bool,
) -> None:
    """Make the teams and keys that a file declares, and end those that left the file (docs/apply.md).

    Only what the file owns is changed; a second run changes nothing. All changes are made, or none. The secrets of new
    keys are never printed.
    """
    chosen = _Options(**options)
    keeper = _keeper(secrets, manifest, command_line)
    try:
        read = read_declaration(declared, clock_ms())
    except ConfigError as error:
        _show_problems(error.problems)
        sys.exit(ERRORS)
    if prune is not None:
        read = read._replace(declaration=structs.replace(read.declaration, prune=prune))
    with _target(file, gateway) as target:
        sys.exit(_run(read, target, keeper, chosen))


def _keeper(secrets: Path | None, manifest: Path | None, command_line: str | None) -> SecretKeeper | None:
    if sum(each is not None for each in (secrets, manifest, command_line)) > 1:
        raise click.UsageError("choose one of --secrets, --kubernetes-secrets and --secret-command")
    if command_line is not None:
        return SecretCommand(command_line)
    path = secrets or manifest
    return SecretFile(path, manifest=manifest is not None) if path is not None else None


@contextmanager
def _target(file: Path | None, gateway: str | None) -> Iterator[ApplyTarget]:
    """The ledger of the configuration, or a gateway."""
    if gateway is None:
        try:
            config = load_config(file)
        except SystemExit:
            sys.exit(ERRORS)  # 2 has another meaning here
        with book_of(config) as book:
            yield LedgerTarget(book)
        return
    if file is not None:
        raise click.UsageError("--gateway and --config exclude each other: the gateway has its own configuration")
    if not gateway.startswith(("http://", "https://")):
        raise click.UsageError("--gateway is the address of the admin API, such as https://penstock.example.com:8081")
    token = os.environ.get(TOKEN, "")
    if not token:
        raise click.ClickException(
            f"set {TOKEN} to the gateway's admin token, or to an API token: penstock tokens create --role admin"
        )
    with book_errors():
        yield GatewayTarget(gateway, token)


def _run(read: DeclarationFile, target: ApplyTarget, keeper: SecretKeeper | None, options: _Options) -> int:
    """Plan, ask and apply; again if something else changed meanwhile. Returns the exit status."""
    for tries_left in reversed(range(_TRIES)):
        plan = target.plan(read.declaration, adopt=options.adopt)
        if not options.as_json:
            _show_plan(read, target, plan)
        if plan.conflicts:
            _show_problems([read.problem(each) for each in plan.conflicts])
        done = not (plan.conflicts or options.dry_run) and bool(plan.changes)
        if done:
            _confirm(plan, keeper, options)
            try:
                _apply(read, target, keeper, plan, options)
            except AdminError as error:
                if error.code != "plan_changed" or not tries_left:
                    raise
                click.echo("Something else changed teams or keys meanwhile: the plan is made anew.", err=True)
                continue
        if options.as_json:
            click.echo(to_json({"file": read.document.file, "applied": done, "plan": plan}))
        if plan.conflicts:
            return ERRORS
        return CHANGES if options.dry_run and options.detailed and plan.changes else 0
    raise AssertionError("the last try returns or raises")


def _show_plan(read: DeclarationFile, target: ApplyTarget, plan: PlanReport) -> None:
    click.echo(one_line(f"{read.document.file}, as {read.declaration.managed_by}, in {target.name}"))
    click.echo()
    for line in plan_lines(plan):
        click.echo(line)


def _show_problems(problems: Sequence[Problem]) -> None:
    for problem in problems[:_MOST_PROBLEMS]:
        click.echo(one_line(str(problem)), err=True)
    more = f", of which the first {_MOST_PROBLEMS} are shown" if len(problems) > _MOST_PROBLEMS else ""
    click.echo(one_line(f"{problems[0].file}: {counted(len(problems), 'error')}{more}; nothing was changed"), err=True)


def _confirm(plan: PlanReport, keeper: SecretKeeper | None, options: _Options) -> None:
    """Stop if new secrets have no place, or if the user does not agree that something ends."""
    if keeper is None and _new_keys(plan):
        raise click.ClickException(_NO_KEEPER)
    ends = sum(change.action in ENDS for change in plan.changes)
    if not ends or options.yes:
        return
    what = f"{counted(ends, 'key or team')} would end" if ends == 1 else f"{ends:,} keys and teams would end"
    if options.as_json or not sys.stdin.isatty():
        raise click.ClickException(f"{what}: give --yes to agree; nothing was changed")
    if not click.confirm(f"{what}. Go on?", err=True):
        raise click.ClickException("nothing was changed")


def _apply(
    read: DeclarationFile, target: ApplyTarget, keeper: SecretKeeper | None, plan: PlanReport, options: _Options
) -> None:
    """Keep the secrets of new keys, and then make the changes."""
    made = {name: new_secret() for name in _new_keys(plan)}
    if keeper is None or not made:
        _send(read, target, plan, made, options)
        kept = ""
    else:
        kept = f"; {counted(len(made), 'new secret')} went to {keeper.name}"
        with keeper.alone():
            # Another run may just have made the keys, and kept their secrets: they must not be replaced.
            if target.plan(read.declaration, adopt=options.adopt).fingerprint != plan.fingerprint:
                raise AdminError("the plan has changed", code="plan_changed")
            take_back = keeper.keep(made)
            try:
                _send(read, target, plan, made, options, kept)
            except AdminError:
                take_back()
                raise
    if not options.as_json:
        click.echo(one_line(f"Done: {counted(len(plan.changes), 'change')}{kept}."))


def _send(
    read: DeclarationFile,
    target: ApplyTarget,
    plan: PlanReport,
    made: Mapping[str, str],
    options: _Options,
    kept: str = "",
) -> None:
    digests = {name: SecretDigest(digest_of(secret), secret[-4:]) for name, secret in made.items()}
    try:
        target.apply(read.declaration, plan.fingerprint, digests, adopt=options.adopt)
    except UnknownOutcomeError as error:
        message = f"{error}; it is not known whether the changes were made{kept}. Run the same command again"
        raise click.ClickException(one_line(message)) from error


def _new_keys(plan: PlanReport) -> list[str]:
    return [change.name for change in plan.changes if change.kind == "key" and change.action == "create"]
