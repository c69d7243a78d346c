"""Print the texts of a file that are closest to a query, by the cosine of their vectors."""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from mybert.finetuning import FeaturesArguments, extract_features


def vectors(model: str, texts: list[str], pooling: str, folder: str) -> np.ndarray:
    """One vector of length 1 per text."""
    source, output = Path(folder, "texts.txt"), Path(folder, "vectors.safetensors")
    source.write_text("\n".join(texts) + "\n", encoding="utf-8")
    settings = {"model": model, "text": [str(source)], "output": str(output), "pooling": pooling, "overwrite": True}
    extract_features(FeaturesArguments(**settings))
    features = load_file(output)["features"]
    return features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="folder of a sentence encoder or of any BERT, or its name on the Hub")
    parser.add_argument("texts", help="file with a text per line")
    parser.add_argument("query", help="what to look for")
    parser.add_argument("--top_k", type=int, default=5, help="how many texts to print (default: 5)")
    parser.add_argument("--pooling", default="mean", help="mean (default), cls, max, or own: the encoder's settings")
    arguments = parser.parse_args()
    try:
        lines = Path(arguments.texts).read_text(encoding="utf-8").splitlines()
        texts = [line.strip() for line in lines if line.strip()]
        with tempfile.TemporaryDirectory() as folder:
            features = vectors(arguments.model, [arguments.query, *texts], arguments.pooling, folder)
    except (ValueError, OSError, ImportError) as error:
        parser.error(str(error))
    scores = features[1:] @ features[0]
    for index in np.argsort(-scores, kind="stable")[: arguments.top_k]:
        print(f"{scores[index]:.4f}\t{texts[index]}")


if __name__ == "__main__":
    main()
