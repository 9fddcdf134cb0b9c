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
    if isinstance(node, DictConfig):
        return {key: _resolved_at(node, key) for key in node}
    if isinstance(node, ListConfig):
        return [_resolved_at(node, index) for index in range(len(node))]
    return node


def _resolved_at(parent: Any, key: Any) -> Any:
    if OmegaConf.is_interpolation(parent, key):
        raw = parent._get_node(key)._value()
        # What stands in the environment may be a password, and a run's directory is given away.
        if "oc.env" in str(raw):
            return raw
    return _resolved(parent[key])
