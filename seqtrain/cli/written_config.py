"""The config of a run as it is written into its directory."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from seqtrain.runs import provenance


def config_text(config: DictConfig) -> str:
    """The config as YAML: interpolations resolved, except those that read the environment, and secrets masked."""
    return OmegaConf.to_yaml(OmegaConf.create(plain_config(config)))


def plain_config(config: DictConfig) -> dict[str, Any]:
    """What `config_text` writes, in plain values."""
    return provenance.mask_secrets(_resolved(config))


def _resolved(node: Any) -> Any:
    def value(parent: Any, key: Any) -> Any:
        if OmegaConf.is_interpolation(parent, key):
            raw = parent._get_node(key)._value()
            if "oc.env" in str(raw):
                return raw
        return _resolved(parent[key])

    if isinstance(node, DictConfig):
        return {key: value(node, key) for key in node}
    if isinstance(node, ListConfig):
        return [value(node, index) for index in range(len(node))]
    return node
