"""Names of draft layers in checkpoints that store them separately, as ``mtp.*``."""

PARTS = {"fc": "eh_proj", "pre_fc_norm_embedding": "enorm", "pre_fc_norm_hidden": "hnorm", "norm": "shared_head.norm"}


def draft_name(name: str, n_layer: int) -> str:
    """Return the name of a draft layer's tensor, numbered after ``n_layer`` layers; other names are unchanged."""
    if not name.startswith("mtp."):
        return name
    head, _, rest = name.removeprefix("mtp.").partition(".")
    if head == "layers":
        number, _, rest = rest.partition(".")
        return f"model.layers.{n_layer + int(number)}.{rest}"
    return f"model.layers.{n_layer}.{PARTS.get(head, head)}.{rest}"
