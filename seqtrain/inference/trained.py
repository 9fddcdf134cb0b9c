"""The trained run that `seqtrain.train` and `seqtrain.load` return."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from seqtrain.config.ranges import ANSWER_RANGES, check_answer_options, check_own_options
from seqtrain.errors import UserError, first_few
from seqtrain.terminal import tell

if TYPE_CHECKING:
    from torch import Tensor

    from seqtrain.data.tokenizers.recipes import Tokenizer
    from seqtrain.inference.attention_maps import Seen
    from seqtrain.inference.gates import Gates
    from seqtrain.inference.opened import Opened
    from seqtrain.models.base import SequenceModel
    from seqtrain.tasks.base import Task
    from seqtrain.tasks.output import TextPool
    from seqtrain.tasks.predictors import TextReader


@dataclass(frozen=True)
class Trained:
    """A run opened for use; its model is in evaluation mode, on the CPU."""

    opened: Opened

    def __repr__(self) -> str:
        run, status = self.opened.run, self.opened.run.summary.status
        about = f"{type(self.model).__name__} on {self.task.name()}, {self._count():,} parameters"
        return "\n".join([f"Trained({run.path}: {status or 'training status unknown'}, {about})", *self._results()])

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: the text of `repr`, then the metrics as a table."""
        head = f"<pre>{escape(repr(self))}</pre>"
        if not self.metrics:
            return head
        names = dict.fromkeys(chain.from_iterable(self.metrics.values()))
        lines = [["", *names]]
        for split, values in self.metrics.items():
            lines.append([split, *map(_brief, map(values.get, names))])
        return f"{head}<table>{''.join(map(_html_row, lines))}</table>"

    def _count(self) -> int:
        """Count the trainable parameters of model and task."""
        # The summary of an export does not record this number.
        trained = chain(self.model.parameters(), self.task.parameters())
        return sum(weight.numel() for weight in trained if weight.requires_grad)

    def _results(self) -> list[str]:
        """Return one line with the task's main metric, or no line if it was not measured."""
        from seqtrain.runs import measures

        name, summary = measures.compared_by(self.opened.run.summary), self.opened.run.summary
        value = self.metrics.get("validation", {}).get(name)
        if value is None:
            return []
        return [f"  validation: {_brief(value)} {measures.unit(summary, name)} after {summary.steps or 0:,} steps"]

    @property
    def directory(self) -> Path:
        """The run directory."""
        return self.opened.run.path

    @property
    def summary(self) -> dict[str, Any]:
        """The content of summary.json."""
        return self.opened.run.summary.to_plain()

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        """The final metrics by split."""
        return self.opened.run.summary.metrics

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
        """The model with the weights of the checkpoint."""
        return self.opened.model

    @property
    def task(self) -> Task:
        """The task, with its head."""
        return self.opened.task

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the run; for task=translation, that of the source language."""
        return self.opened.tokenizer

    def predict(self, texts: Sequence[str] | Path, *, by: str | None = None, **options: Any) -> list[dict[str, Any]]:
        """Return the task's prediction for each text, or each series of a file, as plain values.

        Args:
            texts: any number of texts, predicted together. For a run that reads series: the path of a file of series.
            by: one of the task's predictors, such as "score"; None: the first one.
            options: options of that predictor, as in its `takes`; `seqtrain predict --help` lists those of the built-in
                tasks.

        Returns:
            A dict for each text, in the order of the texts. Its keys depend on the predictor.

        Raises:
            UserError: If the task has no such predictor or option, a value is out of its range, or a text cannot be
                predicted on.
        """
        from seqtrain.tasks.hooks import check_answers  # here: it imports torch

        predictor: Any = self.opened.predictor(by)
        unknown = [name for name in options if name not in predictor.takes]
        if unknown:
            known = first_few(predictor.takes) or "no options"
            raise UserError(
                *(f"{name}: not an option of task={self.task.name()} here; it takes {known}" for name in unknown)
            )
        given = {name: value for name, value in options.items() if value is not None}  # None: the default
        check_answer_options(**{name: value for name, value in given.items() if name in ANSWER_RANGES})
        # An option without a range belongs to the task: its default gives its type.
        check_own_options(predictor.takes, {name: value for name, value in given.items() if name not in ANSWER_RANGES})
        items: Sequence[Any]
        if self.opened.answers_series and isinstance(texts, str | Path):
            from seqtrain.inference.forecasts import read_series

            items = read_series(self.opened, Path(texts), str(texts))
        else:
            self._check(texts, predictor)
            items = list(cast("Sequence[str]", texts))
        answers = predictor.predict(items, **given)
        check_answers(predictor, items, answers)
        return answers

    def _check(self, texts: Sequence[str] | Path, reader: TextReader[Any]) -> None:
        """Raise UserError for the first text that the reader does not accept."""
        if isinstance(texts, str | Path):  # otherwise each character of a str would be predicted on
            raise UserError("expected a list of texts, not one text")
        for number, text in enumerate(texts, 1):
            if not isinstance(text, str):
                raise UserError(f"text {number}: expected a str, not a value of type {type(text).__name__}")
            reason = reader.reason(text)
            if reason:
                raise UserError(f"text {number}: {reason}")

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
        """Return the model's continuation of each prompt. Requires task=next_token.

        Args:
            prompts: any number of prompts; a prompt may be empty.
            length: number of tokens to generate.
            temperature: sampling temperature; 0 is greedy.
            top_k: sample from the k most likely tokens; None: from all.
            top_p: sample from the most likely tokens whose probabilities add up to p; None: from all.
            seed: random seed of the first prompt; prompt i uses seed + i.

        Returns:
            The generated text for each prompt, without the prompt.

        Raises:
            UserError: If an option is out of its range.
        """
        options = {"length": length, "temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
        return [answer["text"] for answer in self.predict(prompts, by="continue", **options)]

    def score(self, text: str) -> dict[str, Any]:
        """Return the surprisal of a text: `loss` in nats per token, and `tokens` with the bits of each.

        task=next_token: also `bits_per_byte`. The text is read as in evaluation: in chunks and with state carried as
        the run's config says. task=masked_lm: each token is masked in turn, so `loss` is the negative mean
        pseudo-log-likelihood; also `pseudo_perplexity`. `unknown` counts the <unk> tokens; the surprisal of the text
        that they replace is not included.
        """
        return _without_text(self.predict([text], by="score"))[0]

    def classify(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """Return the `label` of each text and the `probabilities` of all labels, most likely first.

        Requires task=sentiment. A text is truncated to data.max_length tokens, as in training.
        """
        return _without_text(self.predict(texts, by="classify"))

    def fill(self, texts: Sequence[str], *, top_k: int = 5) -> list[dict[str, Any]]:
        """Fill in the [MASK]s of each text. Requires task=masked_lm.

        `filled` is the text with the most likely tokens. `masks` lists, for each [MASK], the `top_k` most likely
        tokens, each as a `token` and its `probability`.
        """
        return _without_text(self.predict(texts, by="fill", top_k=top_k))

    def translate(
        self, texts: Sequence[str], *, beam: int | None = None, length_penalty: float | None = None
    ) -> list[str]:
        """Translate each text. Requires task=translation.

        A text longer than the source texts of training is truncated.

        Args:
            texts: texts in the source language.
            beam: hypotheses kept at each step; 1 is greedy; None: the run's task.beam.
            length_penalty: hypotheses are ranked by log p / length^penalty; None: the run's task.length_penalty.
        """
        answers = self.predict(texts, by="translate", beam=beam, length_penalty=length_penalty)
        return [answer["translation"] for answer in answers]

    def embed(self, texts: Sequence[str], *, pool: TextPool | None = None) -> Tensor:
        """Embed each text as one vector, pooled from the hidden states of the run's model or of its encoder.

        Args:
            texts: any number of texts.
            pool: "mean": over the positions of the text; "mean_all": over the special tokens around it too; "last":
                the state after the last token; "cls": the first position, for bidirectional models. None: `task.pool`
                for task=pairs, else "mean".

        Returns:
            (n, D), one row per text.

        Raises:
            UserError: If the model has no hidden states for a text alone, or does not support `pool`.
        """
        from seqtrain.inference import embedding

        pool = pool or embedding.pool_of(self.task)
        embedding.check_pool(self.model, pool)
        reader = self.opened.text_reader
        self._check(texts, reader)
        before, after = self.task.edges(self.tokenizer)  # special tokens around each text, as in training
        rows = [reader.encode(text) for text in texts]
        return embedding.embed(self.model, rows, before=before, after=after, pool=pool)

    def forecast(self, series: Any) -> dict[str, list[Any]]:
        """Forecast the continuation of series, as `seqtrain predict RUN --input FILE` writes it.

        Requires task=forecast.

        Args:
            series: the path of a csv, tsv, parquet or jsonl file, a dict of columns, or a table of pandas or pyarrow,
                with the columns that the run was trained on.

        Returns:
            A dict of columns with one row per step ahead, in the units of the data: `time`; for each value column (here
            `load`) its forecast under the same name and interval ends such as `load_lower_80` and `load_upper_80`; and
            `series` if there are several. It can be passed to `pandas.DataFrame`.

        Raises:
            UserError: If a column is missing, times do not increase, or a series is shorter than the model's input.
        """
        from seqtrain.inference.forecasts import forecast_table

        return forecast_table(self.opened, series, tell)

    def probe(
        self,
        texts: Sequence[str],
        labels: Sequence[str],
        *,
        pool: TextPool | None = None,
        folds: int = 5,
        seed: int = 0,
    ) -> dict[str, Any]:
        """Measure how well logistic regression predicts labels from text vectors, as `seqtrain probe RUN --labels`.

        Args:
            texts: texts that the run can embed.
            labels: the label of each text.
            pool: as for `embed`.
            folds: number of cross-validation folds; at least 3.
            seed: random seed of the assignment of texts to folds.

        Returns:
            `results` for each kind of vector, and `neighbours`, as `probe --json` prints them.

        Raises:
            UserError: If there are fewer than two labels, or scikit-learn is missing.
        """
        from seqtrain.inference import embedding, probes

        pool = pool or embedding.pool_of(self.task)
        embedding.check_pool(self.model, pool)
        self._check(texts, self.opened.text_reader)
        return probes.probe_labels(self, texts, labels, pool=pool, folds=folds, seed=seed)

    def attention(self, text: str, target: str | None = None) -> list[Seen]:
        """Return the attention of each layer and head while the model reads a text.

        Args:
            text: the text to read; for a run that reads series, the path of a file, whose first series is read.
            target: the output text of a translation; None: the model's own greedy translation.

        Raises:
            UserError: If the model has no attention.
        """
        from seqtrain.inference import attention_maps

        return attention_maps.look(self.model, *self._looked_at(text, target))

    def gates(self, text: str, target: str | None = None) -> list[Gates]:
        """Return the gates of each LSTM and GRU layer while the model reads a text.

        Args:
            text: the text to read; for a run that reads series, the path of a file, whose first series is read.
            target: the output text of a translation; None: the model's own greedy translation.

        Returns:
            For each layer its `tokens`, the `values` (T, U) of each gate and state by name, and `hold_times` (U,): for
            how many tokens each unit holds its value, -1 / log(mean forget gate), or update gate for a GRU.

        Raises:
            UserError: If the model has no LSTM or GRU layer.
        """
        from seqtrain.inference import gates

        return gates.look(self.model, *self._looked_at(text, target))

    def _looked_at(
        self, text: str, target: str | None
    ) -> tuple[list[Any], Callable[[Any], str], list[Any] | None, Callable[[Any], str]]:
        """Return the input tokens (or values), their label function, the source (or None), and its label function."""
        from seqtrain.inference import attention_maps
        from seqtrain.tasks.predictors import WritesText

        reader, asked = self.opened.text_reader, text
        if self.opened.answers_series:
            from seqtrain.inference.forecasts import read_series

            ours, asked = attention_maps.step_numbers(), read_series(self.opened, Path(text), text)[0]
        else:
            self._check([text], reader)
            ours = attention_maps.labels(self.tokenizer)
        if isinstance(self.task, WritesText):
            tokens, source = self.task.attended(self.opened.loaded, asked, target)
        elif target is not None:
            raise UserError(f"target: task={self.task.name()} has no target text; leave it out")
        else:
            (_, read, _), *_ = reader.batches([asked])
            tokens, source = read[0].tolist(), None
        if source is None:
            return tokens, ours, None, ours
        return tokens, attention_maps.labels(self.opened.preprocessor.target_tokenizer), source, ours


def _without_text(answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Remove the texts, which the caller has, from the answers."""
    for answer in answers:
        answer.pop("text", None)
    return answers


def _brief(value: Any) -> str:
    """Format a float with four decimals, None as an empty string, and any other value by `str`."""
    if isinstance(value, float):
        return f"{value:.4f}"
    return "" if value is None else str(value)


def _html_row(cells: list[str]) -> str:
    # Escaped: metric names may come from an untrusted task.
    return f"<tr><td>{'</td><td>'.join(map(escape, cells))}</td></tr>"
