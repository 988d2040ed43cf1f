"""transformers and what it imports without progress bars and warnings."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from logging import ERROR, getLogger

from transformers.utils import logging


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers' progress bars and warnings; restored afterwards."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    # PEFT imports it, and it says which optional kernels are not there
    other = getLogger("bitsandbytes")
    level = other.level
    other.setLevel(ERROR)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            # of PEFT calling transformers, and of transformers calling accelerate, by old names
            warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
            warnings.filterwarnings("ignore", "`broadcast_buffers`", FutureWarning)
            yield
    finally:
        other.setLevel(level)
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
