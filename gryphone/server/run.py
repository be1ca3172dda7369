"""Run the application under uvicorn: one process, one model (workers.py: several)."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from gryphone.errors import ConfigError
from gryphone.server.app import create_app
from gryphone.server.middleware import SECURITY_HEADERS
from gryphone.server.problems import Problem
from gryphone.server.settings import Settings

BACKLOG = 256


def listen(settings: Settings, shared: bool = False) -> socket.socket:
    """The bound socket, or one line that says why there is none. It listens, unless it is `shared`:
    then others may be bound to the same port, and the system deals connections out to those that
    listen already."""
    where = f"{settings.host}:{settings.port}"
    try:
        family = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0][0]
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((settings.host, settings.port))
        if not shared:
            sock.listen(BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(f"{where} is in use; choose another --port, or 0") from error
        raise ConfigError(f"{where} cannot be used: {error.strerror or error}") from error
    return sock


class TimedTransport:
    """A transport that, once closed, waits only so long for a client that does not read."""

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._transport, self._loop, self._seconds = transport, loop, seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def close(self) -> None:
        """Send what is left, and hang up."""
        self._transport.close()
        self._loop.call_later(self._seconds, self._transport.abort)


def timed_protocol(seconds: float) -> type[H11Protocol]:
    """uvicorn's protocol with time limits on headers and last bytes, which it does not have, and
    with our shape of errors."""

    class TimedProtocol(H11Protocol):
        """Closes a connection that sends no complete request, or takes no answer, in time."""

        waiting: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(TimedTransport(transport, self.loop, seconds))  # type: ignore[arg-type]
            self._wait()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            idle = self.cycle is None or self.cycle.response_complete
            if not idle:
                self._stop_waiting()
            elif self.waiting is None:  # a second request on the connection has begun
                self._wait()

        def send_400_response(self, msg: str) -> None:
            problem = Problem(400, "bad_http", "this is no HTTP request that can be read")
            body = json.dumps(problem.body()).encode()
            headers = {"content-type": "application/json", "content-length": str(len(body))}
            headers |= SECURITY_HEADERS | {"cache-control": "no-store", "connection": "close"}
            response = h11.Response(
                status_code=400, headers=list(headers.items()), reason=b"Bad Request"
            )
            for event in (response, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
            self.transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def _wait(self) -> None:
            self.waiting = self.loop.call_later(seconds, self.transport.close)

        def _stop_waiting(self) -> None:
            if self.waiting is not None:
                self.waiting.cancel()
                self.waiting = None

    return TimedProtocol


class DrainingServer(uvicorn.Server):
    """A server that says it is not ready any more, so many seconds before it closes its port: who
    shares requests out asks now and then, and must not find it closed before he has asked."""

    hurry = False
    on_started: Callable[[], None] = staticmethod(lambda: None)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Tell when the port is open."""
        await super().startup(sockets)
        if not self.should_exit:
            self.on_started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A second signal ends the draining."""
        self.hurry = self.should_exit
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain first."""
        service = self.config.app.state.service  # type: ignore[union-attr]
        service.draining = True
        end = time.monotonic() + service.settings.drain
        while time.monotonic() < end and not self.hurry:
            await asyncio.sleep(0.05)
        await super().shutdown(sockets)


def make_server(settings: Settings, app: FastAPI) -> DrainingServer:
    """A server that still has to be run."""
    config = uvicorn.Config(
        app,
        http=timed_protocol(settings.header_seconds),
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,  # no addresses, no paths: nothing of the users is kept
        server_header=False,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=int(settings.seconds) + 5,
        backlog=BACKLOG,
    )
    return DrainingServer(config)


def serve(settings: Settings, ready: Callable[[str], None] = lambda url: None) -> None:
    """Serve until a signal comes; `ready` is called with the address once the model is loaded."""
    sock = listen(settings)
    run(settings, sock, lambda: ready(address(sock)))


def run(settings: Settings, sock: socket.socket, ready: Callable[[], None]) -> None:
    """Serve on a socket, in this process."""
    app = create_app(settings)
    server, engine = make_server(settings, app), app.state.service.engine

    def fail() -> None:
        server.should_exit = True

    engine.on_failure = fail
    if settings.workers == 1:
        engine.on_ready = ready
    else:  # which open their port when the model is there
        server.on_started = ready
    server.run(sockets=[sock])
    if engine.failure is not None:
        raise engine.failure


def address(sock: socket.socket) -> str:
    """What to type into a browser."""
    host, port = sock.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"
