"""What is trained on both sides: our configuration, the sizes that a peer is told, and text that nobody wrote."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig
from torch import Tensor

from benchmarks.peers.turns import END, PADDING, SPECIALS, START
from seqtrain.config import check
from seqtrain.data.batching.examples import ExampleBatch, TranslationBatch
from seqtrain.data.batching.loader import TrainLoader
from seqtrain.data.batching.values import WindowBatch
from seqtrain.data.tokenizers.encoding import NoTokens
from seqtrain.errors import UserError
from seqtrain.tasks.base import Say
from seqtrain.training.data import make_data
from seqtrain.training.splits import Data
from seqtrain.training.trainer import resolve_auto

COMMON = (
    "trainer.accelerator=cpu trainer.threads=1 trainer.validate_every=1000000 trainer.max_steps=1000000 "
    "logger=tensorboard optimizer=adamw optimizer.lr=0.001 model.dropout=0"
)
WORDS = 1000  # in a made-up language
MANY_WORDS = 8000


@dataclass(frozen=True)
class Case:
    """One peer beside us."""

    title: str
    module: str  # of the peer, in benchmarks/peers
    text: str  # a key of TEXTS
    ours: str  # overrides
    steps: int  # in a turn
    warm: int  # steps before the first turn that counts: buffers and, for each new length, kernels are made in them
    sizes: dict[str, int] = field(default_factory=dict)  # of the peer's model, without its vocabulary
    environment: str = ".venv-peers"
    arguments: tuple[str, ...] = ()

    def config(self, folder: Path, precision: str) -> DictConfig:
        """Our configuration; the text is made where there is none yet."""
        places = TEXTS[self.text](folder)
        words = [*COMMON.split(), *self.ours.split(), *places, f"trainer.precision={precision}"]
        config = check.compose(words).config
        resolve_auto(config, silent)
        return config


def silent(line: str) -> None:
    """Says nothing."""


def data_of(config: DictConfig, say: Say = silent) -> Data:
    """What is trained on."""
    return make_data(config, ("train", "validation"), say)


def loader_of(data: Data) -> TrainLoader:
    """Our batches, as a training reads them."""
    return TrainLoader(data.batcher("train"), data.plan("train"), accumulate=1)


def given(case: Case, folder: Path, *, steps: int) -> dict[str, Any]:
    """What the peer of a case is given: sizes, and the first `steps` batches that we train on, padded by an own id."""
    config = case.config(folder, "32-true")
    data = data_of(config)
    size = 0 if isinstance(data.tokenizer, NoTokens) else data.tokenizer.vocab_size
    batches = [plain(batch, size) for batch in itertools.islice(loader_of(data), steps)]
    # The start of a text has an id, and where there are examples so have their ends and the padding.
    vocab_size = size + 1 if case.text == "letters" else size + len(SPECIALS)
    return {"sizes": {"vocab_size": vocab_size, **case.sizes} if size else case.sizes, "batches": batches}


def plain(batch: Any, vocab_size: int) -> dict[str, Tensor]:
    """The tensors of a batch by their names; behind `vocab_size` tokens of text stand three that are none."""
    if isinstance(batch, TranslationBatch):
        return sentence_pairs(batch, vocab_size)
    tensors = {name: value for name, value in vars(batch).items() if isinstance(value, Tensor)}
    if isinstance(batch, WindowBatch):
        tensors["targets"] = batch.targets[:, 0].nan_to_num()  # of the last windows some values are not known
    elif isinstance(batch, ExampleBatch):
        tensors["tokens"] = batch.tokens.masked_fill(padding_of(batch), vocab_size + 3)
    return tensors


def sentence_pairs(batch: TranslationBatch, vocab_size: int) -> dict[str, Tensor]:
    """Sources with their end and `lengths`, and targets from start to end, as OpenNMT-py and JoeyNMT number tokens."""
    shift = len(SPECIALS)
    unknown_end = vocab_size + 1 + shift  # a source ends with a separator
    source = (batch.tokens + shift).masked_fill(padding_of(batch), PADDING)
    source = source.masked_fill(source == unknown_end, END)
    target = (batch.targets + shift).masked_fill(batch.targets < 0, PADDING)
    target = target.masked_fill(batch.targets == vocab_size, END)
    start = torch.full_like(target[:, :1], START)
    return {"source": source, "lengths": batch.lengths, "target": torch.cat([start, target], 1)}


def padding_of(batch: ExampleBatch) -> Tensor:
    """Which places (B, T) of a batch of token ids hold no token."""
    return torch.arange(batch.tokens.shape[1]) >= batch.lengths[:, None]


def letters(folder: Path) -> list[str]:
    """Two million letters in any order."""
    path = folder / "letters.txt"
    if not path.exists():
        drawn = np.random.default_rng(0).integers(97, 123, 2_000_000)
        path.write_bytes(drawn.astype(np.uint8).tobytes())
    return ["data=text", f"data.path={path}", "data.split_by=position", "tokenizer=byte"]


def sentences(folder: Path) -> list[str]:
    """Sentences of 20 to 62 words."""
    path = folder / "sentences.jsonl"
    if not path.exists():
        rows = (json.dumps({"text": text}) for text in drawn_sentences(10_000, 20, 62))
        path.write_text("\n".join(rows))
    return ["data=text", f"data.path={path}", "tokenizer=word"]


def full_sentences(folder: Path) -> list[str]:
    """Sentences of 126 words, of 8,000 in the language: with what begins and ends them 128 tokens."""
    path = folder / "full_sentences.jsonl"
    if not path.exists():
        rows = (json.dumps({"text": text}) for text in drawn_sentences(4_000, 126, 126, words=MANY_WORDS))
        path.write_text("\n".join(rows))
    return ["data=text", f"data.path={path}", "tokenizer=word"]


def pairs(folder: Path, words: int = WORDS) -> list[str]:
    """Sentences of 5 to 30 words beside others of like length."""
    path = folder / "pairs.jsonl"
    if not path.exists():
        rows = []
        for source in drawn_sentences(30_000, 5, 30, words=words):
            # Reversed: so long a target as its source, and none of its words at the same place.
            rows.append(json.dumps({"source": source, "target": " ".join(reversed(source.split()))}))
        path.write_text("\n".join(rows))
    return ["data=parallel", f"data.path={path}", "tokenizer=word"]


def reviews(folder: Path) -> list[str]:
    """Sentences of SST-2, of 2 to 53 words, each with a label."""
    path = Path("../shared/data/sst2/train.tsv")
    if not path.exists():
        raise UserError(f"{path}: is not there; this case reads the 6,920 sentences of SST-2 (columns sentence, label)")
    return [f"data.path={path}", "data=labelled", "data.column=sentence", "data.label_column=label", "tokenizer=word"]


def series(folder: Path, channels: int) -> list[str]:
    """Random walks of 8,000 steps that return to their mean."""
    path = folder / f"series_{channels}.csv"
    if not path.exists():
        drawn, walk = np.random.default_rng(0).normal(size=(8_000, channels)), np.zeros((8_000, channels))
        for step in range(1, len(walk)):
            walk[step] = 0.95 * walk[step - 1] + drawn[step]
        names = ",".join(f"c{channel}" for channel in range(channels))
        np.savetxt(path, walk, "%.5f", ",", header=names, comments="")
    return ["data=series", f"data.path={path}", "data.max_length=336"]


def drawn_sentences(count: int, least: int, most: int, *, words: int = WORDS) -> Iterator[str]:
    """Words in any order; all words are equally frequent."""
    random = np.random.default_rng(0)
    for length in random.integers(least, most + 1, count):
        yield " ".join(f"w{word}" for word in random.integers(0, words, length))


TEXTS: dict[str, Callable[[Path], list[str]]] = {
    "letters": letters,
    "sentences": sentences,
    "full sentences": full_sentences,
    "pairs": pairs,
    "reviews": reviews,
    "pairs of many words": partial(pairs, words=MANY_WORDS),
    "one series": partial(series, channels=1),
    "seven series": partial(series, channels=7),
}

GPT = {"dim": 128, "num_layers": 4, "num_heads": 4, "length": 64}
TRANSLATION = {"dim": 256, "num_layers": 3, "num_heads": 4}
OUR_GPT = (
    "task=next_token model=gpt model.dim=128 model.num_layers=4 model.num_heads=4 tbptt=windows tbptt.k2=64 "
    "data.batch_size=32 model.attention_window=63"
)
OUR_LEARNED_GPT = f"{OUR_GPT} model.positions=learned model.max_length=64"
OUR_BERT = (
    "task=masked_lm model=bert model.dim=256 model.num_layers=4 model.num_heads=4 model.norm=post "
    "model.positions=learned"
)
OUR_TRANSLATION = (
    "task=translation model=encoder_decoder model.dim=256 model.num_layers=3 model.num_heads=4 data.batch_tokens=2048"
)

CASES = {
    "bare_gpt": Case("GPT 4x128 beside a bare loop", "bare_gpt", "letters", OUR_LEARNED_GPT, 15, 15, GPT),
    "litgpt": Case(
        "GPT 4x128 beside LitGPT", "litgpt_gpt", "letters", OUR_GPT, 15, 15, GPT, environment=".venv-peers-litgpt"
    ),
    "litgpt_compiled": Case(
        "GPT 4x128 beside LitGPT, compiled",
        "litgpt_gpt",
        "letters",
        OUR_GPT,
        15,
        15,
        GPT,
        environment=".venv-peers-litgpt",
        arguments=("compiled",),
    ),
    "hf_bert": Case(
        "BERT 4x256 beside Hugging Face's Trainer",
        "hf_bert",
        "sentences",
        f"{OUR_BERT} model.max_length=64 data.max_length=64 data.batch_tokens=2048",
        5,
        60,
        {"dim": 256, "num_layers": 4, "num_heads": 4, "length": 64},
    ),
    "opennmt": Case(
        "translation 3+3x256 beside OpenNMT-py",
        "opennmt_pairs",
        "pairs",
        OUR_TRANSLATION,
        5,
        60,
        TRANSLATION,
        environment=".venv-peers-opennmt",
    ),
    "joeynmt": Case(
        "translation 3+3x256 beside JoeyNMT",
        "joeynmt_pairs",
        "pairs",
        OUR_TRANSLATION,
        5,
        60,
        TRANSLATION,
        environment=".venv-peers-joeynmt",
    ),
    "bare_lstm": Case(
        "LSTM 2x256 beside a bare loop",
        "bare_lstm",
        "letters",
        "task=next_token model=lstm model.dim=256 model.num_layers=2 tbptt=carry tbptt.k2=48 data.batch_size=32",
        20,
        20,
        {"dim": 256, "num_layers": 2},
    ),
}
CASES |= {
    "bare_sentiment": Case(
        "sentiment, LSTM 256 both ways on SST-2, beside a loop with packed sequences",
        "bare_sentiment",
        "reviews",
        "task=sentiment model=lstm model.dim=256 model.bidirectional=true task.dropout=0 data.batch_tokens=2048",
        20,
        60,
        {"dim": 256, "labels": 2},
    ),
    "tuned_gpt": replace(
        CASES["bare_gpt"], title="GPT 4x128 beside a tuned loop (products, kept memory)", sizes={**GPT, "tuned": 1}
    ),
    "bare_gru": replace(
        CASES["bare_lstm"],
        title="GRU 1x512, 16 x 128, beside a bare loop",
        ours="task=next_token model=gru model.dim=512 model.num_layers=1 tbptt=carry tbptt.k2=128 data.batch_size=16",
        steps=5,
        warm=5,
        sizes={"dim": 512, "num_layers": 1, "gates": 3},
    ),
    "bare_tcn": Case(
        "TCN 5x160 beside a bare loop",
        "bare_tcn",
        "letters",
        "task=next_token model=cnn model.dim=160 model.num_layers=5 model.kernel_size=3 tbptt=windows tbptt.k2=64 "
        "data.batch_size=32",
        10,
        10,
        {"dim": 160, "num_layers": 5},
    ),
    "bare_ltsf": Case(
        "DLinear, 1 channel, 336 to 96, beside LTSF-Linear's",
        "bare_ltsf",
        "one series",
        "task=forecast task.horizon=96 model=dlinear model.dim=84",
        100,
        100,
        {"steps": 336, "horizon": 96},
    ),
    "bare_gpt_muon": replace(
        CASES["bare_gpt"],
        title="GPT 4x128 with Muon beside a bare loop with AdamW",
        ours=f"{OUR_LEARNED_GPT} optimizer=muon optimizer.lr=0.01",
    ),
    "bare_ltsf_7": Case(
        "DLinear, 7 channels, 336 to 96, beside LTSF-Linear's",
        "bare_ltsf",
        "seven series",
        "task=forecast task.horizon=96 model=dlinear model.dim=48",
        50,
        50,
        {"steps": 336, "horizon": 96},
    ),
    "hf_bert_8000": replace(
        CASES["hf_bert"],
        title="BERT 4x256, V 8,000, 32 x 128, beside Hugging Face's Trainer",
        text="full sentences",
        ours=f"{OUR_BERT} model.max_length=128 data.max_length=128 data.batch_tokens=4096",
        steps=3,
        warm=6,
        sizes={"dim": 256, "num_layers": 4, "num_heads": 4, "length": 128},
    ),
    "opennmt_8000": replace(
        CASES["opennmt"], title="translation 3+3x256, V 8,000, beside OpenNMT-py", text="pairs of many words"
    ),
    "joeynmt_8000": replace(
        CASES["joeynmt"], title="translation 3+3x256, V 8,000, beside JoeyNMT", text="pairs of many words"
    ),
}
