"""Pictures, as the browser draws them, into one animation."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Literal

from PIL import Image, UnidentifiedImageError

from mars_core.errors import MarsError
from mars_core.export.frames import MAX_FRAMES

Kind = Literal["webp", "gif"]
MAX_PIXELS = 4_000_000  # of one frame
LAST_MS = 2500  # how long the end is shown before it begins again


def animation(frames: Sequence[bytes], ms: int, kind: Kind) -> bytes:
    """The frames (PNG) as an endless animation, each shown for `ms` milliseconds.

    Raises MarsError for what is no PNG, frames of different sizes, and too many or too large ones.
    """
    if not 1 <= len(frames) <= MAX_FRAMES:
        raise MarsError(f"an animation has 1 to {MAX_FRAMES} frames, not {len(frames)}")
    images = [_image(frame) for frame in frames]
    if len({image.size for image in images}) > 1:
        raise MarsError("the frames of an animation must be of one size")
    out = io.BytesIO()
    options = {"quality": 80, "method": 4} if kind == "webp" else {"optimize": True}
    images[0].save(
        out,
        kind,
        save_all=True,
        append_images=images[1:],
        duration=[ms] * (len(images) - 1) + [LAST_MS],
        loop=0,
        **options,
    )
    return out.getvalue()


def _image(data: bytes) -> Image.Image:
    try:
        image = Image.open(io.BytesIO(data), formats=["PNG"])
        if image.width * image.height > MAX_PIXELS:
            raise MarsError(f"a frame has at most {MAX_PIXELS:,} pixels")
        return image.convert("RGB")
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise MarsError(f"a frame is no picture: {error!s:.100}") from None
