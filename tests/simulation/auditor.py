"""Auditor: compares what providers sent, clients got and the book has. Returns what is wrong."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

from penstock.gateway.record.entry import Entry
from tests.simulation.clients import Result, parsed
from tests.simulation.gateways import BUDGETS, INPUT_COST, OUTPUT_COST
from tests.simulation.plan import Plan
from tests.simulation.providers import Served

# What one call of an honest provider costs at most: a request and its answer.
_CALL_COST = 2_000 * INPUT_COST + 400 * OUTPUT_COST


def audit(
    plan: Plan,
    results: Sequence[Result],
    served: Mapping[int, Sequence[Served]],
    entries: Sequence[Entry],
    disturbed: Callable[[Result], bool],
) -> list[str]:
    """All violations of a world."""
    found: list[str] = []
    by_id = Counter(entry.id for entry in entries)
    found += [f"the call {id} is booked {count} times" for id, count in by_id.items() if count > 1]
    entry_by_id = {entry.id: entry for entry in entries}
    by_user: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        if user := entry.tags.get("call") or entry.user:
            by_user[user].append(entry)
    for result in results:
        attempts = served.get(result.call.id, ())
        own = by_user.get(f"call-{result.call.id}-", [])
        booked = entry_by_id.get(result.request_id) or (own[0] if own else None)
        found += [
            f"call {result.call.id}: {problem}"
            for problem in _audit_call(plan, result, attempts, own, booked, disturbed)
        ]
    found += _audit_sums(plan, entries)
    return found


def _audit_call(
    plan: Plan,
    result: Result,
    attempts: Sequence[Served],
    own: Sequence[Entry],
    entry: Entry | None,
    disturbed: Callable[[Result], bool],
) -> list[str]:
    call, got = result.call, result.got
    problems: list[str] = []
    if result.cut == "never ended" and not result.stalled:
        problems.append("it has no end")
    if got.problem:
        problems.append(f"the answer breaks its API: {got.problem}")
    if len(own) > 1:
        problems.append(f"it is booked {len(own)} times")
    unnamed = call.surface == "gemini" or (call.surface == "anthropic_messages" and plan.pseudonyms)
    if attempts and entry is None and not unnamed:
        problems.append(f"a provider was asked {len(attempts)} times, and it is not booked")
    elif result.complete and result.request_id and not call.nonsense and entry is None:
        problems.append("it was answered, and is not booked")
    if result.status == 500:
        problems.append("the gateway failed")
    in_peace = not disturbed(result) and not call.oddity and not call.nonsense
    last = attempts[-1] if attempts else None
    if got.finished and not got.error and result.complete:
        problems += _audit_completed(result, last, entry)
    if entry is not None:
        problems += _audit_entry(result, attempts, entry)
        if entry.outcome == "completed" and result.complete and not (got.finished and not got.error):
            problems.append("it is booked as completed, but the client got no whole answer")
    if in_peace:
        if result.cut and not (result.reused and not result.status and not attempts):  # closed while it was idle
            problems.append(f"the connection was {result.cut}, and nothing had gone wrong")
        if (
            last is not None
            and last.whole
            and last.sent
            and not got.finished
            and got.error
            and "budget" not in got.error
        ):
            problems.append(
                f"the provider sent a whole answer ({last.kind} {last.row}), the client got: {got.error[:120]}"
            )
        if result.status == 200 and result.complete and not got.finished and not got.error and not got.problem:
            problems.append("the answer has no end")
    return problems


def _audit_completed(result: Result, last: Served | None, entry: Entry | None) -> list[str]:
    """A client has got an answer that says that it is whole."""
    got, problems = result.got, list[str]()
    if last is None:
        return ["it was answered, and no provider was asked"]
    if last.text is None:
        problems.append(f"the answer of the provider was broken ({last.row}), and the client got a whole one")
    elif not last.damaged:
        if got.text != last.text:
            problems.append(
                f"the client got {got.text[-60:]!r} in place of {last.text[-60:]!r} ({last.kind} {last.row})"
            )
        expected = [(name, parsed(arguments)) for name, arguments in last.calls]
        if got.calls != expected and last.kind != "nested":  # too deep for JSON values: passed on as a text
            problems.append(
                f"the client got the calls {str(got.calls)[:80]} in place of {str(expected)[:80]} ({last.kind})"
            )
    if entry is not None and entry.outcome != "completed":
        problems.append(f"the client got a whole answer, and it is booked as {entry.outcome} ({entry.code})")
    return problems


def _audit_entry(result: Result, attempts: Sequence[Served], entry: Entry) -> list[str]:
    problems: list[str] = []
    for attempt in entry.attempts:
        cost = attempt.tokens.input * INPUT_COST + attempt.tokens.output * OUTPUT_COST
        if attempt.cost is not None and attempt.cost != cost and attempt.measure != "void":
            problems.append(f"it costs {attempt.cost}, and its tokens {cost}")
    if entry.outcome == "completed" and attempts and attempts[-1].usage is not None and attempts[-1].whole:
        booked = entry.attempts[-1].tokens
        if (booked.input, booked.output) != attempts[-1].usage or entry.attempts[-1].measure != "reported":
            problems.append(
                f"it is booked with {booked.input} and {booked.output} tokens ({entry.attempts[-1].measure}), "
                f"and the provider reported {attempts[-1].usage} ({attempts[-1].kind} {attempts[-1].row})"
            )
    if result.status and result.complete and entry.status and entry.status != result.status:
        problems.append(f"the client got the status {result.status}, and {entry.status} is booked")
    if not entry.attempts and attempts:
        problems.append(f"a provider was asked, and the entry has no attempt: {entry.outcome} {entry.code}")
    return problems


def _audit_sums(plan: Plan, entries: Sequence[Entry]) -> list[str]:
    """What is spent of each budget."""
    found: list[str] = []
    # Of two gateways, each has a ledger of its own; those of a pair have a share each while Redis is away.
    ledgers = 2 if plan.layout in ("two", "pair") else 1
    for number, budget in enumerate(BUDGETS, 1):
        spent = sum(entry.priced for entry in entries if entry.key == f"key_{number}")
        if spent > ledgers * (budget + _CALL_COST):
            found.append(f"key_{number} has spent {spent} of {budget}")
    return found
