"""Errors as the OpenAI API gives them: a status, a type, a code, and what to do.

In:   what went wrong
Out:  `ApiError`, which the app turns into a response
Never: repeats what the client sent
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import JSONResponse, Response

RETRY_AFTER_S = 1
"""Seconds a client is asked to wait where waiting helps."""


class ApiError(Exception):
    """A request that gets no answer. Raised anywhere in the gateway, shaped by the app."""

    def __init__(
        self, status: int, code: str, message: str, *, retry: bool = False, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry = retry
        """True if the same request may succeed a little later."""
        self.param = param

    @property
    def body(self) -> dict[str, object]:
        """As the official clients read it."""
        kind = {401: "authentication_error", 429: "rate_limit_error"}.get(self.status)
        kind = kind or ("invalid_request_error" if self.status < 500 else "server_error")
        fields = {"message": str(self), "type": kind, "param": self.param, "code": self.code}
        return {"error": fields}

    @property
    def headers(self) -> Mapping[str, str]:
        """What else the response says."""
        retry = {"retry-after": str(RETRY_AFTER_S)} if self.retry else {}
        # without it the clients would send a request that cannot succeed two times more
        return {**retry, "x-should-retry": "true" if self.retry else "false"}

    def response(self) -> Response:
        """The HTTP response."""
        return JSONResponse(self.body, self.status, self.headers)


def unavailable(code: str, message: str) -> ApiError:
    """503: nothing was done, and trying again soon makes sense."""
    return ApiError(503, code, message, retry=True)
