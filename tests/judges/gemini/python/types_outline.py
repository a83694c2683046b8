"""Prints the shapes of google-genai's types that requests and answers consist of: `tests/gemini_api/sdk_types.json`.

The interpreter that has google-genai runs it, with the root of the repository as working directory.
"""

import json
import sys
from typing import Any

from google.genai import types

sys.path.insert(0, ".")

from tests.sdk_types import outline, shape_of

_ROOTS = {
    "content": types.Content,
    "tool": types.Tool,
    "tool_config": types.ToolConfig,
    "safety_setting": types.SafetySetting,
    "generation_config": types.GenerationConfig,
    "answer": types.GenerateContentResponse,
}

written: dict[str, Any] = outline({name: shape_of(each) for name, each in _ROOTS.items()})
lines = [f"{json.dumps(name)}: {json.dumps(members)}" for name, members in sorted(written["types"].items())]
sys.stdout.write(f'{{"roots": {json.dumps(written["roots"])},\n"types": {{\n' + ",\n".join(lines) + "\n}}\n")
