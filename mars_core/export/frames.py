"""Pictures of a recording, drawn by the player itself in a browser without a window."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from mars_core.chromium import chromium
from mars_core.config import check_range
from mars_core.export.page import replay_page

MAX_FRAMES = 600  # of an animation
BLANK = "http://127.0.0.1:9/recording"  # answered by ourselves; a page with an origin of its own


@dataclass(frozen=True, slots=True)
class Look:
    """How pictures are to look.

    width: CSS pixels. scale: pixels per CSS pixel. dark: instead of light. speed: of the replay.
    rate: frames per second.
    """

    width: int = 1080
    scale: float = 1.0
    dark: bool = False
    speed: float = 1.0
    rate: float = 10.0

    def __post_init__(self) -> None:
        check_range("width", self.width, 320, 2400, whole=True)
        check_range("scale", self.scale, 0.5, 4)
        check_range("speed", self.speed, 0.05, 50)
        check_range("rate", self.rate, 1, 30)

    @property
    def frame_ms(self) -> int:
        """How long one frame of an animation is shown."""
        return round(1000 / self.rate)


def picture(lines: str, look: Look) -> bytes:
    """The end of a recording (JSON Lines) as a PNG. Raises MarsError without a browser."""
    return _frames(lines, look, animated=False)[-1]


def frames(lines: str, look: Look) -> list[bytes]:
    """The whole recording as PNGs, one every `look.frame_ms`, the last one its end."""
    return _frames(lines, look, animated=True)


def _frames(lines: str, look: Look, *, animated: bool) -> list[bytes]:
    with chromium() as browser:
        page = browser.new_page(
            viewport={"width": look.width, "height": 800},
            color_scheme="dark" if look.dark else "light",
            reduced_motion="reduce",
        )
        document = replay_page(lines)
        page.route(BLANK, lambda route: route.fulfill(body=document, content_type="text/html"))
        page.goto(BLANK)
        page.wait_for_function("window.marsReplay?.ready")
        every = look.frame_ms * look.speed if animated else None
        urls = page.evaluate(
            "(options) => marsReplay.frames(options)",
            {"every": every, "scale": look.scale, "most": MAX_FRAMES},
        )
    return [base64.b64decode(url.partition(",")[2]) for url in urls]
