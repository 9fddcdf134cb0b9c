"""seqtrain from Python: train a run, open one, use it as its task has it."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from seqtrain.config.ranges import check_answer_options
from seqtrain.errors import Fault
from seqtrain.training.callbacks.signals import Interrupted

if TYPE_CHECKING:
    from torch import Tensor

    from seqtrain.data.tokenizers.recipes import Tokenizer
    from seqtrain.inference.attention_maps import Seen
    from seqtrain.inference.embedding import Pool
    from seqtrain.inference.opened import Opened
    from seqtrain.inference.predict import Use
    from seqtrain.models.base import SequenceModel
    from seqtrain.tasks.base import Task


_TRAINING = threading.Lock()
"""Held while a training runs: torch's random numbers, threads and signals belong to the whole process."""


@dataclass(frozen=True)
class Trained:
    """A run opened for use; its model is in evaluation mode, on the CPU."""

    opened: Opened

    @property
    def directory(self) -> Path:
        """The run directory."""
        return self.opened.run.path

    @property
    def summary(self) -> dict[str, Any]:
        """What summary.json says."""
        return self.opened.run.summary

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        """The final metrics by split."""
        return self.summary.get("metrics", {})

    @property
    def history(self) -> list[dict[str, Any]]:
        """Every recorded point, oldest first."""
        return self.opened.run.metrics()

    @property
    def config(self) -> dict[str, Any]:
        """The resolved config."""
        return self.opened.run.config

    @property
    def model(self) -> SequenceModel:
        return self.opened.model

    @property
    def task(self) -> Task:
        return self.opened.task

    @property
    def tokenizer(self) -> Tokenizer:
        return self.opened.tokenizer

    def reason(self, text: str, use: Use) -> str | None:
        """Why this cannot be done with this text, or None: it holds nothing, no [MASK], or more than positions."""
        from seqtrain.inference import predict

        return predict.reason(self.opened, text, use)

    def cuts(self, text: str, use: Use = "classify") -> bool:
        """Whether only the beginning of the text is read."""
        from seqtrain.inference import predict

        longest = predict.most(self.opened, use)
        return longest is not None and len(predict.encode(self.opened, text, use)) > longest

    def continue_texts(
        self,
        prompts: Sequence[str],
        *,
        length: int = 200,
        temperature: float = 0.8,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
    ) -> list[str]:
        """What the model writes after each prompt: `length` tokens; temperature 0 is greedy. Takes task=next_token.

        Each prompt draws with a seed of its own, counted from `seed`. Fault for an option out of its range.
        """
        import torch

        from seqtrain.inference import predict
        from seqtrain.models.decoding import continue_tokens

        task = predict.of_stream(self.opened, "continue_texts")
        check_answer_options(length=length, temperature=temperature, seed=seed, **_given(top_k=top_k, top_p=top_p))
        predict.check(self.opened, prompts, "continue")
        if not prompts:
            return []
        start = self.tokenizer.start
        tokens = continue_tokens(
            self.model,
            lambda hidden: task.scores(self.model, hidden),  # type: ignore[operator]
            [[start, *self.tokenizer.encode(prompt).tolist()] for prompt in prompts],
            num_tokens=length,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
        )
        lanes = torch.stack(list(tokens), 1).tolist()
        return [self.tokenizer.decode(lane) for lane in lanes]

    def score(self, text: str) -> dict[str, Any]:
        """How surprising a text is: `loss` in nats a token, and `tokens` with their bits each.

        task=next_token: also `bits_per_byte`; read as evaluation reads a document: in the run's own chunks, with its
        own rule for carrying state. task=masked_lm: each token hidden in turn, so that `loss` is the mean
        pseudo-log-likelihood, turned in sign; and `pseudo_perplexity`. `unknown` counts the tokens that are <unk>:
        what those hide is in no number.
        """
        from seqtrain.inference import predict
        from seqtrain.tasks.masked_lm import MaskedLM

        masked = isinstance(self.task, MaskedLM)
        if not masked:
            predict.of_stream(self.opened, "score")
        predict.check(self.opened, [text], "score")
        surprisals = predict.surprisals(self.opened, text)
        ids, total = self.tokenizer.encode(text).tolist(), sum(surprisals)
        loss = total / len(surprisals)
        return {
            "unknown": ids.count(self.tokenizer.unknown),
            "loss": loss,
            **(
                {"pseudo_perplexity": math.exp(min(loss, 700.0))}
                if masked
                else {"bits_per_byte": total / math.log(2) / len(text.encode())}
            ),
            "tokens": [
                {"text": self.tokenizer.token_text(token), "bits": nats / math.log(2)}
                for token, nats in zip(ids, surprisals, strict=True)
            ],
        }

    def classify(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """Of each text its `label` and the `probabilities` of all labels, likeliest first. Takes task=sentiment.

        Of a text longer than data.max_length the first tokens are read, as in training.
        """
        from seqtrain.inference import predict

        predict.of_kind(self.opened, predict.Sentiment, "classify")
        predict.check(self.opened, texts, "classify")
        return predict.classify(self.opened, texts)

    def fill(self, texts: Sequence[str], *, top_k: int = 5) -> list[dict[str, Any]]:
        """Of each text with [MASK]s the text with the likeliest tokens `filled` in, and for each of its `masks` the
        `top_k` likeliest tokens, each a `token` with its `probability`. Takes task=masked_lm."""
        from seqtrain.inference import predict

        predict.of_kind(self.opened, predict.MaskedLM, "fill")
        check_answer_options(top_k=top_k)
        predict.check(self.opened, texts, "fill")
        return predict.fill(self.opened, texts, top_k)

    def translate(
        self, texts: Sequence[str], *, beam: int | None = None, length_penalty: float | None = None
    ) -> list[str]:
        """The translation of each text, searched for as the run's task says where nothing else is given.

        Takes task=translation. Of a text longer than the sources of training, the beginning is translated.
        """
        from seqtrain.inference import predict

        task = predict.of_kind(self.opened, predict.Translation, "translate")
        check_answer_options(**_given(beam=beam, length_penalty=length_penalty))
        predict.check(self.opened, texts, "translate")
        vocabularies = self.opened.vocabularies
        return task.translate(
            self.model,
            list(texts),
            vocabularies,
            beam=beam,
            length_penalty=length_penalty,
            longest=predict.most(self.opened, "translate"),
        )

    def embed(self, texts: Sequence[str], *, pool: Pool = "mean") -> Tensor:
        """One vector of each text, (n, D), pooled from the hidden states that the run's model has of it.

        mean: of the text's own positions; last: where all has been read; cls: the first one, of models that read in
        both directions. Fault for an encoder-decoder, which has no hidden states of a text alone.
        """
        from seqtrain.inference import embedding, predict

        embedding.check_pool(self.model, pool)
        predict.check(self.opened, texts, "embed")
        before, after = predict.edges(self.opened)
        rows = [predict.encode(self.opened, text, "embed") for text in texts]
        return embedding.embed(self.model, rows, before=before, after=after, pool=pool)

    def attention(self, text: str, target: str | None = None) -> list[Seen]:
        """Where each layer and head looks while the model reads a text.

        Of a translation also while it writes `target`, by default its own greedy translation. Fault where the model
        does not attend.
        """
        from seqtrain.inference import predict

        predict.check(self.opened, [text], "attend")
        return predict.attend(self.opened, text, target)


def load(run: str | Path, *, trust: Sequence[str] = (), checkpoint: Literal["best", "last"] = "best") -> Trained:
    """Opens a run directory; nothing in it can execute. Fault when there is none or it has no checkpoint."""
    from seqtrain.inference.opened import open_run

    _check_list("trust", trust)
    return Trained(open_run(run, trust, checkpoint))


def train(*overrides: str, trust: Sequence[str] = (), config_dirs: Sequence[str | Path] = ()) -> Trained:
    """Trains as `seqtrain train OVERRIDE ...` does and opens the run.

    In any thread of a process, in one at a time. In the main thread an interrupt (Ctrl-C, or a notebook's stop) ends
    it at the next step, with a checkpoint that `seqtrain resume` goes on from.

    Raises:
        Fault: for what the caller can mend, another training in this process among it.
        KeyboardInterrupt: where it was interrupted.
    """
    _check_list("trust", trust)
    _check_list("config_dirs", config_dirs)
    if not _TRAINING.acquire(blocking=False):
        raise Fault(
            "a training runs in this process already, and both would draw from one source of random numbers; "
            "wait for it, or start this one in another process"
        )
    try:
        return _train(overrides, trust, config_dirs)
    finally:
        _TRAINING.release()


def _given(**options: float | None) -> dict[str, float]:
    """Those that are not left to their default."""
    return {name: value for name, value in options.items() if value is not None}


def _check_list(name: str, value: Sequence[str | Path]) -> None:
    """Fault for one word where several are meant: its letters would be taken for them."""
    if isinstance(value, str | Path):
        raise Fault(f"{name}={str(value)!r}: expected a list; write {name}=[{str(value)!r}]")


def _train(overrides: Sequence[str], trust: Sequence[str], config_dirs: Sequence[str | Path]) -> Trained:
    import torch

    from seqtrain.cli.train import Request, start
    from seqtrain.config import check

    directories = tuple(map(Path, config_dirs))
    composed = check.compose(list(overrides), directories, tuple(trust))
    if composed.config.dry_run:
        raise Fault("dry_run=true: leaves no run to open; use the command line, or seqtrain.cli.train.dry_run")
    request = Request(list(overrides), tuple(trust), directories, ("seqtrain.train", *overrides))
    threads = torch.get_num_threads()
    try:
        run = start(composed.config, composed.choices, request)
    except Interrupted as interrupted:
        if interrupted.number != signal.SIGINT:
            raise
        raise KeyboardInterrupt("the training was interrupted; it can be resumed") from None
    finally:
        torch.set_num_threads(threads)
    return load(run.path, trust=trust)
