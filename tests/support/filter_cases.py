"""Cases of conditions on runs, to which `compare --where` and the page's filter are both held."""

from __future__ import annotations

from pathlib import Path

from tests.support import fake_runs

CASES: dict[str, str] = {
    **{"model=lstm": "123", "model=lstm,gp*": "1234", "model=g*": "4", "model!=lstm": "4", "MODEL=lstm": "!no run has"},
    **{"model=LSTM": "123", "model!=lstm,gpt": "", "model=l?tm": "123", "model=[lg]*": ""},
    **{"lr>0.003": "123", "lr>=0.006": "123", "lr>0.006": "", "lr<1e-2": "1234", "lr<=.003": "4", "lr=6e-3": "123"},
    **{"dim>=64": "4", "model.dim<64": "123", "dim!=16": "4", "dim=16,64": "1234", "dim=1*": "123"},
    **{"seed!=2": "134", "seed>1": "23", "seed>1.5": "23", "seed=01": "14", "seed=1_0": ""},
    **{
        "tied=true": "123",
        "tied=0,true": "123",
        "tied!=true": "4",
        "tied=false": "4",
        "layer_decay=1": "1234",
        "init_from=null": "1234",
        "init_from!=null": "",
    },
    **{
        "betas=[0.9,0.95]": "1234",
        "status=failed": "3",
        "status!=finished": "3",
        "name=*/1": "1",
        "sweep=null": "1234",
    },
    **{"heads=4": "4", "heads!=4": "123", "heads=null": "123", "heads<9": "4", "heads>9": ""},
    **{"warmup=1e2": "4", "warmup>60": "4", "warmup>=50": "1234"},  # YAML takes 1e2 for a text
    **{"bits_per_byte<1.55": "1", "bits_per_byte>=1.6": "34", "loss>1e3": "", "tokens>999": "1234", "steps=50": "1234"},
    **{"dmi=16": "!no run has dmi; did you mean dim?", "lrr>1": "!no run has lrr; did you mean lr?"},
    **{"zzzzzzzzzzz=1": "!no run has zzzzzzzzzzz", "k=1": "!no run has k", "path=a": "!say which: "},
    **{"lr>fast": "!a number is expected after >, such as lr>0.003", "lr>": "!a number is expected after >"},
    **{"seed<=nan": "!a number is expected", "seed<inf": "!a number is expected"},
    **{"model>3": "!model is not a number in any run (lstm, gpt); use = or !=", "tied>0": "!tied is not a number"},
    **{"=lstm": "!expected", ">3": "!expected", "!=3": "!expected", "model=": "", "reason=": "1234"},
}
"""A condition, and the names of the runs that are so; behind ! the words in which it is refused."""


def runs(folder: Path) -> Path:
    """Four runs to which the cases apply; gives their folder."""
    fake_runs.run(folder / "1", 1.5)
    fake_runs.run(folder / "2", 1.55, seed=2)
    fake_runs.run(folder / "3", 1.6, seed=3, status="failed")
    other = {"model.dim": 64, "task.tied": False, "optimizer.lr": 0.003, "schedule.warmup": "1e2", "model.heads": 4}
    other |= {"model.rows": {"path": "a"}}
    fake_runs.run(folder / "4", 1.7, model="gpt", config=other)
    return folder
