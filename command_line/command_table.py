"""The commands: an entry for each, with names instead of imports, so that listing them imports nothing."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args, get_type_hints

_PACKAGE = __package__.partition(".")[0]


class Closing(NamedTuple):
    """Templates of the message at a command's end, see `say_closing`."""

    made: str = ""  # the file or folder that it wrote; "" if it has none
    figures: str = ""
    next_call: str = ""  # what to run next, a call of `mybert`
    note: str = ""  # on that call


@dataclass(frozen=True)
class Command:
    """A command: `function` of `module` takes one object, `arguments`, whose class says which flags there are."""

    summary: str  # in the imperative
    module: str  # relative to the package
    function: str
    example: str = ""  # flags of a typical first call
    usual: str = ""  # the flags that the help explains first, in its order
    # Another command whose `--config` file is accepted, too; `of_training` of the arguments' class converts it.
    config_of: str = ""
    closing: Closing = Closing()

    def load(self) -> tuple[Any, Callable[[Any], Any]]:
        """Import the class of the arguments and the function."""
        function = getattr(importlib.import_module(self.module, _PACKAGE), self.function)
        kind = get_type_hints(function)["arguments"]
        return next(iter(get_args(kind)), kind), function  # where it takes keywords instead, too, they may be None


_CAT = "'The cat sat on the mat.'"
_FINETUNE = (
    "finetune {output_dir} --task classification --train_file train.tsv --validation_file dev.tsv --output_dir tuned"
)
_LOSSES = (
    "perplexity {result[eval_perplexity]}; mlm accuracy {result[eval_mlm_accuracy]}; nsp accuracy "
    "{result[eval_nsp_accuracy]}; minimal pairs {result[minimal_pair_accuracy]} | mlm loss {result[mlm_loss]}; nsp "
    "loss {result[nsp_loss]}"
)
_BEST = (
    "BEST {result[BEST]}; most frequent answer {result[majority_BEST]}; mae {result[mae]}; mae of the mean value "
    "{result[mean_value_mae]}; test BEST {result[test_BEST]}"
)
_PREDICT = "predict {output_dir:with config.json} {new_data[0]} --output predictions.csv"
_LINES = "each line of {new_data[0]}: {new_data[1]}"
_OF_CONVERSION = "{result.parameters} parameters"
_ATTENTION = f"attention {{output_dir:with tokenizer.json}} {_CAT}"

# The commands by what they are for, in the order of the help and of README's table.
GROUPS = {
    "prepare text, pretrain": "vocab data pretrain adapt ablation",
    "fine-tune, measure": "finetune evaluate compare glue distill",
    "use": "predict features score attention curves bench",
    "convert, publish": "convert card push",
    "learn": "demo completion",
}

# Flags, of which a command's first one is meant -> what other tools call them.
_OTHER_NAMES = {
    "learning_rate": "lr rate peak_lr peak_learning_rate",
    "num_train_epochs finetuning_epochs": "epochs epoch num_epochs n_epochs max_epochs train_epochs",
    "per_device_train_batch_size batch_size": "batch_size bs batch train_batch_size per_gpu_train_batch_size",
    "per_device_eval_batch_size batch_size": "eval_batch_size per_gpu_eval_batch_size",
    "train_file data text source": "data dataset input inputs input_file input_dir file files data_file data_path",
    "train_file text data": "train train_data training_data training_file train_path",
    "validation_file data": "validation valid val dev eval validation_data valid_data val_data dev_data eval_data "
    "valid_file val_file dev_file eval_file",
    "test_file data": "test test_data predict_file",
    "validation_split": "val_split valid_split dev_split test_size val_size",
    "text data sentences": "texts corpus sentences input_text",
    "output_dir output": "output output_dir out o out_dir output_path output_file output_folder save_dir",
    "model teacher models source": "model model_name model_name_or_path model_path model_dir pretrained_model "
    "base_model bert_model checkpoint init_checkpoint",
    "num_seeds seed": "seeds num_seed n_seeds",
    "seed": "random_seed random_state",
    "max_length": "max_len max_seq_length max_seq_len seq_len seq_length",
    "text_column": "text_col text_field",
    "label_column labels": "label labels label_col label_field target target_column",
    "warmup_steps": "warmup warmup_ratio warmup_proportion num_warmup_steps",
    "gradient_accumulation_steps": "accumulation_steps grad_accum grad_acc_steps gradient_accumulation",
    "max_steps pretraining_steps": "steps num_steps train_steps num_train_steps",
    "max_hours": "hours time time_limit",
    "weight_decay": "wd l2",
    "optim": "optimizer opt",
    "lr_scheduler_type": "scheduler lr_scheduler schedule",
    "early_stopping_patience": "patience early_stopping",
    "folds": "cv k_folds n_folds num_folds cross_validation",
    "num_processes dataloader_num_workers": "workers num_workers n_jobs",
    "use_cpu": "cpu no_cuda device",
    "max_grad_norm": "clip grad_clip clip_grad gradient_clipping",
    "overwrite": "force overwrite_output_dir",
    "num_hidden_layers": "layers num_layers n_layers",
    "hidden_size": "hidden hidden_dim d_model dim",
    "num_attention_heads": "heads num_heads n_heads",
    "tokenizer vocab_file vocab_size": "vocab vocabulary tokenizer_name",
    "mlm_probability": "mask_prob masked_lm_prob mlm_prob",
    "bf16 dtype": "precision mixed_precision",
    "repo_id": "repo repo_name hub_model_id",
}
ALIASES = {alias: flags for flags, aliases in _OTHER_NAMES.items() for alias in aliases.split()}

COMMANDS = {
    "demo": Command(
        "run the whole pipeline in minutes: vocabulary, pretraining, fine-tuning, pipelines, card",
        ".demo",
        "demo",
        "--output_dir demo_output",
        closing=Closing(next_call=f"attention {{output_dir}}/pretrained {_CAT}"),
    ),
    "vocab": Command(
        "learn a vocabulary and tokenizer from text",
        ".tokenization.commands",
        "train_vocabulary",
        "corpus/ --output_dir tokenizer --vocab_size 32000",
        closing=Closing(
            "{output_dir}",
            "{result:count} pieces",
            "pretrain {text} --tokenizer {output_dir} --output_dir pretrained {READING}",
        ),
    ),
    "data": Command(
        "tokenize text into a token store, the file that pretrain reads; on any number of machines",
        ".pretraining.commands",
        "prepare_data",
        "corpus/ --tokenizer tokenizer --output tokens.safetensors",
        closing=Closing(
            "{output}{result.size:given}",
            "",
            "pretrain --token_store {output} --tokenizer {tokenizer} --output_dir pretrained {OBJECTIVE} {SEQUENCES}",
        ),
    ),
    "pretrain": Command(
        "pretrain a model from text or a token store",
        ".pretraining",
        "pretrain",
        "corpus/ --config laptop_10_minutes --output_dir my-bert",
        "text config tokenizer model_size max_length max_hours max_steps per_device_train_batch_size learning_rate "
        "seed output_dir",
        closing=Closing("{output_dir}", _LOSSES, _FINETUNE),
    ),
    "adapt": Command(
        "add a domain's vocabulary to an existing model and continue its pretraining",
        ".pretraining",
        "adapt",
        "bert-base-uncased corpus/ --output_dir my-domain-bert",
        "model text new_pieces max_length max_hours max_steps per_device_train_batch_size learning_rate seed "
        "output_dir",
        closing=Closing(
            "{output_dir}",
            "nats per character {result[before][nats_per_character]} before; {result[after][nats_per_character]} now"
            f" | {_LOSSES}",
            _FINETUNE,
        ),
    ),
    "finetune": Command(
        "fine-tune a model on task data",
        ".finetuning",
        "finetune",
        "bert-base-uncased --train_file train.tsv --validation_split 0.1 --output_dir my-classifier",
        "model task train_file validation_file validation_split text_column label_column learning_rate "
        "num_train_epochs per_device_train_batch_size seed output_dir",
        closing=Closing("{output_dir}", f"BEST: {{result:BEST}} | {_BEST}", _PREDICT, _LINES),
    ),
    "distill": Command(
        "train a small student from a fine-tuned teacher",
        ".finetuning",
        "distill",
        "tuned --student tiny --train_file train.tsv --validation_file dev.tsv --output_dir tuned-tiny",
        "teacher student train_file unlabeled validation_file validation_split learning_rate num_train_epochs "
        "per_device_train_batch_size seed output_dir",
        closing=Closing(
            "{output_dir}",
            f"BEST: {{result:BEST}}{{result[mean]:given}} | {_BEST}; teacher {{result[teacher][BEST]}}",
            _PREDICT,
            _LINES,
        ),
    ),
    "evaluate": Command(
        "compute the metrics of a model on task data, or of a file of predictions",
        ".finetuning",
        "evaluate_model",
        "test.tsv --model my-classifier --predictions_dir predictions",
        "data model predictions text_column label_column output predictions_dir report_dir",
        config_of="finetune",
        closing=Closing("{output}", "{result:4}"),
    ),
    "compare": Command(
        "compare two models on the same data: metrics with intervals, where they differ, speed, size",
        ".finetuning",
        "compare_files",
        "tuned tuned-tiny --data dev.tsv --output differing.tsv",
        closing=Closing("{output}"),
    ),
    "predict": Command(
        "give labels, scores or answers for new texts",
        ".finetuning",
        "predict_files",
        "my-classifier texts.txt --output labels.csv",
        "model data output text_column text_pair_column probabilities top_k batch_size max_length",
        config_of="finetune",
        closing=Closing("{output}"),
    ),
    "score": Command(
        "score sentences with a pretrained model by their pseudo-log-likelihood; judge minimal pairs",
        ".finetuning",
        "score_files",
        "pretrained sentences.txt --output scores.csv",
        closing=Closing("{output}"),
    ),
    "features": Command(
        "write the vectors of frozen layers, one per token or one per text",
        ".finetuning",
        "extract_features",
        "texts.txt --model pretrained --output vectors.safetensors",
        closing=Closing("{output}"),
    ),
    "glue": Command(
        "fine-tune a model on a whole suite (GLUE, Korean tasks or your own): one table",
        ".studies",
        "run_suite",
        "bert-base --data_dir glue_data/ --output_dir glue --num_seeds 3",
        closing=Closing("{output_dir}/suite.md", "average {result[average]:.1%} over {result[tasks]:count} tasks"),
    ),
    "ablation": Command(
        "reproduce Table 5 of the BERT paper, or rows of your own: what each part of pretraining gives",
        ".studies",
        "run_ablation",
        '--config ablation --text corpus/ --output_dir ablation --tasks \'{"sst2": {"data_dir": "SST-2"}}\'',
        closing=Closing("{output_dir}/ablation.md", "{result:count} rows"),
    ),
    "convert google": Command(
        "convert Google's checkpoint to a model folder",
        ".conversion.commands",
        "convert_google",
        "uncased_L-12_H-768_A-12.zip bert-base",
        closing=Closing("{output_dir}", _OF_CONVERSION, _ATTENTION),
    ),
    "convert to-google": Command(
        "convert a model folder to a checkpoint for Google's code",
        ".conversion.commands",
        "convert_to_google",
        "pretrained google/bert_model.ckpt",
        closing=Closing("{result.output}", _OF_CONVERSION),
    ),
    "convert bert": Command(
        "convert transformers' bert folder to a MyBERT folder",
        ".conversion.commands",
        "convert_bert",
        "google-bert/bert-base-uncased mybert-base",
        closing=Closing("{output_dir}", _OF_CONVERSION, _ATTENTION),
    ),
    "convert to-bert": Command(
        "convert a MyBERT folder to a plain bert folder, for servers that know only that",
        ".conversion.commands",
        "convert_to_bert",
        "tuned tuned-bert",
        closing=Closing("{output_dir}", _OF_CONVERSION, "card {output_dir} --license apache-2.0"),
    ),
    "convert onnx": Command(
        "export a model folder as an ONNX graph, and verify it",
        ".conversion.commands",
        "convert_onnx",
        "tuned tuned-onnx --dtype int8",
        closing=Closing("{output_dir}", "differs from PyTorch by at most {result.largest_difference:.1e}"),
    ),
    "convert openvino": Command(
        "convert a model folder for OpenVINO, which predict then uses, and verify it",
        ".conversion.commands",
        "convert_openvino",
        "tuned tuned-openvino --dtype int8 --data train.txt",
        closing=Closing("{output_dir}", "differs from PyTorch by at most {result.largest_difference:.1e}"),
    ),
    "card": Command(
        "write a model card whose examples are run",
        ".hub_card",
        "make_card",
        "tuned --license apache-2.0 --languages en",
        closing=Closing("{result}", "", "push {model:with tokenizer.json} OWNER/NAME --output_dir preview"),
    ),
    "push": Command(
        "upload a model folder to a repository on the Hub",
        ".hub_card",
        "push",
        "tuned OWNER/NAME --output_dir preview",
        closing=Closing(
            "{result}",
            "nothing was uploaded{output_dir:given}",
            "push {model} {repo_id} {UPLOAD}{output_dir:given}",
            "without network, where there is one: hf upload {repo_id} {output_dir}",
        ),
    ),
    "attention": Command(
        "draw attention maps, or the input, of a text or pair",
        ".visualization.commands",
        "draw_attention",
        "pretrained 'The man went to the store.' 'He bought milk.' --output attention.png",
        closing=Closing("{result}"),
    ),
    "curves": Command(
        "draw the training curves of a run's folder, or of several runs over each other; scores by number of examples",
        ".visualization.commands",
        "draw_run",
        "pretrained",
        closing=Closing("{result}"),
    ),
    "bench": Command(
        "measure every engine and type that is installed on your model and texts, and transformers' pipeline",
        ".studies.engines",
        "measure_engines",
        "my-classifier texts.txt --output speed.md",
        closing=Closing("{output}"),
    ),
    "completion": Command(
        "print a script that completes commands and flags in your shell",
        ".command_line.flags",
        "print_completion",
        "bash > ~/.local/share/bash-completion/completions/mybert",
    ),
}
