"""Series from data sets on the Hugging Face hub, folders in the hub's layout, and `save_to_disk` copies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, BinaryIO, cast

from seqtrain.data.cache import Store, durable
from seqtrain.data.sources.hub import Hub
from seqtrain.data.sources.hub_files import errors_in_one_line
from seqtrain.data.sources.series import TableSeries
from seqtrain.data.values.series import Series
from seqtrain.data.values.tables import TableLayout
from seqtrain.errors import UserError
from seqtrain.files.atomic import expanded

TABLE = "table.parquet"  # in the cache


@dataclass(kw_only=True, eq=False)
class HubSeries(TableSeries):
    """One split of a data set, one row per time step; it is cached as one table and read like a file.

    Attributes:
        path: A hub name, or a local folder.
        decimal: Decimal separator of the files that `predict` continues.
        name: The data set's configuration.
        revision: Revision of the data set on the hub.
        read_split: Split of the hub to read; its series are split by time into train, validation and test.
    """

    name: str | None = None
    revision: str | None = None
    read_split: str = "train"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.path and expanded(self.path).is_file():
            raise UserError(f"data.path={self.path}: is a file; use data=series data.path={self.path}")
        self._hub = Hub(path=self.path, name=self.name, revision=self.revision, train_split=self.read_split)

    def check(self) -> None:
        # For a data set on the hub, only check that it exists; its values are downloaded when they are needed.
        if self._hub.needs_download:
            self._hub.describe()
        else:
            super().check()

    def describe(self) -> dict[str, Any]:
        described = self._hub.describe()
        read_split = described.pop("splits")["train"]
        return {**super().describe(), **described, "source": "hub_series", "read_split": read_split, "paths": []}

    def idle(self) -> dict[str, str]:
        kept = {key: reason for key, reason in self._hub.idle().items() if key in ("name", "revision")}
        return {**super().idle(), **kept}

    def read(self) -> Series:
        with _renamed(str(self._table), self.path):
            return super().read()

    @cached_property
    def _layout(self) -> TableLayout:
        with _renamed(str(self._table), self.path):
            return self._layout_of(self._table, "parquet")

    @cached_property
    def _table(self) -> Path:
        """Path of the split, written as one file of the cache."""
        with _renamed("data.train_split", "data.read_split"):  # Hub's option for the split to read
            self._hub.check_order()
            data = self._hub.dataset("train")

        def write(folder: Path) -> None:
            with durable(folder / TABLE) as file, errors_in_one_line(f"data.path={self.path}"):
                data.to_parquet(cast("BinaryIO", file))

        return Store().entry("hub_series", data._fingerprint, write, partial(_existing, data.num_rows))


@contextmanager
def _renamed(old: str, new: str) -> Iterator[None]:
    """Replace a word in the errors of the block: the user knows the data set, not its file in the cache."""
    try:
        yield
    except UserError as fault:
        raise type(fault)(*(line.replace(old, new) for line in fault.lines)) from None


def _existing(num_rows: int, folder: Path) -> Path:
    """Return the table in a folder of the cache; raise ValueError if it is damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        found = pq.ParquetFile(folder / TABLE).metadata.num_rows
    except pa.ArrowException as error:
        raise ValueError("damaged") from error
    if found != num_rows:
        raise ValueError("damaged")
    return folder / TABLE
