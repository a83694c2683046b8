"""Error codes and headers, which clients depend on, are in one table each. The code is scanned for any other."""

import ast
import functools
import re
from pathlib import Path
from typing import cast, get_args, get_type_hints

import pytest

import penstock
from penstock.core.hub.failure import Failure
from penstock.error_codes import ERROR_GROUPS, ERRORS, ErrorCode
from penstock.errors import AdminError
from penstock.gateway.limits.admission import Denial
from penstock.http.upstream_connection import UpstreamError
from scripts.client_headers import REQUEST_HEADERS, RESPONSE_HEADERS

SOURCE = Path(penstock.__file__).parent
TABLES = {SOURCE / "error_codes.py"}
# What makes an error by its code; mypy checks the types.
MAKERS = {"Failure", "Denial", "AdminError", "UpstreamError", "StaleConnectionError", "from_transport"}
HELPERS = {"refused", "refusal", "_refusal", "_refuse", "_of_model"}
# Headers that are no part of the API: those of providers that a capture keeps, and those of the admin page.
OTHER_HEADERS = {
    "openai-version",
    "x-amzn-errortype",
    "x-penstock-forwarded",  # between workers
    "x-session-id",  # an example in a message
    "x-penstock-",  # the beginning of a name
    "x-envoy-upstream-service-time",
    "x-anthropic-billing-header",  # the beginning of a text
    "x-claude-code-",
    "x-codex-",
    "x-stainless-",
    "x-ratelimit-",
    "x-content-type-options",
    "x-frame-options",
    "x-moz",
    "x-penstock-page",
}
HEADER = re.compile(r"(?<![\w/-])(x-(?!gzip)[a-z][a-z0-9-]*|openai-[a-z-]+|retry-after|traceparent)(?![\w.])")


def test_every_code_has_one_row() -> None:
    assert set(ERRORS) == set(get_args(ErrorCode))
    assert sum(map(len, ERROR_GROUPS.values())) == len(ERRORS)


def test_who_makes_an_error_takes_codes_of_the_table() -> None:
    for made_by in (Failure, Denial, AdminError.__init__, UpstreamError.__init__):
        assert get_type_hints(made_by)["code"] == ErrorCode


def test_no_error_is_made_with_another_code() -> None:
    with pytest.raises(KeyError):
        Failure(code=cast(ErrorCode, "no_such_code"), message="")


@pytest.mark.slow
def test_the_code_uses_the_table_and_nothing_else() -> None:
    used: set[str] = set()
    for path, tree in _modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                used.add(node.value)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MAKERS | HELPERS:
                for code in _codes(node):
                    assert code in ERRORS, f"{path.name}:{node.lineno}: {code} is not in error_codes.py"
            cast_to = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "cast"
            assert not cast_to or "ErrorCode" not in ast.dump(node), f"{path.name}: a code is cast, not checked"
    assert set(ERRORS) <= used, f"no longer used: {set(ERRORS) - used}"


@pytest.mark.slow
def test_the_code_sends_and_reads_no_header_that_is_not_in_the_table() -> None:
    known = {*REQUEST_HEADERS, *RESPONSE_HEADERS, *OTHER_HEADERS}
    used: set[str] = set()
    for path, tree in _modules():
        parts = path.relative_to(SOURCE).parts
        if parts[0] not in ("serve", "gateway", "http") and parts[:2] != ("core", "dialects"):
            continue
        whole = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            for name in HEADER.findall(node.value):
                if id(node) in whole and name.endswith("-"):  # the rest is computed
                    assert any(each.startswith(name) for each in known), f"{path.name}:{node.lineno}: {name}"
                    used |= {each for each in known if each.startswith(name)}
                else:
                    assert name in known, f"{path.name}:{node.lineno}: {name} is not in client_headers.py"
                    used.add(name)
    assert {name for name in known if HEADER.fullmatch(name)} <= used


@functools.cache
def _modules() -> list[tuple[Path, ast.Module]]:
    paths = [path for path in sorted(SOURCE.rglob("*.py")) if path not in TABLES]
    return [(path, _without_docstrings(ast.parse(path.read_text(encoding="utf-8")))) for path in paths]


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [each for each in body if not _is_text(each)]  # type: ignore[attr-defined]
    return tree


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _codes(call: ast.Call) -> list[str]:
    """The literals in a call that can only be a code: by keyword, or in snake case by position."""
    by_name = [each.value for each in call.keywords if each.arg == "code"]
    literals = [node.value for node in [*by_name, *call.args] if isinstance(node, ast.Constant)]
    return [each for each in literals if isinstance(each, str) and re.fullmatch(r"[a-z]+(_[a-z]+)+", each)]
