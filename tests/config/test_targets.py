"""What a configuration may run: only classes of our own packages, a short list of others, and trusted packages."""

from __future__ import annotations

import importlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hydra.errors import InstantiationException
from hydra.utils import instantiate

from seqtrain.cli import main as command_line
from seqtrain.cli.arguments import Parser
from seqtrain.config import check
from seqtrain.config.targets import refusal, resolve, whitelist
from seqtrain.config.trust import trust_words, trusted, trusting
from seqtrain.errors import UserError

FORBIDDEN = [
    "os.system",
    "builtins.eval",
    "torch.load",
    "torch.hub.load",
    "torch.utils.collect_env.run",
    "torch.optim.os.system",
    "torch.optim.swap_in_optimizer_params_and_state",
    "torch.optim.Adam.load_state_dict",
    "torch.optim.lr_scheduler.inf",
    "pytorch_lightning.Trainer",
    "pytorch_lightning.callbacks.LambdaCallback",
    "pytorch_lightning.callbacks.GradientAccumulationScheduler",
    "seqtrain.config.instantiate.make",
    "seqtrain.runs.directory.Run",
    "seqtrain.models.recurrent",
    "seqtrain.models.recurrent.torch",
    "seqtrain.models.recurrent.torch.load",
    "seqtrain.models.recurrent.nn.Module",
    "seqtrain.training.learner.Learner",
    "seqtrain.models.recurrent.read_by_length",
    "seqtrain.models.recurrent.LSTM.forward",
    "seqtrain.data.batching.plan.deal",
    "seqtrain.models_of_mine.Evil",
    "seqtrain",
    "",
]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A user's package, whose import leaves a trace."""
    folder = tmp_path / f"user_{tmp_path.name}"  # a name of its own: modules outlive a test
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "net.py").write_text(
        "import os\n"
        "from pathlib import Path\n"
        "from seqtrain.models.recurrent import GRU\n"
        "Path(__file__).with_name('imported').touch()\n"
        "class Net(GRU):\n"
        "    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    return folder.name


def test_what_no_package_of_ours_defines_may_not_run() -> None:
    for target in FORBIDDEN:
        assert refusal(target) is not None, target
        with pytest.raises(UserError, match=r"may not|may run|no such class|a function"):
            resolve(target)
    for target in ("os.system", "torch.load", "seqtrain.models.recurrent.torch.load"):
        with pytest.raises(InstantiationException, match="whitelist"):  # Hydra holds the same line
            instantiate({"_target_": target}, _execution_whitelist_=whitelist())


def test_what_they_define_may_run() -> None:
    for target in ("seqtrain.models.recurrent.GRU", "torch.optim.AdamW", "torch.optim.Adafactor"):
        assert refusal(target) is None, target
        assert resolve(target).__name__ == target.rpartition(".")[2]
    for name in ("wandb", "mlflow", "tensorboard"):  # as the configs of older runs name them
        assert resolve(f"seqtrain.training.loggers.make.{name}").__name__.lower() == f"{name}logger"


def test_a_package_runs_only_when_it_is_trusted(package: str, tmp_path: Path) -> None:
    override = f"model._target_={package}.net.Net"
    with pytest.raises(UserError, match=f"--trust {package}"):
        check.compose(["model=gru", override])
    with pytest.raises(UserError, match=f"--trust {package}"):
        resolve(f"{package}.net.Net")
    with trusting([package]):
        config = check.compose(["model=gru", override]).config
        assert not (tmp_path / package / "imported").exists()  # `compose` reads its source and runs nothing
        assert check.signature_faults(config) == []
    assert (tmp_path / package / "imported").exists()


def test_a_trusted_package_may_not_pass_on_what_others_define(package: str) -> None:
    with trusting([package]), pytest.raises(UserError, match="its package defines"):
        resolve(f"{package}.net.Path")


# -- trusted packages -------------------------------------------------------------------------------------------------


TARGET = "mine.net.Net"


def test_trust_ends_with_its_block_and_reaches_no_inner_block_and_no_other_thread() -> None:
    def fail() -> None:
        assert (refusal(TARGET), trust_words()) == (None, ["--trust", "mine"])
        with trusting(["theirs"]):
            assert refusal(TARGET) is not None
            assert refusal("theirs.Net") is None
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(trusted).result() == ()
        raise ZeroDivisionError

    assert (trusted(), trust_words()) == ((), [])
    with pytest.raises(ZeroDivisionError), trusting(["mine"]):
        fail()
    assert refusal(TARGET) is not None


def test_a_command_trusts_all_it_is_told_to_and_only_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, ...]] = []
    parsing = iter(("parse_args", "parse_intermixed_args", "parse_known_args"))

    class Command:
        @staticmethod
        def main(argv: list[str]) -> int:
            parser = Parser("matrix", "A command.", "an example")
            parser.add_argument("words", nargs="*")
            getattr(parser, next(parsing))(argv)
            seen.append(trusted())
            return 0

    monkeypatch.setattr(command_line.importlib, "import_module", lambda name: Command)
    words = ["matrix", "--trust", "mine", "a", "--trust", "theirs"]
    assert [command_line.main(argv) for argv in (words, words, ["matrix"])] == [0, 0, 0]
    assert seen == [("mine", "theirs"), ("mine", "theirs"), ()]
    assert trusted() == ()
