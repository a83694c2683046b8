"""Apis: the APIs that clients can use, by path: answers, embeddings, token counts and kept answers of each dialect."""

from collections.abc import Callable
from functools import cached_property
from typing import TypeAlias, TypeVar
from weakref import WeakSet

from penstock.core.dialects.dialect import Dialect, StoredAnswers
from penstock.core.dialects.registry import DEFAULT_DIALECT, DIALECTS, clients_speak
from penstock.gateway.config import Config
from penstock.http.exchange import HttpRequest
from penstock.serve.kept.background import BackgroundCalls
from penstock.serve.kept.compactions import Compactions
from penstock.serve.kept.connection_answers import ConnectionAnswers
from penstock.serve.kept.continuations import Continuations
from penstock.serve.kept.keeper import AnswerKeeper
from penstock.serve.kept.routes import KeptRoutes
from penstock.serve.kept.stateful_answers import StatefulAnswers
from penstock.serve.kept.summaries import Summaries, SummarySecret
from penstock.serve.model_routes import dialect_of_list
from penstock.serve.streams.routes import StreamRoutes
from penstock.serve.streams.shared_answers import SharedAnswers
from penstock.serve.surfaces.answers import Answers, Playground
from penstock.serve.surfaces.call_session import CallSession
from penstock.serve.surfaces.embeddings import Embeddings
from penstock.serve.surfaces.token_counts import TokenCounts

_EMBEDDINGS = "/embeddings"

Calls: TypeAlias = dict[CallSession, None]
OnSettled: TypeAlias = Callable[[CallSession], None]
Made = TypeVar("Made", bound=StatefulAnswers)
MakeSurface: TypeAlias = Callable[[str, Continuations, AnswerKeeper | None, Calls, OnSettled], Made]
"""Makes the surface of a dialect whose answers can be continued."""


class Apis:
    """The surfaces of all dialects. `calls` are the calls in progress. Calls `on_settled` for each that has ended."""

    def __init__(
        self,
        calls: Calls,
        on_settled: OnSettled,
        keeper: AnswerKeeper | None,
        summary_secret: SummarySecret,
        streams: StreamRoutes,
        shared: SharedAnswers,
    ) -> None:
        self._calls = calls
        self._on_settled = on_settled
        self._keeper = keeper
        self._summary_secret = summary_secret
        self._shared_state = False
        self._paths = {path: name for name in clients_speak() for path in DIALECTS.paths(name)}
        self._paths[_EMBEDDINGS] = DEFAULT_DIALECT
        self._surfaces: dict[str, Answers | Embeddings | TokenCounts] = {_EMBEDDINGS: Embeddings(calls, on_settled)}
        self._continuations: WeakSet[Continuations] = WeakSet()
        self._kept_routes: dict[str, KeptRoutes] = {}
        self._stream_routes = streams
        self._streams = streams.streams
        self._shared = shared

    def use(self, config: Config) -> None:
        """Apply a configuration."""
        self._shared_state = config.server.shared_state
        for continuations in self._continuations:
            continuations.shared_state = self._shared_state

    def surface(self, path: str) -> Answers | Embeddings | TokenCounts | None:
        """What starts calls at a path, if anything. The APIs of a dialect are made when one of them is first called."""
        surface = self._surfaces.get(path)
        if surface is None and path in self._paths:
            self._add(DIALECTS[self._paths[path]])
            surface = self._surfaces[path]
        return surface

    def starts_calls(self, path: str) -> bool:
        """Whether calls are started at this path."""
        return path in self._paths

    def _add(self, dialect: Dialect) -> None:
        """Offer the APIs of a dialect."""
        surface, continuations, summaries = dialect.surface, None, self._summaries(dialect)
        if dialect.stored is not None:
            continuations = self._continue(dialect.stored, summaries)
        if surface is not None and dialect.stored is not None and continuations is not None:
            stateful = StatefulAnswers(dialect.name, continuations, self._keeper, self._calls, self._on_settled)
            self._surfaces[surface.path] = stateful
            background = self._background(dialect, dialect.stored)
            stateful.background = background
            self._kept_routes[surface.path] = KeptRoutes(
                dialect.name, dialect.stored, self._keeper, background, self._stream_routes
            )
        elif surface is not None:
            self._surfaces[surface.path] = Answers(dialect.name, self._calls, self._on_settled)
            if dialect.unstreamed_path:
                self._surfaces[dialect.unstreamed_path] = self._surfaces[surface.path]
        if surface is not None and isinstance(answers := self._surfaces[surface.path], Answers):
            answers.streams, answers.shared = self._streams, self._shared
        if summaries is not None and continuations is not None:
            compactions = Compactions(dialect.name, continuations, summaries, self._calls, self._on_settled)
            self._surfaces[summaries.compaction.path] = compactions
            if surface is not None and isinstance(answers := self._surfaces[surface.path], StatefulAnswers):
                answers.compactions = compactions
        if (counting := dialect.token_counting) is not None:
            self._surfaces[counting.path] = TokenCounts(
                dialect.name, counting, continuations, self._calls, self._on_settled
            )

    def _background(self, dialect: Dialect, stored: StoredAnswers) -> BackgroundCalls | None:
        if dialect.background is None:
            return None
        return BackgroundCalls(dialect.name, dialect.background, stored, self._streams, self._calls)

    def _continue(
        self, stored: StoredAnswers, summaries: Summaries | None, connection: ConnectionAnswers | None = None
    ) -> Continuations:
        """What resolves requests that continue answers. It lives as long as something uses it."""
        continuations = Continuations(stored, self._keeper, summaries, connection)
        continuations.shared_state = self._shared_state
        self._continuations.add(continuations)
        return continuations

    def on_connection(self, dialect: Dialect, answers: ConnectionAnswers, make: MakeSurface[Made]) -> Made:
        """The API of a dialect on one connection, which has answers of its own."""
        assert dialect.stored is not None
        continuations = self._continue(dialect.stored, self._summaries(dialect), answers)
        made = make(dialect.name, continuations, self._keeper, self._calls, self._on_settled)
        if dialect.compaction is not None and isinstance(found := self.surface(dialect.compaction.path), Compactions):
            made.compactions = found
        return made

    def _summaries(self, dialect: Dialect) -> Summaries | None:
        return Summaries(dialect.compaction, self._summary_secret) if dialect.compaction is not None else None

    @cached_property
    def playgrounds(self) -> dict[str, Playground]:
        """What starts calls of the page's playground, by the name of the API."""
        made = (Playground(name, self._calls, self._on_settled) for name in clients_speak())
        return {playground.name: playground for playground in made}

    @property
    def titles(self) -> dict[str, str]:
        """The title of each API that has a playground, by its name."""
        return {name: DIALECTS[playground.dialect].title for name, playground in self.playgrounds.items()}

    def kept_routes(self, path: str) -> tuple[KeptRoutes, str] | None:
        """The routes of kept answers for a path, and the rest of the path; None if it is about no kept answer."""
        for offered in self._paths:
            if path.startswith(f"{offered}/") and self.surface(offered) and offered in self._kept_routes:
                return self._kept_routes[offered], path.removeprefix(f"{offered}/")
        return None

    def dialect(self, path: str, request: HttpRequest) -> str:
        """The dialect of a client, by the path that it requests or by its headers."""
        if path in self._paths:
            return self._paths[path]
        if (kept := self.kept_routes(path)) is not None:
            return kept[0].dialect
        return dialect_of_list(request)
