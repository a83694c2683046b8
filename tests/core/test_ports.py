"""What the ports promise: a dialect writes only what it has, and nothing that a base has already."""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable

import pytest

from penstock.core.dialects.answer_writer import AnswerWriter
from penstock.core.dialects.dialect import UpstreamDialect
from penstock.core.dialects.frame_reader import FrameReader
from penstock.core.dialects.registry import DIALECTS


def bases() -> dict[str, tuple[type, type]]:
    """The classes of all dialects, by name, each with its base."""
    upstreams = [dialect.upstream for dialect in DIALECTS.values() if dialect.upstream is not None]
    found: list[tuple[type, type]] = [
        *((type(upstream), UpstreamDialect) for upstream in upstreams),
        *((upstream.reader, FrameReader) for upstream in upstreams),
        *((dialect.answers.writer, AnswerWriter) for dialect in DIALECTS.values() if dialect.answers is not None),
    ]
    return {own.__name__: (own, base) for own, base in found}


def body_of(method: Callable[..., object]) -> list[str]:
    """The statements of a method without its docstring."""
    (defined,) = ast.parse(textwrap.dedent(inspect.getsource(method))).body
    assert isinstance(defined, ast.FunctionDef)
    return [ast.unparse(statement) for statement in defined.body if not _is_docstring(statement)]


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def does_nothing(method: Callable[..., object]) -> bool:
    """Whether a method has no statement but `pass`, or the return of a constant or of one attribute."""
    return all(re.fullmatch(r"pass|return|return (?:b?'.*'|[\w.]+)", statement) for statement in body_of(method))


@pytest.mark.parametrize(("own", "base"), bases().values(), ids=bases())
def test_no_dialect_stubs_or_repeats_a_member(own: type, base: type) -> None:
    shared = vars(own).keys() & vars(base).keys()
    for name in (name for name in shared if name == "__init__" or not name.startswith(("__", "_abc"))):
        mine, default = vars(own)[name], vars(base)[name]
        if not inspect.isfunction(default):
            assert mine != default, name
        elif name != "heartbeat":  # which may be a constant
            assert not does_nothing(mine), name
            assert body_of(mine) != body_of(default), name
