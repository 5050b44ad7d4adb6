"""The live page over HTTP: Starlette and uvicorn, on 127.0.0.1 alone.

A page of another site can't use it: the Host header must name this machine (against DNS rebinding), questions must be
JSON (which a page elsewhere may not send without asking), and nothing changes here but what is shown.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from ..errors import GraphcapsError, InputError
from ..viz.explorer.html import live_page
from .answers import Explorer

ADDRESS = "127.0.0.1"
MOST_BYTES = 1 << 20  # of a question; an image of 3 x 32 x 32 takes 12 KB
_HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}


def make_app(explorer: Explorer) -> Starlette:
    """The page at /, and what it asks: POST /explain, /decode and /image, as ``Explorer`` answers them."""
    text, policy = live_page(explorer.start())
    headers = _HEADERS | {"Content-Security-Policy": policy}
    turn = asyncio.Lock()  # one computation at a time

    async def page(request: Request) -> Response:
        return HTMLResponse(text, headers=headers)

    def answering(answer: Callable[[object], dict]) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            asked = _parsed(await _body(request))
            async with turn:
                return JSONResponse(await run_in_threadpool(answer, asked), headers=_HEADERS)

        return respond

    asked = [
        Route(f"/{answer.__name__}", answering(answer), methods=["POST"])
        for answer in (explorer.explain, explorer.decode, explorer.image)
    ]
    return Starlette(
        routes=[Route("/", page), *asked],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=["localhost", ADDRESS], www_redirect=False)],
        exception_handlers={HTTPException: _refused, InputError: _wrong, GraphcapsError: _failed},
    )


async def _body(request: Request) -> bytes:
    """The whole body, of a bounded size."""
    if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
        raise HTTPException(415, "content-type: expected application/json")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:
            raise HTTPException(413, f"body: expected at most {MOST_BYTES} bytes, got more")
    return body


def _parsed(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InputError(f"body: expected JSON, got: {error}") from None


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = _HEADERS | dict(error.headers or {})
    return JSONResponse({"error": error.detail}, status_code=error.status_code, headers=headers)


async def _wrong(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, status_code=400, headers=_HEADERS)


async def _failed(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, status_code=500, headers=_HEADERS)


def listen(port: int) -> socket.socket:
    """Take a port of this machine, 0: any free one; raise ``GraphcapsError`` where it is taken or not allowed."""
    try:
        return socket.create_server((ADDRESS, port))
    except OSError as error:
        raise GraphcapsError(
            f"port: expected to be able to listen on {port}, got: {error.strerror}. Name another, or any free one: "
            "--port 0"
        ) from None


def http_server(app: Starlette) -> uvicorn.Server:
    """The server of an app; ``run(sockets=[listen(port)])`` answers until Ctrl-C, which it raises again at its end."""
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=3,
    )
    return uvicorn.Server(config)
