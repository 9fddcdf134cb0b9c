"""What an opened run makes of texts: each use of one kind of task, and what texts it cannot be asked of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import numpy as np
import torch

from seqtrain.config.instantiate import make
from seqtrain.data.batching.examples import padded
from seqtrain.data.batching.plan import StreamPlan
from seqtrain.data.batching.stream import EvalLoader, Stream
from seqtrain.data.sources.unreadable import is_unicode
from seqtrain.data.tokenizers.encoding import HIDDEN, Tokenizer
from seqtrain.errors import Fault
from seqtrain.inference import attention_maps, embedding
from seqtrain.inference.attention_maps import Seen
from seqtrain.inference.opened import Opened
from seqtrain.models.base import read_history
from seqtrain.tasks.base import ExampleTask, Task
from seqtrain.tasks.masked_lm import MaskedLM
from seqtrain.tasks.next_token import NextToken
from seqtrain.tasks.sentiment import Sentiment
from seqtrain.tasks.translation import Translation, reads_in_one

T = TypeVar("T")
Use = Literal["continue", "score", "classify", "fill", "translate", "embed", "attend"]
"""What can be asked of a text."""

AT_ONCE = 8192  # tokens of a text that masked LM reads where the model has no table of positions: memory has an end


def task_name(task: Task | type) -> str:
    """As in `task=...`."""
    return (task if isinstance(task, type) else type(task)).__module__.rpartition(".")[2]


def of_kind(opened: Opened, kind: type[T], verb: str) -> T:
    """The run's task; Fault where it is of another kind."""
    if not isinstance(opened.task, kind):
        mine = task_name(opened.task)
        raise Fault(f"{verb}: takes a run of task={task_name(kind)}, and run {opened.run.path} is of task={mine}")
    return opened.task


def of_stream(opened: Opened, verb: str) -> Task:
    """The run's task, which foretells the next token of a stream; Fault where it is of another kind."""
    return of_kind(opened, NextToken, verb) if isinstance(opened.task, ExampleTask) else opened.task


# -- texts -------------------------------------------------------------------------------------------------------


def edges(opened: Opened) -> tuple[list[int], list[int]]:
    """The special tokens that stand before and after a text where the run's task reads one."""
    before = [] if isinstance(opened.task, Translation) else [opened.tokenizer.start]
    return before, [opened.tokenizer.separator] if isinstance(opened.task, ExampleTask) else []


def encode(opened: Opened, text: str, use: Use) -> np.ndarray:
    """Ids (n,) of a text; where a run knows masks, [MASK] is one, unless the text is scored."""
    masked = isinstance(opened.task, MaskedLM) and use != "score"
    return opened.tokenizer.encode_masked(text) if masked else opened.tokenizer.encode(text)


def row(opened: Opened, text: str, use: Use) -> np.ndarray:
    """Ids of a text as the run's task reads it; what is classified is cut as in training."""
    before, after = edges(opened)
    return np.concatenate([before, encode(opened, text, use)[: most(opened, use)], after]).astype(np.int64)


def most(opened: Opened, use: Use) -> int | None:
    """Tokens of a text that are read: what is classified or translated is cut by data.max_length, as in training."""
    longest = opened.config.data.max_length
    if use == "translate":
        return longest // 2 - 1
    return longest - sum(map(len, edges(opened))) if use == "classify" else None


def room(opened: Opened, use: Use) -> int | None:
    """Tokens of a text for which the model has positions; None where any text fits, or is cut to what does."""
    in_chunks = use in ("continue", "score") and not isinstance(opened.task, ExampleTask)
    if in_chunks or most(opened, use) is not None:
        return None
    positions = opened.model.max_length
    if positions is None and isinstance(opened.task, MaskedLM):
        positions = max(AT_ONCE, opened.config.data.max_length)
    if positions is None:
        return None
    if isinstance(opened.task, Translation):
        return positions // 2 - 1
    return positions - sum(map(len, edges(opened)))


def reason(opened: Opened, text: str, use: Use) -> str | None:
    """Why this cannot be done with this text, or None: it holds nothing, no [MASK], or more than positions."""
    if not is_unicode(text):
        return "holds half of a surrogate pair, which is no Unicode; leave it out"
    if use == "continue":
        return None
    ids, limit = encode(opened, text, use), room(opened, use)
    if not len(ids):
        return "holds no text"
    if use == "fill" and opened.tokenizer.mask not in ids:
        return f"has no {HIDDEN} to fill in"
    if limit is not None and len(ids) > limit:
        held = "the model has positions for" if opened.model.max_length else "a text is read at once, so it may have"
        return f"has {len(ids):,} tokens, and {held} {limit:,}"
    return None


def check(opened: Opened, texts: Sequence[str], use: Use) -> None:
    """Fault for the first text of which this cannot be asked."""
    if isinstance(texts, str):
        raise Fault("expected a list of texts, not one text")
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise Fault(f"text {number}: expected a text, not a value of type {type(text).__name__}")
        if why := reason(opened, text, use):
            raise Fault(f"text {number}: {why}")


# -- uses --------------------------------------------------------------------------------------------------------


def surprisals(opened: Opened, text: str) -> list[float]:
    """Nats of each token of a text: as evaluation reads a document, or each hidden in turn."""
    ids = encode(opened, text, "score")
    if isinstance(opened.task, MaskedLM):
        return opened.task.score(opened.model, ids.tolist())
    documents = np.array([0, len(ids)])
    tbptt = make(opened.config.tbptt, ()).evaluation
    plan = StreamPlan(documents=documents, lanes=1, tbptt=tbptt, seed=0, shuffle=False)
    state, found = None, []
    with torch.no_grad():
        for batch in EvalLoader(Stream(ids, documents, opened.tokenizer.start), plan, batch_size=None):
            before = read_history(opened.model, batch.history, state if tbptt.carry else None)[-1]
            hidden, state = opened.model(batch.tokens, before)
            chances = opened.task.scores(opened.model, hidden).double().log_softmax(-1)  # type: ignore[operator]
            found += (-chances.gather(-1, batch.targets.unsqueeze(-1))).flatten().tolist()
    return found


@torch.no_grad()
def classify(opened: Opened, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Of each text its `label` and the `probabilities` of all labels, likeliest first."""
    task = of_kind(opened, Sentiment, "classify")
    rows = [row(opened, text, "classify") for text in texts]
    found: list[dict[str, Any]] = [{} for _ in rows]
    for lanes in embedding.by_length(rows):
        tokens, lengths = padded([rows[lane] for lane in lanes])
        chances = task.scores(opened.model, tokens, lengths).double().softmax(-1).tolist()
        for lane, chance in zip(lanes, chances, strict=True):
            best = dict(sorted(zip(task.labels, chance, strict=True), key=lambda pair: -pair[1]))
            found[lane] = {"label": next(iter(best)), "probabilities": best}
    return found


def fill(opened: Opened, texts: Sequence[str], top_k: int) -> list[dict[str, Any]]:
    """Of each text what it is `filled` in, and for each of its `masks` the likeliest tokens with `probability`."""
    task, tokenizer = of_kind(opened, MaskedLM, "fill"), opened.tokenizer
    answers = task.fill(opened.model, [encode(opened, text, "fill").tolist() for text in texts], top_k)
    return [
        {
            "filled": filled(tokenizer, text, [best[0][0] for best in answer]),
            "masks": [
                [{"token": tokenizer.token_text(token), "probability": chance} for token, chance in best]
                for best in answer
            ],
        }
        for text, answer in zip(texts, answers, strict=True)
    ]


def filled(tokenizer: Tokenizer, text: str, tokens: Sequence[int]) -> str:
    """The text with a token in place of each [MASK], and otherwise as it was written.

    Tokens side by side are decoded together, since it may take several to spell a character.
    """
    *others, last = text.split(HIDDEN)
    parts: list[str] = []
    spelled: list[int] = []
    for other, token in zip(others, tokens, strict=True):
        before = other.removesuffix(tokenizer.before)
        if before:
            parts += [tokenizer.decode(spelled), before]
            spelled = []
        spelled.append(token)
    return "".join([*parts, tokenizer.decode(spelled), last])


def attend(opened: Opened, text: str, target: str | None) -> list[Seen]:
    """Where each layer and head looks; of a translation also while it writes `target`, or its own greedy one."""
    model, source = opened.model, row(opened, text, "attend").tolist()
    ours = attention_maps.labels(opened.tokenizer)
    if not isinstance(opened.task, Translation):
        if target is not None:
            raise Fault(f"attention: run {opened.run.path} is of task={task_name(opened.task)}, which has no target")
        return attention_maps.look(model, source, ours)
    tokenizer = opened.vocabularies.target_tokenizer
    if target is None:
        target = opened.task.translate(model, [text], opened.vocabularies, beam=1)[0]
    tokens = [tokenizer.start, *tokenizer.encode(target).tolist()]
    if reads_in_one(model):
        return attention_maps.look(model, [*source, *tokens][: model.max_length], ours)
    theirs = attention_maps.labels(tokenizer)
    return attention_maps.look(model, tokens[: model.max_length], theirs, source, ours)
