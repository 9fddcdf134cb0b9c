"""Course of a training: from a checked config to a run directory with the result.

Read it from top to bottom. The checks before a run begins, and the start of its processes, are in start.py and
resume.py; endings other than success are in endings.py.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from seqtrain.config.trust import trusted
from seqtrain.distributed import ranks
from seqtrain.distributed.ranks import say
from seqtrain.experiment import endings, report
from seqtrain.experiment.data import read_run_data
from seqtrain.experiment.learning_rate import resolve_rate
from seqtrain.experiment.written_config import config_text, plain_config
from seqtrain.runs import provenance
from seqtrain.runs.checkpoint import probe, step_of
from seqtrain.runs.directory import Run
from seqtrain.runs.identity import digest, identity
from seqtrain.runs.provenance import CodeDiff, code_diff, code_entries
from seqtrain.runs.summary import Summary
from seqtrain.tasks.hooks import is_of_others
from seqtrain.training import budget
from seqtrain.training.callbacks.signals import Signals
from seqtrain.training.cost import Cost
from seqtrain.training.data import open_keys, resolve_length
from seqtrain.training.model_and_task import said
from seqtrain.training.origins import take_tokenizer
from seqtrain.training.session import Session, cost_of, load_initial_weights, make_session, set_first_weights
from seqtrain.training.splits import Data
from seqtrain.training.trainer import surroundings


@dataclass(frozen=True)
class Attempt:
    """Arguments of one attempt at a run, in addition to the run and its config.

    `goes_on`: True if the run has begun before. A refused attempt then adds only files that were missing, such as a
    tokenizer. Before the first checkpoint it may also write the config, when data, budget or `init_from` complete it.
    """

    command: tuple[str, ...] = ()
    checkpoint: Path | None = None  # to resume from; None: from the start
    goes_on: bool = False
    extended: tuple[str, ...] = ()  # a line for each changed limit of the training


@dataclass
class Experiment:
    """One attempt at a run, in this process, alone or together with other processes."""

    run: Run
    config: DictConfig
    attempt: Attempt
    summary: Summary = field(default_factory=Summary)  # what summary.json will say
    session: Session | None = None  # model, task, learner and trainer, once they are made
    announced: bool = False  # True once the run's directory records this attempt
    code: CodeDiff | None = None  # difference between the code and its commit

    def train(self) -> None:
        """Train to the end. On success and on errors, summary.json records how it ended."""
        alone = ranks.rank_info().world == 1 and "SLURM_JOB_ID" not in os.environ  # SLURM sends each signal twice
        self._open_summary()
        with Signals(alone=alone) as signals, endings.record_ending(self, self.attempt.checkpoint):
            self._open_directory()
            data = self._read_data(signals)
            session = self.session = self._make_session(data, signals)
            cost = self._count_cost(session)
            self._load_weights(session)
            self._announce()
            session.fit(self.attempt.checkpoint)
            self._finish(session, cost)

    def _open_summary(self) -> None:
        """Set the entries of the summary that are known at the start; all processes take those of the first one."""
        summary = self.run.summary
        was_pruned = summary.status == "pruned"
        summary.update(
            status="running",
            command=summary.command or provenance.mask_command(list(self.attempt.command)),
            trust=list(trusted()),
        )
        summary.remove("reason")  # why an earlier attempt ended
        if self.attempt.goes_on and was_pruned:
            summary.update(after_pruning=True)
        self.summary = ranks.broadcast(summary)
        self.announced = not self.attempt.goes_on

    def _open_directory(self) -> None:
        """Check that the run can be written, and record that it is running."""
        self.summary.update(**provenance.environment(), world_size=ranks.rank_info().world)
        self.code = code_diff(Path.cwd()) if self.run.writes else None
        self.summary.update(**code_entries(self.summary, self.code), **said(self.config))
        if self.run.writes:
            self.run.probe()
            probe(self.run.checkpoints)
        settled = self.config.budget is None and self.config.init_from is None and not open_keys(self.config)
        if settled:  # nothing will change the config
            self.summary.update(identity=digest(self.run.config))
        if self.announced:
            self.run.write_summary(self.summary)

    def _read_data(self, signals: Signals) -> Data:
        """Read the data, tokenised and laid out, and complete the config.

        Sets sizes that a budget determines, the tokenizer of another run, and options that are `auto`.
        """
        begins, config = self.attempt.checkpoint is None, self.config
        if begins and config.init_from is not None:
            take_tokenizer(config)
        followed = open_keys(config)  # without the tokenizer if another run provides it
        data = read_run_data(self.run, config, self.summary, self.attempt.checkpoint)
        if begins and config.budget is not None:
            budget.solve(config, data, say)
        for line in (*resolve_length(config, data), *resolve_rate(config, data, signals)):
            say(line)
        if followed:
            self.summary.update(from_data={key: OmegaConf.select(config, key) for key in followed})
        if followed or (begins and (config.budget is not None or config.init_from is not None)):
            ranks.run_on_all(lambda: self.run.write_config(config_text(config)))
            self.summary.update(identity=digest(self.run.config))  # now that all options are known
        return data

    def _make_session(self, data: Data, signals: Signals) -> Session:
        """Make model, task, learner, and Lightning's trainer with its callbacks and loggers."""
        session = make_session(
            self.config,
            data,
            self.run,
            signals,
            Console(stderr=True, quiet=not self.run.writes),
            logged_config=plain_config(self.config),  # not the directory's, which is written later
            after_pruning=self.summary.after_pruning,
        )
        if is_of_others(session.learner.task):  # find the faults of a third-party task now, not after hours
            from seqtrain.training.rehearsal import rehearse

            rehearse(session)
        return session

    def _count_cost(self, session: Session) -> Cost:
        """Return the cost of the whole training, before its first step."""
        cost = cost_of(self.config, session.data)
        self.summary.update(**report.before_training(session, cost), **self._budget_met(cost, flops=cost.flops))
        if session.deadline:
            seconds = self.config.trainer.max_seconds
            say(f"training ends after {seconds:g} s, so the number of steps is not reproducible")
        return cost

    def _load_weights(self, session: Session) -> None:
        """Load the weights of another run, or check the checkpoint that Lightning will load."""
        config, checkpoint, learner = self.config, self.attempt.checkpoint, session.learner
        if checkpoint is None:
            set_first_weights(config, session, say)
        # A checkpoint of adapters does not hold the weights that they adapt, so a resume loads them too.
        if config.init_from is not None and (checkpoint is None or config.get("adapter") is not None):
            known = self.summary.parent  # hash of the weights that an earlier attempt loaded, if there was one
            self.summary.update(**load_initial_weights(config, session, say, parent_hash=known))
        # After the weights: they are part of the run's identity, which checkpoints store.
        learner.run_identity = identity(self.run.config, self.summary)
        learner.surroundings = surroundings(config, session.trainer, self.summary.cpu)
        if checkpoint is not None:
            session.check_checkpoint(checkpoint)

    def _announce(self) -> None:
        """Record in the run's directory that this attempt trains, once every check has passed."""
        self.announced = True
        if self.attempt.extended:
            self.summary.update(extended=[*self.summary.extended, *self.attempt.extended])
        self.run.write_summary(self.summary)  # before the config: a kill must not leave a finished run with new limits
        if self.run.writes and self.code is not None:
            self.code.write(self.run.path)
        if self.attempt.goes_on:
            self.run.write_config(config_text(self.config))
            checkpoint = self.attempt.checkpoint
            self.run.mark_resume(0 if checkpoint is None else step_of(checkpoint))

    def _finish(self, session: Session, cost: Cost) -> None:
        """Write the metrics of the training and its baselines to the summary, and pass them to the loggers."""
        if self.run.writes:
            self.summary.update(**report.result(self.run, session, cost))
            self.summary.update(**self._budget_met(cost, flops=self.summary.flops, seconds=self.summary.seconds))
        self.summary.update(**session.ended)
        self.run.write_summary(self.summary)
        session.end_loggers(self.run)
        ranks.all_gather(None)  # the launcher may end the others when the first one leaves

    def _budget_met(self, cost: Cost, **reached: float | None) -> dict[str, Any]:
        """Return the summary's entry on the budget; empty if there is none."""
        if not self.config.budget:
            return {}
        return {"budget": budget.met(self.config, reached | {"params": cost.parameters["total"], "state": cost.state})}
