"""Losses of a recorded answer: what a translation into another dialect would drop."""

import click
from msgspec import Struct

from penstock.cli.inspection.stream_file import ReadStream
from penstock.cli.parsing import checked_by
from penstock.core.dialects.answer_extras import AnswerExtras
from penstock.core.dialects.dialect import AnswerFacts
from penstock.core.dialects.registry import find_dialect, surface_dialect
from penstock.core.hub.losses import LOSSES, Loss

_FACTS = AnswerFacts(call_id="", model="", created=0, same_dialect=False)


class LossCount(Struct, frozen=True):
    """One kind of loss: how often it occurs, and what it is about, each once. Its fields are those of the JSON."""

    code: str
    count: int
    details: list[str]
    changes_meaning: bool


def count_losses(reading: ReadStream, client: str) -> list[LossCount]:
    """What clients of this dialect would lose. An answer in their own dialect is passed through without losses."""
    losses: list[Loss] = []
    if reading.dialect.dialect != client and reading.completion.choices:
        surface_dialect(client).write_body(reading.completion, _FACTS, losses)
        AnswerExtras(losses, find_dialect(client).carried).note_answer(reading.completion)
    details: dict[str, list[str]] = {}
    for loss in losses:
        details.setdefault(loss.code, []).append(loss.detail)
    return [
        LossCount(code, len(given), [detail for detail in dict.fromkeys(given) if detail], LOSSES[code].changes_meaning)
        for code, given in details.items()
    ]


takes_client = click.option(
    "--for",
    "client",
    callback=checked_by(surface_dialect),
    metavar="NAME",
    help="Show the losses for clients of this dialect (docs/reference/losses.md).",
)
