"""A run in mode verified as records, without a model: some drafts are kept, some are not."""

from __future__ import annotations

from mars_core import trace
from mars_core.cache import Session
from mars_core.config import DecodeConfig, SpecialTokens
from mars_core.decode import decode
from mars_core.recorder import Recorder
from mars_core.text import Detokenizer, TokenText
from tests import scripted
from tests.tiny import tiny_tokenizer
from tests.ui.scripted import header

TEXT = "one two three four and five and six"
PROMPT = [7, 8, 9]


def drafted_records() -> list[trace.AnyRecord]:
    """TEXT, by masks that err at every fifth place, two drafts at most."""
    tokenizer = tiny_tokenizer()
    ids = tokenizer.encode(TEXT, add_special_tokens=False)

    def predict(position, is_mask):
        place = position - len(PROMPT) + 1
        wrong = is_mask and place % 5 == 4
        return ids[(place + 7 * wrong) % len(ids)], 50.0

    config = DecodeConfig(mode="verified", drafts=2, max_new_tokens=len(ids), alternatives=1)
    session = Session(scripted.ScriptedModel(predict, vocab=400), 256)
    special = SpecialTokens(scripted.MASK_ID, frozenset())
    recorder = Recorder(TokenText(tokenizer), Detokenizer(tokenizer))
    first = header([trace.Message(role="user", content="Count.")], config)
    return [first, *(recorder.record(e, 10.0) for e in decode(session, PROMPT, config, special))]
