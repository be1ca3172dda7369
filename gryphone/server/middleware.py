"""What surrounds every request: key, sizes, time, security headers, metrics."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Sequence
from ipaddress import ip_address
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gryphone.server.problems import Problem, log, one_line, problem_of, traceback_text
from gryphone.server.service import Service
from gryphone.server.settings import Settings

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "style-src-attr 'unsafe-inline'",  # KaTeX writes one on the arrow of a vector
        "img-src 'self'",
        "font-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
SECURITY_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "geolocation=(), microphone=(), payment=()",
}
KEY_PROTECTED = ("/v1/", "/metrics")  # the page and the health checks are open
ROUTES = (
    "/v1/recognize",
    "/v1/page",
    "/v1/live",
    "/v1/recognize/stream",
    "/v1/convert",
    "/v1/compute",
    "/v1/model",
    "/healthz",
    "/readyz",
    "/metrics",
    "/openapi.json",
    "/",
)
SENDING_SECONDS = 2.0  # for sending an answer that came in time


class RequestMiddleware:
    """ASGI middleware around the application."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.service, self.settings = app, service, service.settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        handled = HandledRequest(self, scope, receive, send)
        try:
            async with asyncio.timeout(self.settings.seconds + SENDING_SECONDS):
                await handled.serve()
        except TimeoutError:
            await handled.refuse(
                Problem(504, "timeout", f"not answered within {self.settings.seconds:g} s")
            )
        except ClientDisconnect:
            pass
        except Exception as error:
            problem = problem_of(error)
            if problem.status == 500:
                log.error("request failed: %s", traceback_text(error))
            await handled.refuse(problem)
        finally:
            handled.close()

    def check(self, scope: Scope) -> None:
        """What can be refused by the headers alone."""
        headers = Headers(scope=scope)
        self._check_host(headers.get("host", ""), (*self.settings.hosts, self.settings.host))
        if "content-length" in headers and "transfer-encoding" in headers:
            # Where a proxy believes the one and we the other, a body can hold a hidden request.
            raise Problem(
                400, "bad_request", "Content-Length and Transfer-Encoding together; send one"
            )
        if scope["path"].startswith("/v1/") and scope["query_string"]:
            query = scope["query_string"].decode("latin-1")
            name = next((key for key, _ in parse_qsl(query, True, max_num_fields=1000)), query)
            raise Problem(
                422,
                "bad_options",
                one_line(
                    f"{one_line(name, 60)}: no parameter of the address is read; "
                    "options go into the body"
                ),
            )
        if self.settings.api_key is not None and scope["path"].startswith(KEY_PROTECTED):
            self._check_key(headers, self.settings.api_key)
        if scope["method"] == "POST":
            self._check_origin(headers, self.settings)
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self.settings.body:
            raise too_large(self.settings)

    @staticmethod
    def _check_host(host: str, allowed: Sequence[str]) -> None:
        """A foreign name may have been pointed at this machine by whoever owns it: his pages would
        be of the same origin as ours."""
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".") if _is_host(host) else host
        known = name in ("", "localhost") or "*" in allowed or name in map(str.lower, allowed)
        if not known and not _is_address(name):
            raise Problem(
                403,
                "bad_host",
                f"{one_line(host, 60)} is no name of this server; --allow-host adds one",
            )

    @staticmethod
    def _check_origin(headers: Headers, settings: Settings) -> None:
        """A form needs no CORS to be sent: no other site may keep this machine busy with them."""
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        if site is None and origin is not None:  # an old browser; ours come from where they go to
            here = _without_default_port(headers.get("host", ""))
            there = _without_default_port(origin.partition("://")[2])
            foreign = there not in (here, *map(str.lower, settings.hosts))  # a proxy's own name
        else:
            foreign = site in ("cross-site", "same-site")
        if foreign and "*" not in settings.cors and origin not in settings.cors:
            raise Problem(403, "bad_origin", "pages of this origin may not ask; --cors allows it")

    @staticmethod
    def _check_key(headers: Headers, key: str) -> None:
        kind, _, token = headers.get("authorization", "").partition(" ")
        given = token.strip() if kind.lower() == "bearer" else headers.get("x-api-key", "")
        # Compared as bytes, in constant time.
        if not hmac.compare_digest(given.encode("latin-1", "replace"), key.encode()):
            raise Problem(
                401, "bad_key", "send the API key as `Authorization: Bearer KEY` or `X-API-Key`"
            )


class HandledRequest:
    """One request and its answer, as they pass through the middleware."""

    def __init__(
        self, middleware: RequestMiddleware, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self.middleware, self.scope = middleware, scope
        self._receive, self._send = receive, send
        self.began = time.perf_counter()
        self.received = 0
        self.status: int | None = None

    async def serve(self) -> None:
        self.middleware.check(self.scope)
        # HEAD, which uptime monitors use, is GET without the body.
        method = "GET" if self.scope["method"] == "HEAD" else self.scope["method"]
        await self.middleware.app({**self.scope, "method": method}, self.receive, self.send)

    async def receive(self) -> Message:
        """Count a body while it comes in: a chunked one does not say its length."""
        message = await self._receive()
        if message["type"] == "http.request":
            size = len(message.get("body", b""))
            self.received += size
            self.middleware.service.admission.add_bytes(size)
            if self.received > self.middleware.settings.body:
                raise too_large(self.middleware.settings)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
            fresh = "no-cache" if self._route() in ("/static", "/") else "no-store"
            headers.setdefault("cache-control", fresh)
        elif self.scope["method"] == "HEAD" and message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await self._send(message)

    async def refuse(self, problem: Problem) -> None:
        """Answer with an error, unless the answer has begun: then the connection must break."""
        if self.status is not None:
            raise ConnectionAbortedError(problem.message)
        # What is left of a body that was not read is no next request.
        headers = problem.headers | {"connection": "close"}
        response = JSONResponse(problem.body(), problem.status, headers)
        await response(self.scope, self.receive, self.send)

    def close(self) -> None:
        self.middleware.service.admission.buffered -= self.received
        seconds = time.perf_counter() - self.began
        # 499: the client left before its answer, as nginx writes it.
        self.middleware.service.metrics.count_request(self._route(), self.status or 499, seconds)

    def _route(self) -> str:
        """The path as a label: one of a few, whatever the client asks for."""
        path = self.scope["path"]
        if path in ROUTES:
            return str(path)
        return "/static" if path.startswith("/static/") else "other"


def _is_host(text: str) -> bool:
    try:
        urlsplit(f"//{text}").port  # noqa: B018  raises
    except ValueError:
        return False
    return not set(text) & set("/?#@\\")


def _without_default_port(host: str) -> str:
    return host.lower().removesuffix(":80").removesuffix(":443")


def _is_address(name: str) -> bool:
    try:
        return bool(ip_address(name))
    except ValueError:
        return False


def too_large(settings: Settings) -> Problem:
    """A body beyond the limit."""
    return Problem(
        413, "too_large", f"the body is larger than {settings.body} bytes; send a smaller image"
    )
