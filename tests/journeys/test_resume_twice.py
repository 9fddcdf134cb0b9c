"""A training of any kind is killed twice, resumed twice, and ends as if nothing had been; then it is evaluated."""

from __future__ import annotations

import pytest

from tests.conftest import REPOSITORY, Seqtrain
from tests.journeys.files import write_all
from tests.journeys.walk import SMALL, Walk, assert_near, assert_twins, figures
from tests.support.quick import some_long

TEXT = "data=text data.path=text.txt data.split_by=position data.test_fraction=0.1 tokenizer=char"
LANES = f"{TEXT} tbptt.k2=8 data.batch_size=4 data.eval_lanes=4"
WINDOWS = f"{TEXT} data.max_length=16 data.batch_tokens=64"
ROWS = "data.batch_tokens=96 data.test_fraction=0.1"
LABELLED = f"data=labelled data.path=labelled.csv {ROWS}"
TAGGED = f"task=tag model=gru data=conll data.path=conll2003.txt {ROWS}"
PAIRS = f"data=parallel data.path=pairs.tsv {ROWS} task.max_ratio=0.2 tokenizer=char"
TEST = "data.test_fraction=0.1"
VECTORS = "data=vectors data.path=vectors.jsonl tokenizer=char data.batch_tokens=96 task.max_ratio=0.2"
SHORT = "tbptt.k2=8 data.batch_size=4 data.eval_lanes=4"
HUB = "data.label_column=label data.validation_split=null data.test_split=null"
CUT = "data.max_length=16 data.batch_size=8 task.horizon=4"
SERIES = "tokenizer=none data=series data.path=series.csv data.max_length=16 data.batch_size=8 task.horizon=4"
HEADS = "model.num_layers=1 model.num_heads=2"
BERT, GPT = f"model=bert {HEADS}", f"model=gpt {HEADS}"
FSDP, DDP = "trainer.devices=2 trainer.strategy=fsdp", "trainer.devices=2 trainer.strategy=ddp"

QUICK = (
    f"task=next_token model=lstm optimizer=adamw schedule=cosine {LANES}",
    f"task=next_token model=gru optimizer=sgd {FSDP} {LANES}",
    f"task=sentiment model=lstm {DDP} {LABELLED}",
    TAGGED,
    f"task=forecast model=lstm {SERIES}",
    f"task=translation model=encoder_decoder {HEADS} {PAIRS}",
)
LONG = (
    # optimizers, alone and in shards; schedules
    *(f"task=next_token model=lstm optimizer={name} {LANES}" for name in ("adam", "sgd", "muon")),
    *(f"task=next_token {GPT} optimizer={name} {FSDP} {LANES}" for name in ("adam", "adamw")),
    f"task=next_token model=rnn optimizer=sgd optimizer.momentum=0.9 {FSDP} trainer.accumulate=2 {LANES}",
    f"task=next_token model=lstm optimizer=muon {DDP} {LANES}",
    *(f"task=next_token model=gru schedule={name} {LANES}" for name in ("constant", "inverse_sqrt", "plateau", "wsd")),
    # cuts of time
    f"task=next_token model=gru tbptt=carry tbptt.k1=4 {LANES}",
    f"task=next_token model=gru tbptt=carry tbptt.jitter=awd {LANES}",
    f"task=next_token model=lstm tbptt=windows {LANES}",
    f"task=next_token model=min_gru tbptt=windows tbptt.k1=4 {LANES}",
    f"task=next_token {GPT} tbptt=whole {TEXT} data.max_length=16 data.batch_size=4 data.eval_lanes=4",
    f"task=next_token model=rnn data=text data.path=books tbptt.reset=document tokenizer=byte {SHORT} {TEST}",
    f"task=next_token model=stack data=text data.path=labelled.jsonl tbptt.reset=document {SHORT} {TEST}",
    # models and tasks
    *(f"task=next_token model={name} {LANES}" for name in ("rnn", "min_gru", "cnn", "mlp")),
    f"task=next_token {GPT} trainer.precision=bf16-mixed {LANES}",
    f"task=next_token model=lstm trainer.precision=64-true task.direction=backward {LANES}",
    f"task=masked_lm {BERT} {WINDOWS}",
    f"task=masked_lm {BERT} {FSDP} optimizer=adamw {WINDOWS}",
    f"task=masked_lm {BERT} task.next_sentence=true model.dropout=0.1 {WINDOWS}",
    f"task=bidirectional_lm model=elmo {WINDOWS}",
    *(f"task=sentiment model={name} {LABELLED}" for name in ("cbow", "elmo", "cnn")),
    *(f"task=sentiment {model} {LABELLED}" for model in (BERT, GPT)),
    f"task=sentiment model=lstm {FSDP} trainer.precision=bf16-mixed {LABELLED}",
    f"task=regress model=gru data=labelled data.path=scored.parquet {ROWS}",
    f"task=regress model=lstm data=sums {ROWS}".replace(" data.test_fraction=0.1", ""),
    f"task=regress_steps model=gru {DDP} data=vectors data.path=vectors.jsonl data.label_column=load {ROWS}",
    f"task=regress_steps model=lstm data=running_sums {ROWS}".replace(" data.test_fraction=0.1", ""),
    f"{TAGGED} {DDP}",
    f"task=tag {BERT} data=conll data.path=words.conllu data.token_column=1 data.label_column=3 tokenizer=bpe {ROWS}",
    f"task=tag model=gru data=labelled data.path=tagged.jsonl {ROWS}",
    f"task=translation model=rnn_encoder_decoder task.shared_vocab=false {PAIRS}",
    f"task=translation {GPT} {FSDP} optimizer=adam {PAIRS}",
    f"task=pairs model=gru task.group_size=4 {PAIRS}".replace(" task.max_ratio=0.2", ""),
    *(f"task=forecast model={name} model.window=16 {SERIES} data.channels=apart" for name in ("ar", "dlinear")),
    f"task=forecast model=gru_d {SERIES}",
    f"task=forecast model=gru {FSDP} optimizer=adamw {SERIES} task.distribution=student_t",
    f"task=forecast model=lstm tbptt=carry tbptt.k2=8 tbptt.reset=document {SERIES} data.batch_size=1",
    f"task=forecast model=encoder_decoder {HEADS} task.strategy=recursive {SERIES}",
    # sources
    "task=next_token model=gru data=tokens data.path=store tbptt.k2=8 data.batch_size=4 data.eval_lanes=4",
    f"task=next_token model=gru data=tokens data.path=store {FSDP} optimizer=sgd {SHORT}",
    *(
        f"task=next_token model=gru data={data} data.vocab_size=97 tbptt.k2=8 data.batch_size=4 data.eval_lanes=4"
        for data in (
            "nanogpt data.path=train.bin data.test_path=train.bin",
            "datatrove data.path=datatrove data.test_path=datatrove",
        )
    ),
    f"task=sentiment model=gru data=hub data.path=labelled-saved {HUB} {ROWS}",
    f"task=forecast model=gru data=hub_series data.path=series-saved {CUT}",
    f"task=forecast model=gru data=seasonal data.size=1 data.length=700 {CUT}",
    "task=forecast model=gru data=adding data.size=200 data.validation_size=20 data.test_size=20 data.length=20",
    "task=sentiment model=gru data=word_order data.size=400",
    "task=sentiment model=gru data=word_order data.size=400 trainer.devices=2 trainer.strategy=fsdp optimizer=sgd",
    "task=tag model=gru data=person_or_place data.size=400 data.batch_tokens=96",
    f"task=masked_lm {BERT} data=agreement data.size=400 tokenizer=word data.batch_tokens=96",
    f"task=translation model=encoder_decoder {HEADS} data=locale_phrases tokenizer=char task.max_ratio=0.2",
    f"task=translation model=encoder_decoder {HEADS} data=frames data.size=100 tokenizer=word data.batch_tokens=96",
    f"task=translation model=encoder_decoder {HEADS} trainer.precision=64-true task.tied=false {VECTORS}",
    f"task=translation model=rnn_encoder_decoder {DDP} {VECTORS}",
    *(
        f"task=tag model=gru data={data} data.size=400 data.validation_size=20 data.test_size=20 data.batch_tokens=256"
        for data in ("copy data.shortest=5 data.longest=9", "recall", "parity", "group_words", "induction")
    ),
)
UNTRIED = (
    "batching python_stdlib imdb sst2 ag_news wikitext2 wikitext103 multi30k opus_books etth1 ettm1 given "
    "classify pronoun ucr"
)
"""Choices that are those above under other names, leave, are trained on by the pages, or take a run's tokenizer."""


def name_of(row: str) -> str:
    """Return what the row chooses, for `pytest -k`."""
    return ",".join(word for word in row.split() if "/" not in word)[:90]


@pytest.fixture(scope="module")
def walk(seqtrain: Seqtrain, tmp_path_factory: pytest.TempPathFactory) -> Walk:
    walk = Walk(seqtrain, write_all(tmp_path_factory.mktemp("resumed")))
    walk.type("prepare", *TEXT.split(), "--store", "store")
    return walk


@pytest.mark.parametrize("row", some_long((*QUICK, *LONG), QUICK), ids=name_of)
def test_what_is_resumed_twice_ends_as_what_was_left_alone_and_is_evaluated(row: str, walk: Walk) -> None:
    number = (*QUICK, *LONG).index(row)
    words = [*SMALL, *row.split()]
    twin = walk.train(f"twin-{number}", *words)
    killed = walk.train_killed(f"killed-{number}", *words)
    assert_twins(twin, killed)
    assert_near(walk.evaluate(killed.name, "validation"), figures(killed))
    walk.evaluate(killed.name, "test")


def test_every_choice_of_a_group_stands_in_the_table() -> None:
    words = [word.partition("=") for row in (*QUICK, *LONG) for word in row.split()]
    for group in ("optimizer", "schedule", "model", "tbptt", "task", "data", "tokenizer"):
        files = {path.stem for path in (REPOSITORY / "conf" / group).glob("*.yaml")}
        named = {choice for name, _, choice in words if name == group}
        assert sorted(files - named - set(UNTRIED.split())) == [], group
