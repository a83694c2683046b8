"""Query strings of the admin API, read strictly: which entries are meant, how they are grouped, which page."""

from collections.abc import Iterable, Mapping, Sequence
from typing import get_args
from urllib.parse import parse_qsl

from msgspec import Struct

from penstock.errors import KeyTermsError
from penstock.gateway.billing.book import Filter, Grouping
from penstock.gateway.billing.entry import Outcome
from penstock.gateway.keys.terms import parse_moment, parse_tag, parse_while

MOST = 500
_USUAL = 100
_MOST_PARAMETERS = 100
_FILTERS = frozenset({"since", "until", "key", "model", "provider", "target", "attempt", "outcome", "repair", "tag"})
_LARGEST = 2**62
# A week in parts of five minutes has 2,016.
_MOST_BUCKETS = 2_100


class Query(Struct, frozen=True):
    """The parameters of a request, each with all its values."""

    values: Mapping[str, list[str]]

    @classmethod
    def parse(cls, text: str) -> "Query":
        """Of the part of a URL behind its question mark."""
        values: dict[str, list[str]] = {}
        try:
            pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_PARAMETERS)
        except ValueError:
            raise wrong("", f"there are more than {_MOST_PARAMETERS} parameters") from None
        for name, value in pairs:
            values.setdefault(name, []).append(value)
        return cls(values)

    def only(self, known: Iterable[str]) -> None:
        """Refuse parameters that are not known: a filter that is mistyped must not widen what is told."""
        for name in self.values:
            if name not in known:
                raise wrong(
                    name[:40], f"there is no parameter {name[:40]!r} here; there are {', '.join(sorted(known))}"
                )

    def one(self, name: str) -> str:
        """The value of a parameter that stands there once, or not at all."""
        values = self.values.get(name, [])
        if len(values) > 1:
            raise wrong(name, f"{name} may be given once")
        return values[0] if values else ""

    def number(self, name: str, usual: int | None, *, least: int, most: int) -> int | None:
        """A whole number, within bounds."""
        text = self.one(name)
        if not text:
            return usual
        if not (text.isascii() and text.isdigit()) or len(text) > 19 or not least <= int(text) <= most:
            raise wrong(name, f"{name} is a whole number from {least} to {most}")
        return int(text)


def read_filter(query: Query, now_ms: int, *further: str) -> Filter:
    """Which entries are meant. `further` are parameters that may be there besides."""
    query.only(_FILTERS.union(further))
    since, until = query.one("since"), query.one("until")
    outcomes, attempts = query.values.get("outcome", []), query.values.get("attempt", [])
    for name, given in (("outcome", outcomes), ("attempt", attempts)):
        if not set(given) <= set(get_args(Outcome)):
            raise wrong(name, f"an outcome is one of {', '.join(get_args(Outcome))}")
    return Filter(
        since_ms=parse_moment(since, now_ms, "since", past=True) if since else None,
        until_ms=parse_moment(until, now_ms, "until", past=True) if until else None,
        keys=tuple(query.values.get("key", [])),
        models=tuple(query.values.get("model", [])),
        providers=tuple(query.values.get("provider", [])),
        targets=tuple(query.values.get("target", [])),
        attempts=tuple(attempts),
        outcomes=tuple(outcomes),
        repair=query.one("repair"),
        tags=_tags(query.values.get("tag", [])),
    )


def _tags(given: Sequence[str]) -> dict[str, str]:
    tags = dict(map(parse_tag, given))
    if len(tags) < len(given):
        raise wrong("tag", "a call has one value of a tag: name each tag once")
    return tags


def read_grouping(query: Query) -> tuple[list[Grouping], str]:
    """By what usage is summed up: `by=key,model,tag:team`; and the name of the tag."""
    by: list[Grouping] = []
    tag = ""
    for word in filter(None, ",".join(query.values.get("by", [])).split(",")):
        name, colon, rest = word.partition(":")
        found = next((group for group in get_args(Grouping) if group == name), None)
        if found is None or found in by or (found == "tag") != bool(colon and rest):
            raise wrong("by", "by names groups, each once: key, model, provider, day, outcome or tag:NAME")
        by.append(found)
        tag = rest or tag
    return by, tag


def read_limit(query: Query) -> int:
    """How many are told at a time."""
    return query.number("limit", _USUAL, least=1, most=MOST) or _USUAL


def read_place(query: Query, name: str) -> int | None:
    """Where in the book a page begins."""
    return query.number(name, None, least=0, most=_LARGEST)


def read_span(query: Query, now_ms: int) -> tuple[int, int]:
    """Since when, and in parts of how many milliseconds: `since=24h&bucket=5m`. The parts are not too many."""
    query.only({"since", "bucket"})
    since_ms = parse_moment(query.one("since") or "24h", now_ms, "since", past=True)
    bucket_ms = parse_while(query.one("bucket") or "5m", "bucket")
    if bucket_ms <= 0 or (now_ms - since_ms) / bucket_ms > _MOST_BUCKETS:
        raise wrong("bucket", f"bucket is a time such as 5m, of which at most {_MOST_BUCKETS} pass from since to now")
    return since_ms, bucket_ms


def wrong(param: str, message: str) -> KeyTermsError:
    """What is told of a parameter that cannot be."""
    return KeyTermsError(message, code="invalid_parameter", param=param or None)
