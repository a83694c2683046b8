"""Whatever happens to processes, the storage and the ledger, in any order: the sums are those of the ledger."""

from dataclasses import dataclass, field

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.gateway.limits.admission import Denial, Grant, Reservation
from penstock.stores.accounts.client import SharedAccountClient
from penstock.stores.accounts.operations import Booked, Extend, Operation, Release, Reserve, Settle
from tests.stores.accounts_together import KEY, MONTH, Ledger, MemoryStore, StoreLink, join_store, quota

BUDGET = 1000
PROCESSES = 3
LASTS_MS = 30_000
LIMITED = quota(budget=BUDGET, concurrent=6)
WHO = st.integers(0, PROCESSES - 1)
PICK = st.integers(0, 1000)


@dataclass
class Running:
    """A call, as its process knows it."""

    id: str
    reserved: int
    until: int
    settled: bool = False


@dataclass
class Process:
    """A participant, and its calls that are not booked yet: under way or settled, and in the ledger."""

    accounts: SharedAccountClient
    link: StoreLink
    calls: dict[str, Running] = field(default_factory=dict)
    unbooked: list[str] = field(default_factory=list)
    alone: set[str] = field(default_factory=set)
    """Calls that were changed while the change could not reach the other processes."""


class Calm(RuleBasedStateMachine):
    """Nothing fails: every process knows all there is to know, at every step."""

    def __init__(self) -> None:
        super().__init__()
        self.memory, self.ledger = MemoryStore(), Ledger()
        self.processes = [self.started() for _ in range(PROCESSES)]
        self.number = 0

    def started(self) -> Process:
        return Process(*join_store(self.memory, self.ledger))

    def do(self, process: Process, operation: Operation) -> object:
        """Once, and then once more: that must not matter."""
        answer = process.accounts.apply(KEY, [operation])[0]
        before = self.memory.account()
        process.accounts.apply(KEY, [operation])
        if process.accounts.degraded:
            process.alone.add(operation.id)
        again = self.memory.account()
        if before and again and not isinstance(operation, Booked) and not process.accounts.degraded:
            before.stale = again.stale = False
            assert before == again, f"{operation} came twice"
        return answer

    def pick(self, process: Process, number: int, settled: bool) -> Running | None:
        calls = [call for call in process.calls.values() if call.settled == settled]
        return calls[number % len(calls)] if calls else None

    @rule(who=WHO, cost=st.integers(0, BUDGET // 2))
    def reserve(self, who: int, cost: int) -> None:
        process = self.processes[who]
        self.number += 1
        id = f"call_{self.number}"
        exposed, under_way = self.exposed(), self.under_way()
        until = self.ledger.now + LASTS_MS
        answer = self.do(process, Reserve(LIMITED, Reservation(id, cost, 10, self.ledger.now, until)))
        self.judge(answer, exposed + cost, under_way + 1)
        if isinstance(answer, Grant):
            process.calls[id] = Running(id, cost, until)

    def judge(self, answer: object, exposed: int, under_way: int) -> None:
        if exposed > BUDGET or under_way > (LIMITED.concurrent or 0):
            assert isinstance(answer, Denial)
        else:
            assert isinstance(answer, Grant)

    @rule(who=WHO, number=PICK, more=st.integers(1, 100))
    def extend(self, who: int, number: int, more: int) -> None:
        process = self.processes[who]
        call = self.pick(process, number, settled=False)
        if call:
            answer = self.do(process, Extend(LIMITED, call.id, call.reserved + more, 20, self.ledger.now))
            if isinstance(answer, Grant):
                assert answer.cost <= call.reserved + more
                call.reserved = max(call.reserved, answer.cost)

    @rule(who=WHO, number=PICK, of=st.integers(0, 100))
    def settle(self, who: int, number: int, of: int) -> None:
        process = self.processes[who]
        call = self.pick(process, number, settled=False)
        if call:
            call.settled, call.reserved = True, call.reserved * of // 100
            self.do(process, Settle(call.id, call.reserved, 5, self.ledger.now))

    @rule(who=WHO, number=PICK)
    def release(self, who: int, number: int) -> None:
        process = self.processes[who]
        call = self.pick(process, number, settled=False)
        if call:
            del process.calls[call.id]
            self.do(process, Release(call.id, self.ledger.now))

    @rule(who=WHO, number=PICK)
    def commit(self, who: int, number: int) -> None:
        process = self.processes[who]
        call = self.pick(process, number, settled=True)
        if call:
            self.ledger.append(call.id, call.reserved)
            del process.calls[call.id]
            process.unbooked.append(call.id)

    @rule(who=WHO)
    def book(self, who: int) -> None:
        process = self.processes[who]
        if process.unbooked:
            self.do(process, Booked(process.unbooked.pop(0), self.ledger.now))

    def exposed(self) -> int:
        return self.ledger.total + sum(call.reserved for each in self.processes for call in each.calls.values())

    def under_way(self) -> int:
        return sum(not call.settled for process in self.processes for call in process.calls.values())

    @invariant()
    def sums_are_right(self) -> None:
        account = self.memory.account()
        if account:
            waiting = [id for process in self.processes for id in process.unbooked]
            running = [id for process in self.processes for id in process.calls]
            assert account.spent[MONTH] + account.owed.get(MONTH, 0) == self.exposed() <= BUDGET
            assert account.open == self.under_way()
            # An operation that came twice makes the account stale; what the ledger has is then taken from there.
            assert set(running) <= set(account.holds) <= {*waiting, *running}


class Storm(Calm):
    """Processes die, the storage loses data or does not answer: once all have reconnected, the sums are right."""

    def __init__(self) -> None:
        super().__init__()
        self.orphans: dict[str, int] = {}
        self.ghosts: set[str] = set()

    @rule()
    def flush(self) -> None:
        self.memory.lies.clear()

    @rule(who=WHO, swallowing=st.booleans())
    def shut(self, who: int, swallowing: bool) -> None:
        link = self.processes[who].link
        link.shut, link.swallowing = link.shut or not swallowing, swallowing

    @rule(who=WHO)
    def recover(self, who: int) -> None:
        process = self.processes[who]
        process.link.shut = process.link.swallowing = False
        if process.accounts.degraded:
            process.accounts.recover()
            process.alone.clear()

    @rule(who=WHO)
    def crash(self, who: int) -> None:
        """Its journal has the calls that it left open, and which of its calls are in the ledger already.

        Calls that ended while it was offline are unknown to the others. Their holds stay until they expire.
        """
        process = self.processes[who]
        self.ghosts |= process.alone
        self.orphans |= {call.id: call.reserved for call in process.calls.values()}
        self.orphans |= {id: self.ledger.entries[id][0] for id in process.unbooked}
        self.processes[who] = self.started()

    @precondition(lambda self: self.orphans)
    @rule(who=WHO, of=st.integers(0, 100))
    def adopt(self, who: int, of: int) -> None:
        """Another process books an orphan, as what is known of it."""
        id, reserved = self.orphans.popitem()
        self.ledger.append(id, reserved * of // 100)
        self.do(self.processes[who], Settle(id, self.ledger.entries[id][0], 5, self.ledger.now))
        self.do(self.processes[who], Booked(id, self.ledger.now))

    @rule(ms=st.sampled_from((1, 1000, 15_000)))
    def wait(self, ms: int) -> None:
        """No call of a living process takes longer than it said; what a dead one held does."""
        ends = [call.until for process in self.processes for call in process.calls.values() if not call.settled]
        self.ledger.now = min(self.ledger.now + ms, *ends, self.ledger.now + ms)

    def judge(self, answer: object, exposed: int, under_way: int) -> None:
        pass

    @invariant()
    def sums_are_right(self) -> None:
        pass

    @rule()
    def settle_down(self) -> None:
        """All processes have reconnected, and no call has ended. Orphans are held until they expire, or are lost."""
        for who, process in enumerate(self.processes):
            self.recover(who)
            while process.unbooked:
                self.book(who)
        for process in self.processes:
            process.accounts.refresh()
            now = self.ledger.now
            process.accounts.apply(KEY, [Reserve(LIMITED, Reservation("x", BUDGET * 9, 0, now, now))])
        account = self.memory.account()
        assert account
        late = [id for id in {*self.orphans, *self.ghosts} if id in self.ledger.entries]
        mine = {id: call.reserved for process in self.processes for id, call in process.calls.items()}
        assert set(mine) <= set(account.holds) <= {*mine, *self.orphans, *self.ghosts}
        assert all(account.holds[id].cost == reserved for id, reserved in mine.items())
        # An orphan that is in the ledger, and that no process has booked since, may be in the sum, held, or not yet
        # known.
        unseen = sum(self.ledger.entries[id][0] for id in late)
        assert self.ledger.total - unseen <= account.spent[MONTH] <= self.ledger.total

    def teardown(self) -> None:
        while self.orphans:
            self.adopt(0, 50)
        self.settle_down()
        for who, process in enumerate(self.processes):
            for call in list(process.calls.values()):
                if call.settled:
                    self.ledger.append(call.id, call.reserved)
                    self.do(process, Booked(call.id, self.ledger.now))
                else:
                    self.do(process, Release(call.id, self.ledger.now))
            process.calls.clear()
            assert not self.processes[who].accounts.degraded
        self.ledger.now += 2 * 3_600_000
        self.ghosts.clear()
        self.settle_down()
        account = self.memory.account()
        assert account
        assert (account.spent[MONTH], account.holds, account.open) == (self.ledger.total, {}, 0)


# Of the profile's examples, 60 in the whole run and 30 in the fast tier: each is a run of forty steps.
QUICK = settings(
    max_examples=settings().max_examples * 3 // 5,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestCalm = Calm.TestCase
TestCalm.settings = QUICK
TestStorm = Storm.TestCase
TestStorm.settings = QUICK
