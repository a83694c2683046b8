"""Runs `penstock chat`: finds the gateway and the model; a dialogue on a terminal, one answer in a pipe."""

import os
import signal
import sys
from pathlib import Path
from typing import NoReturn, TextIO

import click
from msgspec import Struct

from penstock import Event, TextDelta
from penstock.cli.chat_ui.advice import advice
from penstock.cli.chat_ui.answer import ChatResult, describe_result
from penstock.cli.chat_ui.caller import Caller
from penstock.cli.chat_ui.conversation import Conversation
from penstock.cli.fetching import fetch_all
from penstock.cli.text import one_line, to_json
from penstock.errors import BookError, ConfigError
from penstock.gateway.config import default_file, load
from penstock.http.upstream_connection import UpstreamError

COMPLETED, INCOMPLETE, UNUSABLE, STOPPED = 0, 1, 2, 130


class ChatOptions(Struct, frozen=True, kw_only=True):
    """The options of the command. Without a `url` the gateway runs in this process."""

    model: str | None
    url: str | None
    key: str
    file: Path | None
    as_json: bool
    history: bool


def run(options: ChatOptions) -> int:
    """Run a dialogue or answer one question. Returns the exit status."""
    interactive = _is_terminal(sys.stdin) and _is_terminal(sys.stdout) and not options.as_json
    question = "" if interactive else _piped()
    with Caller(os.environ, url=options.url or "", key=options.key) as caller:
        # If no model can answer, the first configured one is used: its error explains what is missing.
        known = _serve(caller, options.file) if options.url is None else ()
        needed = options.model is None and not known
        models = _models(caller, needed=needed) if interactive or options.model is None else []
        model = options.model or [*models, *known][0]
        if interactive:
            return _converse(caller, model, models, history=options.history)
        return _answer(caller, model, question, as_json=options.as_json)


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()  # None if the shell closed it


def _piped() -> str:
    question = sys.stdin.buffer.read().decode(errors="replace").strip() if sys.stdin is not None else ""
    if not question:
        _give_up("no input; use echo 'a question' | penstock chat, or run it on a terminal")
    return question


def _serve(caller: Caller, file: Path | None) -> tuple[str, ...]:
    """Start a gateway in this process. Returns the models of its configuration."""
    try:
        # It listens on a loopback address with its own key, regardless of the file.
        config = load(file or default_file(), os.environ, has_stored_keys=lambda _: True)
        if config.local_only:
            fetch_all(config, os.environ)
        caller.serve(config)
    except ConfigError as error:
        click.echo(str(error), err=True)
        sys.exit(UNUSABLE)
    except BookError as error:
        _give_up(f"cannot use the ledger: {error}")
    return config.models()


def _models(caller: Caller, *, needed: bool) -> list[str]:
    """The models of the gateway. If one is `needed` and there is none, exits with an error."""
    try:
        models = caller.models()
    except UpstreamError as error:
        if needed:
            code = "chat_connect" if error.code.startswith("upstream_") else error.code
            _give_up(f"{error.message}; {advice(code)}", INCOMPLETE)
        return []
    except TimeoutError:
        if needed:
            _give_up(f"the gateway does not list its models; {advice('chat_connect')}", INCOMPLETE)
        return []
    if needed and not models:
        _give_up(
            "no model is listed; choose one with -m provider/model, "
            "or set a provider's key (GROQ_API_KEY, OPENAI_API_KEY, …: docs/configuration.md)"
        )
    return models


def _converse(caller: Caller, model: str, models: list[str], *, history: bool) -> int:
    from penstock.cli.chat_ui.prompt import history_file  # noqa: PLC0415 - readline and rich are for terminals
    from penstock.cli.chat_ui.screen import Screen  # noqa: PLC0415
    from penstock.cli.chat_ui.session import Session  # noqa: PLC0415

    session = Session(caller, Conversation(model), Screen(sys.stdout, os.environ), models)
    session.run(history_file(os.environ) if history else None)
    return COMPLETED


def _answer(caller: Caller, model: str, question: str, *, as_json: bool) -> int:
    """Answer one question: as plain text while it streams, on a terminal as in a dialogue, or as one JSON object."""
    pending = caller.ask(model, Conversation(model).messages(question))
    signal.signal(signal.SIGINT, lambda *_: pending.stop())
    if _is_terminal(sys.stdout) and not as_json:
        from penstock.cli.chat_ui.screen import Screen  # noqa: PLC0415

        screen = Screen(sys.stdout, os.environ)
        for events in pending.answer:
            screen.show(events)
        screen.finish(pending.answer.result)
        return _status(pending.answer.result)
    for events in pending.answer:
        if not as_json:
            _write_text(events)
    result = pending.answer.result
    if as_json:
        click.echo(to_json(describe_result(result)))
    elif result.completion.text and not result.completion.text.endswith("\n"):
        click.echo()
    if result.ending != "completed":
        reason = (
            f"{result.reason.rstrip('.')}; {advice(result.code)}" if result.ending != "cancelled" else result.reason
        )
        click.echo(f"penstock: {result.ending.replace('_', ' ')}: {one_line(reason)}", err=True)
    return _status(result)


def _write_text(events: list[Event]) -> None:
    text = "".join(event.text for event in events if isinstance(event, TextDelta) and event.choice == 0)
    if text:
        sys.stdout.write(text)
        sys.stdout.flush()


def _status(result: ChatResult) -> int:
    if result.ending == "cancelled":
        return STOPPED
    return COMPLETED if result.ending == "completed" else INCOMPLETE


def _give_up(reason: str, status: int = UNUSABLE) -> NoReturn:
    click.echo(f"penstock: {one_line(reason)}", err=True)
    sys.exit(status)
