"""The tables of docs/models.md: which model does which task, and the options of every model.

    python -m benchmarks.models_page

`make docs` runs it.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from seqtrain.cli.matrix import cells, table

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "models.md"

# A line of a YAML file that sets an option, with the comment behind it.
OPTION = re.compile(r"(?P<name>\w+): (?P<default>.*?)(?: +# (?P<meaning>.*))?")
# A default that data or task may recommend another one for.
RECOMMENDED = re.compile(r"(\$\{oc\.select:(data|task)\._recommend_\.\w+,)+(?P<default>[^}]*)\}+")


def main() -> None:
    """Write both tables into the page, between its marks."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    page = PAGE.read_text("utf-8")
    for name, lines in (("models", models()), ("matrix", table(cells()))):
        before, _, rest = page.partition(f"<!-- {name} -->\n")
        end = f"<!-- /{name} -->"
        after = rest.partition(end)[2]
        page = "".join([before, f"<!-- {name} -->\n", *(f"{line}\n" for line in lines), end, after])
    PAGE.write_text(page, "utf-8")


def models() -> list[str]:
    """Return the description of every built-in model with its options and defaults, from its file in conf/model."""
    from seqtrain.training.shipped import shipped, shipped_file

    lines = []
    for name in shipped("model"):
        lines += ["", f"### {name}", "", *_options(shipped_file("model", name).read_text("utf-8"))]
    for name in shipped("mixer"):
        lines += ["", f"### model.mixers=[{name}]", "", *_options(shipped_file("mixer", name).read_text("utf-8"))]
    return lines[1:]


def _options(text: str) -> list[str]:
    """Return the first comment of a YAML file, and a table of its options."""
    comments, rows, rates = [], [], []
    for line in text.splitlines():
        option = OPTION.fullmatch(line.strip())
        if line.startswith("# "):
            comments.append(line[2:])
        elif option and line.startswith("  "):  # under _recommend_: not the model's own
            rate = RECOMMENDED.fullmatch(option["default"]) or option
            rates.append(_row(f"optimizer.{option['name']}", rate["default"], "taken where you set none"))
        elif option and not line.startswith("_"):
            default, meaning = option["default"], option["meaning"] or ""
            recommends = RECOMMENDED.fullmatch(default)
            if recommends:
                default, meaning = recommends["default"], meaning or "where data or task recommends no other one"
            rows.append(_row(f"model.{option['name']}", default, meaning))
    return [" ".join(comments), "", "| option | default | meaning |", "|---|---|---|", *rows, *rates]


def _row(name: str, default: str, meaning: str) -> str:
    meaning = meaning.replace(" | ", ", ")  # a bar would end the cell
    if meaning:
        meaning += " "
    return f"| `{name}` | `{default}` | {meaning}|"


if __name__ == "__main__":
    main()
