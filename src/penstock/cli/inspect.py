"""`penstock inspect`: explains a stream, to a person or as JSON."""

import sys

import click

from penstock import Choice
from penstock.capture import Capture
from penstock.cli.inspection import plain
from penstock.cli.inspection.annotations import mark_defects
from penstock.cli.inspection.content_parts import describe_part
from penstock.cli.inspection.loss_counts import count_losses, takes_client
from penstock.cli.inspection.stream_file import MAX_KEPT_BYTES, ReadStream, read_all, takes_dialect, takes_files
from penstock.cli.inspection.summary import Summary, summarize
from penstock.cli.inspection.timing import StreamTiming
from penstock.cli.text import to_json
from penstock.providers.evidence import guess

_POSITION = ("line", "offset", "length")
COMPLETED, INCOMPLETE, UNREADABLE = 0, 1, 2


@click.command(short_help="Explain a recorded stream: answer, usage, ending, defects.")
@takes_files
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per file, one per line.")
@click.option("--findings", is_flag=True, help="With --json: every defect with the position of its bytes.")
@takes_dialect
@takes_client
@click.option("--repair", is_flag=True, help="Correct what the model wrote wrong, by the request in the capture.")
def command(
    files: tuple[str, ...],
    *,
    as_json: bool,
    findings: bool,
    dialect: str | None,
    client: str | None,
    repair: bool,
) -> None:
    """Explain streams and captures from files, or from standard input (-).

    Shows the answer, the tool calls, the finish reason, the usage, the model, the provider as guessed from the bytes,
    how the stream ended, and every repaired defect with its line and byte; then notices (harmless deviations) and, for
    a capture, its timing. The dialect is the one in the capture, or else is detected from the first events.

    \b
    Exit status:  0  every stream is complete
                  1  one is truncated or failed
                  2  one cannot be read
    """
    ctx = click.get_current_context()
    if findings and not as_json:
        raise click.UsageError("--findings needs --json.", ctx)
    if findings and repair:
        raise click.UsageError("--findings shows the bytes as they came, without --repair.", ctx)
    status = COMPLETED
    kept = sys.maxsize if findings else MAX_KEPT_BYTES
    for reading in read_all(files, dialect=dialect, kept=kept, repair=repair):
        if reading is None:
            status = UNREADABLE
        else:
            if as_json:
                marks = _describe_marks(reading) if findings else {}
                click.echo(to_json(describe(reading, client) | marks))
            else:
                _show(summarize(reading, client), headed=len(files) > 1)
            status = max(status, _status(reading))
    ctx.exit(status)


def describe(reading: ReadStream, client: str | None = None) -> dict[str, object]:
    """The output of `--json` for one stream; with its losses for clients of a dialect, if one is given."""
    completion, locate = reading.completion, reading.locator()
    usage, fault = completion.usage, completion.fault
    return {
        "file": reading.file,
        "ending": completion.ending,
        "dialect": reading.dialect.dialect,
        "dialect_found_by": reading.dialect.by,
        "provider": guess(completion, reading.dialect.dialect),
        "id": completion.id,
        "model": completion.model,
        "created": completion.created,
        "choices": [_describe_choice(choice) for choice in completion.choices],
        "usage": usage and _fields(usage.normal(), "input", "output", "total", "cached", "reasoning", "source"),
        "fault": fault and _fields(fault, "code", "message", "provider") | _fields(locate(fault), *_POSITION),
        "repairs": [
            _fields(each, "code", "level", "count") | _fields(locate(each), *_POSITION) for each in completion.repairs
        ],
        "frames": reading.frames,
        "capture": reading.capture and _describe_capture(reading.capture, reading.times),
        **({} if client is None else {"losses": count_losses(reading, client)}),
    }


def _describe_marks(reading: ReadStream) -> dict[str, object]:
    """Every defect, and the bytes of the stream decoded as Latin-1, so that each byte is one character."""
    assert reading.data is not None
    marks, left_off = mark_defects(reading.data, reading.dialect.dialect)
    return {"findings": marks, "findings_left_off": left_off, "text": reading.data.decode("latin-1")}


def _describe_capture(capture: Capture, times: StreamTiming | None) -> dict[str, object]:
    header, closing = capture.header, capture.closing
    return {
        **_fields(header, "at", "call", "attempt", "provider", "model", "dialect", "status"),
        "reads": len(capture.reads),
        "closing": closing and closing.how,
        "cut_off": capture.cut_off or None,
        "times": times and {name: _rounded(getattr(times, name)) for name in times.__struct_fields__},
    }


def _rounded(value: object) -> object:
    return round(value, 6) if isinstance(value, float) else value


def _describe_choice(choice: Choice) -> dict[str, object]:
    described = _fields(choice, "index", "role", "text", "reasoning", "refusal")
    described["tool_calls"] = [_fields(call, "id", "name", "arguments") for call in choice.tool_calls]
    described["finish_reason"] = choice.finish_reason
    described["native_finish_reason"] = choice.native_finish_reason
    described["parts"] = [describe_part(part) for part in choice.parts]
    return described


def _fields(value: object, *names: str) -> dict[str, object]:
    return {name: getattr(value, name) for name in names}


def _status(reading: ReadStream) -> int:
    if reading.unreadable:
        return UNREADABLE
    return COMPLETED if reading.completion.ending == "completed" else INCOMPLETE


def _show(summary: Summary, *, headed: bool) -> None:
    if sys.stdout is None or not sys.stdout.isatty():
        click.echo(plain.render(summary, headed=headed), nl=False)
        return
    from penstock.cli.inspection import pretty  # noqa: PLC0415 - rich takes as long to import as all the rest

    pretty.show(summary, headed=headed)
