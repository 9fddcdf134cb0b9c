"""A SLURM of one's own on loopback: munged, slurmctld and two slurmds, started by hand, gone afterwards."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol")
SBIN = "/usr/sbin"  # where Debian has them, which is not on everybody's PATH
KILL_WAIT = 10  # seconds between SIGTERM and SIGKILL; SLURM's own default is 30
PATIENCE = 30.0  # seconds that starting, and a command, may take

SOON = "now+3"
"""When a requeued job may begin again, for StartTime: SLURM itself would wait two minutes.

Not at once: what is launched in the second in which slurmd ended the job is refused as a part of that ("already killed,
do not launch batch job"), upon which SLURM calls the job FAILED.
"""

# Two nodes, each a slurmd of this machine that pretends to have two CPUs, and memory for jobs that ask for some. The
# first has the machine's own name, so that the name that SLURM gives for it can be looked up, as on a real cluster.
CONFIG = """\
ClusterName=loopback
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_interval=1
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobRequeue=1
KillWait={kill_wait}
SlurmdParameters=config_overrides
SlurmdDebug=debug
NodeName={host},{host}-second NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]},{ports[2]} CPUs=2 RealMemory=8192
PartitionName=all Nodes=ALL Default=YES State=UP
"""


@dataclass(frozen=True)
class Cluster:
    """A SLURM that runs: `environment` makes its commands, and the jobs that they submit, find it."""

    folder: Path
    environment: dict[str, str]

    def __call__(self, *command: str, cwd: Path | None = None, check: bool = True) -> str:
        """Runs a command such as `scontrol requeue 3` and gives its output; AssertionError when it fails."""
        done = subprocess.run(
            command, cwd=cwd, env=self.environment, timeout=PATIENCE, capture_output=True, text=True, check=False
        )
        assert not check or done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return done.stdout.strip()

    def submit(self, *arguments: str, cwd: Path) -> Job:
        """Hands a script to sbatch, with options before it and its own arguments after it."""
        return Job(self, int(self("sbatch", "--parsable", *arguments, cwd=cwd)), cwd)


@dataclass(frozen=True)
class Job:
    """A job that was submitted in the folder `cwd`."""

    cluster: Cluster
    number: int
    cwd: Path

    @property
    def facts(self) -> dict[str, str]:
        """What SLURM says of it: JobState, Restarts, ExitCode ..."""
        return dict(re.findall(r"(\w+)=(\S+)", self.cluster("scontrol", "--oneliner", "show", "job", str(self.number))))

    @property
    def log(self) -> str:
        """What the script and its tasks have printed so far, in all sittings."""
        path = self.cwd / f"slurm-{self.number}.out"
        return path.read_text() if path.exists() else ""

    @property
    def history(self) -> str:
        """What the daemons have said of it, and what SLURM knows of it now."""
        word = re.compile(rf"Job(?:Id=| ){self.number}\b|StepId={self.number}\.")
        files = sorted(self.cluster.folder.glob("slurm*.out"))
        lines = [f"{path.stem} {line}" for path in files for line in path.read_text().splitlines() if word.search(line)]
        return "\n".join([*lines, str(self.facts)])

    def wait_until(self, reached: Callable[[], object], what: str, seconds: float) -> None:
        """Returns once `reached()` is true; AssertionError after `seconds`, or where the job ends before."""
        limit, look = time.monotonic() + seconds, 0.0
        while not reached():
            if time.monotonic() > look:  # seldom: asking SLURM takes longer than a step of a tiny training
                state, look = self.facts["JobState"], time.monotonic() + 1
                ended = state not in ("PENDING", "RUNNING", "COMPLETING") and not reached()
                assert not ended, f"{state} before {what}:\n{self.log}"
                assert time.monotonic() < limit, f"waited {seconds} s for {what}, {state}:\n{self.log}"
            time.sleep(0.002)

    def wait(self, seconds: float) -> dict[str, str]:
        """Waits until it has left the queue; gives the facts."""
        self.wait_until(lambda: self.facts["JobState"] in ("COMPLETED", "FAILED"), "its end", seconds)
        return self.facts

    def update(self, **changes: str) -> None:
        """Changes what `scontrol update` can change of it."""
        self.cluster(
            "scontrol", "update", f"JobId={self.number}", *(f"{key}={value}" for key, value in changes.items())
        )

    def requeued(self, seconds: float) -> None:
        """Waits until it is back in the queue; its next sitting begins soon, not in two minutes, and has an hour."""
        self.wait_until(lambda: self.facts["JobState"] == "PENDING", "it is back in the queue", seconds)
        self.update(StartTime=SOON, TimeLimit="60")

    def shorten(self) -> None:
        """Brings its time limit near: between one and two minutes from now."""
        hours, minutes, _ = map(int, self.facts["RunTime"].split(":"))
        self.update(TimeLimit=str(60 * hours + minutes + 2))

    def tasks(self) -> list[int]:
        """The processes of its tasks, by rank."""
        found = {pid: _environment(pid) for pid in (int(path.name) for path in Path("/proc").glob("[0-9]*"))}
        ours = {"SLURM_JOB_ID": str(self.number), "SLURM_STEP_ID": "0"}.items()
        return sorted((pid for pid in found if ours <= found[pid].items()), key=lambda pid: found[pid]["SLURM_PROCID"])


def _environment(pid: int) -> dict[str, str]:
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "replace")
    except OSError:  # it has ended, or is another user's
        return {}
    return dict(re.findall(r"(\w+)=([^\0]*)\0", text))


def missing(path: str) -> list[str]:
    """The programs of SLURM that are nowhere on the PATH."""
    return [name for name in PROGRAMS if shutil.which(name, path=path) is None]


@contextmanager
def slurm(environment: dict[str, str]) -> Iterator[Cluster]:
    """A cluster for as long as it is entered, whose jobs have this environment; RuntimeError where it does not start.

    Everything of it lies in a temporary folder with a short name (the path of a socket has at most 107 bytes). Jobs,
    steps and daemons end with it; where this process is killed, the daemons do.
    """
    path = f"{environment['PATH']}{os.pathsep}{SBIN}"
    if lacking := missing(path):
        raise RuntimeError(f"{', '.join(lacking)} not found: install slurm-wlm and munge")
    with tempfile.TemporaryDirectory(prefix="slurm-") as name, ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)  # munged wants its socket reachable
        kept = {name: value for name, value in environment.items() if not name.startswith(("SLURM_", "SBATCH_"))}
        cluster = Cluster(folder, kept | {"PATH": path, "SLURM_CONF": str(folder / "slurm.conf")})
        _configure(folder)
        stack.enter_context(_daemon(cluster, "munged", *_munge_options(folder)))
        _wait(folder, (folder / "munge.socket").exists)
        stack.enter_context(_daemon(cluster, "slurmctld", "-D", "-c"))
        for node in _nodes():
            stack.enter_context(_daemon(cluster, "slurmd", "-D", "-N", node))
        stack.callback(_empty, cluster)
        _wait(folder, lambda: _idle(cluster) == len(_nodes()))
        yield cluster


def _nodes() -> tuple[str, str]:
    host = socket.gethostname().partition(".")[0]
    return host, f"{host}-second"


def _configure(folder: Path) -> None:
    key = folder / "munge.key"
    key.touch(0o600)
    key.write_bytes(os.urandom(128))
    (folder / "state").mkdir()
    for node in _nodes():
        (folder / f"spool-{node}").mkdir()
    config = CONFIG.format(
        folder=folder, host=_nodes()[0], user=getpass.getuser(), kill_wait=KILL_WAIT, ports=_free_ports(3)
    )
    (folder / "slurm.conf").write_text(config)


def _munge_options(folder: Path) -> list[str]:
    files = {"socket": "socket", "key-file": "key", "pid-file": "pid", "seed-file": "seed"}
    return ["--foreground", "--force", *(f"--{option}={folder}/munge.{end}" for option, end in files.items())]


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@contextmanager
def _daemon(cluster: Cluster, *command: str) -> Iterator[None]:
    """A daemon in the foreground of its own group, which dies with this process."""
    with (
        open(cluster.folder / f"{command[0]}.out", "ab") as out,
        subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", *command],
            **{"env": cluster.environment, "stdin": subprocess.DEVNULL, "stdout": out, "stderr": out},
            start_new_session=True,
        ) as process,
    ):
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()


def _idle(cluster: Cluster) -> int:
    """How many nodes are up and have nothing to do."""
    return len(cluster("sinfo", "-h", "-N", "-t", "idle", "-o", "%N", check=False).split())


def _empty(cluster: Cluster) -> None:
    """Ends every job, and waits for its processes, which are not children of a daemon."""
    cluster("scancel", "--user", getpass.getuser(), check=False)
    _wait(cluster.folder, lambda: not cluster("squeue", "-h", check=False))


def _wait(folder: Path, reached: Callable[[], object]) -> None:
    limit = time.monotonic() + PATIENCE
    while not reached():
        if time.monotonic() > limit:
            said = [line for path in sorted(folder.glob("*.out")) for line in _tail(path)]
            raise RuntimeError("SLURM did not get ready:\n" + "\n".join(said))
        time.sleep(0.05)


def _tail(path: Path) -> list[str]:
    return [f"{path.name}: {line}" for line in path.read_text(errors="replace").splitlines()[-8:]]
