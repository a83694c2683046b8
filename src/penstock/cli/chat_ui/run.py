"""Runs `penstock chat`: finds the gateway and the model, then talks on a terminal or answers once in a pipe."""

import os
import signal
import sys
from pathlib import Path
from typing import NoReturn, TextIO

import click
from msgspec import Struct

from penstock import Event, TextDelta
from penstock.cli.chat_ui.advice import advice
from penstock.cli.chat_ui.answer import ChatResult, described
from penstock.cli.chat_ui.caller import Caller
from penstock.cli.chat_ui.conversation import Conversation
from penstock.cli.fetching import obtain
from penstock.cli.text import one_line, to_json
from penstock.errors import BookError, ConfigError
from penstock.gateway.config import default_file, load
from penstock.http.client import UpstreamError

COMPLETED, INCOMPLETE, UNUSABLE, STOPPED = 0, 1, 2, 130


class ChatOptions(Struct, frozen=True, kw_only=True):
    """What the user asks for. Without a `url` the gateway runs inside."""

    model: str | None
    url: str | None
    key: str
    file: Path | None
    as_json: bool
    history: bool


def run(wanted: ChatOptions) -> int:
    """Talk, or answer; returns the exit status."""
    interactive = _is_terminal(sys.stdin) and _is_terminal(sys.stdout) and not wanted.as_json
    question = "" if interactive else _piped()
    with Caller(os.environ, url=wanted.url or "", key=wanted.key) as caller:
        # Where no model can answer, one that the gateway knows is asked all the same: the error says what it lacks.
        known = _serve(caller, wanted.file) if wanted.url is None else ()
        needed = wanted.model is None and not known
        models = _models(caller, needed=needed) if interactive or wanted.model is None else []
        model = wanted.model or [*models, *known][0]
        if interactive:
            return _talk(caller, model, models, history=wanted.history)
        return _answer(caller, model, question, as_json=wanted.as_json)


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()  # it is None where the shell closed it


def _piped() -> str:
    question = sys.stdin.buffer.read().decode(errors="replace").strip() if sys.stdin is not None else ""
    if not question:
        _give_up("nothing was piped in; echo 'a question' | penstock chat, or run it on a terminal")
    return question


def _serve(caller: Caller, file: Path | None) -> tuple[str, ...]:
    """Run a gateway; returns the models of its configuration."""
    try:
        # It listens on this machine, with a key of its own, whatever the file says.
        config = load(file or default_file(), os.environ, has_stored_keys=lambda _: True)
        if config.only_here:
            obtain(config, os.environ)
        caller.serve(config)
    except ConfigError as error:
        click.echo(str(error), err=True)
        sys.exit(UNUSABLE)
    except BookError as error:
        _give_up(f"the ledger cannot be kept: {error}")
    return config.models()


def _models(caller: Caller, *, needed: bool) -> list[str]:
    """The models that there are; where one is needed, at least one."""
    try:
        models = caller.models()
    except UpstreamError as error:
        if needed:
            code = "chat_connect" if error.code.startswith("upstream_") else error.code
            _give_up(f"{error.message}; {advice(code)}", INCOMPLETE)
        return []
    except TimeoutError:
        if needed:
            _give_up(f"the gateway does not say which models it has; {advice('chat_connect')}", INCOMPLETE)
        return []
    if needed and not models:
        _give_up(
            "no model is listed; name one with -m provider/model, "
            "or set a provider's key (GROQ_API_KEY, OPENAI_API_KEY, …: docs/configuration.md)"
        )
    return models


def _talk(caller: Caller, model: str, models: list[str], *, history: bool) -> int:
    from penstock.cli.chat_ui.prompt import history_file  # noqa: PLC0415 - readline and rich are for terminals
    from penstock.cli.chat_ui.screen import Screen  # noqa: PLC0415
    from penstock.cli.chat_ui.session import Session  # noqa: PLC0415

    session = Session(caller, Conversation(model), Screen(sys.stdout, os.environ), models)
    session.run(history_file(os.environ) if history else None)
    return COMPLETED


def _answer(caller: Caller, model: str, question: str, *, as_json: bool) -> int:
    """Answer once: the text alone, as it comes and as it is; on a terminal, as in a dialogue; or one JSON object."""
    asked = caller.ask(model, Conversation(model).messages(question))
    signal.signal(signal.SIGINT, lambda *_: asked.stop())
    if _is_terminal(sys.stdout) and not as_json:
        from penstock.cli.chat_ui.screen import Screen  # noqa: PLC0415

        screen = Screen(sys.stdout, os.environ)
        for events in asked.answer:
            screen.show(events)
        screen.settle(asked.answer.result)
        return _status(asked.answer.result)
    for events in asked.answer:
        if not as_json:
            _write_text(events)
    told = asked.answer.result
    if as_json:
        click.echo(to_json(described(told)))
    elif told.completion.text and not told.completion.text.endswith("\n"):
        click.echo()
    if told.ending != "completed":
        reason = f"{told.reason.rstrip('.')}; {advice(told.code)}" if told.ending != "cancelled" else told.reason
        click.echo(f"penstock: {told.ending.replace('_', ' ')}: {one_line(reason)}", err=True)
    return _status(told)


def _write_text(events: list[Event]) -> None:
    text = "".join(event.text for event in events if isinstance(event, TextDelta) and event.choice == 0)
    if text:
        sys.stdout.write(text)
        sys.stdout.flush()


def _status(told: ChatResult) -> int:
    if told.ending == "cancelled":
        return STOPPED
    return COMPLETED if told.ending == "completed" else INCOMPLETE


def _give_up(reason: str, status: int = UNUSABLE) -> NoReturn:
    click.echo(f"penstock: {one_line(reason)}", err=True)
    sys.exit(status)
