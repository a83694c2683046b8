"""The names of attributes in the source of a module."""

import ast
import inspect
import re
from types import ModuleType


def attribute_names(module: ModuleType) -> set[str]:
    """The texts of a module that are names of attributes or metrics: words, separated by dots."""
    constants = (
        node.value for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.Constant)
    )
    return {text for text in constants if isinstance(text, str) and re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", text)}
