"""The commands of `sweep.py`, with the inputs and flags of the golden records."""

from calls import GRID, ROW, ROWS, SHORT, SMALL_TASKS, SUITE, TAGS, VOCABULARY
from sweep import Scenario

QUIET = "--use_cpu --quiet"
TRAINING = "--use_cpu --per_device_train_batch_size 8 --max_length 24 --disable_tqdm true --output_dir out"
TUNED = f"--train_file @rows.tsv --validation_file @dev.tsv --card_examples false {TRAINING}"
SAVED = "--max_steps 4 --save_strategy steps --save_steps 2 --eval_strategy steps --eval_steps 2"
TINY = "--model_size tiny --hidden_size 8 --num_hidden_layers 1 --num_attention_heads 2"
EARLIER_TEXT = f"pretrain @more.txt --tokenizer @tokenizer {TINY} --max_steps 1 --num_processes 1 {TRAINING}"
ONE_PROCESS, TWO_PROCESSES = "--num_processes 1", "--num_processes 2"
VOCAB = f"vocab TEXT --output_dir out {VOCABULARY} --report report.json --quiet"
STORE = "data TEXT --tokenizer @tokenizer --output out.safetensors --quiet"
EXPORT = "--export out.jsonl --max_length 24"
SHARD = "--num_shards 2 --shard_index 0"
PRETRAIN = f"pretrain @text.txt {VOCABULARY} {TINY} --max_steps 3 --save_steps 2 --num_processes 1 {TRAINING}"
ABLATION = f"ablation --text @text.txt --tasks '{SMALL_TASKS}' --finetuning '{SHORT}' --pretraining '{ROW}'"
TO_GOOGLE = "convert to-google {} out/bert_model.ckpt --allow_other_activation --quiet"
TUNED_MODEL = "@tuned/classification"
CLASSIFY = f"predict out @dev.tsv {QUIET}"  # reads a classifier
COMPARE = f"compare {TUNED_MODEL} {TUNED_MODEL} --num_resamples 20 --data DATA --output out.tsv --report out.json"
DEMO = "demo @text.txt @more.txt --output_dir out --pretraining_steps 2 --finetuning_epochs 0.1 --vocab_size 100"


def replaced(
    name: str, command: str, *old: str, reader: str = "", continues: bool = False, processes: int = 1
) -> Scenario:
    """A command that replaces what others have written."""
    return Scenario(name, f"{command} --overwrite", old, reader, continues, processes)


def of_text(
    name: str, command: str, text: str = "@text.txt", processes: str = ONE_PROCESS, before: str = ""
) -> Scenario:
    """A command on text that replaces the result of other text."""
    return replaced(
        name,
        f"{command.replace('TEXT', text)} {processes}",
        f"{before or command} {ONE_PROCESS}".replace("TEXT", "@more.txt"),
    )


def of_rows(name: str, command: str, rows: str = "@dev.tsv") -> Scenario:
    """A command on rows that replaces the result of other rows."""
    return replaced(name, *(f"{command.replace('DATA', data)} --quiet" for data in (rows, "@rows.tsv")))


def trained(name: str, flags: str, start: str = "finetune @pretrained", processes: int = 1) -> Scenario:
    """A fine-tuning that replaces another one."""
    before = f"finetune @small {TUNED} --max_steps 1 --seed 7"
    return replaced(name, f"{start} {flags}", before, continues=True, processes=processes)


def converted(name: str, command: str, other: str, reader: str = CLASSIFY) -> Scenario:
    """A conversion of a classifier that replaces that of another model."""
    return replaced(
        name, f"{command} @tuned/classification out --quiet", f"{command} {other} out --quiet", reader=reader
    )


SCENARIOS = [
    Scenario("vocab_first", f"{VOCAB.replace('TEXT', '@text.txt')} {ONE_PROCESS}"),
    of_text("vocab", VOCAB),
    of_text("vocab_processes", VOCAB, "@text.txt @more.txt", TWO_PROCESSES),
    Scenario("data_first", f"{STORE.replace('TEXT', '@text.txt')} {ONE_PROCESS}"),
    of_text("data", STORE),
    of_text("data_processes", STORE, "@text.txt @more.txt", TWO_PROCESSES),
    replaced(  # the store stays if the export fails
        "data_export",
        f"{STORE.replace('TEXT', '@text.txt')} {ONE_PROCESS} {EXPORT}",
        f"{STORE.replace('TEXT', '@more.txt')} {ONE_PROCESS}",
        continues=True,
    ),
    of_text("data_shard", f"{STORE} {SHARD}"),
    *(
        Scenario(
            name,
            f"{STORE.replace('TEXT', '@text.txt')} {ONE_PROCESS} --append {flags}",
            [f"{STORE.replace('TEXT', '@more.txt')} {ONE_PROCESS}"],
            continues=bool(flags),
        )
        for name, flags in {"data_append": "", "data_append_export": EXPORT}.items()
    ),
    replaced("pretrain", PRETRAIN, EARLIER_TEXT, continues=True),
    replaced("pretrain_group", PRETRAIN, EARLIER_TEXT, continues=True, processes=2),
    replaced(
        "adapt",
        f"adapt @pretrained @text.txt --new_pieces 8 --max_steps 2 --num_processes 1 {TRAINING}",
        EARLIER_TEXT,
        continues=True,
    ),
    trained("finetune", f"{TUNED} {SAVED}"),
    trained("finetune_tags", f"--task tagging {TAGS} {TRAINING} --max_steps 2"),
    trained("finetune_seeds", f"{TUNED} --max_steps 2 --num_seeds 2"),
    trained("finetune_folds", f"--train_file @rows.tsv --folds 2 {TRAINING} --max_steps 2"),
    trained("finetune_adapter", f"{TUNED} --max_steps 2 --lora"),
    trained("finetune_probe", f"{ROWS} --approach linear_probe --use_cpu --output_dir out"),
    trained("finetune_contrastive", f"{TUNED} --approach contrastive --max_steps 2"),
    trained("finetune_group", f"{TUNED} --max_steps 2", processes=2),
    trained("distill", f"--student @small --new_head {TUNED} --max_steps 2", "distill @tuned/classification"),
    Scenario("glue", f"{SUITE} --output_dir out", continues=True),
    Scenario("glue_grid", f"{SUITE} --only first --grid '{GRID}' --output_dir out", continues=True),
    Scenario("ablation", f"{ABLATION} --rows mlm+nsp untrained --output_dir out", continues=True),
    *(
        of_rows(f"predict_{suffix}", f"predict {TUNED_MODEL} DATA --output out.{suffix} --use_cpu")
        for suffix in ("csv", "jsonl", "parquet", "xlsx")
    ),
    of_rows("predict_many", f"predict {TUNED_MODEL} DATA --output out.csv --use_cpu", "@many.tsv"),
    of_rows("features", "features DATA --model @pretrained --output out.safetensors --use_cpu"),
    of_rows("features_jsonl", "features DATA --model @pretrained --pooling mean --output out.jsonl --use_cpu"),
    of_rows("score", "score @pretrained DATA --output out.csv --use_cpu"),
    replaced(
        "score_pairs",
        f"score @pretrained @groups.jsonl --group_columns UID term --output out.csv --report report.json {QUIET}",
        f"score @pretrained @pairs.jsonl --text_column good --text_pair_column bad --output out.csv {QUIET}",
    ),
    of_rows(
        "evaluate",
        f"evaluate DATA --model {TUNED_MODEL} --output out.json --predictions_dir out --report_dir rep --use_cpu",
    ),
    of_rows("compare", f"{COMPARE} --use_cpu"),
    replaced(
        "google",
        "convert google google out --quiet",
        "convert to-google @like_google google/bert_model.ckpt --quiet",
        "convert to-bert @tuned/classification out --quiet",
    ),
    replaced("to_google", TO_GOOGLE.format("@pretrained"), TO_GOOGLE.format("@small")),
    converted("to_bert", "convert to-bert", "@tuned/regression"),
    replaced("from_bert", "convert bert @bert out --quiet", "convert to-bert @tuned/classification out --quiet"),
    converted("onnx", "convert onnx", "@tuned/regression"),
    converted("openvino", "convert openvino", "@tuned/regression"),
    replaced(
        "card",
        "card out --license mit --languages en --quiet",
        "convert to-bert @tuned/classification out --quiet",
        "card out --license apache-2.0 --no_examples --quiet",
    ),
    replaced(
        "push",
        "push @tuned/classification someone/tiny --output_dir preview",
        "push @tuned/regression someone/tiny --output_dir preview",
    ),
    replaced(
        "attention",
        "attention @pretrained 'the cat sat' --output heads.png",
        "attention @pretrained 'a dog ran' --output heads.png",
    ),
    replaced(
        "curves", "curves @tuned/classification --output curves.png", "curves @tuned/regression --output curves.png"
    ),
    replaced("demo", f"{DEMO} --seed 7", DEMO, continues=True),
]
