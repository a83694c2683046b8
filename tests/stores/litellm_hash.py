"""Run by the interpreter that has LiteLLM: hashes keys with LiteLLM's own functions, and prints them as JSON.

Only these functions of `litellm/proxy/utils.py` are compiled. To import the module, all dependencies of LiteLLM would
have to be installed.

Arguments: the name of the function, then the keys.
"""

import ast
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any, Final

_FUNCTIONS = {"hash_token", "_hash_token_if_needed"}


def functions() -> dict[str, Any]:
    """LiteLLM's functions that hash keys: `hash_token` when one is stored, the other when one is looked up."""
    found = importlib.util.find_spec("litellm")
    assert found is not None
    assert found.origin is not None
    file = Path(found.origin).parent / "proxy/utils.py"
    tree = ast.parse(file.read_text(encoding="utf-8"))
    tree.body = [each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name in _FUNCTIONS]
    names: dict[str, Any] = {"Final": Final}
    exec(compile(tree, str(file), "exec"), names)
    return names


if __name__ == "__main__":
    function = functions()[sys.argv[1]]
    sys.stdout.write(json.dumps({key: function(key) for key in sys.argv[2:]}))
