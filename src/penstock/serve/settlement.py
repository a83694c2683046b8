"""Settlement: the end of a call: its ledger entry, and reports to metrics, traces, the live view and the log.

Metrics and log get several calls at once: neither the client nor the next call waits for them, and the second of two
calls in a row takes half of the time that the first one takes.
"""

import asyncio
from typing import TYPE_CHECKING

from penstock.gateway.billing.ledger import Ledger, NoLedger
from penstock.gateway.record.call import Call
from penstock.gateway.record.entry import Entry
from penstock.serve.edge import TrustedProxies
from penstock.serve.kept.call_content import CallContent
from penstock.serve.live.live_calls import LiveCalls
from penstock.serve.live.text_stream import TextStreams
from penstock.serve.shadow import Shadows
from penstock.serve.streams.durable_streams import DurableStreams
from penstock.serve.surfaces.call_session import CallSession, report
from penstock.serve.telemetry.log import Log
from penstock.serve.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from penstock.serve.telemetry.traces import Traces

# Settled calls are counted and logged after so many seconds, or when there are so many. The log's thread takes as long.
_BATCH_S = 0.05
_MAX_BATCH = 64


class Settlement:
    """Settles the calls of one process."""

    def __init__(
        self,
        calls: dict[CallSession, None],
        ledger: Ledger | NoLedger,
        metrics: Metrics,
        live: LiveCalls,
        text_streams: TextStreams,
        log: Log,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls = calls
        self._ledger = ledger
        self._metrics = metrics
        self._live = live
        self._text_streams = text_streams
        self._log = log
        self.streams: DurableStreams | None = None
        """The durable streams, which are empty if there are none."""
        self.content: CallContent | None = None
        """Keeps the content of calls for the operator."""
        self.shadows: Shadows | None = None
        """Repeats calls at other targets."""
        self.traces: Traces | None = None
        self.proxies: TrustedProxies | None = None
        """Who may report the address of a client."""
        self._unreported: list[tuple[Call, Entry, str]] = []  # with the address of the client
        self._report_timer: asyncio.TimerHandle | None = None

    def settle(self, session: CallSession) -> None:
        """Settle a call, and report it."""
        self._calls.pop(session, None)
        call = session.call
        call.progress.total_s = self._loop.time() - call.started
        call.progress.entry = entry = self._ledger.settle(call)
        if call.compared and self.shadows is not None:
            self.shadows.settled(call, entry)
        if call.content is not None and self.content is not None:
            self.content.settled(call, call.content, entry)
        if self.traces is not None and call.trace is not None:
            self.traces.settled(call, entry)
        if self._live.watched:
            self._live.settled(call, entry)
        if call.on_text is not None:
            self._text_streams.settled(call, entry)
        if self.streams:
            self.streams.settled(call.id, entry.outcome)
        address = session.address
        if self.proxies is not None:
            address = self.proxies.client(address, session.request_headers)
        self._report_soon(call, entry, address)

    def settle_shadow(self, call: Call) -> None:
        """Settle a call that no client made: a repeated one."""
        call.progress.entry = entry = self._ledger.settle(call)
        self._report_soon(call, entry, "")

    def _report_soon(self, call: Call, entry: Entry, address: str) -> None:
        self._unreported.append((call, entry, address))
        if self._report_timer is None:
            self._report_timer = self._loop.call_later(_BATCH_S, self.report)
        elif len(self._unreported) >= _MAX_BATCH:
            self.report()

    def report(self) -> None:
        """Count and log the calls that have been settled since the last time."""
        if self._report_timer is not None:
            self._report_timer.cancel()
            self._report_timer = None
        unreported, self._unreported = self._unreported, []
        for call, entry, address in unreported:
            try:
                self._metrics.settled(call, entry)
                if self._log.enabled:
                    self._log.call(call, entry, address)
            except Exception as error:  # noqa: BLE001 - the others are reported
                report(error)
