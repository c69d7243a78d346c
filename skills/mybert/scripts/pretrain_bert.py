"""Make a BERT from raw text: a vocabulary and a small model, pretrained for some minutes on this machine."""

import argparse
import json
from pathlib import Path

import yaml

import mybert

RECIPE = Path(mybert.__file__).parent / "pretraining" / "recipes" / "laptop_10_minutes.yaml"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "text", nargs="+", help="files or folders: a sentence per line, a blank line between documents"
    )
    parser.add_argument("--output_dir", required=True, help="folder to write; the same call resumes a run")
    parser.add_argument("--minutes", type=float, default=10, help="how long to train (default: 10)")
    parser.add_argument("--vocab_size", type=int, help="pieces of the vocabulary (default: 8000)")
    parser.add_argument("--max_steps", type=int, help="steps of the optimizer, instead of minutes")
    arguments = parser.parse_args()
    settings = yaml.safe_load(RECIPE.read_text(encoding="utf-8")) | {"max_hours": arguments.minutes / 60}
    if arguments.vocab_size:
        settings["vocab_size"] = arguments.vocab_size
    if arguments.max_steps:
        settings |= {"max_hours": None, "max_steps": arguments.max_steps}
    try:
        metrics = mybert.pretrain(text=arguments.text, output_dir=arguments.output_dir, **settings)
    except (ValueError, OSError, ImportError) as error:
        parser.error(str(error))
    print(json.dumps(metrics, indent=2, default=str))


if __name__ == "__main__":
    main()
