"""What protocols use of the served models beside answers: their descriptions, and models that clients bring."""

from pumice.cli.named_models import (
    configured_loras as configured_loras,
    summarize_model as summarize_model,
    vocabulary_problem as vocabulary_problem,
)
from pumice_server.models.fetching import begin_pull as begin_pull, delete_model as delete_model, read_name as read_name
from pumice_server.models.properties import properties as properties
from pumice_server.models.pulls import Pull as Pull
from pumice_server.models.served_model import FOREVER as FOREVER, ServedModel as ServedModel
from pumice_server.models.summaries import (
    capabilities as capabilities,
    details as details,
    listed as listed,
    meta as meta,
    summaries_of as summaries_of,
    summary_of as summary_of,
    time_text as time_text,
)
from pumice_server.models.uploads import Uploads as Uploads, model_of as model_of
from pumice_server.models.variant import Variant as Variant, model_name as model_name, plain_name as plain_name
