"""Train a model on a table with labels, and print the metrics of the held-out tenth as JSON."""

import argparse
import json

import mybert


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("train_file", help="table (TSV, CSV, JSON lines) with the columns text and label")
    parser.add_argument("--model", required=True, help="folder, or name on the Hub, of a pretrained model")
    parser.add_argument("--output_dir", required=True, help="folder to write")
    parser.add_argument("--task", help="classification (default), multilabel, regression, ner, squad, ...")
    parser.add_argument("--text_column", help="column of the texts")
    parser.add_argument("--label_column", help="column of the labels")
    parser.add_argument("--num_seeds", type=int, help="train several times, and keep the best")
    parser.add_argument("--max_steps", type=int, help="steps of the optimizer, instead of three epochs")
    settings = {name: value for name, value in vars(parser.parse_args()).items() if value is not None}
    try:
        metrics = mybert.finetune(validation_split=0.1, **settings)
    except (ValueError, OSError, ImportError) as error:
        parser.error(str(error))
    print(json.dumps(metrics, indent=2, default=str))


if __name__ == "__main__":
    main()
