"""If the model cannot answer, Penstock still serves, does not list it, and says exactly what to do."""

import os
from pathlib import Path
from typing import Any

import pytest
from openai import InternalServerError

from penstock.upstream.local.runtime import explain_exit, missing_features
from penstock.upstream.local.weights import SMOLLM2, path_of
from tests.local.conftest import Serve
from tests.local.served import MODEL, Served, user

# pip has no index.
NO_INDEX = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
BESIDE = '[providers.main]\nbase_url = "UPSTREAM"\napi_key = "a-key-of-some-length"\n'
# Hides the runtime from Python, as if it had not been installed.
HIDES = """\
from importlib.machinery import PathFinder

find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name == "xllamacpp" else find(name, *rest)
"""


def refusal(served: Served, model: str = MODEL) -> InternalServerError:
    """The error of a call."""
    with pytest.raises(InternalServerError) as refused:
        served.sdk.chat.completions.create(model=model, messages=user("Hi!"))
    assert (refused.value.status_code, refused.value.code) == (503, "local_unavailable")
    return refused.value


def state(served: Served, model: str = MODEL) -> dict[str, Any]:
    """The description of the model. It is listed only if it can answer."""
    reported = served.sdk.models.retrieve(model).model_extra or {}
    assert (model in [each.id for each in served.sdk.models.list().data]) is reported["available"]
    return reported


def says_the_same_everywhere(served: Served, reason: str, remedy: str) -> None:
    refused = refusal(served)
    for words in (reason, remedy):
        assert words in refused.message
        assert words in state(served)["reason"]
        assert words.lower() in "".join(served.output).lower()
    assert state(served)["available"] is False
    assert refused.response.headers["x-should-retry"] == "false"
    assert "curl" not in "".join(served.output)
    assert "docs/configuration.md" in "".join(served.output)


def test_offline_and_without_weights(serve: Serve, tmp_path: Path, weights: Path) -> None:
    del weights  # only whether it could run
    served = serve("", PENSTOCK_CACHE=str(tmp_path), PENSTOCK_OFFLINE="1", log="pretty")
    says_the_same_everywhere(served, "its weights are not there", "penstock model pull")
    assert not (tmp_path / "models").exists()


def test_without_a_network(serve: Serve, tmp_path: Path, weights: Path) -> None:
    del weights
    served = serve("", PENSTOCK_CACHE=str(tmp_path), **NO_INDEX, log="pretty")
    says_the_same_everywhere(served, "its weights are not there", "penstock model pull")
    assert "could not be fetched: no package index can be reached, or none has it; is there a network?" in "".join(
        served.output
    )


def test_without_its_runtime(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(HIDES)
    served = serve("", PENSTOCK_CACHE=str(tmp_path), PYTHONPATH=str(tmp_path), log="pretty")
    says_the_same_everywhere(served, "its runtime is not installed", "install it: ")
    assert not (tmp_path / "models").exists(), "weights were fetched that nothing can run"


def test_weights_that_are_damaged_are_refused(serve: Serve, tmp_path: Path, weights: Path) -> None:
    path = path_of(SMOLLM2, {"PENSTOCK_CACHE": str(tmp_path)})
    path.parent.mkdir()
    content = bytearray(weights.read_bytes())
    content[50_000_000] ^= 1
    path.write_bytes(content)
    served = serve(BESIDE, PENSTOCK_CACHE=str(tmp_path))
    message = refusal(served).message
    assert "its weights are damaged" in message
    assert "penstock model pull" in message
    path.write_bytes(weights.read_bytes())
    assert served.sdk.chat.completions.create(model=MODEL, messages=user("Hi!"), max_tokens=2).choices


def test_a_file_that_is_no_model(serve: Serve, tmp_path: Path, weights: Path) -> None:
    del weights
    (tmp_path / "odd.gguf").write_bytes(os.urandom(10_000))
    (tmp_path / "cut.gguf").write_bytes(b"GGUF" + bytes(8))
    tables = [f'[providers.{name}]\nmodel = "{tmp_path / name}.gguf"\n' for name in ("odd", "cut", "gone")]
    served = serve(BESIDE + "".join(tables) + "[providers.local]\nenabled = false\n")
    odd = refusal(served, "odd/odd")
    assert "it could not be loaded: invalid magic characters" in odd.message
    assert odd.response.headers["retry-after"]
    assert "it could not be loaded: " in refusal(served, "cut/cut").message
    assert "there is no file gone.gguf" in refusal(served, "gone/gone").message
    assert served.children() == []
    assert "invalid magic" in state(served, "odd/odd")["reason"]


def test_a_model_of_ones_own(serve: Serve, tmp_path: Path, weights: Path) -> None:
    (tmp_path / "Own-Model.gguf").symlink_to(weights)
    served = serve(
        f'[providers.desk]\nmodel = "{tmp_path}/Own-Model.gguf"\n[providers.local]\nenabled = false\n', log="pretty"
    )
    answer = served.sdk.chat.completions.create(model="desk/Own-Model", messages=user("Hi!"), max_tokens=3)
    assert answer.model == "Own-Model"
    banner = "".join(served.output)
    assert "desk/Own-Model runs on this machine" in banner
    assert "toy" not in banner


def test_beside_providers_one_that_no_one_asked_for_is_not_listed(serve: Serve, tmp_path: Path, weights: Path) -> None:
    served = serve(BESIDE, PENSTOCK_CACHE=str(tmp_path))
    assert [model.id for model in served.sdk.models.list().data] == []
    assert not any("etch" in line for line in served.output)
    assert "penstock model pull" in refusal(served).message
    assert not (tmp_path / "models").exists(), "it was fetched although nobody asked for it"
    asked = serve(BESIDE + "[providers.local]\n", PENSTOCK_CACHE=str(tmp_path))
    assert state(asked)["available"] is False
    asked.says("fetch them: penstock model pull")
    there = serve(BESIDE, PENSTOCK_CACHE=str(weights.parents[1]))
    assert state(there)["available"] is True


PROCESSORS: dict[str, tuple[str, str, str]] = {
    "one that fits": ("x86_64", "flags\t\t: fpu sse2 avx avx2 fma f16c bmi1 bmi2\n", ""),
    "an old one": ("x86_64", "processor: 0\nflags\t\t: fpu sse2 avx f16c\n", "lacks avx2, fma, bmi2"),
    "an ARM": ("aarch64", "Features\t: fp asimd\n", ""),
    "one that does not say": ("x86_64", "", ""),
}


@pytest.mark.parametrize(("machine", "cpuinfo", "lacks"), PROCESSORS.values(), ids=PROCESSORS)
def test_a_processor_is_asked_before_it_is_tried(machine: str, cpuinfo: str, lacks: str) -> None:
    obstacle = missing_features(machine, cpuinfo)
    assert (obstacle is None) == (not lacks)
    assert obstacle is None or lacks in obstacle.reason


DEATHS: dict[str, tuple[str, int, str, str]] = {
    "libgomp": (
        "failed: libgomp.so.1: cannot open shared object file: No such file or directory",
        1,
        "libgomp.so.1",
        "apt-get install libgomp1",
    ),
    "SIGILL": ("", -4, "this processor cannot run", "another machine"),
    "SIGKILL": ("", -9, "lack of memory", "context"),
    "nothing said": ("", 3, "ended with 3", "GGUF"),
}


@pytest.mark.parametrize(("sent_text", "status", "reason", "remedy"), DEATHS.values(), ids=DEATHS)
def test_a_death_is_explained(sent_text: str, status: int, reason: str, remedy: str) -> None:
    obstacle = explain_exit(sent_text, status)
    assert reason in obstacle.reason
    assert remedy in obstacle.remedy
