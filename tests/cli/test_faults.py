"""What a user can mend ends with exit code 2 and one line that names it, and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import open_dict

from seqtrain.config import check, preflight
from seqtrain.errors import UserError
from tests.support.quick import some_long

TEXT = ("data=text", "data.path=sound.txt", "data.split_by=position")
LEARNED = ("model=gpt", "model.positions=learned", "model.max_length=32")

FAULTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    # name: (arguments after `seqtrain`, what the one line says)
    "no such command": (("trian",), ("trian", "did you mean train?")),
    "moved to a script": (("demo", "half-life"), ("python examples/lecture/half_life.py",)),
    "no such flag": (("train", "--verbsoe"), ("--verbsoe", "--help")),
    "no key": (("train", "model.dim"), ("model.dim", "key=value")),
    "bad syntax": (("train", "model.dim=[1,2"), ("model.dim=[1,2", "key=value")),
    "sweep without -m": (("train", "model.dim=64,128"), ("model.dim=64,128", "add -m")),
    "no such option": (("train", "model=lstmm"), ("model=lstmm", "did you mean lstm?")),
    "no such key": (("train", "model.dmi=64"), ("model.dmi=64", "model=lstm", "did you mean dim?")),
    "no such added key": (("train", "+model.dmi=64"), ("model.dmi=64", "did you mean dim?")),
    "no such group": (("train", "+trainerx=gpu"), ("trainerx=gpu", "did you mean trainer?")),
    "misspelt group": (("train", "+optimiser.lr=1"), ("optimiser.lr=1", "did you mean optimizer.lr?")),
    "misplaced key": (("train", "trainer.lr=1"), ("trainer.lr=1", "did you mean optimizer.lr?")),
    "key of another option": (("train", "model.num_heads=2"), ("model.num_heads=2", "model=gpt has it")),
    "key of a third party": (("train", "+optimizer.foo=1"), ("optimizer.foo=1", "weight_decay")),
    "entry not chosen": (
        ("train", "callbacks.early_stopping.patience=1"),
        ("callbacks.early_stopping.patience=1", "callbacks=early_stopping has it"),
    ),
    "key that build sets": (("train", "model.embed=3"), ("model.embed=3", "leave it out")),
    "deleted key": (("train", "~model.dim"), ("model.dim", "cannot be deleted")),
    "deleted group": (("train", "~model"), ("model", "cannot be deleted")),
    "missing value": (("train", "data=text"), ("data.path", "data=text needs it")),
    "text for a number": (
        ("train", "trainer.max_steps=abc"),
        ("trainer.max_steps=abc", "a whole number or auto or null"),
    ),
    "fraction for a count": (("train", "model.dim=64.5"), ("model.dim=64.5", "a whole number")),
    "number for a truth": (("train", "tbptt.carry=1"), ("tbptt.carry=1", "true or false")),
    "truth for a number": (("train", "model.dim=true"), ("model.dim=true", "a whole number")),
    "number for a text": (("train", "run_dir=2024"), ("run_dir=2024", "text")),
    "wrong kind for a third party": (("train", "optimizer.betas=0.9"), ("optimizer.betas=0.9", "a list of 2")),
    "not a number": (("train", "optimizer.lr=nan"), ("optimizer.lr=nan", "a number")),
    "no such choice": (("train", "model=gpt", "model.norm=both"), ("model.norm=both", "pre or post")),
    "out of range": (("train", "data.batch_size=0"), ("data.batch_size=0", "from 1 to")),
    "no end": (("train", "trainer.max_steps=null"), ("trainer.max_steps=null", "trainer.max_epochs")),
    "no such interpolation": (("train", "model.dim=${data.lane}"), ("model.dim=${data.lane}", "not found")),
    "target that runs a shell": (("train", "model._target_=os.system"), ("model._target_=os.system", "--trust os")),
    "no such folder of configs": (("train", "--config-dir", "nowhere"), ("--config-dir nowhere", "no such folder")),
    "broken file of configs": (
        ("train", "--config-dir", "configs", "experiment=broken"),
        ("broken.yaml", "line 2"),
    ),
    "fault in a file of configs": (
        ("train", "--config-dir", "configs", "experiment=faulty"),
        ("model.dmi=64", "did you mean dim?", "experiment/faulty.yaml"),
    ),
    "lanes that cannot be shared out": (
        ("train", *TEXT, "trainer.devices=3"),
        ("trainer.devices=3", "data.batch_size=32", "a multiple of 3"),
    ),
    "several nodes": (("train", "trainer.num_nodes=2"), ("trainer.num_nodes=2", "torchrun", "srun")),
    "k1 that does not divide k2": (("train", "tbptt.k1=7"), ("tbptt.k1=7", "tbptt.k2=64", "such as 8")),
    "uneven accumulation": (("train", "trainer.accumulate=3"), ("trainer.accumulate=3", "data.batch_size=32")),
    "run_dir taken": (("train", "run_dir=configs"), ("run_dir=configs", "exists already")),
    "run_dir below a file": (("train", "run_dir=sound.txt/run"), ("run_dir=sound.txt/run", "is a file")),
    "no such file": (("train", "data=text", "data.path=sund.txt"), ("data.path", "sund.txt")),
    "empty csv": (("train", "data=text", "data.path=empty.csv"), ("empty.csv", "empty")),
    "header only": (("train", "data=text", "data.path=header.csv"), ("header.csv", "header")),
    "wrong column": (
        ("train", "data=text", "data.path=table.csv", "data.column=txt"),
        ("data.column=txt", "table.csv", "text"),
    ),
    "not UTF-8": (("train", "data=text", "data.path=latin.txt"), ("latin.txt", "UTF-8", "0xe9")),
    "bad JSON": (("train", "data=text", "data.path=bad.jsonl"), ("bad.jsonl", "2")),
    "one document": (("train", "data=text", "data.path=sound.txt"), ("data.split_by=position",)),
    "bidirectional language model": (
        ("train", *TEXT, "model.bidirectional=true"),
        ("task=next_token", "model=lstm", "gpt"),
    ),
    "stream beyond learned positions": (("train", *TEXT, *LEARNED), ("tbptt.carry=true", "learned", "rotary")),
    "window beyond learned positions": (
        ("train", *TEXT, *LEARNED, "tbptt=windows"),
        ("tbptt.k2=64", "32", "max_length"),
    ),
    "learned positions without a table": (
        ("train", *TEXT, "model=gpt", "model.positions=learned", "tbptt=windows"),
        ("max_length",),
    ),
    "model that cannot be built": (("train", *TEXT, "model=gpt", "model.num_heads=3"), ("num_heads=3", "128")),
    "lanes of evaluated examples": (
        ("train", "task=masked_lm", "data.eval_lanes=8"),
        ("data.eval_lanes", "task=masked_lm"),
    ),
    "batches of a stream": (
        ("train", *TEXT, "data.batch_tokens=64"),
        ("data.batch_tokens", "task=next_token", "data.batch_size"),
    ),
    "examples of a stream": (
        ("train", *TEXT, "callbacks.samples.examples=3"),
        ("callbacks.samples.examples", "stream"),
    ),
    "prompt of examples": (("train", "task=sentiment", "callbacks.samples.prompt=a"), ("callbacks.samples.prompt",)),
    "text without labels": (
        ("train", *TEXT, "task=sentiment", "data.max_length=16"),
        ("data=text", "text and label", "labelled"),
    ),
    "examples cut in time": (("train", "task=sentiment", "tbptt=carry"), ("tbptt.carry=true", "use tbptt=whole")),
    "two vocabularies in one model": (
        ("train", "task=translation", "model=gpt", "task.shared_vocab=false"),
        ("model=gpt reads source and target with one embedding", "use task.shared_vocab=true"),
    ),
    "first position of a causal model": (
        ("train", "task=sentiment", "model=gru", "task.pool=cls"),
        ("task.pool=cls", "model=gru", "use task.pool=last, mean or max"),
    ),
    "weights for other labels": (
        ("train", "task=sentiment", "task.class_weights=[1,2,3]", "data.size=100", "logger=none"),
        ("class_weights=[1, 2, 3]", "expected 2 numbers"),
    ),
    "resume of no run": (("resume", "outputs/none"), ("outputs/none", "does not exist")),
    "evaluate of no run": (("evaluate", "outputs/none"), ("outputs/none", "does not exist")),
    "predict of no run": (("predict", "outputs/none", "a"), ("outputs/none", "does not exist")),
    "resume of another folder": (("resume", "configs"), ("configs", "no run directory")),
}

OF_A_RUN: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "split that is not there": (("evaluate", "run", "--split", "test"), ("test",)),
    "no such split": (("evaluate", "run", "--split", "tset"), ("tset",)),
    "unsafe change": (("resume", "run", "model.dim=16"), ("model.dim",)),
    "nothing to do": (("resume", "run"), ("finished", "trainer.max_steps")),
    "run_dir of a run": (("train", "run_dir=run"), ("run_dir=run", "seqtrain resume run")),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with sound and faulty files."""
    folder = tmp_path_factory.mktemp("faults")
    (folder / "sound.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 200)
    (folder / "empty.csv").write_text("")
    (folder / "header.csv").write_text("text\n")
    (folder / "table.csv").write_text("id,text\n1,one\n2,two\n")
    (folder / "latin.txt").write_bytes(b"abc\xe9 not UTF-8\n")
    (folder / "bad.jsonl").write_text('{"text": "one"}\n{"text": \n')
    experiments = folder / "configs" / "experiment"
    experiments.mkdir(parents=True)
    (experiments / "broken.yaml").write_text("# @package _global_\nmodel: [\n  dim: 3\n")
    (experiments / "faulty.yaml").write_text("# @package _global_\nmodel:\n  dmi: 64\n")
    return folder


@pytest.fixture(scope="module")
def run(folder: Path, seqtrain) -> Path:
    """A finished run of two steps in `folder`, without a test split."""
    small = (
        "tokenizer=byte",
        "model.dim=8",
        "data.batch_size=2",
        "data.eval_lanes=2",
        "tbptt.k2=8",
        "trainer.max_steps=2",
    )
    answer = seqtrain("train", *TEXT, *small, "logger=none", "callbacks=none", "run_dir=run", cwd=folder)
    assert answer.rc == 0, answer.err
    return folder / "run"


def listing(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


def refuse(seqtrain, folder: Path, arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    before = listing(folder)
    answer = seqtrain(*arguments, cwd=folder)
    assert answer.rc == 2, answer.err
    assert "Traceback" not in answer.err + answer.out
    errors = [line for line in answer.err.splitlines() if line.startswith("error:")]
    assert len(errors) == 1, answer.err
    assert [word for word in words if word not in errors[0]] == [], errors[0]
    assert listing(folder) == before


QUICK = list(FAULTS)[::8]


@pytest.mark.parametrize("name", some_long(FAULTS, QUICK))
def test_a_fault_is_one_line_that_names_it_and_leaves_nothing_behind(name: str, folder: Path, seqtrain) -> None:
    refuse(seqtrain, folder, *FAULTS[name])


@pytest.mark.parametrize("name", OF_A_RUN)
def test_a_fault_leaves_a_run_as_it_was(name: str, folder: Path, run: Path, seqtrain) -> None:
    refuse(seqtrain, folder, *OF_A_RUN[name])


def test_every_fault_of_a_stage_is_told_at_once(folder: Path, seqtrain) -> None:
    wrong = ("model.dmi=64", "+trainerx=gpu", "trainer.max_steps=abc", "tokenizer=bpee", "data.batch_size=-1", "[=")
    answer = seqtrain("train", *wrong, cwd=folder)
    errors = [line.partition(":")[2].strip() for line in answer.err.splitlines()]
    assert answer.rc == 2
    assert sorted(error.partition(":")[0] for error in errors) == sorted(word.lstrip("+") for word in wrong)


def test_every_fault_of_the_preflight_is_told_at_once() -> None:
    wrong = ["trainer.devices=all", "trainer.num_nodes=2", "tbptt.k1=7", "data.path=/nowhere"]
    with pytest.raises(UserError) as raised:
        preflight.check_machine_and_data(check.compose(["data=text", *wrong]).config)
    assert [line.partition(":")[0] for line in raised.value.lines] == wrong


def test_keys_of_a_refused_option_are_not_judged() -> None:
    with pytest.raises(UserError) as raised:
        check.compose(["model=gppt", "model.num_heads=2"])
    assert raised.value.lines == ("model=gppt: no such model; did you mean gpt?",)


def test_what_was_typed_is_not_blamed_on_a_file(folder: Path) -> None:
    with pytest.raises(UserError, match=r"dmi=64.*did you mean dim.$"):
        check.compose(["experiment=faulty", "model.dmi=64"], [folder / "configs"])


@pytest.mark.parametrize(
    "overrides",
    [
        ["model.dropout=0", "optimizer.lr=1e-3", "optimizer.betas=[0.9,0.95]", "trainer.grad_clip=null"],
        ["optimizer.amsgrad=true", "+optimizer.maximize=false"],
        ["model.dim=${data.batch_size}", "logger.wandb.tags=[a,b]", "callbacks.samples=null"],
        ["~callbacks.samples", "~experiment", "experiment=null", "+model=gpt"],
        ["logger=[wandb,tensorboard]"],
        ['run_dir="2024"', "model={dim:32,num_layers:2}"],
    ],
    ids=" ".join,
)
def test_what_is_sound_is_accepted(overrides: list[str]) -> None:
    check.compose(overrides)


def test_a_composed_config_passes_the_check_by_itself() -> None:
    composed = check.compose(["model=gpt"])
    check.check_config(composed.config)
    composed.config.model.norm = "both"
    with pytest.raises(UserError, match=r"model.norm=both: expected pre or post$"):
        check.check_config(composed.config)


def test_what_a_config_lacks_is_named() -> None:
    composed = check.compose([])
    with open_dict(composed.config):
        del composed.config["tbptt"], composed.config["trainer"]["grad_clip"], composed.config["data"]["batch_size"]
    with pytest.raises(UserError) as raised:
        check.check_config(composed.config)
    lacking = [line.partition(": missing")[0] for line in raised.value.lines if ": missing" in line]
    assert sorted(lacking) == ["data.batch_size", "tbptt", "trainer.grad_clip"]


def test_a_cold_interpreter_refuses_a_wrong_key_without_torch(tmp_path: Path) -> None:
    program = (
        "import sys; from seqtrain.cli.main import main; code = main(['train', 'model.dmi=64']); "
        "print(sorted({'torch', 'numpy', 'pytorch_lightning', 'datasets', 'wandb'} & set(sys.modules))); sys.exit(code)"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert (answer.returncode, answer.stdout) == (2, "[]\n")
    assert answer.stderr == "error: model.dmi=64: model=lstm has no option dmi; did you mean dim?\n"
