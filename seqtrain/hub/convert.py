"""Conversion of a model folder of the Hugging Face hub to an export of seqtrain."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import Tensor

from seqtrain.config.check import compose
from seqtrain.data.cache import Store
from seqtrain.data.preprocess import Preprocessor
from seqtrain.data.tokenizers.foreign import ForeignTokenizer
from seqtrain.errors import UserError
from seqtrain.files.untrusted import HUB
from seqtrain.hub.family import BERT, DISTILBERT, GPT2, GPT_NEOX, LLAMA, ROBERTA, Family, Unfit
from seqtrain.hub.folder import SPECIAL_TOKENS, TOKENIZER, HubFolder
from seqtrain.hub.marian import MARIAN, head_of
from seqtrain.hub.names import Rule, expanded, read, with_vocabulary
from seqtrain.runs import export
from seqtrain.runs.summary import Summary
from seqtrain.training.model_and_task import make_pair, on_meta

FAMILIES: dict[str, Family] = {
    **{"bert": BERT, "roberta": ROBERTA, "distilbert": DISTILBERT},
    **{"gpt2": GPT2, "gpt_neox": GPT_NEOX},
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3"), LLAMA),
    "marian": MARIAN,
}
TASKS = {"bert": "masked_lm", "gpt": "next_token", "encoder_decoder": "translation"}
LR = 5e-5  # usual learning rate for fine-tuning a Transformer (Devlin et al. 2019)
FORMAT = 1  # version of cached conversions; increase it when the conversion changes


@dataclass(frozen=True)
class Imported:
    """A folder of the hub with everything that its conversion needs."""

    folder: HubFolder
    family: Family
    options: dict[str, Any]
    tokenizer: ForeignTokenizer
    rules: list[Rule]

    @property
    def model_type(self) -> str:
        """The family, as named in config.json."""
        return self.folder.config["model_type"]

    @property
    def tied(self) -> bool:
        """True if the output weights are the token embeddings."""
        if self.family is MARIAN:  # start and end are different rows there
            return False
        head = f"{self.family.head}.weight"
        return (
            self.family.head is None or self.folder.config.get("tie_word_embeddings", True) or head not in self.shapes
        )

    @property
    def shapes(self) -> dict[str, Tensor]:
        """Weights on the meta device by name, without the family's prefix."""
        return self.bare(self.folder.shapes)

    def bare(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return weights under the names of the model without its head."""
        return _without_prefix(weights, self.family.prefix)

    @property
    def fills(self) -> bool:
        """True if the folder has an encoder's masked-LM head, and ours computes the same function."""
        filler = self.family.filler
        return filler is not None and filler[2] in self.shapes and self.options["activation"] == "gelu"

    @property
    def left_behind(self) -> list[str]:
        """Names of weights without a counterpart in our model."""
        taken = {f"{name}.{kind}" for rule in self.rules for name in rule.theirs for kind in ("weight", "bias")}
        if self.family.head is not None:
            taken.add(f"{self.family.head}.weight")
        if self.fills and self.family.filler is not None:
            dense, norm, bias = self.family.filler
            taken |= {f"{name}.{kind}" for name in (dense, norm) for kind in ("weight", "bias")} | {bias}
        ignored = tuple(self.family.ignored)
        return [name for name in self.shapes if name not in taken and not name.endswith(ignored)]


def opened(path: Path) -> Imported:
    """Read a folder without its weights.

    Raises:
        UserError: The folder is damaged, or our models do not support its family or options.
    """
    folder = HubFolder(path)
    family, options, rules = _read_config(folder)
    names = _without_prefix(folder.shapes, family.prefix)
    embedding = names.get(f"{rules[0].theirs[0]}.weight")
    if embedding is None:
        raise UserError(f"{path}: has no weight {rules[0].theirs[0]}.weight")
    tokenizer = _tokenizer(folder, family, len(embedding))
    # Our model has a mask token, and a Marian does not.
    rules = with_vocabulary(rules, tokenizer.theirs.tolist(), zeros=1 if family is MARIAN else 0)
    return Imported(folder, family, options, tokenizer, rules)


def _read_config(folder: HubFolder) -> tuple[Family, dict[str, Any], list[Rule]]:
    """Return a folder's family, the options of our model, and the rules for its weights. Raise as `opened` does."""
    path, kind = folder.path, folder.config.get("model_type")
    if kind not in FAMILIES:
        raise UserError(f"{path}: model_type={kind} is not supported; use one of {', '.join(sorted(FAMILIES))}")
    family = FAMILIES[kind]
    try:
        options = family.options(folder.config)
        if options["num_layers"] > len(folder.shapes):  # before making rules for, say, a billion blocks
            raise UserError(
                f"config.json asks for {options['num_layers']:,} blocks, but there are {len(folder.shapes)} weights"
            )
        return family, options, expanded(family.rules(folder.config), options["num_layers"])
    except Unfit as reason:
        raise UserError(f"{path}: {kind} with {reason}") from None
    except UserError as fault:
        raise UserError(f"{path}: {fault}") from None
    except (LookupError, TypeError, ValueError, AttributeError) as error:  # an entry of another type
        raise UserError(f"{path}: config.json is not valid for model_type={kind}: {error!r}") from None


def write(imported: Imported, target: Path) -> None:
    """Write an export of the folder's model into an empty folder.

    Raises:
        UserError: A weight is missing, or has another shape than config.json says.
    """
    task = TASKS[imported.family.model]
    words = [f"task={task}", f"model={imported.family.model}", "logger=none"]
    config = compose(words).config
    config.model = {**config.model, **imported.options, "_recommend_": {"lr": LR}}
    config.data.max_length = imported.options.get("max_length") or imported.folder.config["max_position_embeddings"]
    if task == "translation":  # a source may take half of it
        config.data.max_length *= 2
    config.tokenizer = {"_target_": "seqtrain.data.tokenizers.recipes.OfStore"}
    config.task.tied = imported.tied
    if task == "masked_lm":
        config.task.transform, config.task.norm_eps = imported.fills, imported.options["norm_eps"]
    preprocessor = Preprocessor(imported.tokenizer, imported.tokenizer)
    with on_meta():
        model, head = make_pair(config, preprocessor)
    path = imported.folder.path
    try:
        theirs = imported.bare(imported.folder.weights())
        like = {name: torch.zeros(value.shape) for name, value in model.state_dict().items()}
        weights = {f"model.{name}": value for name, value in read(imported.rules, theirs, like)[0].items()}
        weights |= {f"task.{name}": value for name, value in _head(imported, theirs, dict(head.state_dict())).items()}
    except KeyError as missing:
        raise UserError(f"{path}: has no weight {missing.args[0]}") from None
    except (ValueError, IndexError) as reason:
        raise UserError(f"{path}: {reason}") from None
    reason = (
        None if task != "masked_lm" or imported.fills else "this folder of the hub has no head that could fill masks"
    )
    summary = Summary.from_plain({"task": task, "hashes": preprocessor.hashes, "reason": reason})
    plain = OmegaConf.to_container(config, resolve=True)
    export.fill(target, plain, summary, preprocessor, weights, step=0)  # type: ignore[arg-type]


def _head(imported: Imported, theirs: dict[str, Tensor], like: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of the head of a task; those that the folder lacks are zero. Raises as `read` does."""
    weights = {name: torch.zeros(value.shape) for name, value in like.items()}
    rows = imported.tokenizer.theirs[: imported.tokenizer.vocab_size]
    if imported.family is MARIAN:
        end = imported.tokenizer.theirs[imported.tokenizer.separator]
        weights |= head_of(imported.folder.config, theirs, torch.tensor([*rows.tolist(), end]))
    elif not imported.tied:
        weights["head.weight"] = theirs[f"{imported.family.head}.weight"][rows]
    if imported.fills and imported.family.filler is not None:
        dense, norm, bias = imported.family.filler
        weights |= read([Rule("transform.0", (dense,)), Rule("transform.2", (norm,))], theirs, like)[0]
        weights["bias"] = theirs[bias][rows]
    return weights


def converted(origin: str) -> str:
    """Convert a folder of the hub; return the folder of the export. The result is cached by the folder's content.

    Args:
        origin: Path of a folder of the hub, or `hub:NAME`, which is downloaded.

    Raises:
        UserError: The folder cannot be converted.
    """
    path = located(origin)
    folder = HubFolder(path)
    _read_config(folder)  # fail before hashing gigabytes
    key = f"{FORMAT} {folder.hash}"
    return Store().entry("hub", key, lambda target: write(opened(path), target), _complete)


def _complete(folder: Path) -> str:
    export.described(folder)
    return str(folder)


def located(origin: str) -> Path:
    """Return the folder itself, or the folder of `hub:NAME`, from the hub's cache or downloaded."""
    if not origin.startswith(HUB):
        return Path(origin)
    name = origin.removeprefix(HUB)
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=["*.json", "*.safetensors"]))
    except Exception as error:  # many classes: invalid names, network, access rights
        reason = str(error).strip().partition("\n")[0]
        raise UserError(f"{origin}: cannot be downloaded: {reason}") from None


def _tokenizer(folder: HubFolder, family: Family, rows: int) -> ForeignTokenizer:
    """Return the tokenizer of a folder; raise UserError if it cannot be read."""
    path = folder.path / TOKENIZER
    if not path.is_file():
        raise UserError(
            f"{folder.path}: has no {TOKENIZER}; load it once with transformers' fast tokenizer, and save it"
        )
    content = folder.json(TOKENIZER)
    try:
        tokens = dict(content["model"]["vocab"])
        tokens.update({token["content"]: token["id"] for token in content.get("added_tokens") or ()})
        specials = _specials(folder, family, tokens)
        return ForeignTokenizer({"tokenizer": content, "rows": rows, "specials": specials})
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path} is not read: {error}") from None


def _specials(folder: HubFolder, family: Family, tokens: dict[str, int]) -> list[int]:
    """Return the ids of start, separator and mask (encoder), of the start (decoder), or of start and end (Marian)."""
    if family is MARIAN:
        return [folder.config[name] for name in ("decoder_start_token_id", "eos_token_id")]
    if family.model != "bert":
        found = [folder.config.get(name) for name in ("bos_token_id", "eos_token_id")]
        first = next((each for each in found if each is not None), None)
        if isinstance(first, list):
            first = first[0]
        if first is None:
            raise ValueError("config.json names neither bos_token_id nor eos_token_id")
        return [first]
    names = {key: token for name in SPECIAL_TOKENS for key, token in folder.optional_json(name).items()}
    specials = []
    for name in ("cls_token", "sep_token", "mask_token"):
        token = names.get(name)
        token = token.get("content") if isinstance(token, dict) else token
        if token not in tokens:
            raise ValueError(f"tokenizer_config.json names no {name} of its vocabulary")
        specials.append(tokens[token])
    return specials


def _without_prefix(weights: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return weights under the names of the bare model. Old BERTs call a norm's weight and bias gamma and beta."""
    found = {}
    for name, value in weights.items():
        name = name.removeprefix(prefix)
        for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
            name = name.removesuffix(old) + new if name.endswith(old) else name
        found[name] = value
    return found
