"""Token stores as sources: text that was tokenised before, in folders that are mapped into memory."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from seqtrain.data.corpus import Corpus
from seqtrain.data.sources.base import Source, Split
from seqtrain.data.token_store.index import TokenStore, open_store
from seqtrain.errors import UserError
from seqtrain.files.atomic import expanded


class TokenSource(Source):
    """Documents that are tokens already."""

    document = "a document of the store"
    is_tokenized = True

    @cached_property
    def store(self) -> TokenStore:
        """The store, opened once; UserError where it cannot be."""
        return self.open()

    @abstractmethod
    def open(self) -> TokenStore:
        """Opens what is read, by its index and the sizes of its files."""

    @property
    @abstractmethod
    def place_of_store(self) -> str:
        """Where it is, in words."""

    def corpus(self, split: Split) -> Corpus:
        """The tokens of a split; UserError where the store has none."""
        if not self.has(split):
            known = ", ".join(self.store.splits)
            raise UserError(f"data: {self.place_of_store} has no {split} split ({known}); use another store")
        return self.store.splits[split]

    def check(self) -> None:
        """Opens the store; what is wrong with it is told now."""
        self.corpus("train")

    def documents(self, split: Split) -> Iterator[str]:
        """The text of each document, written from its tokens; what those do not hold, such as `<unk>`, is lost."""
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
    """A token store that `seqtrain prepare` wrote."""

    def __init__(self, *, path: str) -> None:
        """`path`: the folder of the store."""
        if path == "":
            raise UserError("data.path=: an empty path; give the folder of a token store")
        self.path = path

    @property
    def place_of_store(self) -> str:
        return self.path

    def open(self) -> TokenStore:
        return open_store(Path(expanded(self.path)))
