"""The child process of a model on this machine: llama.cpp's own server on a unix socket, and the turnstile before it.

    python -P child.py '{"folder": …, "model": …, …}'

It is run by its path and imports nothing of Penstock, so that it starts quickly and shares nothing. Five rules:

1. Standard input is the lifeline: a pipe whose other end only the gateway's processes hold. When it closes, this ends.
2. On standard output it says `ready`, or `failed: ` and why. On standard error llama.cpp says what it likes.
3. Who wants to ask takes a turn first: connect to `turn.sock`, wait for a line, hold the connection while the answer
   comes, close it. There are as many turns as slots, given in the order of arrival; so many may wait; others are told
   `full`. The line is JSON, and says what the model can do. A caller that dies gives its turn back by dying.
4. The request itself goes to `model.sock`. llama.cpp would queue too, but notices late, or never, that a waiting
   caller has gone.
5. Who says `retire` on `turn.sock` ends this as soon as no turn is out.
"""

import fcntl
import importlib
import json
import os
import select
import selectors
import shutil
import socket
import sys
from collections import deque
from contextlib import suppress
from typing import Any

_LIFELINE = 0
_BACKLOG = 512
# What llama.cpp says to nobody is kept for whoever looks for a reason, but not without end.
_MAX_SAID = 1_000_000
_OOM_SCORE = "500"
_NICE = 5


def main() -> None:
    """Load the model, open the turnstile, serve until the lifeline closes."""
    settings = json.loads(sys.argv[1])
    folder: str = settings["folder"]
    _die_with_parent()
    try:
        _server = _load(settings)  # which serves as long as somebody holds it
        _step_back()
        traits = {"tools": _supports_tools(f"{folder}/model.sock")}
        turnstile = Turnstile(f"{folder}/turn.sock", settings["slots"], settings["queue"], json.dumps(traits))
    except Exception as error:  # noqa: BLE001 - whatever it is, the gateway has to be told
        print(f"failed: {error}", flush=True)  # noqa: T201
        os._exit(1)
    print("ready", flush=True)  # noqa: T201
    os.dup2(2, 1)
    turnstile.run()
    _tidy_up(folder)
    os._exit(0)  # llama.cpp would first wait for what it is doing


def _tidy_up(folder: str) -> None:
    """Remove what was made for this process; and the gateway's folder, if the gateway is gone."""
    with suppress(OSError):
        for name in os.listdir(folder):
            os.unlink(f"{folder}/{name}")
        os.rmdir(folder)
        gone = select.select([_LIFELINE], [], [], 0)[0] and not os.read(_LIFELINE, 1)
        if gone:
            shutil.rmtree(os.path.dirname(folder), ignore_errors=True)
        else:
            os.rmdir(os.path.dirname(folder))


def _load(settings: dict[str, Any]) -> Any:
    runtime = importlib.import_module("xllamacpp")
    path = f"{settings['folder']}/model.sock"
    with suppress(FileNotFoundError):
        os.unlink(path)
    params = runtime.CommonParams()
    params.model.path = settings["model"]
    for threads in (params.cpuparams, params.cpuparams_batch):
        threads.n_threads = settings["threads"]
    wanted: dict[str, object] = {
        "model_alias": {settings["name"]},
        "hostnames": [path],
        "hostname": path,
        "ui": False,
        "webui": False,
        "n_ctx": settings["context"],
        "kv_unified": True,  # else each slot gets a share of the context, and no slot may have more
        "n_parallel": settings["slots"],
        # A batch cannot be stopped: the larger it is, the longer others stand still, and the later a caller that has
        # left is noticed. Of 512 it is 3.8 s, of 64 it is 0.7 s, at the same speed.
        "n_batch": 64,
        "n_ubatch": 64,
        "n_predict": settings["max_answer"],
        "cache_ram_mib": 0,  # 8 GB by default
        "n_threads_http": settings["slots"] + 2,
        "endpoint_slots": False,
        "cors_origins": "",
        "fit_params": False,
        "warmup": False,
        "verbosity": 1,
    }
    _set(params, wanted)
    _set(params.sampling, settings["sampling"])
    return runtime.Server(params)


def _set(params: Any, wanted: dict[str, object]) -> None:
    """Set what this release has: names come and go between releases."""
    for name, value in wanted.items():
        if hasattr(params, name):
            setattr(params, name, value)


def _supports_tools(path: str) -> bool:
    """Whether the model's template knows tools."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(10)
        asking.connect(path)
        asking.sendall(b"GET /props HTTP/1.0\r\n\r\n")
        answer = b""
        while data := asking.recv(65_536):
            answer += data
    properties = json.loads(answer.partition(b"\r\n\r\n")[2])
    return bool(properties.get("chat_template_caps", {}).get("supports_tools"))


def _step_back() -> None:
    """Be the first to be ended where memory is short, rather than the gateway; and the last to get a processor."""
    with suppress(OSError):
        for thread in os.listdir("/proc/self/task"):  # each has its own, and the server's are there by now
            os.setpriority(os.PRIO_PROCESS, int(thread), os.getpriority(os.PRIO_PROCESS, int(thread)) + _NICE)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:
        score.write(_OOM_SCORE)


def _die_with_parent() -> None:
    """End when the lifeline closes, even inside `Server()`, which holds the interpreter until the model is loaded.

    Linux signals the closing of a pipe to whoever owns it, and that signal ends a process which does not catch it. The
    owner belongs to the open file, which the gateway shares: hence a file of our own. Elsewhere it is noticed later.
    """
    with suppress(OSError, AttributeError):
        own = os.open(f"/proc/self/fd/{_LIFELINE}", os.O_RDONLY)
        fcntl.fcntl(own, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(own, fcntl.F_SETFL, fcntl.fcntl(own, fcntl.F_GETFL) | os.O_ASYNC)
        os.dup2(own, _LIFELINE)
        os.close(own)
    if select.select([_LIFELINE], [], [], 0)[0]:  # it closed before
        os._exit(0)


class Turnstile:
    """Gives turns, and takes them back."""

    def __init__(self, path: str, slots: int, queue: int, traits: str) -> None:
        self._slots = slots
        self._queue = queue
        self._go = f"{traits}\n".encode()
        self._inside: set[socket.socket] = set()
        self._waiting: deque[socket.socket] = deque()
        self._retired = False
        self._selector = selectors.DefaultSelector()
        self._door = socket.socket(socket.AF_UNIX)
        self._door.setblocking(False)
        with suppress(FileNotFoundError):
            os.unlink(f"{path}.new")
        self._door.bind(f"{path}.new")
        self._door.listen(_BACKLOG)
        os.rename(f"{path}.new", path)  # who finds it can connect to it
        self._selector.register(self._door, selectors.EVENT_READ)
        self._selector.register(_LIFELINE, selectors.EVENT_READ)

    def run(self) -> None:
        """Serve until the lifeline closes, or until it is retired and nobody has a turn."""
        _forget_signal()
        while not self._retired or self._inside or self._waiting:
            for key, _ in self._selector.select():
                if key.fileobj == _LIFELINE:
                    return
                if key.fileobj is self._door:
                    self._enter()
                elif isinstance(key.fileobj, socket.socket):
                    self._hear(key.fileobj)

    def _enter(self) -> None:
        try:
            caller, _ = self._door.accept()
        except OSError:
            return
        caller.setblocking(False)
        self._selector.register(caller, selectors.EVENT_READ)
        if len(self._inside) >= self._slots and len(self._waiting) >= self._queue:
            _tell(caller, b"full\n")  # and is let go when it goes: it may have something to say
            return
        self._waiting.append(caller)
        self._go_on()

    def _hear(self, caller: socket.socket) -> None:
        try:
            said = caller.recv(64)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if said == b"retire\n":
            self._retired = True
        self._selector.unregister(caller)
        caller.close()
        self._inside.discard(caller)
        with suppress(ValueError):
            self._waiting.remove(caller)
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting and len(self._inside) < self._slots:
            caller = self._waiting.popleft()
            self._inside.add(caller)
            _tell(caller, self._go)  # who has gone in the meantime is heard of next
        if os.fstat(2).st_size > _MAX_SAID:
            with suppress(OSError):
                os.ftruncate(2, 0)


def _tell(caller: socket.socket, line: bytes) -> None:
    with suppress(OSError):
        caller.send(line)


def _forget_signal() -> None:
    """The lifeline is watched here from now on, and not by a signal that leaves no time to tidy up."""
    with suppress(OSError, AttributeError):
        fcntl.fcntl(_LIFELINE, fcntl.F_SETFL, fcntl.fcntl(_LIFELINE, fcntl.F_GETFL) & ~os.O_ASYNC)


if __name__ == "__main__":
    main()
