"""What protocols use of the served models beside answers: their descriptions, and models that clients bring."""

from pumice.cli.named_models import configured_loras, summarize_model, vocabulary_problem
from pumice_server.models.fetching import begin_pull, delete_model, read_name
from pumice_server.models.properties import properties
from pumice_server.models.pulls import Pull
from pumice_server.models.served_model import FOREVER, ServedModel
from pumice_server.models.summaries import capabilities, details, listed, meta, summaries_of, summary_of, time_text
from pumice_server.models.uploads import Uploads, model_of
from pumice_server.models.variant import Variant, model_name, plain_name

__all__ = [
    "FOREVER",
    "Pull",
    "ServedModel",
    "Uploads",
    "Variant",
    "begin_pull",
    "capabilities",
    "configured_loras",
    "delete_model",
    "details",
    "listed",
    "meta",
    "model_name",
    "model_of",
    "plain_name",
    "properties",
    "read_name",
    "summaries_of",
    "summarize_model",
    "summary_of",
    "time_text",
    "vocabulary_problem",
]
