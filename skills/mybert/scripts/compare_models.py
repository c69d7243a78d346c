"""Compare two models on labeled data that neither was trained on: each metric with its 95 % interval."""

import argparse

import mybert


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", help="folder of a trained model")
    parser.add_argument("second", help="folder of another model for the same task")
    parser.add_argument("data", help="table with the columns of the training data")
    parser.add_argument("--num_resamples", type=int, default=1000, help="resamples of the interval")
    arguments = parser.parse_args()
    try:
        report = mybert.compare(
            arguments.first, arguments.second, arguments.data, num_resamples=arguments.num_resamples
        )
    except (ValueError, OSError, ImportError) as error:
        parser.error(str(error))
    for name, values in report["metrics"].items():
        difference = values["difference"]
        is_clear = difference["low"] > 0 or difference["high"] < 0
        print(
            f"{name}: {values['a']['value']:.4f} and {values['b']['value']:.4f}; the second minus the first is "
            f"{difference['value']:+.4f} ({difference['low']:+.4f} to {difference['high']:+.4f}): "
            f"{'a difference' if is_clear else 'no difference that these data show'}"
        )


if __name__ == "__main__":
    main()
