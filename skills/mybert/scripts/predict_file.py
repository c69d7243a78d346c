"""Label the texts of a file with a trained model, and print the number of rows as JSON."""

import argparse
import json

import mybert


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="folder of a trained model, or its name on the Hub")
    parser.add_argument("texts", help="file with a text per line, or a table with the columns of the training data")
    parser.add_argument("--output", required=True, help="table to write: .csv, .tsv or .jsonl")
    parser.add_argument("--text_column", help="column of the texts")
    parser.add_argument("--probabilities", action="store_true", help="add the probability of every label")
    settings = {name: value for name, value in vars(parser.parse_args()).items() if value is not None}
    model, texts, output = (settings.pop(name) for name in ("model", "texts", "output"))
    try:
        counts = mybert.predict(model, texts, output, **settings)
    except (ValueError, OSError, ImportError) as error:
        parser.error(str(error))
    print(json.dumps({"output": output, **counts}))


if __name__ == "__main__":
    main()
