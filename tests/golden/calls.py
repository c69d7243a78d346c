"""The calls that `record.py` runs: names, and commands or functions that run one after another in one folder."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from library import LIBRARY
from record import Call, words_of

STEPS = 20
TRAINING = "--use_cpu --per_device_train_batch_size 4 --learning_rate 3e-3 --logging_steps 1"
PRETRAINING = "--use_cpu --per_device_train_batch_size 4 --learning_rate 5e-3 --logging_steps 1 --num_processes 1"
VOCABULARY = "--vocab_size 90 --vocab_layout compact"
NEW_MODEL = f"{VOCABULARY} --model_size tiny --hidden_size 8 --num_hidden_layers 1 --num_attention_heads 2"
ROWS = "--train_file @rows.tsv --validation_file @dev.tsv"
TAGS = "--train_file @tags.conll --validation_file @tags.conll"
CHOICES = "--train_file @choices.tsv --validation_file @choices.tsv --choice_columns other third"
QUESTIONS = "--train_file @questions_v1.json --validation_file @questions_v1.json"
IMPOSSIBLE = "--train_file @questions_v2.json --validation_file @questions_v2.json"
PAIRS = "--train_file @pairs.tsv --validation_file @pairs.tsv"


def pretrain_command(flags: str, steps: int = 8, source: str = f"--text @text.txt {NEW_MODEL}") -> str:
    return f"pretrain {source} --max_length 24 --max_steps {steps} {PRETRAINING} {flags} --output_dir out"


def finetune_command(flags: str, model: str = "@pretrained", duration: str = "--max_steps 6") -> str:
    return f"finetune {model} {flags} --max_length 24 {TRAINING} {duration} --output_dir out"


def pretrain(name: str, *values: Any) -> Call:
    return Call(f"pretrain_{name}", [pretrain_command(*values)])


def finetune(name: str, *values: Any) -> Call:
    return Call(f"finetune_{name}", [finetune_command(*values)])


def distill(name: str, flags: str, steps: int = 6) -> Call:
    return Call(
        f"distill_{name}", [f"distill {flags} --max_length 24 --max_steps {steps} {TRAINING} --output_dir out"]
    )


def stopped(step: int, sent: signal.Signals, command: str) -> Callable[[], int]:
    """A command whose process gets a signal at the start of a training step."""

    def run() -> int:
        from transformers import Trainer

        from mybert import cli

        train = Trainer.training_step

        def train_or_stop(trainer: Any, *args: Any, **kwargs: Any) -> Any:
            if trainer.state.global_step + 1 == step:
                os.kill(os.getpid(), sent)
            return train(trainer, *args, **kwargs)

        Trainer.training_step = train_or_stop
        return cli.main(words_of(command))

    run.__name__ = f"{sent.name} in step {step} of mybert {command}"
    return run


def copies(*names: str) -> Callable[[], None]:
    """Copy folders of the inputs to the current folder, under the last part of their names."""

    def copy() -> None:
        for name in names:
            shutil.copytree(f"../inputs/{name}", Path(name).name)

    copy.__name__ = f"copies of {', '.join(names)}"
    return copy


# Twenty steps of every objective; `losses.json` holds their losses.

_TWENTY = f"--max_steps {STEPS} --learning_rate 4e-2"
WHOLE = pretrain_command("", STEPS)
TWENTY_STEPS = [
    Call("steps_pretrain", [WHOLE]),
    Call("steps_pretrain_ltr", [pretrain_command("--objective ltr", STEPS)]),
    Call("steps_pretrain_words", [pretrain_command("--objective mlm --masking_unit word --dropout 0.2", STEPS)]),
    *(
        Call(f"steps_{name}", [finetune_command(flags, "@small", _TWENTY)])
        for name, flags in {
            "classification": f"--task classification {ROWS}",
            "multilabel": f"--task multilabel {ROWS}",
            "regression": f"--task regression {ROWS}",
            "multiple_choice": f"--task multiple_choice {CHOICES}",
            "tagging": f"--task tagging {TAGS}",
            "question_answering": f"--task question_answering {QUESTIONS} --doc_stride 6",
            "squad_v2": f"--task squad_v2 {IMPOSSIBLE} --doc_stride 6",
            "next_sentence": f"--task next_sentence {PAIRS}",
            "features": f"--task ner {TAGS} --approach features --features last --lstm_size 4",
        }.items()
    ),
    Call(
        "steps_distill",
        [
            f"distill @tuned/classification --student @small --new_head --task classification {ROWS} {TRAINING} "
            f"--max_length 24 --max_steps {STEPS} --hidden_state_weight 1 --output_dir out"
        ],
    ),
]


# Vocabulary and data

_STORE = "data @text.txt --tokenizer @tokenizer --output tokens.safetensors --num_processes 1"
_EXAMPLES = f"{_STORE} --overwrite --quiet --max_length 24 --export"
DATA = [
    Call(
        "vocab",
        [
            "vocab @text.txt @more.txt --output_dir out --vocab_size 1100 --report report.json --num_processes 1",
            f"vocab @text.txt --output_dir wordpiece {VOCABULARY} --algorithm wordpiece --min_frequency 3 --quiet",
            "vocab @languages.txt --output_dir cased --vocab_size 90 --vocab_layout compact --no_do_lower_case "
            "--character_coverage 0.98 --validation_split 0.3 --num_processes 1",
            f"vocab @pages.txt --output_dir clean {VOCABULARY} --clean html --strip_accents --num_processes 2",
            "vocab @latin.txt --output_dir latin --vocab_size 24 --vocab_layout compact --encoding latin-1 --quiet",
        ],
    ),
    Call(
        "data",
        [
            f"{_STORE} --export examples.jsonl --max_length 24",
            "data @more.txt --tokenizer @tokenizer --output tokens.safetensors --append --num_processes 1",
            "data @text.txt --tokenizer @tokenizer --dry_run --num_processes 1",
            "data @wrapped.txt --tokenizer @tokenizer --output wrapped.safetensors --document_end blank_line "
            "--split_sentences --num_processes 1",
            "data @wrapped.txt --tokenizer @tokenizer --output joined.safetensors --join_lines "
            "--heading_pattern '^Cat' --num_processes 1",
            "data @rows.tsv --text_column other --tokenizer @tokenizer --output table.safetensors --num_processes 1",
            "data @languages.txt @pages.txt --tokenizer @tokenizer --output clean.safetensors --clean html mojibake "
            "--document_end file --num_processes 2",
        ],
    ),
    Call(
        "data_filters",
        [
            "data @noise.txt --tokenizer @tokenizer --output tokens.safetensors --filter duplicates symbol_lines "
            "other_scripts many_tokens --symbol_share 0.3 --scripts Latin --tokens_per_character 0.6 "
            "--num_processes 1",
            "data @noise.txt --tokenizer @tokenizer --dry_run --filter duplicates --num_processes 1",
        ],
    ),
    Call(
        "data_shards",
        [f"{_STORE} --num_shards 2 --shard_index {shard} --overwrite --quiet" for shard in range(2)]
        + [
            "data @text.txt @more.txt --tokenizer @tokenizer --output files.safetensors --num_shards 2 "
            "--shard_by files"
        ],
    ),
    Call(
        "data_examples",
        [
            f"{_EXAMPLES} words.jsonl --objective mlm --masking_unit word --mlm_probability 0.3 "
            "--mask_replace_prob 0.7",
            f"{_EXAMPLES} spans.jsonl --objective mlm+sop --masking_unit span --random_replace_prob 0.2 "
            "--max_predictions 3",
            f"{_EXAMPLES} ltr.jsonl --objective ltr --ltr_probability 0.5 --seed 7",
            f"{_EXAMPLES} packed.jsonl --pack --row_length 48 --short_probability 0.5",
            f"{_EXAMPLES} static.jsonl --static_masking",
        ],
    ),
]


# Pretraining

_PHASES = "--phase2_max_length 40 --phase2_steps 4 --phase2_per_device_train_batch_size 2"
_SAVED = pretrain_command(f"--save_steps 3 --save_total_limit 1 --gradient_accumulation_steps 2 {_PHASES}", 12)
_STORED = "--token_store tokens.safetensors --tokenizer @tokenizer --model_size tiny"
PRETRAINS = [
    pretrain(
        "evaluated",
        "--validation_split 0.2 --eval_strategy steps --eval_steps 4 --load_best_model_at_end --save_steps 4",
    ),
    pretrain(
        "phases",
        f"{_PHASES} --phase2_positions repeated --phase2_gradient_accumulation_steps 1 --optim muon --batch_ramp 0.3 "
        "--gradient_accumulation_steps 2 --mlm_probability 0.4 --causal_share 0.3",
        12,
    ),
    pretrain("packed", "--pack --row_length 48 --embedding_init cooccurrence --warmup_steps 0.3 --dropout 0.2"),
    pretrain(
        "sentence_order", "--objective mlm+sop --masking_unit span --lr_scheduler_type cosine --optim adamw_torch"
    ),
    pretrain("tables", "--static_masking --bf16", 8, f"@wrapped.txt @rows.csv {NEW_MODEL}"),
    pretrain("no_pairs", "--objective mlm --minimal_pairs @pairs.jsonl --validation_split 0.1 --card_examples"),
    pretrain("continued", "--max_predictions 2 --seed 7 --weight_decay 0.1", 8, "@text.txt --model @pretrained"),
    pretrain(
        "recipe", "--warmup_steps 2 --save_steps 100 --eval_strategy no", 8, f"@text.txt --config base {NEW_MODEL}"
    ),
    pretrain("epochs", "--num_train_epochs 2 --filter duplicates", -1),
    Call("pretrain_store", [f"{_STORE} --quiet", pretrain_command("", 8, _STORED)]),
    Call("pretrain_interrupted", [stopped(10, signal.SIGINT, WHOLE), WHOLE]),
    Call("pretrain_killed", [stopped(5, signal.SIGKILL, _SAVED), stopped(10, signal.SIGKILL, _SAVED), _SAVED, _SAVED]),
    Call(
        "adapt",
        [
            f"adapt @pretrained @text.txt --new_pieces 8 --new_piece_frequency 3 --max_length 24 --max_steps 5 "
            f"{PRETRAINING} --validation_split 0.2 --output_dir out",
            "adapt @bert @more.txt --new_pieces 4 --no_append_pieces --new_piece_init random --max_length 24 "
            f"--max_steps 3 {PRETRAINING} --output_dir replaced",
        ],
    ),
]


# Fine-tuning

_SAVED_TUNING = finetune_command(
    f"{ROWS} --save_strategy steps --save_steps 3 --eval_strategy steps --eval_steps 3",
    "@pretrained",
    "--num_train_epochs 2",
)
_ONE_EPOCH = "@pretrained", "--num_train_epochs 1"
FINETUNES = [
    finetune("classification", f"--task classification {ROWS} --test_file @texts.tsv"),
    finetune("pairs", f"{ROWS} --text_pair_column other --label_column a --class_weights balanced"),
    finetune(
        "csv", "--train_file @rows.csv --validation_split 0.25 --max_train_samples 9 --dropout 0.2 --pooling mean"
    ),
    finetune(
        "json",
        "--train_file @rows.jsonl --validation_file @dev.tsv --skip_empty --gradient_accumulation_steps 2 "
        "--lr_scheduler_type constant --weight_decay 0.1 --seed 7",
    ),
    finetune("multilabel", f"--task multilabel {ROWS} --label_columns a b c"),
    finetune("regression", f"--task regression {ROWS} --text_pair_column other --window_pooling max --doc_stride 4"),
    finetune("ner", f"--task ner {TAGS} --max_document_context --continuation_labels inside"),
    finetune(
        "squad",
        f"--task squad {QUESTIONS} --max_question_length 4 --max_context --n_best_size 3 --max_answer_length 2",
    ),
    finetune("next_sentence", "--task next_sentence --train_file @pairs.tsv --validation_split 0.3"),
    finetune("swag", "--task swag --data_dir @swag"),
    finetune("cola", "--task cola --data_dir @cola"),
    finetune("mrpc", "--task mrpc --data_dir @mrpc --label_smoothing_factor 0.1"),
    finetune("stsb", "--task stsb --data_dir @stsb --bf16"),
    finetune("mnli", "--task mnli --data_dir @mnli"),
    finetune("head_only", f"{ROWS} --freeze encoder"),
    finetune(
        "upper_layers",
        f"{ROWS} --freeze_layers 1 --reinitialize_layers 1 --train_head_first 0.3",
    ),
    finetune("gradual", f"{ROWS} --gradual_unfreezing 0.2"),
    finetune("rates", f"{ROWS} --layer_decay 0.8 --embedding_learning_rate 10 --max_grad_norm 0.5"),
    finetune("muon", f"{ROWS} --optim muon --muon_learning_rate 0.01 --activation_checkpointing"),
    finetune("adapter", f"{ROWS} --lora"),
    finetune("adapter_config", f"--task ner {TAGS} --peft_config @lora.json"),
    finetune("multilabel_separator", f"--task multilabel {ROWS} --label_separator ; --confidence_threshold 0"),
    Call(
        "finetune_settings_file",
        [
            "finetune --config @training.yaml --output_dir out",
            "finetune @small --config @training.yaml --max_steps 3 --label_column a --output_dir flags",
            "evaluate --config @training.yaml --model out",
            "predict --config @training.yaml --model out --data @texts.tsv",
        ],
    ),
    Call("finetune_linear_probe", [f"finetune @pretrained {ROWS} --approach linear_probe --use_cpu --output_dir out"]),
    finetune("auto", "--train_file @rows.tsv --label_column a --approach auto --folds 2", *_ONE_EPOCH),
    finetune("features_all", f"--task ner {TAGS} --approach features --features all --lstm_size 4", *_ONE_EPOCH),
    finetune("bilstm", f"{ROWS} --bilstm"),
    finetune("from_scratch", f"{ROWS} --from_scratch --window_pooling mean"),
    finetune("folds", "--train_file @rows.tsv --folds 3", *_ONE_EPOCH),
    finetune("seeds", f"{ROWS} --num_seeds 2 --save_total_limit 2", *_ONE_EPOCH),
    finetune(
        "best",
        f"{ROWS} --label_column a --early_stopping_patience 1 --metric_for_best_model loss --eval_delay 1",
        "@pretrained",
        "--num_train_epochs 4",
    ),
    finetune("bert", f"{ROWS} --keep_model_type", "@bert"),
    finetune("converted_bert", f"--task regression {ROWS}", "@bert"),
    finetune("continued", ROWS, "@tuned/classification"),
    finetune("new_head", f"{ROWS} --label_column a --new_head", "@tuned/classification"),
    Call("finetune_killed", [stopped(7, signal.SIGKILL, _SAVED_TUNING), _SAVED_TUNING]),
    distill("tagging", f"@tuned/tagging --student tiny --tokenizer @tokenizer --task tagging {TAGS}"),
    distill(
        "unlabeled",
        f"@tuned/classification --student 1x64 {ROWS} --unlabeled @sentences.txt --relation_weight 1 "
        "--hard_label_weight 0.2",
    ),
    distill(
        "questions", f"@tuned/squad_v2 --student @small --task squad_v2 {IMPOSSIBLE} --distillation_temperature 3"
    ),
]


# Use

# A fine-tuned model of the earlier version -> its input.
TUNED = {
    "classification": "@rows.tsv",
    "multilabel": "@rows.tsv",
    "regression": "@rows.tsv",
    "multiple_choice": "@choices.tsv --choice_columns other third",
    "tagging": "@tags.conll",
    "question_answering": "@questions_v1.json",
    "squad_v2": "@questions_v2.json",
    "next_sentence": "@pairs.tsv",
    "features": "@tags.conll",
}


def predict_tuned(task: str, model: str) -> str:
    all_classes = " --probabilities" if task in ("classification", "multilabel", "next_sentence") else ""
    return f"predict {model} {TUNED[task]} --use_cpu{all_classes} --output predictions.jsonl"


USE = [
    *(
        Call(
            f"use_{task}",
            [
                predict_tuned(task, f"@tuned/{task}"),
                f"evaluate {data} --model @tuned/{task} --output metrics.json --predictions_dir predictions "
                "--report_dir reports --use_cpu",
            ],
        )
        for task, data in TUNED.items()
    ),
    Call(
        "use_random_heads",  # whose answers differ from row to row
        [
            "evaluate @rows.tsv --model @random/classification --task classification --predictions_dir classes",
            "predict @random/regression @rows.tsv --task regression --text_pair_column other --output values.jsonl",
            "evaluate @tags.conll --model @random/ner --task ner --predictions_dir tags",
            "evaluate @questions_v1.json --model @random/squad --task squad --max_length 24 --predictions_dir answers",
            "predict @random/squad @questions_v2.json --task squad_v2 --max_context --top_k 3 --output answers.jsonl",
            "predict @random/multiple_choice @choices.tsv --task multiple_choice --choice_columns other third",
        ],
    ),
    Call(
        "predict",
        [
            "predict @tuned/classification @sentences.txt",
            "predict @tuned/classification @rows.tsv --output out.csv --top_k 2 --keep_columns text score --quiet",
            "predict @tuned/classification @holes.tsv --skip_empty --output holes.tsv --window_pooling mean "
            "--max_length 12",
            "predict @tuned/classification @many.tsv --output many.jsonl --batch_size 8",
            "predict @tuned/classification @many.tsv --output many.csv",
            "predict @tuned/classification @rows.tsv --dtype bfloat16 --confidence_threshold 0.5 --probabilities",
            "predict @tuned/tagging @words.txt",
            "predict @tuned/squad_v2 @questions_v2.json --null_score_threshold -5 --top_k 2 --n_best_size 4 "
            "--output answers.jsonl",
            "predict @tuned/next_sentence @pairs.tsv --output pairs.tsv",
            "predict @pretrained @masks.txt --task fill_mask --top_k 3",
            "predict @tuned/multilabel - --output out.xlsx",
            "predict @tuned/regression -",
        ],
        stdin="the cat sat\na happy dog ate ||| it was red\n",
    ),
    Call(
        "evaluate",
        [
            "evaluate @dev.tsv --model @tuned/classification --confidence_threshold 0.4 --dtype bfloat16",
            "evaluate @questions_v2.json --model @tuned/squad_v2 --predictions_dir predictions --quiet",
            "evaluate @questions_v2.json --task squad_v2 --predictions predictions/predictions.json",
            "evaluate @pairs.tsv --model @pretrained --task next_sentence",
        ],
    ),
    Call(
        "compare",
        [
            f"finetune @small {ROWS} --max_steps 2 {TRAINING} --quiet --output_dir other",
            "compare @tuned/classification other --data @rows.tsv --output differing.tsv --report report.json "
            "--num_resamples 50",
            "compare @tuned/tagging @tuned/tagging --data @tags.conll --num_resamples 20 --quiet",
        ],
    ),
    Call(
        "features",
        [
            "features @sentences.txt --model @pretrained --features concat_last_four --output tokens.jsonl --use_cpu",
            "features @rows.tsv --model @pretrained --text_column other --pooling mean --output means.safetensors",
            "features @rows.tsv --model @pretrained --pooling cls --layer 1 --output cls.safetensors --quiet",
            "features @rows.tsv --model @bert --features weighted_all --weights 1 2 3 --output weighted.safetensors",
            "features @rows.tsv --model @tuned/classification --pooling max --dtype bfloat16 --output max.jsonl",
        ],
    ),
    Call(
        "score",
        [
            "score @pretrained @masks.txt --output scores.csv",
            "score @pretrained @rows.tsv --text_column other --method original --output scores.jsonl",
            "score @pretrained @pairs.jsonl --text_column good --text_pair_column bad",
            "score @pretrained @cola/dev.tsv --task cola --output -",
            "score @pretrained @groups.jsonl --group_columns UID term --output pairs.csv --report report.json",
            "curves report.json --output bars.png",
        ],
    ),
]


# Studies, conversions, cards, pictures

SHORT = json.dumps({"max_steps": 2, "max_length": 16, "use_cpu": True, "per_device_train_batch_size": 8})
SUITE = f"glue @small --data_dir @. --suite @suite.yaml --finetuning '{SHORT}'"
GRID = json.dumps({"learning_rate": [1e-3, 1e-2]})
ROW = json.dumps(
    {"vocab_size": 90, "vocab_layout": "compact", "model_size": "tiny", "hidden_size": 8, "num_hidden_layers": 1}
    | {"max_length": 24, "max_steps": 3, "per_device_train_batch_size": 4, "use_cpu": True, "num_processes": 1}
)
SMALL_TASKS = json.dumps(
    {"classification": {"train_file": "../inputs/rows.tsv", "validation_file": ["../inputs/dev.tsv"]}}
)
OTHERS = [
    Call(
        "glue",
        [
            f"{SUITE} --num_seeds 2 --output_dir out",
            f"{SUITE} --only first --grid '{GRID}' --output_dir grid",
            f"{SUITE} --only second --train_sizes 8 --compare_from_scratch --output_dir sizes",
        ],
    ),
    Call(
        "ablation",
        [
            f"ablation --text @text.txt --rows mlm+nsp ltr+bilstm untrained --pretraining '{ROW}' "
            f"--tasks '{SMALL_TASKS}' --finetuning '{SHORT}' --output_dir out"
        ],
    ),
    Call(
        "convert",
        [
            "convert to-google @like_google google/bert_model.ckpt",
            "convert google google out",
            "convert google google/bert_model.ckpt from_files --config_file google/bert_config.json "
            "--vocab_file google/vocab.txt --do_lower_case False",
            "convert to-google @pretrained other/bert_model.ckpt --allow_other_activation --quiet",
            "convert google google classifier --head classifier --labels no yes --seed 3 --quiet",
            "convert google google encoder --head encoder --no_verify",
            "convert bert @bert from_bert",
            "convert to-bert @tuned/classification to_bert",
        ],
    ),
    Call("convert_onnx", ["convert onnx @tuned/classification out", "convert onnx @tuned/tagging int8 --dtype int8"]),
    Call(
        "convert_openvino",
        [
            "convert openvino @tuned/classification out",
            "predict out @rows.tsv --probabilities --output predictions.jsonl",
        ],
    ),
    Call(
        "card",
        [
            copies("tuned/classification", "pretrained", "tuned/squad_v2"),
            "card classification --license apache-2.0 --languages en ko --summary Short. --datasets sst2 --overwrite",
            "card pretrained --license mit --name Tiny --tags a b --limits 'Few words.' --texts 'the [MASK] sat'",
            "card squad_v2 --license mit --no_examples --overwrite",
            "push classification someone/tiny --output_dir preview",
        ],
    ),
    Call(
        "pictures",
        [
            "attention @pretrained 'the cat sat on the mat' 'it was happy' --output heads.png",
            "attention @pretrained 'the cat sat' --view rollout --output rollout.png",
            "attention @pretrained 'the cat sat' 'a dog' --view input --output input.png",
            "attention @pretrained 'the cat sat' --attention_layer 1 --attention_head 2 --output head.png",
            "curves @tuned/classification --output curves.png",
        ],
        pictures=True,
    ),
]


# Help and errors

_COMMANDS = (
    "demo vocab data pretrain adapt finetune distill evaluate compare predict score features glue ablation card push "
    "attention curves bench completion"
).split()
_CONVERSIONS = [f"convert {name}" for name in ("google", "to-google", "bert", "to-bert", "onnx", "openvino")]
MESSAGES = [
    Call("help", ["--help", "--version", "convert --help", *(f"{name} --help" for name in _COMMANDS + _CONVERSIONS)]),
    Call("help_all", [f"{name} --help_all" for name in _COMMANDS + _CONVERSIONS]),
    Call(
        "errors_of_flags",
        [
            "",
            "pretrian",
            "finetune --learning_rat 1 --output_dir out",
            "finetune @pretrained --train_file @rows.tsv",
            f"finetune @pretrained {ROWS} --output_dir out --learning_rate fast",
            f"finetune @pretrained {ROWS} --output_dir out --validation_split 2",
            f"finetune @pretrained {ROWS} --output_dir out --lora --freeze encoder",
            f"finetune @pretrained {ROWS} --output_dir out --approach linear_probe --freeze_layers 1",
            f"finetune @pretrained {ROWS} --output_dir out --folds 3",
            "finetune @pretrained --train_file @rows.tsv --output_dir out --approach auto",
            f"finetune @pretrained {ROWS} --output_dir out --task classificaton",
            f"finetune @pretrained {ROWS} --output_dir out --num_seeds 2 --seed x",
            f"finetune @pretrained {ROWS} --config @broken.yaml --output_dir out",
            "pretrain @text.txt --token_store tokens.safetensors --output_dir out",
            "pretrain @text.txt --objective nsp --output_dir out",
            "pretrain @text.txt --phase2_steps 4 --output_dir out",
            "predict @tuned/classification @rows.tsv --dtype int8",
            "predict @tuned/classification @rows.tsv --top_k 0",
            "evaluate @rows.tsv",
            "distill @tuned/classification --student tiny --folds 2 --train_file @rows.tsv --output_dir out",
            "data @text.txt --output tokens.safetensors",
        ],
    ),
    Call(
        "errors_of_data",
        [
            f"finetune @nowhere {ROWS} --output_dir out",
            "finetune @pretrained --train_file @gone.tsv --output_dir out",
            f"finetune @pretrained {ROWS} --text_column sentence --output_dir out",
            "finetune @pretrained --train_file @holes.tsv --validation_split 0.5 --output_dir out",
            f"finetune @pretrained --task regression {ROWS} --label_column label --output_dir out",
            f"finetune @pretrained --task squad {ROWS} --output_dir out",
            f"finetune @tuned/classification {ROWS} --label_column a --output_dir out",
            "predict @pretrained @sentences.txt",
            "predict @tuned/classification @gone.txt",
            "evaluate @rows.tsv --model @tuned/classification --label_column other",
            "evaluate @tags.conll --model @tuned/classification",
            "pretrain @words.txt --tokenizer @tokenizer --model_size tiny --max_steps 1 --output_dir out",
            f"vocab @latin.txt --output_dir vocabulary {VOCABULARY}",
            f"{_STORE} --quiet",
            f"{_STORE} --quiet",
            "pretrain --token_store tokens.safetensors --tokenizer @small --output_dir stored",
            "convert google @pretrained out",
            "convert to-google @pretrained google/bert_model.ckpt",
            "card @tokenizer",
            "features @rows.tsv --model @pretrained --features first --output out.jsonl",
            "score @tuned/classification @masks.txt",
            "attention @pretrained '' --output heads.png",
        ],
    ),
]

CALLS = [*TWENTY_STEPS, *DATA, *PRETRAINS, *FINETUNES, *USE, *OTHERS, *MESSAGES, *LIBRARY]
