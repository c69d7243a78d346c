"""The commands: an entry for each, with names instead of imports, so that listing them imports nothing."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_PACKAGE = __package__.partition(".")[0]


@dataclass(frozen=True)
class Command:
    """A command: `function` takes settings of a class, whose options are its flags; both are names in `module`."""

    summary: str  # in the imperative
    module: str  # relative to the package
    settings: str
    function: str
    example: str = ""  # flags of a typical first call
    usual: str = ""  # the flags that the help explains first, in its order
    # Another command whose `--config` file is accepted, too; `of_training` of the settings' class converts it.
    config_of: str = ""
    has_model: bool = True  # which transformers loads, so that MyBERT must be registered with it

    def load_settings(self) -> Any:
        """Import the class of the settings, which loads neither torch nor transformers."""
        return getattr(importlib.import_module(self.module, _PACKAGE), self.settings)

    def load_function(self) -> Callable[[Any], Any]:
        """Import the function."""
        function: Callable[[Any], Any] = getattr(importlib.import_module(self.module, _PACKAGE), self.function)
        return function


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
        "DemoSettings",
        "demo",
        "--output_dir demo_output",
    ),
    "vocab": Command(
        "learn a vocabulary and tokenizer from text",
        ".tokenization",
        "VocabSettings",
        "train_vocabulary",
        "corpus/ --output_dir tokenizer --vocab_size 32000",
        has_model=False,
    ),
    "data": Command(
        "tokenize text into a token store, the file that pretrain reads; on any number of machines",
        ".pretraining",
        "DataSettings",
        "prepare_data",
        "corpus/ --tokenizer tokenizer --output tokens.safetensors",
        has_model=False,
    ),
    "pretrain": Command(
        "pretrain a model from text or a token store",
        ".pretraining",
        "PretrainSettings",
        "pretrain",
        "corpus/ --config laptop_10_minutes --output_dir my-bert",
        "text config tokenizer model_size max_length max_hours max_steps per_device_train_batch_size learning_rate "
        "seed output_dir",
    ),
    "adapt": Command(
        "add a domain's vocabulary to an existing model and continue its pretraining",
        ".pretraining",
        "AdaptSettings",
        "adapt",
        "bert-base-uncased corpus/ --output_dir my-domain-bert",
        "model text new_pieces max_length max_hours max_steps per_device_train_batch_size learning_rate seed "
        "output_dir",
    ),
    "finetune": Command(
        "fine-tune a model on task data",
        ".finetuning",
        "FinetuneSettings",
        "finetune",
        "bert-base-uncased --train_file train.tsv --validation_split 0.1 --output_dir my-classifier",
        "model task train_file validation_file validation_split text_column label_column learning_rate "
        "num_train_epochs per_device_train_batch_size seed output_dir",
    ),
    "distill": Command(
        "train a small student from a fine-tuned teacher",
        ".finetuning",
        "DistillSettings",
        "distill",
        "tuned --student tiny --train_file train.tsv --validation_file dev.tsv --output_dir tuned-tiny",
        "teacher student train_file unlabeled validation_file validation_split learning_rate num_train_epochs "
        "per_device_train_batch_size seed output_dir",
    ),
    "evaluate": Command(
        "compute the metrics of a model on task data, or of a file of predictions",
        ".finetuning",
        "EvaluateSettings",
        "evaluate_model",
        "test.tsv --model my-classifier --predictions_dir predictions",
        "data model predictions text_column label_column output predictions_dir report_dir",
        config_of="finetune",
    ),
    "compare": Command(
        "compare two models on the same data: metrics with intervals, where they differ, speed, size",
        ".finetuning",
        "CompareSettings",
        "compare_files",
        "tuned tuned-tiny --data dev.tsv --output differing.tsv",
    ),
    "predict": Command(
        "give labels, scores or answers for new texts",
        ".finetuning",
        "PredictSettings",
        "predict_files",
        "my-classifier texts.txt --output labels.csv",
        "model data output text_column text_pair_column probabilities top_k batch_size max_length",
        config_of="finetune",
    ),
    "score": Command(
        "score sentences with a pretrained model by their pseudo-log-likelihood; judge minimal pairs",
        ".finetuning",
        "ScoreSettings",
        "score_files",
        "pretrained sentences.txt --output scores.csv",
    ),
    "features": Command(
        "write the vectors of frozen layers, one per token or one per text",
        ".finetuning",
        "FeaturesSettings",
        "extract_features",
        "texts.txt --model pretrained --output vectors.safetensors",
    ),
    "glue": Command(
        "fine-tune a model on a whole suite (GLUE, Korean tasks or your own): one table",
        ".studies",
        "SuiteSettings",
        "run_suite",
        "bert-base --data_dir glue_data/ --output_dir glue --num_seeds 3",
    ),
    "ablation": Command(
        "reproduce Table 5 of the BERT paper, or rows of your own: what each part of pretraining gives",
        ".studies",
        "AblationSettings",
        "run_ablation",
        '--config ablation --text corpus/ --output_dir ablation --tasks \'{"sst2": {"data_dir": "SST-2"}}\'',
    ),
    "convert google": Command(
        "convert Google's checkpoint to a model folder",
        ".conversion",
        "ConvertGoogleSettings",
        "convert_google",
        "uncased_L-12_H-768_A-12.zip bert-base",
    ),
    "convert to-google": Command(
        "convert a model folder to a checkpoint for Google's code",
        ".conversion",
        "ConvertToGoogleSettings",
        "convert_to_google",
        "pretrained google/bert_model.ckpt",
    ),
    "convert bert": Command(
        "convert transformers' bert folder to a MyBERT folder",
        ".conversion",
        "ConvertBertSettings",
        "convert_bert",
        "google-bert/bert-base-uncased mybert-base",
    ),
    "convert to-bert": Command(
        "convert a MyBERT folder to a plain bert folder, for servers that know only that",
        ".conversion",
        "ConvertToBertSettings",
        "convert_to_bert",
        "tuned tuned-bert",
    ),
    "convert onnx": Command(
        "export a model folder as an ONNX graph, and verify it",
        ".conversion",
        "ConvertOnnxSettings",
        "convert_onnx",
        "tuned tuned-onnx --dtype int8",
    ),
    "convert openvino": Command(
        "convert a model folder for OpenVINO, which predict then uses, and verify it",
        ".conversion",
        "ConvertOpenVinoSettings",
        "convert_openvino",
        "tuned tuned-openvino --dtype int8 --data train.txt",
    ),
    "card": Command(
        "write a model card whose examples are run",
        ".hub_card",
        "CardSettings",
        "make_card",
        "tuned --license apache-2.0 --languages en",
    ),
    "push": Command(
        "upload a model folder to a repository on the Hub",
        ".hub_card",
        "PushSettings",
        "push",
        "tuned OWNER/NAME --output_dir preview",
    ),
    "attention": Command(
        "draw attention maps, or the input, of a text or pair",
        ".visualization",
        "AttentionSettings",
        "draw_attention",
        "pretrained 'The man went to the store.' 'He bought milk.' --output attention.png",
    ),
    "curves": Command(
        "draw the training curves of one or several runs; scores by number of examples; accuracy by group of pairs",
        ".visualization",
        "CurvesSettings",
        "draw_run",
        "pretrained",
    ),
    "bench": Command(
        "measure every engine and type that is installed on your model and texts, and transformers' pipeline",
        ".studies",
        "BenchSettings",
        "measure_engines",
        "my-classifier texts.txt --output speed.md",
    ),
    "completion": Command(
        "print a script that completes commands and flags in your shell",
        ".command_line.flags",
        "CompletionSettings",
        "print_completion",
        "bash > ~/.local/share/bash-completion/completions/mybert",
        has_model=False,
    ),
}
