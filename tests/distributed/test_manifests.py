"""Laws of the manifests for clusters: YAML whose command is the one that is tested, with options that there are."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
import yaml

from seqtrain.config import check
from seqtrain.runs.identity import MAY_CHANGE
from tests.conftest import REPOSITORY

BLOCK = re.compile(r"```yaml\n(.*?)```", re.DOTALL)
RANK = {"JobSet": "$JOB_COMPLETION_INDEX", "SkyPilot": "$SKYPILOT_NODE_RANK"}


def manifests() -> dict[str, Any]:
    job_set, task = BLOCK.findall((REPOSITORY / "docs" / "distributed.md").read_text("utf-8"))
    return {"JobSet": yaml.safe_load(job_set), "SkyPilot": yaml.safe_load(task)}


def script(kind: str) -> str:
    """What each machine runs."""
    manifest = manifests()[kind]
    if kind == "SkyPilot":
        return manifest["run"]
    pod = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    return pod["containers"][0]["args"][0]


@pytest.mark.parametrize("kind", RANK)
def test_a_manifest_starts_torchrun_as_the_tests_do(kind: str) -> None:
    words = shlex.split(script(kind).partition("exec ")[2].replace("\\\n", " "))
    assert words[0] == "torchrun"
    options = dict(zip(words[1::2], words[2::2], strict=False))
    assert options["--rdzv-backend"] == "static"
    assert options["--node-rank"] == RANK[kind]
    assert options.keys() >= {"--nnodes", "--nproc-per-node", "--rdzv-endpoint"}
    assert words[words.index("--no-python") + 1 :][:2] == ["seqtrain", "$@"]


@pytest.mark.parametrize("kind", RANK)
def test_what_a_manifest_trains_and_resumes_with_are_options_that_there_are(kind: str) -> None:
    text = script(kind)
    (train,) = re.findall(r"set -- train (.*?);", text)
    (resume,) = re.findall(r"set -- resume (\S+)", text)
    assert f"run_dir={resume}" in train.split()
    processes = re.findall(r"(trainer\.\w+)=", text.partition("--no-python")[2])
    assert set(processes) == {"trainer.devices", "trainer.num_nodes"} <= set(MAY_CHANGE)
    config = check.compose([*train.split(), *(f"{name}=2" for name in processes)]).config
    assert (config.trainer.strategy, config.run_dir) == ("ddp", resume)


def test_as_many_pods_begin_as_torchrun_waits_for_and_the_first_is_where_they_meet() -> None:
    manifest = manifests()["JobSet"]
    (workers,) = manifest["spec"]["replicatedJobs"]
    job = workers["template"]["spec"]
    nodes = int(re.findall(r"--nnodes (\d+)", script("JobSet"))[0])
    assert job["parallelism"] == job["completions"] == nodes
    name = manifest["metadata"]["name"]
    assert f"--rdzv-endpoint {name}-{workers['name']}-0-0.{name}:" in script("JobSet")
    (container,) = job["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == int(
        re.findall(r"--nproc-per-node (\d+)", script("JobSet"))[0]
    )
