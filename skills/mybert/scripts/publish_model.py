"""Write the folder that would be published, or publish a model on the Hub after a look at that folder."""

import argparse

from mybert.hub_card import publish, write_publishable


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="model folder; it is not changed")
    parser.add_argument("repo_id", help="repository on the Hub: OWNER/NAME")
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--output_dir", help="write the folder and upload nothing")
    target.add_argument(
        "--upload", action="store_true", help="publish it: needs `hf auth login` and the user's consent"
    )
    parser.add_argument("--graphs", nargs="+", choices=["onnx", "openvino"], default=[], help="graphs to add")
    parser.add_argument("--private", action="store_true", help="make a new repository private")
    arguments = parser.parse_args()
    try:
        if arguments.output_dir:
            folder = write_publishable(
                arguments.model, arguments.output_dir, arguments.repo_id, graphs=arguments.graphs
            )
            print("\n".join(sorted(str(path) for path in folder.rglob("*") if path.is_file())))
        else:
            commit = publish(
                arguments.model, arguments.repo_id, graphs=arguments.graphs, private=arguments.private or None
            )
            print(commit.commit_url)
    except (ValueError, OSError, ImportError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
