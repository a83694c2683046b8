"""The docstrings of a class's fields: the string after each annotation. Schemas and reference pages show them."""

import ast
import inspect
from itertools import pairwise


def field_docs(kind: type) -> dict[str, str]:
    """The docstrings of the fields of a class and of its bases, each on one line."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("penstock."):
            for field, doc in pairwise(ast.parse(inspect.getsource(base)).body[0].body):  # type: ignore[attr-defined]
                if isinstance(field, ast.AnnAssign) and isinstance(doc, ast.Expr):
                    found[ast.unparse(field.target)] = " ".join(ast.literal_eval(doc.value).split())
    return found
