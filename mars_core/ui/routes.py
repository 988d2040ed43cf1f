"""What the page asks its server for besides Gradio's own: plotly.js, recordings checked, exports.

A recording comes along with every request; the server keeps none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import get_args

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from mars_core.errors import MarsError
from mars_core.export.animation import Kind, animation
from mars_core.export.frames import MAX_FRAMES
from mars_core.export.page import shell
from mars_core.export.recording import lines, read_recording
from mars_core.export.slots import slots_csv
from mars_core.trace import MAX_BYTES
from mars_core.ui.plots import plotly_script
from mars_core.ui.view import sentence

FRAME_MS = 100  # as save.js draws them
Handler = Callable[[Request], Awaitable[Response]]


def routes(upload: int = MAX_BYTES) -> list[Route]:
    """Added to those of the page. upload: bytes of a recording, at most."""
    return [
        Route("/plotly.js", plotly_js),
        Route("/replay.html", replay_html),
        Route("/recording", told(partial(recording, upload)), methods=["POST"]),
        Route("/export/csv", told(partial(csv, upload)), methods=["POST"]),
        *(
            Route(f"/export/{kind}", told(partial(animated, kind, upload)), methods=["POST"])
            for kind in get_args(Kind)
        ),
    ]


def told(handler: Handler) -> Handler:
    """The handler; where it raises MarsError, the answer is its sentence."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except MarsError as error:
            return PlainTextResponse(sentence(error), 400)

    return answer


async def plotly_js(_request: Request) -> Response:
    """From the package that ships it."""
    # another version has another ETag, and costs a question an hour
    return FileResponse(plotly_script(), headers={"Cache-Control": "max-age=3600"})


async def replay_html(_request: Request) -> Response:
    """The page that a recording is put into."""
    return HTMLResponse(shell())


async def recording(upload: int, request: Request) -> Response:
    """A recording that the player may draw, from one that may be anything."""
    return PlainTextResponse(lines(read_recording(await body_of(request, upload))))


async def csv(upload: int, request: Request) -> Response:
    """The slots of a recording."""
    found = read_recording(await body_of(request, upload))
    return Response(slots_csv(found), media_type="text/csv")


async def animated(kind: Kind, upload: int, request: Request) -> Response:
    """An animation of the pictures that were sent."""
    if int(request.headers.get("content-length", 0)) > upload:
        raise too_large(upload)
    async with request.form(max_files=MAX_FRAMES, max_fields=0) as form:
        files = [file for file in form.getlist("frame") if isinstance(file, UploadFile)]
        frames = [await file.read() for file in files]
    return Response(animation(frames, FRAME_MS, kind), media_type=f"image/{kind}")


async def body_of(request: Request, upload: int) -> bytes:
    """What was sent, up to `upload` bytes."""
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > upload:
            raise too_large(upload)
    return bytes(data)


def too_large(upload: int) -> MarsError:
    return MarsError(f"a recording has at most {upload // 2**20} MiB here")
