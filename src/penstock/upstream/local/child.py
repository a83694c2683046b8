"""The child process of a local model: llama.cpp's own server on a unix socket, and a queue of turns in front of it.

    python -P child.py '{"folder": …, "model": …, …}'

The gateway runs this file by its path. It imports nothing of Penstock, so that it starts quickly and shares no state.
Five rules:

1. Standard input is the lifeline: a pipe whose other end only the gateway's processes have open. When the pipe closes,
   the child exits.
2. On standard output the child writes `ready`, or `failed: ` and the reason. Standard error is llama.cpp's log.
3. A caller takes a turn before its request: it connects to `turn.sock`, waits for a line, keeps the connection open
   while it reads the answer, and closes it. There are as many turns as slots, given in the order of arrival (FIFO). Up
   to `queue` callers may wait; the next one gets the line `full`. The line of a turn is JSON, with the traits of the
   model. A caller that dies returns its turn, because its connection closes.
4. The request itself goes to `model.sock`. llama.cpp has a queue of its own, but it notices late, or never, that a
   waiting caller has disconnected.
5. A caller that sends `retire` on `turn.sock` makes the child exit as soon as no caller has or awaits a turn.
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
# llama.cpp's log is kept to explain a failure. It is truncated when it is larger than this.
_MAX_LOG = 1_000_000
_OOM_SCORE = "500"
_NICE = 5


def main() -> None:
    """Load the model, open the queue of turns, serve until the lifeline closes."""
    settings = json.loads(sys.argv[1])
    folder: str = settings["folder"]
    _die_with_parent()
    try:
        _server = _load(settings)  # serves as long as there is a reference to it
        _lower_priority()
        traits = {"tools": _supports_tools(f"{folder}/model.sock")}
        turns = TurnQueue(f"{folder}/turn.sock", settings["slots"], settings["queue"], json.dumps(traits))
    except Exception as error:  # noqa: BLE001 - the gateway needs the reason, whatever the error is
        print(f"failed: {error}", flush=True)  # noqa: T201
        os._exit(1)
    print("ready", flush=True)  # noqa: T201
    os.dup2(2, 1)
    turns.run()
    _clean_up(folder)
    os._exit(0)  # a normal exit would wait until llama.cpp has finished its work


def _clean_up(folder: str) -> None:
    """Remove this process's files; and the gateway's folder, if the gateway has exited."""
    with suppress(OSError):
        for name in os.listdir(folder):
            os.unlink(f"{folder}/{name}")
        os.rmdir(folder)
        closed = select.select([_LIFELINE], [], [], 0)[0] and not os.read(_LIFELINE, 1)
        if closed:
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
    values: dict[str, object] = {
        "model_alias": {settings["name"]},
        "hostnames": [path],
        "hostname": path,
        "ui": False,
        "webui": False,
        "n_ctx": settings["context"],
        "kv_unified": True,  # otherwise the context is divided among the slots, and no slot may use more
        "n_parallel": settings["slots"],
        # A batch cannot be interrupted: the larger it is, the longer other slots wait, and the later a disconnected
        # caller is noticed. That takes 3.8 s with 512 and 0.7 s with 64, at the same throughput.
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
    _set(params, values)
    _set(params.sampling, settings["sampling"])
    return runtime.Server(params)


def _set(params: Any, values: dict[str, object]) -> None:
    """Set the parameters that this release of llama.cpp has: their names change between releases."""
    for name, value in values.items():
        if hasattr(params, name):
            setattr(params, name, value)


def _supports_tools(path: str) -> bool:
    """Whether the model's chat template supports tools."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(path)
        client.sendall(b"GET /props HTTP/1.0\r\n\r\n")
        answer = b""
        while data := client.recv(65_536):
            answer += data
    properties = json.loads(answer.partition(b"\r\n\r\n")[2])
    return bool(properties.get("chat_template_caps", {}).get("supports_tools"))


def _lower_priority() -> None:
    """Raise the nice value, and make this process the kernel's first victim when memory runs out, not the gateway."""
    with suppress(OSError):
        for thread in os.listdir("/proc/self/task"):  # each thread has its own; the server's threads exist by now
            os.setpriority(os.PRIO_PROCESS, int(thread), os.getpriority(os.PRIO_PROCESS, int(thread)) + _NICE)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:
        score.write(_OOM_SCORE)


def _die_with_parent() -> None:
    """Exit when the lifeline closes, even inside `Server()`, which keeps the GIL until the model is loaded.

    Linux sends SIGIO to the owner of a pipe when it closes, and by default the signal ends the process. The owner is a
    property of the open file description, which the gateway shares; so the child opens the pipe again for itself. On
    other systems the child notices the closed pipe after the model is loaded.
    """
    with suppress(OSError, AttributeError):
        own = os.open(f"/proc/self/fd/{_LIFELINE}", os.O_RDONLY)
        fcntl.fcntl(own, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(own, fcntl.F_SETFL, fcntl.fcntl(own, fcntl.F_GETFL) | os.O_ASYNC)
        os.dup2(own, _LIFELINE)
        os.close(own)
    if select.select([_LIFELINE], [], [], 0)[0]:  # it was closed before the signal was set up
        os._exit(0)


class TurnQueue:
    """Gives callers their turns in the order of arrival, at most `slots` at a time (rule 3)."""

    def __init__(self, path: str, slots: int, queue: int, traits: str) -> None:
        self._slots = slots
        self._queue = queue
        self._turn_line = f"{traits}\n".encode()
        self._active: set[socket.socket] = set()
        self._waiting: deque[socket.socket] = deque()
        self._retired = False
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.setblocking(False)
        with suppress(FileNotFoundError):
            os.unlink(f"{path}.new")
        self._listener.bind(f"{path}.new")
        self._listener.listen(_BACKLOG)
        os.rename(f"{path}.new", path)  # atomic: a socket at this path always accepts connections
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(_LIFELINE, selectors.EVENT_READ)

    def run(self) -> None:
        """Serve until the lifeline closes, or until it is retired and no caller has or awaits a turn."""
        _disable_signal()
        while not self._retired or self._active or self._waiting:
            for key, _ in self._selector.select():
                if key.fileobj == _LIFELINE:
                    return
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket):
                    self._read(key.fileobj)

    def _accept(self) -> None:
        try:
            caller, _ = self._listener.accept()
        except OSError:
            return
        caller.setblocking(False)
        self._selector.register(caller, selectors.EVENT_READ)
        if len(self._active) >= self._slots and len(self._waiting) >= self._queue:
            _send(caller, b"full\n")  # the connection stays open until the caller closes it: it may send `retire`
            return
        self._waiting.append(caller)
        self._give_turns()

    def _read(self, caller: socket.socket) -> None:
        try:
            line = caller.recv(64)
        except BlockingIOError:
            return
        except OSError:
            line = b""
        if line == b"retire\n":
            self._retired = True
        self._selector.unregister(caller)
        caller.close()
        self._active.discard(caller)
        with suppress(ValueError):
            self._waiting.remove(caller)
        self._give_turns()

    def _give_turns(self) -> None:
        while self._waiting and len(self._active) < self._slots:
            caller = self._waiting.popleft()
            self._active.add(caller)
            _send(caller, self._turn_line)  # if the caller has disconnected, the next select reports it
        if os.fstat(2).st_size > _MAX_LOG:
            with suppress(OSError):
                os.ftruncate(2, 0)


def _send(caller: socket.socket, line: bytes) -> None:
    with suppress(OSError):
        caller.send(line)


def _disable_signal() -> None:
    """Stop SIGIO: the selector watches the lifeline from now on, and unlike the signal leaves time to clean up."""
    with suppress(OSError, AttributeError):
        fcntl.fcntl(_LIFELINE, fcntl.F_SETFL, fcntl.fcntl(_LIFELINE, fcntl.F_GETFL) & ~os.O_ASYNC)


if __name__ == "__main__":
    main()
