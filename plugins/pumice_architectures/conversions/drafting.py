"""Layers that draft, where a checkpoint has them apart from the others, as ``mtp.*``."""

PARTS = {"fc": "eh_proj", "pre_fc_norm_embedding": "enorm", "pre_fc_norm_hidden": "hnorm", "norm": "shared_head.norm"}


def draft_name(name: str, n_layer: int) -> str:
    """The name that a tensor of theirs has among ``n_layer`` layers; any other name as it is."""
    if not name.startswith("mtp."):
        return name
    head, _, rest = name.removeprefix("mtp.").partition(".")
    if head == "layers":
        number, _, rest = rest.partition(".")
        return f"model.layers.{n_layer + int(number)}.{rest}"
    return f"model.layers.{n_layer}.{PARTS.get(head, head)}.{rest}"
