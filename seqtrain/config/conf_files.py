"""The YAML files of seqtrain.conf and of a user's own folders, read and composed with Hydra."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.utils import setup_globals
from hydra.errors import HydraException
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from omegaconf.resolvers import oc

from seqtrain.errors import Unavailable, UserError
from seqtrain.files.checked import read_checked
from seqtrain.files.untrusted import ENVIRONMENT, MAX_BYTES, check_plain

# What Hydra raises for an override or a file that it cannot use.
UNUSABLE = (HydraException, OmegaConfBaseException, yaml.YAMLError, ValueError)

# Contents of the package's own files, by group and option. Cached for the whole process, because they do not change;
# a user's folders may change, so they are read again for each command.
SHIPPED: dict[tuple[str, str], dict[str, Any]] = {}


def parsed(word: str) -> Override:
    """Parse an override by Hydra's grammar. Raise HydraException if it is invalid, too long or too deeply nested."""
    try:
        return OverridesParser.create().parse_override(word)
    except (ValueError, RecursionError) as error:  # thousands of digits, or of nested lists
        raise HydraException(str(error).partition(";")[0]) from None


class ConfFiles:
    """Groups, their options, and the configuration composed from them with a list of overrides.

    Uses Hydra's loader directly, with three private names, because `hydra.compose` needs a global object that Hydra's
    own multirun occupies already.
    """

    def __init__(self, config_dirs: Sequence[Path] = ()) -> None:
        absent = [f"--config-dir {folder}: no such folder" for folder in config_dirs if not folder.is_dir()]
        if absent:
            raise Unavailable(*absent)
        setup_globals()  # registers Hydra's resolvers, such as ${now:}
        search_path = create_config_search_path("pkg://seqtrain.conf")
        # Each is inserted directly after seqtrain's own files, so the one inserted last takes precedence.
        for folder in reversed(config_dirs):
            search_path.append("--config-dir", f"file://{folder.resolve()}", SearchPathQuery("main", None))
        self.loader = ConfigLoaderImpl(search_path)
        repository = self.loader.repository
        repository.sources = [_CheckedFolder.of(source) for source in repository.sources]
        self._contents = {} if config_dirs else SHIPPED

    def compose(self, overrides: Sequence[str]) -> DictConfig:
        """Return the whole configuration, including Hydra's node; raise one of UNUSABLE if it cannot be composed.

        A group without a chosen option is left out, so that the caller can report all of them at once.
        """
        return self.loader.load_configuration(
            "train", list(overrides), RunMode.RUN, from_shell=False, skip_missing_defaults=True
        )

    def is_group(self, name: str) -> bool:
        return self.loader.repository.group_exists(name)

    def options(self, group: str) -> list[str]:
        """Return the names that may follow `group=`."""
        return self.loader.repository.get_group_options(group, ObjectType.CONFIG)

    def content(self, group: str, option: str) -> dict[str, Any]:
        """Return the contents of an option's file, unresolved; empty if it cannot be read. Do not change the result."""
        if (group, option) not in self._contents:
            self._contents[group, option] = self._read(group, option)
        return self._contents[group, option]

    def _read(self, group: str, option: str) -> dict[str, Any]:
        try:
            loaded = self.loader.repository.load_config(f"{group}/{option}")
        except UNUSABLE:  # reported by compose()
            return {}
        content = OmegaConf.to_container(loaded.config, resolve=False) if loaded else None
        if not isinstance(content, dict):
            return {}
        return {str(key): value for key, value in content.items()}


class _CheckedFolder(FileConfigSource):
    """A folder of possibly untrusted YAML files. Each is checked for size and plain content before Hydra loads it."""

    @classmethod
    def of(cls, source: ConfigSource) -> ConfigSource:
        """Return the same source, checked if it is a folder of files."""
        return cls(source.provider, source.path) if isinstance(source, FileConfigSource) else source

    def load_config(self, config_path: str) -> ConfigResult:
        path = Path(self.path, self._normalize_file_name(config_path))
        if path.exists():
            try:
                check_plain(read_checked(path, MAX_BYTES).decode("utf-8"), written_by="person")
            except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
                raise UserError(f"{path} cannot be read: {error}") from None
        return super().load_config(config_path)


def reads_environment(config: DictConfig, path: str) -> bool:
    """Return True if a value depends on an environment variable, directly or through other values."""
    # Replace the resolver to see whether it is called. A search of the text would miss indirect interpolations and
    # variable names that are composed from other values.
    read: list[tuple[Any, ...]] = []
    OmegaConf.register_resolver(ENVIRONMENT, lambda *names: str(read.append(names)), replace=True)
    try:
        value = OmegaConf.select(config, path)
        if OmegaConf.is_config(value):
            OmegaConf.to_container(value, resolve=True)
    except OmegaConfBaseException:
        pass  # reported by the check of the value
    finally:
        OmegaConf.register_resolver(ENVIRONMENT, oc.env, replace=True)
    return bool(read)
