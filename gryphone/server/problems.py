"""Every failure a client can see: a status, a short code, one line."""

from __future__ import annotations

import logging
import traceback

from gryphone.errors import ConfigError, GryphoneError, InkError, TokenError

log = logging.getLogger("gryphone.server")


class Problem(Exception):
    """A request that gets no answer. `retry` is the Retry-After header, in seconds."""

    def __init__(self, status: int, code: str, message: str, retry: int | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.retry = status, code, message, retry

    def __reduce__(self) -> tuple[type[Problem], tuple[object, ...]]:
        return Problem, (self.status, self.code, self.message, self.retry)

    def body(self) -> dict[str, dict[str, str]]:
        """What the client reads."""
        return {"error": {"code": self.code, "message": self.message}}

    @property
    def headers(self) -> dict[str, str]:
        """Headers beside the body."""
        found = {} if self.retry is None else {"retry-after": str(self.retry)}
        return found | ({"www-authenticate": "Bearer"} if self.status == 401 else {})


def busy(retry: int, what: str = "the server is busy") -> Problem:
    """Too much to do: come back later."""
    return Problem(503, "busy", f"{what}; try again in {retry} s", retry)


def problem_of(error: BaseException) -> Problem:
    """What a client is told about an error; a surprise is told without its details."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, InkError):
        return Problem(400, "bad_ink", one_line(str(error)))
    if isinstance(error, (ConfigError, TokenError)):
        return Problem(422, "bad_options", one_line(str(error)))
    if isinstance(error, GryphoneError):
        return Problem(400, "bad_request", one_line(str(error)))
    return Problem(500, "internal", "the server failed on this request; its log says why")


def traceback_text(error: BaseException) -> str:
    """Where an error came from, for the log; its message may hold what a user wrote."""
    places = "".join(traceback.format_tb(error.__traceback__))
    return f"{type(error).__name__}\n{places}"


def one_line(text: str, most: int = 400) -> str:
    """Text without line breaks and other control characters, of bounded length."""
    clean = "".join(c if c.isprintable() else " " for c in text)
    return clean if len(clean) <= most else clean[: most - 1] + "…"
