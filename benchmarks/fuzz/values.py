"""Command lines: overrides over every key and option of conf/, with borderline, absurd and mistyped values."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from omegaconf import OmegaConf

from seqtrain.config import check
from seqtrain.config.conf_files import ConfFiles
from seqtrain.config.nodes import leaves
from seqtrain.config.schema import show

GROUPS = (
    *("model", "task", "data", "tokenizer", "tbptt", "optimizer", "schedule", "trainer", "logger", "callbacks"),
    *("experiment", "debug", "sweep"),
)
WHOLE = ("-1", "0", "1", "2", "3", "7", "8", "16", "64", "1000", "100000", "2147483648", "9223372036854775808", "1e400")
REAL = ("-1", "0", "0.0", "-0.0", "1e-300", "1e-9", "0.1", "0.5", "0.999999", "1", "1.0", "1.5", "2", "1e30", "1e308")
ODD = (
    *(
        "nan",
        "inf",
        "-inf",
        "null",
        "true",
        "false",
        "''",
        '""',
        "???",
        "[]",
        "{}",
        "[[]]",
        "[1,2]",
        "{a:1}",
        "{a:{b:c}}",
    ),
    *(
        "-",
        "~",
        "*",
        ".",
        "/",
        "..",
        "/dev/null",
        "/dev/zero",
        "/proc/self/mem",
        "text",
        "a b",
        "'a b'",
        '"a',
        "a'",
        "1_0",
    ),
    *(
        "0x10",
        "1e5",
        "010",
        "0b1",
        "${seed}",
        "${nothing}",
        "${model}",
        "${oc.env:HOME}",
        "${oc.env:NONE,1}",
        "${now:%Y}",
    ),
    *(
        "${hydra:job.name}",
        "${oc.select:seed}",
        "${model.dim",
        "$",
        "\\",
        "\\${seed}",
        "1,2",
        "range(1,4)",
        "choice(1,2)",
    ),
    *("interval(0,1)", "tag(a,1)", "glob(*)", "sort(3,1)", "shuffle(1,2)", "int(1.5)", "float(1)", "str(1)", "bool(2)"),
    *("extend_list(1)", "é", "\u202e", "\x1b[31m", "\x7f", "\ud800", "a\nb", "a\tb", "😀", "x" * 5000, "9" * 5000),
    *(
        "[" * 60 + "]" * 60,
        "[" * 3000,
        "{a:" * 60 + "1" + "}" * 60,
        "{_target_:os.system}",
        "{_target_:torch.optim.SGD}",
    ),
)
PREFIXES = ("", "", "", "", "", "", "+", "++", "~", "+~", "~~", " ", "-", "--")
KEYS = (
    "",
    "=",
    ".",
    "model.",
    ".dim",
    "model..dim",
    "model.dim.x",
    "modle.dim",
    "model.DIM",
    "_target_",
    "hydra.run.dir",
)
TARGETS = (
    *("os.system", "torch.load", "torch.optim.Adam", "seqtrain.models.gpt.GPT", "seqtrain.nothing", "x", "", "a..b"),
    *("seqtrain.tasks.sentiment.Sentiment", "torch.optim.lr_scheduler.StepLR", "builtins.eval", "torch.optim.LBFGS"),
)


def keys(base: tuple[str, ...]) -> dict[str, Any]:
    """Every key of the configuration of a command line, and its value."""
    config = check.compose(base).config
    return dict(leaves(OmegaConf.to_container(config, resolve=False), ""))


def overrides(base: tuple[str, ...]) -> st.SearchStrategy[list[str]]:
    """Words to be added to a command line that is sound."""
    known = keys(base)
    files = ConfFiles()
    names = st.sampled_from(sorted(known))

    def value(key: str) -> st.SearchStrategy[str]:
        """Mostly of the kind that the key has."""
        of_kind = (*WHOLE, *REAL) if isinstance(known.get(key), int | float) or known.get(key) is None else ODD
        same = st.just(show(known.get(key)))
        other = names.map(lambda name: show(known[name]))
        return st.one_of(st.sampled_from(of_kind), st.sampled_from(of_kind), st.sampled_from(ODD), same, other)

    def set_value(key: str) -> st.SearchStrategy[str]:
        return st.builds(lambda prefix, text: f"{prefix}{key}={text}", st.sampled_from(PREFIXES), value(key))

    def choose(group: str) -> st.SearchStrategy[str]:
        options = st.sampled_from([*files.options(group), "nothing", "null", "", "../x", "[gpt,lstm]", "a/b"])
        package = st.sampled_from(["", "", "", "", "", "@x", "@model", "@_global_", "/x", "@"])
        return st.builds(lambda name, where: f"{group}{where}={name}", options, package)

    target = st.builds(
        lambda group, name: f"{group}._target_={name}", st.sampled_from(GROUPS[:7]), st.sampled_from(TARGETS)
    )
    strange = st.builds(
        lambda prefix, key, text: f"{prefix}{key}{text}",
        *(st.sampled_from(PREFIXES), st.sampled_from([*KEYS, *sorted(known)])),
        st.sampled_from(["", "=", *(f"={text}" for text in ODD), "@x=1", "/a=1", "=a=b", ":1"]),
    )
    grammar = st.text("abc.=[]{}()$\"'\\,:+~@/!?*% 01é\t-", max_size=24)
    word = st.one_of(
        *(names.flatmap(set_value) for _ in range(5)),
        *(st.sampled_from(GROUPS).flatmap(choose) for _ in range(2)),
        *(target, strange, grammar),
    )
    return st.lists(word, min_size=1, max_size=4)
