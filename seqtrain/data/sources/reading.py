"""The layout of a labelled file: the places of its text and its label, as shown to a user and as recorded in a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from seqtrain.data.sources.opening import PACKINGS, PLAIN, Packed

Kind = Literal["jsonl", "csv", "tsv", "parquet", "lines", "folders"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Place = str | int
"""A column: its name, or, in a file without names, its number from 1."""


@dataclass(frozen=True)
class Reading:
    """Layout of one file, detected or asked for, or of one folder with a folder for each class."""

    kind: Kind
    text: Place = 2
    label: Place = 1
    header: bool = True  # of csv and tsv, or of lines: whether the first one names the columns
    quoted: bool = False  # of tsv: whether `"` surrounds values, as in csv
    packed: Packed = PLAIN
    num_labels: int | None = None  # that were seen, where the whole file was looked at

    def words(self) -> str:
        """Return a description such as `tsv without a header: text in column 2, label in column 1 (2 labels)`."""
        words = {
            "lines": "lines of a label and a text",
            "folders": "a folder of texts for each label",
        }.get(self.kind, self.kind)
        if self.kind in ("csv", "tsv"):
            words += " with a header" if self.header else " without a header"
        elif self.kind == "lines" and self.header:
            words += " below a header"
        if self.quoted and self.kind == "tsv":
            words += ", values in quotes"
        if self.kind not in ("lines", "folders"):
            words += f": text in column {self.text}, label in column {self.label}"
        if self.num_labels is not None:
            words += f" ({self.num_labels} label{'s' * (self.num_labels != 1)})"
        notes = []
        if self.packed.packing != "none":
            notes.append(f"unpacked by {self.packed.packing}")
        if self.packed.encoding != "utf-8":
            notes.append(f"as {self.packed.encoding}")
        return ", ".join([words, *notes])

    def plain(self) -> dict[str, Any]:
        """Return the layout as plain JSON, for the record of a run."""
        return asdict(self) | {"packed": list(self.packed)}

    @classmethod
    def from_plain(cls, value: Any) -> Reading | None:
        """Return the layout in the record of a run, which may be untrusted; None if it is not valid."""
        if not isinstance(value, Mapping):
            return None
        # JSON has no tuples: what was one comes back as a list.
        packed = value.get("packed")
        if not isinstance(packed, list) or len(packed) != len(Packed._fields):
            return None
        # By `type`, as True is an int for isinstance, and would name column 1.
        is_sound = (
            value.get("kind") in KINDS
            and type(value.get("text")) in (str, int)
            and type(value.get("label")) in (str, int)
            and type(value.get("header")) is bool
            and type(value.get("quoted")) is bool
            and packed[0] in PACKINGS
            and isinstance(packed[1], str)
        )
        if not is_sound:
            return None
        fields = {name: value[name] for name in ("kind", "text", "label", "header", "quoted")}
        # Runs of before this was counted have no such entry; they still can be read.
        if type(value.get("num_labels")) is int:
            fields["num_labels"] = value["num_labels"]
        return cls(**fields, packed=Packed(*packed))
