"""What mkdocs is told beside mkdocs.yml: pages made of files outside docs/, and links that lead to them.

README.md is the front page and CONTRIBUTING.md a page of its own. A link from a page to any other file of the
repository leads to a page that shows it; `#L12` to its line 12. A block of ```math becomes MathML, which browsers draw
without a script.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md"}
"""Files outside docs/ that are pages, and their names on the site."""

LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")
"""The address of a link that leads to a file: its path, and the place in it."""

MATH = re.compile(r"^```math\n(.*?)^```$", re.MULTILINE | re.DOTALL)
"""Equations in TeX, in the form that GitHub draws, too."""

FOREIGN = re.compile(r"<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=\"?(?:https?:)?//[^>]*")
"""What a browser would load from another host as soon as a page is opened."""

LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are made of files outside docs/, and of all that the pages link to."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text("utf-8")))
    for page in list(files.documentation_pages()):
        for target in _linked(page.content_string, page.src_uri):
            name = _page_of(target)
            if name.startswith("source/") and (ROOT / target).is_file() and files.get_file_from_path(name) is None:
                files.append(File.generated(config, name, content=_shown(target)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns links between files of the repository into links between pages of the site, and TeX into MathML."""
    here = page.file.src_uri

    def turned(link: re.Match[str]) -> str:
        target = _page_of(_target(link[1], here))
        address = posixpath.relpath(target, posixpath.dirname(here) or ".")
        line = re.match(r"#(L\d+)", link[2] or "")
        return f"{address}){{ .{line[1]} }}" if line else f"{address}{link[2] or ''})"

    if here.startswith("source/"):
        return markdown
    return LINK.sub(turned, MATH.sub(lambda tex: f"<div>{convert(tex[1], display='block')}</div>", markdown))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lets links to a line lead there; after mkdocs has checked links, for it does not see the lines of code."""
    return re.sub(r'<a class="L(\d+)" href="([^"]+)"', r'<a href="\2#__codelineno-0-\1"', html)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Stops the build where a page would load something from another host."""
    found = FOREIGN.search(output)
    if found:
        raise PluginError(f"{page.file.src_uri}: loads from another host: {found[0]}")
    return output


def _linked(markdown: str, page: str) -> list[str]:
    return [_target(link[1], page) for link in LINK.finditer(markdown)]


def _target(address: str, page: str) -> str:
    """The file of the repository that an address on a page leads to."""
    names = {name: file for file, name in PAGES.items()}
    folder = posixpath.dirname(names.get(page, f"docs/{page}"))
    return posixpath.normpath(posixpath.join(folder, address))


def _page_of(target: str) -> str:
    """The name on the site of a file of the repository."""
    if target in PAGES:
        return PAGES[target]
    return target.removeprefix("docs/") if target.startswith("docs/") else f"source/{target}.md"


def _shown(target: str) -> str:
    """A page that shows a file of the repository."""
    path = ROOT / target
    language = LANGUAGES.get(path.suffix, "text")
    return f'# {target}\n\n``````{language} linenums="1"\n{path.read_text("utf-8")}\n``````\n'
