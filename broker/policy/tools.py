"""What the gate needs to ask for a decision, under one roof: the mint and the six inputs."""

from broker.policy.conversions import ConversionRejected
from broker.policy.decision import RequestRef
from broker.policy.effect_inputs import TargetKind, inference_input, patch_input, recipe_input
from broker.policy.mint import AttemptMint, Principals
from broker.policy.read_inputs import list_input, read_input, search_input

__all__ = [
    "AttemptMint",
    "ConversionRejected",
    "Principals",
    "RequestRef",
    "TargetKind",
    "inference_input",
    "list_input",
    "patch_input",
    "read_input",
    "recipe_input",
    "search_input",
]
