"""Query strings of the admin API, parsed strictly: the filter, the grouping and the page of a request."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar, get_args
from urllib.parse import parse_qsl

from msgspec import Struct

from penstock.errors import AdminError
from penstock.gateway.billing.queries import Filter, Grouping, read_groups
from penstock.gateway.keys.terms import parse_duration, parse_moment, parse_month, parse_tag
from penstock.gateway.record.entry import Outcome

T = TypeVar("T")
MAX_LIMIT = 500
# Of a list of names only.
MAX_NAMES = 10_000
_DEFAULT_LIMIT = 100
_MAX_PARAMETERS = 100
# In characters. Nothing that is searched is longer.
_MAX_TEXT = 512
_MAX_POSITION = 2**62
# A week has 2,016 buckets of five minutes.
_MAX_BUCKETS = 2_100


class Parameter(NamedTuple):
    """A parameter of a route, as the documentation has it."""

    meaning: str
    repeated: bool = False
    """Whether it can be given several times."""
    kind: Literal["string", "integer"] = "string"


FILTERS: Mapping[str, Parameter] = {
    "since": Parameter("`7d` (ago), `2027-01-01` or `2027-01-01T12:00Z`."),
    "until": Parameter(
        "The same. It is exclusive, here and in all commands: `until=2027-01-01` ends with 2026.",
    ),
    "month": Parameter("A month of the calendar, in place of both: `2026-11`, `this` or `last`."),
    "key": Parameter("An id, or a name: then all keys that ever had it.", repeated=True),
    "model": Parameter("The name that the client used.", repeated=True),
    "provider": Parameter("A provider that was tried.", repeated=True),
    "target": Parameter(
        "A target that was tried: `provider/model`, with the provider's name for the model.", repeated=True
    ),
    "attempt": Parameter(
        "The outcome of an attempt, at the `target` if one is given; any outcome except `refused`.", repeated=True
    ),
    "outcome": Parameter(f"{', '.join(f'`{each}`' for each in get_args(Outcome))}.", repeated=True),
    "repair": Parameter("The code of a [repair](reference/repairs.md), a finding or a notice."),
    "loss": Parameter("The code of a [loss](reference/losses.md)."),
    "team": Parameter("The path of a team: calls of it and of all teams below it.", repeated=True),
    "user": Parameter("An end user, as entries have it: a pseudonym.", repeated=True),
    "tag": Parameter("`name=value`. All given tags must match, so each name can be given once.", repeated=True),
    "find": Parameter(
        "A text. It is found, not case-sensitive, as a part of the model, a provider that was tried, the key's name, "
        "the error code or the error; and exactly, as the whole id, end user, or tag (`value` or `name=value`)."
    ),
}
LIMIT = Parameter(f"The size of a page, at most {MAX_LIMIT}; {_DEFAULT_LIMIT} if it is not given.", kind="integer")
# Of lists that `read_page` reads.
PAGE: Mapping[str, Parameter] = {
    "limit": LIMIT,
    "before": Parameter("The `next` of the previous page.", kind="integer"),
}


# Of which calls have one value each, or may have any: the filter's fields are in the plural.
_SEVERAL = ("key", "model", "provider", "target", "attempt", "outcome", "user", "team")


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

    def flag(self, name: str) -> bool:
        """Whether a parameter is set."""
        return self.one(name) in ("1", "true")

    def moment(self, name: str, now_ms: int) -> int | None:
        """A time in the past; None if it is missing."""
        text = self.one(name)
        return parse_moment(text, now_ms, name, past=True) if text else None

    def number(self, name: str, default: T, *, minimum: int, maximum: int) -> int | T:
        """A whole number, within bounds."""
        text = self.one(name)
        if not text:
            return default
        if not (text.isascii() and text.isdigit()) or len(text) > 19 or not minimum <= int(text) <= maximum:
            raise invalid_parameter(name, f"{name} is a whole number from {minimum} to {maximum}")
        return int(text)


def read_filter(query: Query, now_ms: int) -> Filter:
    """The filter of a query."""
    for name in ("outcome", "attempt"):
        if not set(query.values.get(name, [])) <= set(get_args(Outcome)):
            raise invalid_parameter(name, f"an outcome is one of {', '.join(get_args(Outcome))}")
    since_ms, until_ms = query.moment("since", now_ms), query.moment("until", now_ms)
    if month := query.one("month"):
        if since_ms is not None or until_ms is not None:
            raise invalid_parameter("month", "month takes the place of since and until: give either")
        since_ms, until_ms = parse_month(month, now_ms)
    return Filter(
        since_ms=since_ms,
        until_ms=until_ms,
        **{f"{name}s": tuple(query.values.get(name, [])) for name in _SEVERAL},
        repair=query.one("repair"),
        loss=query.one("loss"),
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
    try:
        return read_groups(",".join(query.values.get("by", [])).split(","), ":")
    except ValueError as error:
        raise invalid_parameter("by", str(error)) from error


def read_limit(query: Query, most: int = MAX_LIMIT) -> int:
    """The size of a page."""
    return query.number("limit", _DEFAULT_LIMIT, minimum=1, maximum=most)


def read_page(query: Query, read: Callable[..., list[tuple[int, T]]]) -> tuple[list[T], int | None]:
    """A page of what `read` finds: `limit` items, from `before`; and the position of the next page in the book."""
    limit = read_limit(query)
    found = read(limit=limit + 1, before=query.number("before", None, minimum=0, maximum=_MAX_POSITION))
    return [each for _, each in found[:limit]], found[limit - 1][0] if len(found) > limit else None


def read_span(query: Query, now_ms: int) -> tuple[int, int]:
    """The start of a time span and the bucket size, both in milliseconds: `since=24h&bucket=5m`."""
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
