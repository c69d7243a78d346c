"""What only the owner of a model knows, for the Hub."""

from dataclasses import dataclass

from ..files.options import AT_LEAST_0, Group, option
from ..files.settings import Part


@dataclass(frozen=True, kw_only=True)
class HubMetadata(Part):
    """What only the owner of a model knows, for the Hub's search."""

    group = Group.CARD
    license: str | None = option(None, "License of the weights, such as apache-2.0.")
    languages: list[str] | None = option(None, "Codes of its languages, such as en ko.")
    base_model: str | None = option(
        None, "Hub name of the model it was made from (a run knows it if it read it there)."
    )
    datasets: list[str] | None = option(None, "Hub names of its training data, unless its run read them there.")
    new_version: str | None = option(None, "Hub name of the model that replaces it.")
    emissions: float | None = option(None, "Emissions of its training, in grams of CO2 equivalent.", AT_LEAST_0)
    tags: list[str] | None = option(None, "Further tags for the Hub's search.")
