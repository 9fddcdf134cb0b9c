"""What a sweep makes of its words: combinations, settings of Hydra, and what a stranger's files may not ask for."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.plugins.launcher import Launcher

from seqtrain.config.conf_files import ConfFiles
from seqtrain.config.trust import trusting
from seqtrain.errors import UserError
from seqtrain.sweeps.grid import combinations
from seqtrain.sweeps.launchers import Local, environment, gpu_shares, gpus
from seqtrain.sweeps.settings import Settings, Words, quoted
from tests.support.refused import refusal


def labels(*words: str) -> list[str]:
    return [label for _, label in combinations(words, ConfFiles())]


def test_a_grid_is_every_combination_in_the_order_typed() -> None:
    assert labels("model=rnn,gru", "seed=range(1,3)") == [
        *("model=rnn seed=1", "model=rnn seed=2"),
        *("model=gru seed=1", "model=gru seed=2"),
    ]
    assert labels("seed=1,2", "model=rnn", "freeze=[embed],[]") == [
        *("seed=1 freeze=[embed]", "seed=1 freeze=[]"),
        *("seed=2 freeze=[embed]", "seed=2 freeze=[]"),
    ]
    assert labels("model=glob(*gru)") == ["model=gru", "model=min_gru"]
    assert labels("model=lstm") == [""]


def test_values_that_cannot_be_listed_are_refused_at_once() -> None:
    for words, said in (
        (["optimizer.lr=interval(0,1)"], "an interval is searched, not listed: choose a search with sweep=, or use"),
        (["seed=range(5,1)"], "seed=range(5,1): has no value, so there is no trial"),
        (["model=glob(x*)"], "model=glob(x*): matches no model; there are ar, bert, cbow,"),
        (["seed=range(1,9,0)"], "seed=range(1,9,0): "),
        (["seed=range(1,1e9)"], "seed=range(1,1e9): a grid has at most 10,000 trials"),
        (["seed=range(1,2000)", "model.dim=range(1,500)"], "997,501 trials: a grid has at most 10,000"),
    ):
        assert said in refusal(labels, *words), words


def test_a_word_that_cannot_be_read_is_left_to_the_trials_which_say_more_of_it() -> None:
    assert combinations(["model.dim=[1", "seed=1,2"], ConfFiles()) == [
        (("model.dim=[1", "seed=1"), "seed=1"),
        (("model.dim=[1", "seed=2"), "seed=2"),
    ]


REFUSED = {
    "hydra.launcher.njobs=2": "hydra.launcher.njobs: not an option of local; did you mean n_jobs?",
    "+hydra.launcher.fork=2": "hydra.launcher.fork: not an option of local",
    "hydra.launcher.n_jobs=zwei": "hydra.launcher.n_jobs=zwei: expected a whole number from 1",
    "hydra.launcher.n_jobs=0": "hydra.launcher.n_jobs=0: expected a whole number from 1",
    "hydra.launcher.n_jobs=-1": "hydra.launcher.n_jobs=-1: expected a whole number above 0",  # which joblib takes
    "hydra.launcher.threads=0": "hydra.launcher.threads=0: expected a whole number from 1",
    "hydra/launcher=slrum": "hydra/launcher=slrum: no such hydra/launcher; did you mean slurm?",
    "hydra/launcher=local,joblib": "a sweep has one hydra/launcher",
    "hydra/luncher=local": "hydra/luncher=local: no such group; did you mean hydra/launcher?",
    "sweep=optun": "sweep=optun: no such sweep; did you mean optuna?",
    "hydra.job.chdir=true": "of Hydra's own settings only hydra.sweep.dir, hydra.launcher.* and",
    "~hydra.launcher.n_jobs": "of Hydra's own settings only hydra.sweep.dir, hydra.launcher.* and",
    "~hydra.launcher": "of Hydra's own settings only hydra.sweep.dir, hydra.launcher.* and",
    "hydra.launcher._target_=os.system": ("not a launcher that may run; if you trust the code of os, add --trust os"),
    "hydra.launcher._target_=seqtrain.sweeps.grid.Grid": "is not a Launcher, so it cannot be the launcher",
    "hydra.sweep.dir=[": "hydra.sweep.dir=[: cannot be parsed; quote the value: 'hydra.sweep.dir=\"[\"'",
    "hydra.sweep.dir=größe": "hydra.sweep.dir=größe: cannot be parsed; quote the value",
}


def test_settings_of_hydra_that_are_unknown_or_not_acted_upon_are_refused() -> None:
    for word, said in REFUSED.items():
        made = refusal(lambda word=word: Settings.read(Words.sort([word])).make("launcher", Launcher, Local))
        assert said in made, word


def test_a_file_sets_no_command_for_a_launcher(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    for text, said in (
        ("launcher: {setup: [touch FILE]}", "hydra.launcher.setup"),
        ('launcher: {partition: "a\\ntouch FILE"}', "hydra.launcher.partition"),
        ("launcher: {submitit_folder: FILE/%j}", "hydra.launcher.submitit_folder"),
        ("launcher: {comment: '${oc.env:SECRET}'}", "--trust oc.env"),
        ("callbacks: {x: {_target_: os.system, command: touch FILE}}", "has no effect on a sweep"),
    ):
        says = text.replace("FILE", str(tmp_path / "executed"))
        (tmp_path / "experiment" / "evil.yaml").write_text(f"# @package _global_\nhydra: {{{says}}}\n")
        words = Words.sort(["experiment=evil", "hydra/launcher=slurm"])
        with pytest.raises(UserError) as refused:
            Settings.read(words, [tmp_path])
        assert said in str(refused.value), text


def launcher_file(folder: Path, name: str, text: str) -> None:
    """A launcher of the user's own, in a folder for --config-dir."""
    (folder / "hydra" / "launcher").mkdir(parents=True)
    (folder / "hydra" / "launcher" / f"{name}.yaml").write_text(text)


def test_what_is_typed_or_trusted_may_be_a_command(tmp_path: Path) -> None:
    launcher_file(tmp_path, "ours", "defaults: [slurm]\nsetup: [module load cuda]\n")
    words = Words.sort(["hydra/launcher=ours"])
    with pytest.raises(UserError, match="--trust hydra_plugins"):
        Settings.read(words, [tmp_path])
    with trusting(["hydra_plugins"]):
        trusted = Settings.read(words, [tmp_path])
    assert trusted.config.hydra.launcher.setup == ["module load cuda"]
    typed = Words.sort(["hydra/launcher=slurm", "hydra.launcher.setup=[module load cuda]"])
    assert Settings.read(typed).config.hydra.launcher.setup == ["module load cuda"]


def test_a_launcher_of_others_runs_for_who_trusts_its_code(tmp_path: Path) -> None:
    launcher_file(tmp_path, "theirs", "_target_: hydra._internal.core_plugins.basic_launcher.BasicLauncher\n")
    words = Words.sort(["hydra/launcher=theirs"])
    with pytest.raises(UserError, match="if you trust the code of hydra, add --trust hydra"):
        Settings.read(words, [tmp_path]).make("launcher", Launcher)
    with trusting(["hydra"]):
        made = Settings.read(words, [tmp_path]).make("launcher", Launcher)
    assert type(made).__name__ == "BasicLauncher"


def test_what_a_launcher_was_told_is_remembered_unless_another_is_chosen() -> None:
    recorded = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=3", "hydra.sweep.dir=old"]

    def read(*typed: str) -> Any:
        return Settings.read(Words.sort(typed), recorded=recorded, directory=Path("new")).config.hydra

    assert (read().launcher.n_jobs, read().sweep.dir) == (3, "new")
    assert read("hydra.launcher.n_jobs=1").launcher.n_jobs == 1
    assert read("hydra/launcher=local").launcher.n_jobs == 1


def test_a_path_of_any_characters_reaches_a_launcher() -> None:
    for name in ("plain", "with space", "it's", "a=b,c", "back\\slash", "ü${x}"):
        assert OverridesParser.create().parse_override(f"run_dir={quoted(Path(name))}").value() == name


def test_a_launcher_that_is_not_installed_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hydra_plugins.hydra_submitit_launcher.submitit_launcher", None)
    with pytest.raises(UserError, match=r"it comes with `pip install 'seqtrain\[slurm\]'`"):
        Settings.read(Words.sort(["hydra/launcher=slurm"])).make("launcher", Launcher)


def test_gpus_that_the_environment_shows_are_shared_out_and_none_is_left_to_two_where_there_are_enough() -> None:
    for names, found in (("", []), ("-1", []), ("3", ["3"]), ("GPU-a,1", ["GPU-a", "1"])):
        assert gpus({"CUDA_VISIBLE_DEVICES": names}) == found
    assert gpu_shares([], 2) == [{}, {}]
    shares = [share["CUDA_VISIBLE_DEVICES"] for share in gpu_shares(list("01234567"), 3)]
    assert shares == ["0,1", "2,3", "4,5"]
    assert [share["CUDA_VISIBLE_DEVICES"] for share in gpu_shares(["0"], 2)] == ["0", "0"]


def test_a_trial_does_not_inherit_the_place_of_who_launches_it() -> None:
    env = dict.fromkeys(("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT", "PL_GLOBAL_SEED", "SLURM_PROCID"), "1")
    assert environment(env | {"PATH": "/bin", "SLURM_JOB_ID": "3"}) == {"PATH": "/bin", "SLURM_JOB_ID": "3"}
