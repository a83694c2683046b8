"""The process itself (G1, G2, G6, G20 to G22, G26, G30): signals, reloads, dead workers, and what runs out."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.faults.client import CLIENT_KEY, RawClient, body, get, post
from tests.faults.conftest import Starter
from tests.faults.gateway import PROVIDER_KEY, Gateway, settings
from tests.faults.scripts import HELLO, REST, TEXT, WORLD, whole
from tests.faults.support import wait_until_listening, worker_pids
from tests.faults.upstream import Gate, Script, Upstream, chunk, hang, head, last_chunk
from tests.promptness import Late, in_time, prompt

AT_ONCE_S = 0.3


def waiting(gate: Gate) -> Script:
    return [head(), chunk(HELLO), gate, chunk(WORLD + REST), last_chunk()]


def refuses(gateway: Gateway) -> bool:
    """Whether no process listens there."""
    with socket.socket() as knocking:
        return knocking.connect_ex(("127.0.0.1", gateway.port)) != 0


def wait_until_it_refuses(gateway: Gateway) -> float:
    began = time.monotonic()
    while not refuses(gateway):
        assert time.monotonic() - began < 30.0, "it still listens"
        time.sleep(0.005)  # there is no notification that a port is closed
    return time.monotonic() - began


# G1 and G2: shutting down.


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
@prompt
def test_g1_streams_under_way_are_finished(start: Starter, number: int) -> None:
    gateway = start(server={"drain_s": 30.0})
    gate = Gate()
    model = gateway.upstream.play(waiting(gate))
    streamed, unstreamed = (gateway.begin(f"main/{model}", stream=stream) for stream in (True, False))
    idle = gateway.client()
    streamed.read_until(b"Hello")
    gateway.upstream.asked(model, 2)
    gateway.signal(number)
    took = wait_until_it_refuses(gateway)
    idle.ends()
    gate.open()
    for client in (streamed, unstreamed):
        response = gateway.keep(client.response())
        assert (response.status, response.text, response.finish) == (200, TEXT, "stop")
        assert response.complete
        client.ends()
        client.close()
    assert gateway.wait() == 0
    assert [line["ending"] for line in gateway.calls] == ["completed"] * 2
    idle.close()
    in_time(took, AT_ONCE_S)


@prompt
def test_g1_what_does_not_finish_in_time_is_reported(start: Starter) -> None:
    gateway = start(server={"drain_s": 0.4})
    model = gateway.upstream.play([head(), chunk(HELLO), hang()])
    silent = gateway.upstream.play([hang()])
    streamed, unstreamed = (gateway.begin(f"main/{model}", stream=stream) for stream in (True, False))
    unbegun = gateway.begin(f"main/{silent}", stream=True)
    streamed.read_until(b"Hello")
    gateway.upstream.asked(model, 2)
    gateway.upstream.asked(silent)
    began = time.monotonic()
    gateway.signal(signal.SIGTERM)
    response = gateway.keep(streamed.response())
    assert (response.text, response.error["code"], response.done) == ("Hello", "gateway_draining", False)
    assert response.complete
    for client in (unstreamed, unbegun):
        response = gateway.keep(client.response())
        assert (response.status, response.error["code"]) == (503, "gateway_draining")
        assert response.headers["retry-after"]
    assert gateway.wait() == 0
    took = time.monotonic() - began
    gateway.until(lambda: len(gateway.calls) == 3)
    assert {line["code"] for line in gateway.calls} == {"gateway_draining"}
    for client in (streamed, unstreamed, unbegun):
        client.close()
    assert took > 0.3
    in_time(took, 2.0)


@prompt
def test_g2_a_second_signal_does_not_wait(start: Starter) -> None:
    gateway = start(server={"drain_s": 30.0})
    model = gateway.upstream.play([head(), chunk(HELLO), hang()])
    with gateway.begin(f"main/{model}", stream=True) as client:
        client.read_until(b"Hello")
        gateway.signal(signal.SIGINT)
        wait_until_it_refuses(gateway)
        gateway.says("waits up to 30 s for 1 call to finish; press Ctrl-C or send SIGTERM again to end at once")
        assert [line for line in gateway.lines if "waits up to" in line.get("message", "")]
        time.sleep(0.3)  # a person sends a second signal
        began = time.monotonic()
        gateway.signal(signal.SIGTERM)
        response = gateway.keep(client.response())
        assert response.error["code"] == "gateway_draining"
        assert response.complete
        assert gateway.wait() == 0
        in_time(time.monotonic() - began, 1.5)


@prompt
def test_g1_with_nothing_under_way_it_ends_at_once(start: Starter) -> None:
    gateway = start(server={"drain_s": 30.0})
    model = gateway.upstream.play(whole())
    gateway.ask(f"main/{model}", stream=True)
    began = time.monotonic()
    assert gateway.stop() == 0
    in_time(time.monotonic() - began, 1.0)
    assert not any("waits up to" in line for line in gateway.output)


@prompt
def test_g1_a_client_that_never_reads_does_not_hold_up_the_end(start: Starter) -> None:
    gateway = start(server={"drain_s": 0.3})
    model = gateway.upstream.play([head(), *[chunk(HELLO * 100)] * 200, hang()])
    with gateway.begin(f"main/{model}", stream=True, receive_buffer=4096):
        gateway.upstream.asked(model)
        began = time.monotonic()
        assert gateway.stop() == 0
        in_time(time.monotonic() - began, 2.5)


# G6: workers.


def test_g6_a_worker_that_is_killed_is_replaced_and_the_others_do_not_notice(start: Starter) -> None:
    gateway = start("--workers", "3", server={"drain_s": 5.0})
    wait_until_listening(gateway, 3)
    gate = Gate()
    model = gateway.upstream.play(waiting(gate))
    with ExitStack() as stack:
        clients: list[RawClient] = []
        workers = worker_pids(gateway, 3)
        served: dict[int, int] = {}
        while len(clients) < 12 or len(served) < 2:  # the kernel chooses the worker of each connection
            clients.append(stack.enter_context(gateway.begin(f"main/{model}", stream=True)))
            clients[-1].read_until(b"Hello")
            served[worker_of(gateway, clients[-1], workers)] = len(clients)
        victim = next(iter(served))
        os.kill(victim, signal.SIGKILL)
        worker_pids(gateway, 3, without=victim)
        wait_until_listening(gateway, 3)
        gate.open()
        whole_ones = [each for client in clients if (each := answer(client)) is not None]
        assert 0 < len(whole_ones) < len(clients)
        assert {response.text for response in whole_ones} == {TEXT}
        ok = gateway.upstream.play(whole())
        assert [gateway.ask(f"main/{ok}", stream=True).text for _ in range(20)] == [TEXT] * 20
    assert gateway.stop() == 0


def worker_of(gateway: Gateway, client: RawClient, workers: list[int]) -> int:
    """The worker that has a client's connection."""
    end = gateway.end_of(client)
    return next(pid for pid in workers if end in gateway.open_files(pid))


def answer(client: RawClient) -> Any:
    try:
        response = client.response()
    except ConnectionError:
        return None
    return response if response.complete else None


def test_g1_workers_finish_their_streams(start: Starter) -> None:
    gateway = start("--workers", "2", server={"drain_s": 5.0})
    wait_until_listening(gateway, 2)
    finishes_streams(gateway, group=False)


@prompt
def test_g1_workers_finish_their_streams_when_all_are_signalled(start: Starter) -> None:
    """A terminal sends SIGINT to the whole group, a service manager SIGTERM: a worker gets it twice. It counts once."""
    gateway = start("--workers", "2", server={"drain_s": 5.0})
    wait_until_listening(gateway, 2)
    finishes_streams(gateway, group=True)


def finishes_streams(gateway: Gateway, *, group: bool) -> None:
    gate = Gate()
    model = gateway.upstream.play(waiting(gate))
    with ExitStack() as stack:
        clients = [stack.enter_context(gateway.begin(f"main/{model}", stream=True)) for _ in range(8)]
        for client in clients:
            client.read_until(b"Hello")
        gateway.signal(signal.SIGINT, group=group)
        wait_until_it_refuses(gateway)
        gate.open()
        texts = [client.response().text for client in clients]
    assert gateway.wait() == 0
    if group and texts != [TEXT] * 8:
        raise Late("the supervisor sent the signal so late that it counted as a second one")
    assert texts == [TEXT] * 8


def test_g6_a_signal_while_a_worker_is_being_replaced_ends_it_all(start: Starter) -> None:
    gateway = start("--workers", "2")
    victim, *_ = worker_pids(gateway, 2)
    os.kill(victim, signal.SIGKILL)  # it died soon after its start: its successor starts after a second
    time.sleep(0.1)
    assert gateway.stop() == 0


def test_g6_workers_do_not_outlive_their_supervisor(start: Starter) -> None:
    gateway = start("--workers", "2")
    wait_until_listening(gateway, 2)
    gateway.signal(signal.SIGKILL)
    gateway.wait()
    deadline = time.monotonic() + 30.0
    while not refuses(gateway):
        assert time.monotonic() < deadline, "orphans serve on"
        time.sleep(0.02)


@pytest.mark.parametrize("workers", [1, 2])
def test_g6_a_port_is_shared_with_no_other_gateway(start: Starter, tmp_path: Path, workers: int) -> None:
    gateway = start("--workers", "2")
    wait_until_listening(gateway, 2)
    arguments = ("--config", str(gateway.file), "--port", str(gateway.port), "--workers", str(workers))
    other = subprocess.run(
        [*gateway.command, "serve", *arguments],
        env=os.environ | {"PENSTOCK_STATE": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60.0,
        check=False,
    )
    assert other.returncode == 1
    assert json.loads(other.stderr)["message"] == (
        f"cannot listen on 127.0.0.1:{gateway.port}: the port is in use by another program; choose another with --port"
    )


# G20 to G22: reloading.


def reload(gateway: Gateway, configuration: str, words: str = "the configuration was reloaded") -> None:
    reported = sum(words in line for line in gateway.output)
    gateway.file.write_text(configuration)
    gateway.signal(signal.SIGHUP)
    gateway.until(lambda: sum(words in line for line in gateway.output) > reported)


def test_g20_streams_keep_their_snapshot_and_new_calls_get_the_new_one(start: Starter) -> None:
    gateway = start()
    old = gateway.file.read_text()
    gate = Gate()
    model = gateway.upstream.play(waiting(gate))
    with gateway.begin(f"main/{model}", stream=True) as client, Upstream() as other:
        client.read_until(b"Hello")
        reload(gateway, old.replace(gateway.upstream.url, other.url))
        ok = other.play(whole())
        assert gateway.ask(f"main/{ok}", stream=True).text == TEXT
        assert len(other.requests(ok)) == 1
        gate.open()
        assert gateway.keep(client.response()).text == TEXT
        reload(gateway, old)
    assert gateway.ask(f"main/{gateway.upstream.play(whole())}", stream=False).text == TEXT


def test_g20_a_connection_that_was_let_in_is_asked_for_its_key_again(start: Starter) -> None:
    gateway = start()
    old = gateway.file.read_text()
    mine = post(body(f"main/{gateway.upstream.play(whole())}", stream=True))
    other = mine.replace(CLIENT_KEY.encode(), b"another-key")
    with gateway.client() as client:

        def assert_let_in(request: bytes) -> None:
            for _ in range(2):
                gateway.expected += 1
                client.send(request)
                assert gateway.keep(client.response()).text == TEXT

        def assert_refused(request: bytes) -> None:
            client.send(request)
            assert client.response().error["code"] == "invalid_api_key"

        assert_let_in(mine)
        assert_refused(other)
        assert_let_in(mine)
        reload(gateway, old.replace(CLIENT_KEY, "another-key"))
        assert_refused(mine)
        assert_refused(mine)
        assert_let_in(other)
        reload(gateway, old)
        assert_refused(other)
        assert_let_in(mine)
    gateway.quiet()


BROKEN = {
    "no TOML": ("[server", "1"),
    "an unknown key": ("[server]\nlisen = 'x'\n", "lisen"),
    "an unknown provider": ("[routes.a]\ntargets = ['nobody/x']\n", "nobody"),
    "not UTF-8": ("\udcff\udcfe", ""),
    "empty keys beyond loopback": ("[server]\nlisten = '0.0.0.0:0'\n", ""),
}


@pytest.fixture(scope="module")
def reloaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway for all tests in which a reload changes nothing."""
    folder = tmp_path_factory.mktemp("reloaded")
    with Upstream() as upstream, Gateway(folder, upstream, settings(upstream.url)) as gateway:
        yield gateway


def stays_as_it_is(gateway: Gateway, words: str) -> None:
    """It reports at SIGHUP that it has not reloaded the configuration, with these words, and serves as before."""
    before = len(gateway.output)
    model = gateway.upstream.play(whole())
    gateway.signal(signal.SIGHUP)
    gateway.until(lambda: any("the configuration was not reloaded" in line for line in gateway.output[before:]))
    assert words in "".join(gateway.output[before:])
    assert gateway.ask(f"main/{model}", stream=True).text == TEXT
    gateway.quiet()


@pytest.mark.parametrize(("text", "words"), BROKEN.values(), ids=BROKEN)
def test_g21_a_broken_file_changes_nothing_and_the_log_says_so(reloaded: Gateway, text: str, words: str) -> None:
    reloaded.file.write_bytes(text.encode(errors="surrogateescape"))
    stays_as_it_is(reloaded, words)


def test_g21_a_file_that_is_gone_changes_nothing(reloaded: Gateway) -> None:
    reloaded.file.unlink()
    stays_as_it_is(reloaded, "")


def keyless(gateway: Gateway) -> set[int]:
    """The statuses of requests without a key, each handled by a worker that the kernel chooses."""
    return {gateway.send(get("/v1/models", {"Authorization": ""})).status for _ in range(12)}


def hang_up(gateway: Gateway, times: int, words: str) -> None:
    """Make it reload, and wait until the log has these words this many times: once for each worker, or once."""
    gateway.signal(signal.SIGHUP)
    gateway.until(lambda: sum(words in line for line in gateway.output) == times)


OPEN_TO_OTHERS: dict[str, tuple[tuple[str, ...], str]] = {
    "by the file": ((), "0.0.0.0:0"),
    "by --host": (("--host", "0.0.0.0"), "127.0.0.1:0"),
}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(("arguments", "listen"), OPEN_TO_OTHERS.values(), ids=OPEN_TO_OTHERS)
def test_g21_no_reload_opens_a_gateway_to_everybody(
    start: Starter, arguments: tuple[str, ...], listen: str, workers: int
) -> None:
    """It keeps its address, whatever the file says. There, a key must be required."""
    gateway = start("--workers", str(workers), *arguments, server={"listen": listen})
    wait_until_listening(gateway, workers)
    gateway.file.write_text('[server]\nlisten = "127.0.0.1:0"\nlog = "json"\n')
    hang_up(gateway, 1, "the configuration was not reloaded")
    reported = next(line for line in gateway.output if "was not reloaded" in line)
    assert "server.listen: " in reported
    assert f"0.0.0.0:{gateway.port}" in reported
    assert keyless(gateway) == {401}
    made = subprocess.run(
        [*gateway.command, "keys", "create", "--name", "stored", "--config", str(gateway.file)],
        env=os.environ | {"PENSTOCK_STATE": str(gateway.book.folder)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    deadline = time.monotonic() + 30.0
    showing = {"Authorization": f"Bearer {made}"}
    while {gateway.send(get("/v1/models", showing)).status for _ in range(12)} != {200}:
        assert time.monotonic() < deadline, "the stored key is not known"
        time.sleep(0.05)
    hang_up(gateway, workers, "the configuration was reloaded")
    assert keyless(gateway) == {401}
    assert gateway.send(get("/v1/models")).status == 401  # the key that the file no longer has


@pytest.mark.parametrize("workers", [1, 2])
def test_g21_a_file_that_no_one_named_and_that_is_gone_changes_nothing(tmp_path: Path, workers: int) -> None:
    """The environment alone would require no key."""
    with Upstream() as upstream:
        text = settings(upstream.url, server={"listen": "0.0.0.0:0", "workers": workers})
        with Gateway(tmp_path, upstream, text, named=False) as gateway:
            wait_until_listening(gateway, workers)
            gateway.file.unlink()
            hang_up(gateway, 1, "the configuration was not reloaded")
            gateway.says("penstock.toml: no such file")
            assert keyless(gateway) == {401}
            assert gateway.send(get("/v1/models")).status == 200


def test_g20_a_file_that_comes_later_is_found_and_then_missed(tmp_path: Path) -> None:
    with Upstream() as upstream:
        text = settings(upstream.url)
        gateway = Gateway(tmp_path, upstream, text, named=False)
        gateway.file.unlink()
        with gateway:
            assert keyless(gateway) == {200}
            gateway.file.write_text(text)
            hang_up(gateway, 1, "the configuration was reloaded from penstock.toml")
            assert keyless(gateway) == {401}
            gateway.file.unlink()
            hang_up(gateway, 1, "the configuration was not reloaded")
            assert keyless(gateway) == {401}


def test_g20_a_reload_names_what_needs_a_restart(start: Starter) -> None:
    gateway = start()
    text = gateway.file.read_text()
    reload(gateway, text.replace("drain_s = 1.0", "drain_s = 1.5"))
    assert "restart" not in gateway.output[-1]
    changed = text.replace('log = "json"', 'log = "off"\nlisten = "127.0.0.2:1"\nworkers = 2').replace(
        "[retries]",
        '[ledger]\nenabled = false\nfolder = "elsewhere"\npostgres = "postgres://u:canary-a@h/d"\n'
        'redis = "redis://:canary-b@h"\njournal = 65536\nlocal_share = 0.5\n'
        '[admin]\nlisten = "127.0.0.1:1"\nenabled = false\ntoken = "canary-c-0123456789"\n[retries]',
    )
    reload(gateway, changed, "needs a restart")
    (reported,) = [line for line in gateway.output if "needs a restart" in line]
    assert (
        "; what changed in server.listen, server.workers, server.log, ledger.enabled, ledger.folder, ledger.postgres, "
        "ledger.redis, ledger.journal, ledger.local_share, admin.enabled, admin.listen needs a restart" in reported
    )
    assert "canary" not in reported
    reload(gateway, text)
    assert "restart" not in gateway.output[-1]
    assert gateway.ask(f"main/{gateway.upstream.play(whole())}", stream=False).text == TEXT


def test_g22_a_key_is_rotated_under_load(start: Starter) -> None:
    """No call fails, and after the reload none is made with the old key."""
    gateway = start()
    model = gateway.upstream.play(whole())
    text = gateway.file.read_text()
    failures: list[object] = []
    stop = threading.Event()

    def load() -> None:
        while not stop.is_set():
            response = gateway.ask(f"main/{model}", stream=True)
            if (response.status, response.done) != (200, True):
                failures.append(response)

    thread = threading.Thread(target=load)
    thread.start()
    for number in range(5):
        text = text.replace(f"{PROVIDER_KEY}{number or ''}", f"{PROVIDER_KEY}{number + 1}")
        reload(gateway, text)
    stop.set()
    thread.join()
    gateway.ask(f"main/{model}", stream=True)
    assert not failures
    assert f"Bearer {PROVIDER_KEY}5".encode() in gateway.upstream.requests(model)[-1]


def test_g22_a_provider_is_removed_under_a_stream(start: Starter) -> None:
    gateway = start()
    gate = Gate()
    model = gateway.upstream.play(waiting(gate))
    with gateway.begin(f"main/{model}", stream=True) as client:
        client.read_until(b"Hello")
        reload(gateway, f'[server]\nlog = "json"\n[providers.other]\nbase_url = "{gateway.upstream.url}"\n')
        assert gateway.ask(f"main/{model}", stream=True).error["code"] == "model_not_found"
        gate.open()
        assert gateway.keep(client.response()).text == TEXT
    gateway.quiet()


def test_g20_twenty_reloads_leave_nothing(start: Starter) -> None:
    gateway = start()
    model = gateway.upstream.play(whole())
    text = gateway.file.read_text()
    for _ in range(20):
        reload(gateway, text)
        assert gateway.ask(f"main/{model}", stream=True).text == TEXT
    gateway.quiet()


def test_g20_workers_reload_too(start: Starter) -> None:
    gateway = start("--workers", "2")
    wait_until_listening(gateway, 2)
    with Upstream() as other:
        text = settings(other.url)
        gateway.file.write_text(text)
        gateway.signal(signal.SIGHUP)
        gateway.until(lambda: sum("the configuration was reloaded" in line for line in gateway.output) == 2)
        ok = other.play(whole())
        assert [gateway.ask(f"main/{ok}", stream=True).text for _ in range(10)] == [TEXT] * 10


def test_g20_a_worker_that_takes_the_place_of_another_goes_by_what_was_reloaded(start: Starter) -> None:
    """Also if the file has been broken since."""
    gateway = start("--workers", "2")
    wait_until_listening(gateway, 2)
    text = gateway.file.read_text()
    gateway.file.write_text(text.replace(CLIENT_KEY, "another-key-5e1c").replace("[retries]", "workers = 3\n[retries]"))
    hang_up(gateway, 2, "the configuration was reloaded")
    gateway.file.write_text("[server")
    hang_up(gateway, 1, "the configuration was not reloaded")
    for victim in worker_pids(gateway, 2):
        os.kill(victim, signal.SIGKILL)
        worker_pids(gateway, 2, without=victim)
        wait_until_listening(gateway, 2)
    assert {gateway.send(get("/v1/models")).status for _ in range(12)} == {401}
    showing = {"Authorization": "Bearer another-key-5e1c"}
    assert {gateway.send(get("/v1/models", showing)).status for _ in range(12)} == {200}


# G26 and G30: exhausted resources.


@pytest.mark.parametrize("workers", ["1", "2"])
def test_g9_a_start_on_a_disk_that_takes_nothing_says_so(tmp_path: Path, workers: str) -> None:
    """The error must not be that it cannot listen."""
    file = tmp_path / "penstock.toml"
    file.write_text(settings("http://127.0.0.1:1/v1"))
    ended = subprocess.run(
        [sys.executable, "-m", "penstock", "serve", "--config", str(file), "--port", "0", "--workers", workers],
        env=os.environ | {"PENSTOCK_STATE": str(tmp_path / "state")},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
        capture_output=True,
        text=True,
        timeout=60.0,
        check=False,
    )
    place = tmp_path / "state" / "serving"
    assert ended.returncode == 1
    line = json.loads(ended.stderr)
    assert (line["level"], line["message"]) == (
        "error",
        f"cannot use the ledger: {place} cannot be written: File too large",
    )


def test_g26_when_descriptors_run_out_streams_live_on_and_it_recovers(start: Starter) -> None:
    gateway = start(max_files=40)
    gate = Gate()
    model = gateway.upstream.play(waiting(gate))
    with ExitStack() as stack:
        stream = stack.enter_context(gateway.begin(f"main/{model}", stream=True))
        stream.read_until(b"Hello")
        crowd = [stack.enter_context(gateway.client()) for _ in range(80)]
        before = cpu(gateway)
        time.sleep(0.5)  # is it in a busy loop?
        assert cpu(gateway) - before < 0.25
        gate.open()
        assert gateway.keep(stream.response()).text == TEXT
        for client in crowd:
            client.close()
    ok = gateway.upstream.play(whole())
    deadline = time.monotonic() + 30.0
    while (got := attempt(gateway, ok)) != TEXT:
        assert time.monotonic() < deadline, got
        time.sleep(0.05)


def attempt(gateway: Gateway, model: str) -> str:
    try:
        response = gateway.ask(f"main/{model}", stream=True)
    except OSError as error:
        return str(error)
    return response.text if response.status == 200 else str(response.status)


def test_g26_without_a_descriptor_for_the_upstream_the_client_gets_an_error_and_the_target_not_blamed(
    start: Starter,
) -> None:
    gateway = start(max_files=40)
    ok = gateway.upstream.play(whole())
    with ExitStack() as stack:
        asking = [stack.enter_context(gateway.client())]
        asking[0].send(get("/health"))
        gateway.keep(asking[0].response())
        crowd = [stack.enter_context(gateway.client()) for _ in range(40 - gateway.files())]
        for client in crowd:
            client.send(get("/health"))
            client.response()
        full = gateway.files()
        for _ in range(6):
            asking[0].send(post(body(f"main/{ok}", stream=False)))
            response = gateway.keep(asking[0].response())
            assert response.status in (502, 503)
        for client in crowd:
            client.close()
        gateway.until(lambda: gateway.files() < full - len(crowd) // 2)  # it has closed them too
        asking[0].send(post(body(f"main/{ok}", stream=False)))
        assert gateway.keep(asking[0].response()).status == 200


def cpu(gateway: Gateway) -> float:
    """The processor time that it has used, in seconds."""
    fields = Path(f"/proc/{gateway.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_g30_a_log_that_no_one_reads_holds_nothing_up(tmp_path_factory: pytest.TempPathFactory) -> None:
    with Upstream() as upstream:
        gateway = Gateway(tmp_path_factory.mktemp("unread"), upstream, settings(upstream.url))
        gateway.start(read_output=False)
        try:
            model = upstream.play(whole())
            for _ in range(400):  # 64 KB of pipe, and more
                assert gateway.ask(f"main/{model}", stream=True).text == TEXT
        finally:
            status = gateway.stop()
        assert status == 0


# Health checks.


@pytest.mark.parametrize("path", ["/livez", "/healthz", "/health", "/readyz"])
def test_health_checks_need_no_key(gateway: Gateway, path: str) -> None:
    response = gateway.send(get(path, {"Host": "gateway"}))
    assert (response.status, response.json) == (200, {"status": "ok"})
