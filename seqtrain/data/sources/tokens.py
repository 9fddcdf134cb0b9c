"""Token stores as sources: memory-mapped folders of tokenised text."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from seqtrain.data.corpus import Corpus
from seqtrain.data.sources.base import Source, Split
from seqtrain.data.token_store.index import TokenStore, open_store
from seqtrain.data.token_store.mixture import mix_stores
from seqtrain.errors import UserError
from seqtrain.files.atomic import expanded


class TokenSource(Source):
    """Documents that are already tokenised: no tokenizer is trained, and leaks are not searched for."""

    document = "a document of the store"

    @cached_property
    def store(self) -> TokenStore:
        """Store, opened once; raises UserError if it cannot be opened."""
        return self.open()

    @abstractmethod
    def open(self) -> TokenStore:
        """Open the store, by its index and the sizes of its files."""

    @property
    @abstractmethod
    def place_of_store(self) -> str:
        """Location of the store, for messages."""

    def corpus(self, split: Split) -> Corpus:
        """Return the tokens of a split; raise UserError if the store lacks it."""
        if not self.has(split):
            known = ", ".join(self.store.splits)
            raise UserError(f"data: {self.place_of_store} has no {split} split ({known}); use another store")
        return self.store.splits[split]

    def check(self) -> None:
        """Open the store, and raise UserError if it is not valid."""
        self.corpus("train")

    def documents(self, split: Split) -> Iterator[str]:
        """Yield the decoded text of each document; text behind tokens such as `<unk>` is lost."""
        corpus = self.corpus(split)
        for number in range(len(corpus.documents) - 1):
            yield self.store.tokenizer.decode(corpus[number].tolist())

    def has(self, split: Split) -> bool:
        return split in self.store.splits

    def describe(self) -> dict[str, Any]:
        return {"source": "tokens", "path": self.place_of_store, "hash": self.store.hash}

    def notes(self) -> list[str]:
        return list(self.store.remarks)


class Tokens(TokenSource):
    """A token store written by `seqtrain prepare`, or a weighted mixture of several."""

    def __init__(self, *, path: str | None = None, mix: Sequence[str] | None = None, mix_block: int = 8192) -> None:
        """Set the store.

        Args:
            path: Folder of the store.
            mix: Instead of `path`: FOLDER:WEIGHT of each of several stores.
            mix_block: Number of consecutive tokens of one store in a mixture.
        """
        if path == "":
            raise UserError("data.path=: an empty path; give the folder of a token store")
        if path is not None and mix:
            raise UserError("data.path and data.mix: both set the data; leave one out")
        if path is None and not mix:
            raise UserError("data=tokens: give the folder of a store as data.path, or several as data.mix=[A:3,B:1]")
        self.path = path
        self.mix = [_read_weight(text) for text in mix or ()]
        self.mix_block = mix_block

    @property
    def place_of_store(self) -> str:
        if self.path is not None:
            return self.path
        return ", ".join(path for path, _ in self.mix)

    def open(self) -> TokenStore:
        if self.path is not None:
            return open_store(expanded(self.path))
        stores = [open_store(expanded(path)) for path, _ in self.mix]
        return mix_stores(stores, [weight for _, weight in self.mix], self.mix_block)

    def describe(self) -> dict[str, Any]:
        described = super().describe()
        if self.mix:
            described["mix"] = dict(self.mix)
        return described

    def idle(self) -> dict[str, str]:
        return {} if self.mix else {"mix_block": "nothing is mixed"}


def _read_weight(text: str) -> tuple[str, float]:
    """Return the folder and the weight of FOLDER:WEIGHT; raise UserError for another form."""
    path, _, number = text.rpartition(":")
    try:
        weight = float(number)
    except ValueError:
        weight = math.nan
    if not path or not 0 < weight < math.inf:
        raise UserError(f"data.mix: {text}: expected FOLDER:WEIGHT, with a weight above 0, as in stores/wiki:3")
    return path, weight
