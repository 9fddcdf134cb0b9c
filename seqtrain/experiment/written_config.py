"""The config of a run as written into its directory."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from seqtrain.config.nodes import flat
from seqtrain.runs import provenance


def config_text(config: DictConfig) -> str:
    """Return the config as YAML, with secrets masked and interpolations resolved except those of the environment."""
    return OmegaConf.to_yaml(OmegaConf.create(plain_config(config)))


def plain_config(config: DictConfig) -> dict[str, Any]:
    """Return what `config_text` writes, in plain values."""
    return provenance.mask_secrets(resolved(config))


def secret_notes(config: DictConfig) -> list[str]:
    """Return a line for each secret that is not written into the run, with how a resume gets it."""
    kept = dict(flat(plain_config(config)))
    return [
        f"{key}: its secret is not saved with the run; for a resume, use '${{oc.env:NAME}}' instead, or give {key}=... "
        "again"
        for key, value in flat(resolved(config))
        if kept.get(key) != value
    ]


def resolved(node: Any) -> Any:
    """Return plain values, interpolations resolved, except those that read the environment."""
    if isinstance(node, DictConfig):
        return {key: _resolved_at(node, key) for key in node}
    if isinstance(node, ListConfig):
        return [_resolved_at(node, index) for index in range(len(node))]
    return node


def _resolved_at(parent: Any, key: Any) -> Any:
    if OmegaConf.is_interpolation(parent, key):
        raw = parent._get_node(key)._value()
        # A value from the environment may be a password, and run directories are shared.
        if "oc.env" in str(raw):
            return raw
    return resolved(parent[key])
