"""The requests that the workers of one gateway serve for each other (`workers/peers.py`)."""

from urllib.parse import parse_qs

from penstock.http.exchange import Exchange
from penstock.serve.kept import recent_answers
from penstock.serve.kept.recent_answers import RecentAnswers
from penstock.serve.live.live_calls import LiveCalls, LiveFilter
from penstock.serve.live.text_stream import TextStreams
from penstock.serve.rejections import Rejections
from penstock.serve.responses import respond_json
from penstock.serve.streams import peer_streams
from penstock.serve.streams.peer_streams import PeerStreams
from penstock.serve.telemetry.metrics import Metrics
from penstock.serve.workers.peers import Routes


def peer_routes(
    metrics: Metrics,
    live: LiveCalls,
    text_streams: TextStreams,
    rejections: Rejections,
    recent: RecentAnswers | None,
    streams: PeerStreams,
) -> Routes:
    """The handlers of one worker, by method and path."""

    def stream_text(exchange: Exchange) -> None:
        session = live.find(_parameter(exchange, "id"))
        if session is None or not live.content:
            respond_json(exchange, 404, {})
        else:
            text_streams.join(session.call, exchange, {})

    def snapshot(exchange: Exchange) -> None:
        view = LiveFilter.parse(_parameter(exchange, "find"), _parameter(exchange, "before"))
        respond_json(exchange, 200, live.snapshot(view))

    def stop(exchange: Exchange) -> None:
        respond_json(exchange, 200 if live.stop(_parameter(exchange, "id")) else 404, {})

    return {
        **({("POST", recent_answers.PATH): recent.handle} if recent is not None else {}),
        ("GET", peer_streams.PATH): streams.handle,
        ("GET", "/gauges"): metrics.handle_gauges,
        ("GET", "/metrics"): metrics.handle,
        ("GET", "/live"): snapshot,
        ("GET", "/text"): stream_text,
        ("GET", "/rejections"): lambda exchange: respond_json(exchange, 200, rejections.rows),
        ("POST", "/stop"): stop,
    }


def _parameter(exchange: Exchange, name: str) -> str:
    return parse_qs(exchange.request.query).get(name, [""])[0]
