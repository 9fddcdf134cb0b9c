"""Files of nanoGPT, which hold only ids of two bytes, and of its descendants, which begin with a header."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seqtrain.data.sources.foreign_tokens import ForeignTokens, Layout, plain_file, whole_tokens
from seqtrain.errors import UserError

TYPE = "<u2"
HEADER_BYTES = 1024  # 256 numbers of four bytes, of llm.c and modded-nanogpt: the mark, the version, the tokens
MARK, VERSION = 20240520, 1


@dataclass(kw_only=True, eq=False)
class NanoGPT(ForeignTokens):
    """`train.bin` and `val.bin` of a folder, or files that are named one by one.

    nanoGPT's `meta.pkl` is not read: opening a pickle runs the code in it.

    Attributes:
        end_of_text: The id that ends a document; None: a file is one document.
    """

    end_of_text: int | None = None

    document = "what ends with data.end_of_text, or a file"
    called = "nanogpt"

    def __post_init__(self) -> None:
        """Check the options; `path` may be the folder with train.bin and val.bin."""
        folder = Path(self.path)
        if self.path and folder.is_dir():
            self.path = str(folder / "train.bin")
            if self.validation_path is None and (folder / "val.bin").is_file():
                self.validation_path = str(folder / "val.bin")
        super().__post_init__()

    def layout(self, path: Path) -> Layout:
        plain_file(path, "ids of two bytes each, as nanoGPT's train.bin")
        with open(path, "rb") as file:
            head = file.read(HEADER_BYTES)
        offset, count = 0, None
        # A text of these two ids first would be taken for a header, were the length not right as well.
        if len(head) >= 12 and int(np.frombuffer(head, dtype="<i4", count=1)[0]) == MARK:
            _, version, count = np.frombuffer(head, dtype="<i4", count=3).tolist()
            if version != VERSION:
                raise UserError(f"{path}: has a header of version {version}, and version {VERSION} is known")
            offset = HEADER_BYTES
        return Layout([whole_tokens(path, TYPE, offset=offset, count=count)], None, [path])
