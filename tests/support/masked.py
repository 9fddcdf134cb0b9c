"""Texts, examples and a small pair of model and task for the tests of masked language modelling."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch

from seqtrain.data.batching.masking import MaskedBatch, MaskedExamples, Masking
from seqtrain.data.batching.plan import TBPTT
from seqtrain.data.corpus import Corpus
from seqtrain.data.preprocess import Preprocessor
from seqtrain.data.tokenizers.encoding import Tokenizer
from seqtrain.data.tokenizers.recipes import Char
from seqtrain.models.base import Capability, SequenceModel
from seqtrain.models.layers.front_ends import TokenEmbedding
from seqtrain.models.recurrent import LSTM
from seqtrain.tasks.base import Facts
from seqtrain.tasks.masked_lm import MaskedLM
from seqtrain.tasks.predictors import Loaded

TEXTS = [
    "the cat sat on the mat, and then it slept for 12 hours\n" * 2,
    "what a naïve question: who reads it? nobody knows anything here",
    "a",
    "one more document that has another number of words in it\n",
    "the last of them",
]
TOKENIZER = Char().train(TEXTS)
V = TOKENIZER.vocab_size
FACTS = Facts(bytes_per_token=1.0, words_per_token=None)
USUAL = Masking(mask_prob=0.15, mask_share=0.8, random_share=0.1, whole_word=False)
OPTIONS: dict[str, Any] = {
    **dataclasses.asdict(USUAL),
    "next_sentence": False,
    "tied": True,
    "transform": True,
    "pseudo_examples": 0,
}


def corpus(texts: list[str] = TEXTS, tokenizer: Tokenizer = TOKENIZER) -> Corpus:
    ids = [tokenizer.encode(text) for text in texts]
    documents = np.concatenate([[0], np.cumsum([len(each) for each in ids])])
    size = sum(len(text.encode()) for text in texts)
    return Corpus(np.concatenate(ids).astype(np.uint16), documents, size, 1, 0, "text")


def random_corpus(sizes: list[int], seed: int = 0) -> Corpus:
    """Documents of these sizes in which no two places look alike."""
    rng = np.random.default_rng(seed)
    documents = np.concatenate([[0], np.cumsum(sizes)])
    return Corpus(rng.integers(0, V, documents[-1]).astype(np.uint16), documents, 1, 1, 0, "random")


def make(
    text: Corpus,
    masking: Masking = USUAL,
    *,
    max_length: int = 16,
    next_sentence: bool = False,
    seed: int = 3,
    tokenizer: Tokenizer = TOKENIZER,
) -> MaskedExamples:
    return MaskedExamples(text, tokenizer, masking, max_length=max_length, next_sentence=next_sentence, seed=seed)


def batch(examples: MaskedExamples, index: Any = None, epoch: int = 0) -> MaskedBatch:
    chosen = np.arange(len(examples.lengths)) if index is None else np.array(index)
    return examples.collate(chosen, epoch, examples.totals(chosen, epoch))


def pair(**options: Any) -> tuple[SequenceModel, MaskedLM]:
    """A small model that sees everything, and the task; float64, and weights large enough that a wrong read shows."""
    torch.manual_seed(0)
    embed = TokenEmbedding(vocab_size=V, dim=8, specials=3)
    model = LSTM(embed=embed, dim=8, num_layers=1, dropout=0.0, bidirectional=True).double().eval()
    task = MaskedLM(**OPTIONS | options, dim=8, vocab_size=V).double().eval()
    assert task.requires in model.capabilities == Capability.BIDIRECTIONAL | Capability.UNCONDITIONAL
    for parameter in (*model.parameters(), *task.parameters()):
        torch.nn.init.normal_(parameter, std=0.4)
    return model, task


def row(found: MaskedBatch, lane: int) -> tuple[list[int], list[int]]:
    """What a model reads of an example, and its targets."""
    length = int(found.lengths[lane])
    return found.tokens[lane, :length].tolist(), found.targets[lane, :length].tolist()


def loaded(model: SequenceModel) -> Loaded:
    """The model with what predictors of texts need."""
    tbptt = TBPTT(k2=16, k1=16, carry=False, reset="never")
    return Loaded(model, Preprocessor(TOKENIZER, TOKENIZER), 16, tbptt)
