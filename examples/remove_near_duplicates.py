"""Remove documents that share most runs of five words with an earlier document, before `mybert data` or `pretrain`.

    pip install datasketch
    python examples/remove_near_duplicates.py corpus/ --output clean.txt --similarity 0.7

The similarity is the Jaccard similarity of two sets of runs, without case and punctuation, estimated from 128 minima
(MinHash; Broder, 1997) with a standard error of 0.04 at 0.7. Documents of fewer than 50 words stay, because they may
differ in the one word that matters. Memory holds a kilobyte per document; for billions of words use datatrove.
"""

import argparse
import re
from pathlib import Path

from datasketch import MinHash, MinHashLSH

from mybert.pretraining import read_documents

WORD = re.compile(r"[\u3400-\u9fff]|[^\W\u3400-\u9fff]+")  # a Chinese character is a word
RUN, MIN_WORDS, MINIMA, EXAMPLES = 5, 50, 128, 3


def signature_of(document: list[str]) -> MinHash | None:
    """Return the minima of a document's runs of words; None if it is short."""
    words = WORD.findall(" ".join(document).casefold())
    if len(words) < MIN_WORDS:
        return None
    runs = {" ".join(words[start : start + RUN]).encode() for start in range(len(words) - RUN + 1)}
    signature = MinHash(MINIMA, seed=1)
    signature.update_batch(runs)
    return signature


def main() -> None:
    """Write the documents that resemble no earlier one, a sentence a line and a blank line between documents."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="+", help="files or folders, in any form that mybert pretrain reads")
    parser.add_argument("--output", type=Path, required=True, help="file to write")
    parser.add_argument("--similarity", type=float, default=0.7, help="remove documents this similar, above 0 up to 1")
    arguments = parser.parse_args()

    # Candidates have a band of minima in common with an earlier document; few similar ones may be missed.
    candidates = MinHashLSH(arguments.similarity, MINIMA, weights=(0.02, 0.98))
    signatures: dict[int, MinHash] = {}  # of the documents that stay
    count = removed = 0
    with arguments.output.open("w", encoding="utf-8") as output:
        for count, document in enumerate(read_documents(arguments.text), start=1):
            if (signature := signature_of(document)) is not None:
                similar = {number: signature.jaccard(signatures[number]) for number in candidates.query(signature)}
                nearest = max(similar, key=similar.__getitem__, default=None)
                if nearest is not None and similar[nearest] >= arguments.similarity:
                    removed += 1
                    if removed <= EXAMPLES:
                        start = " ".join(document)[:80]
                        print(f"Document {count:,} is {similar[nearest]:.2f} like document {nearest:,}: {start}")
                    continue
                candidates.insert(count, signature)
                signatures[count] = signature
            output.write("\n".join(document) + "\n\n")
    print(f"{removed:,} of {count:,} documents removed; {arguments.output} has the others.")


if __name__ == "__main__":
    main()
