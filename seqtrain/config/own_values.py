"""Values that an experiment sets for its own optimizer or schedule, when another one was chosen."""

from __future__ import annotations

from collections.abc import Mapping

from omegaconf import DictConfig, OmegaConf, open_dict

from seqtrain.config.conf_files import ConfFiles
from seqtrain.config.groups import GLOBAL

# Groups whose options are methods: a learning rate or a warm-up that suits one says nothing of another.
METHODS = ("optimizer", "schedule")


def leave_out_values_of_others(
    config: DictConfig, choices: Mapping[str, str], chosen_by_files: Mapping[str, str], files: ConfFiles
) -> list[str]:
    """Remove a file's values for a method that was not chosen from a configuration.

    Args:
        config: composed with the options that were typed; changed in place.
        choices: the option of each group, as typed or else as files choose it.
        chosen_by_files: the option of each group if no method is typed.
        files: the files of which `config` was composed.

    Returns:
        A line for each method whose values were removed.
    """
    lines = []
    for group in METHODS:
        chosen, own = choices[group], chosen_by_files[group]
        if chosen == own:
            continue
        shipped = files.content(group, chosen)
        for name in GLOBAL:
            option = choices.get(name)
            values = files.content(name, option).get(group) if option else None
            if not isinstance(values, dict) or not values:
                continue
            for key in values:
                if key in shipped:
                    OmegaConf.update(config, f"{group}.{key}", shipped[key])
                else:
                    with open_dict(config):
                        del config[group][key]
            lines.append(
                f"{group}={chosen}: {name}/{option}.yaml is written for {group}={own}; "
                f"left out are its {', '.join(values)} of the {group}"
            )
    return lines
