"""Query strings of the admin API, parsed strictly: the filter, the grouping and the page of a request."""

from collections.abc import Iterable, Mapping, Sequence
from typing import get_args
from urllib.parse import parse_qsl

from msgspec import Struct

from penstock.errors import AdminError
from penstock.gateway.billing.book import Filter, Grouping
from penstock.gateway.billing.entry import Outcome
from penstock.gateway.keys.terms import parse_duration, parse_moment, parse_tag

MAX_LIMIT = 500
# Of a list of names only.
MAX_NAMES = 10_000
_DEFAULT_LIMIT = 100
_MAX_PARAMETERS = 100
_FILTERS = frozenset(
    {
        "since",
        "until",
        "key",
        "model",
        "provider",
        "target",
        "attempt",
        "outcome",
        "repair",
        "loss",
        "user",
        "team",
        "tag",
        "find",
    }
)
# In characters. Nothing that is searched is longer.
_MAX_TEXT = 512
_MAX_POSITION = 2**62
# A week has 2,016 buckets of five minutes.
_MAX_BUCKETS = 2_100


class Query(Struct, frozen=True):
    """The parameters of a request, each with all its values."""

    values: Mapping[str, list[str]]

    @classmethod
    def parse(cls, text: str) -> "Query":
        """Parse the query part of a URL."""
        values: dict[str, list[str]] = {}
        try:
            pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=_MAX_PARAMETERS)
        except ValueError:
            raise invalid_parameter("", f"there are more than {_MAX_PARAMETERS} parameters") from None
        for name, value in pairs:
            values.setdefault(name, []).append(value)
        return cls(values)

    def only(self, known: Iterable[str]) -> None:
        """Raise for unknown parameters: a mistyped filter must not select more than intended."""
        for name in self.values:
            if name not in known:
                raise invalid_parameter(
                    name[:40], f"unknown parameter {name[:40]!r}; known are {', '.join(sorted(known))}"
                )

    def one(self, name: str) -> str:
        """The value of a parameter that may be given once; empty if it is missing."""
        values = self.values.get(name, [])
        if len(values) > 1:
            raise invalid_parameter(name, f"{name} may be given once")
        return values[0] if values else ""

    def number(self, name: str, default: int | None, *, minimum: int, maximum: int) -> int | None:
        """A whole number, within bounds."""
        text = self.one(name)
        if not text:
            return default
        if not (text.isascii() and text.isdigit()) or len(text) > 19 or not minimum <= int(text) <= maximum:
            raise invalid_parameter(name, f"{name} is a whole number from {minimum} to {maximum}")
        return int(text)


def read_filter(query: Query, now_ms: int, *further: str) -> Filter:
    """The filter of a query. `further` are parameters that are allowed besides."""
    query.only(_FILTERS.union(further))
    since, until = query.one("since"), query.one("until")
    outcomes, attempts = query.values.get("outcome", []), query.values.get("attempt", [])
    for name, given in (("outcome", outcomes), ("attempt", attempts)):
        if not set(given) <= set(get_args(Outcome)):
            raise invalid_parameter(name, f"an outcome is one of {', '.join(get_args(Outcome))}")
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
        loss=query.one("loss"),
        users=tuple(query.values.get("user", [])),
        teams=tuple(query.values.get("team", [])),
        tags=_tags(query.values.get("tag", [])),
        text=query.one("find").strip()[:_MAX_TEXT],
    )


def _tags(given: Sequence[str]) -> dict[str, str]:
    tags = dict(map(parse_tag, given))
    if len(tags) < len(given):
        raise invalid_parameter("tag", "a call has one value per tag: give each tag once")
    return tags


def read_grouping(query: Query) -> tuple[list[Grouping], str]:
    """How usage is grouped: `by=key,model,tag:team`; and the name of the tag."""
    by: list[Grouping] = []
    tag = ""
    for word in filter(None, ",".join(query.values.get("by", [])).split(",")):
        name, colon, rest = word.partition(":")
        known = next((group for group in get_args(Grouping) if group == name), None)
        if known is None or known in by or (known == "tag") != bool(colon and rest):
            raise invalid_parameter(
                "by", "by is a list of groups, each once: key, team, model, provider, day, outcome or tag:NAME"
            )
        by.append(known)
        tag = rest or tag
    return by, tag


def read_limit(query: Query, most: int = MAX_LIMIT) -> int:
    """The size of a page."""
    return query.number("limit", _DEFAULT_LIMIT, minimum=1, maximum=most) or _DEFAULT_LIMIT


def read_cursor(query: Query, name: str) -> int | None:
    """The position in the book at which a page starts."""
    return query.number(name, None, minimum=0, maximum=_MAX_POSITION)


def read_span(query: Query, now_ms: int) -> tuple[int, int]:
    """The start of a time span and the bucket size, both in milliseconds: `since=24h&bucket=5m`."""
    query.only({"since", "bucket"})
    since_ms = parse_moment(query.one("since") or "24h", now_ms, "since", past=True)
    bucket_ms = parse_duration(query.one("bucket") or "5m", "bucket")
    if bucket_ms <= 0 or (now_ms - since_ms) / bucket_ms > _MAX_BUCKETS:
        raise invalid_parameter(
            "bucket", f"bucket is a time such as 5m, of which at most {_MAX_BUCKETS} pass from since to now"
        )
    return since_ms, bucket_ms


def invalid_parameter(param: str, message: str) -> AdminError:
    """The error for an invalid parameter."""
    return AdminError(message, code="invalid_parameter", param=param or None)
