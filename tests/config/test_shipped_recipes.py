"""Laws of the shipped recipes: what a task trains when nothing else is asked for is what the README's figures are of.

Who changes a number here measures the README's first table anew.
"""

from __future__ import annotations

from typing import Any

from omegaconf import OmegaConf

from seqtrain.config import check

GROUPS = ("task", "data", "model", "tokenizer", "tbptt", "optimizer", "schedule")
TRAINER = ("accumulate", "grad_clip", "max_steps", "max_epochs", "max_seconds", "validate_every", "keep_best")
LAYOUT = ("eval_batch_size", "workers")  # change no number

PLAIN = "norm_kind=layer norm_eps=1e-05 feed_forward=plain num_kv_heads=None head_dim=None qk_norm=False"
SHIPPED = {
    "next_token": [
        "NextToken tied=True direction=forward",
        "PythonStdlib batch_size=32 eval_lanes=16 batch_tokens=4096 max_length=256 "
        "validation_fraction=0.05 test_fraction=0.05",
        "LSTM dim=384 embed_dim=None num_layers=1 dropout=0.0 bidirectional=False bias=True "
        "learned_state=False forget_bias=0.0 share_layers=False",
        "BPE size=2048",
        "TBPTT k2=64 k1=64 carry=True reset=never jitter=none recompute=None",
        "AdamW lr=0.006 betas=[0.9, 0.95] eps=1e-08 weight_decay=0.01 fused=True",
        "Cosine warmup=50 final=0.0",
        "accumulate=1 grad_clip=1.0 max_steps=2000 max_epochs=None max_seconds=None validate_every=500 keep_best=1",
    ],
    "masked_lm": [
        "MaskedLM mask_prob=0.15 mask_share=0.8 random_share=0.1 whole_word=False next_sentence=False "
        "tied=True transform=True norm_eps=1e-05 pseudo_examples=8",
        "PythonStdlib batch_size=None eval_lanes=16 batch_tokens=2048 max_length=64 "
        "validation_fraction=0.05 test_fraction=0.05",
        "BERT dim=128 embed_dim=None num_layers=2 num_heads=4 dropout=0.0 positions=rotary max_length=None "
        f"num_segments=2 norm=pre bias=True activation=gelu dim_feedforward=None {PLAIN} rotary_base=10000.0 "
        "share_layers=False",
        "BPE size=2048",
        "TBPTT k2=64 k1=64 carry=False reset=never jitter=none recompute=None",
        "Muon lr=0.01 lr_rest=0.003 momentum=0.95 betas=[0.9, 0.95] eps=1e-08 weight_decay=0.01",
        "Cosine warmup=50 final=0.0",
        "accumulate=1 grad_clip=1.0 max_steps=1500 max_epochs=None max_seconds=None validate_every=500 keep_best=1",
    ],
    "bidirectional_lm": [
        "BidirectionalLM tied=True",
        "PythonStdlib batch_size=None eval_lanes=16 batch_tokens=2048 max_length=64 "
        "validation_fraction=0.05 test_fraction=0.05",
        "ELMo dim=256 embed_dim=None num_layers=2 dropout=0.0 bias=True",
        "BPE size=2048",
        "TBPTT k2=64 k1=64 carry=False reset=never jitter=none recompute=None",
        "AdamW lr=0.006 betas=[0.9, 0.95] eps=1e-08 weight_decay=0.01 fused=True",
        "Cosine warmup=50 final=0.0",
        "accumulate=1 grad_clip=1.0 max_steps=1500 max_epochs=None max_seconds=None validate_every=500 keep_best=1",
    ],
    "sentiment": [
        "Sentiment pool=max dropout=0.0 class_weights=none",
        "WordOrder batch_size=None eval_lanes=16 batch_tokens=auto max_length=512 size=8000 "
        "seed=0 validation_fraction=0.1 test_fraction=0.1",
        "LSTM dim=384 embed_dim=None num_layers=1 dropout=0.0 bidirectional=False bias=True "
        "learned_state=False forget_bias=0.0 share_layers=False",
        "Word max_size=None min_count=auto",
        "TBPTT k2=512 k1=512 carry=False reset=never jitter=none recompute=None",
        "AdamW lr=0.006 betas=[0.9, 0.95] eps=1e-08 weight_decay=0.01 fused=True",
        "Cosine warmup=50 final=0.0",
        "accumulate=1 grad_clip=1.0 max_steps=auto max_epochs=None max_seconds=None validate_every=auto keep_best=1",
    ],
    "translation": [
        "Translation shared_vocab=True tied=True label_smoothing=0.1 beam=1 length_penalty=1.0 max_ratio=2.0",
        "LocalePhrases batch_size=None eval_lanes=16 batch_tokens=2048 max_length=128 "
        "source_locale=en target_locale=de size=12000 seed=0 validation_fraction=0.05 test_fraction=0.05",
        "EncoderDecoder encoder=transformer decoder=transformer dim=128 embed_dim=None num_layers=2 dropout=0.1 "
        "num_heads=4 positions=sinusoidal max_length=None norm=pre activation=relu dim_feedforward=None "
        f"{PLAIN} rotary_base=10000.0 bidirectional=True attention=additive kernel_size=3 share_layers=False",
        "BPE size=600",
        "TBPTT k2=128 k1=128 carry=False reset=never jitter=none recompute=None",
        "AdamW lr=0.003 betas=[0.9, 0.95] eps=1e-08 weight_decay=0.01 fused=True",
        "Cosine warmup=50 final=0.0",
        "accumulate=1 grad_clip=1.0 max_steps=auto max_epochs=None max_seconds=None validate_every=auto keep_best=1",
    ],
}


def written(node: dict[str, Any], leave_out: tuple[str, ...] = ()) -> str:
    """The name of a target with its options, on one line."""
    name = node.get("_target_", "").rpartition(".")[2]
    options = [f"{k}={v}" for k, v in node.items() if not k.startswith("_") and k not in leave_out]
    return " ".join([name, *options]).strip()


def test_a_task_alone_trains_by_the_recipe_of_the_readme() -> None:
    for task, recipe in SHIPPED.items():
        config: Any = OmegaConf.to_container(check.compose([f"task={task}"]).config, resolve=True)
        found = [written(config[group], LAYOUT) for group in GROUPS]
        found.append(written({key: config["trainer"][key] for key in TRAINER}))
        assert found == recipe
        assert (config["seed"], config["freeze"], config["layer_decay"], config["init_from"]) == (1, [], 1.0, None)
