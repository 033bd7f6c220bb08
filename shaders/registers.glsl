// The registers of a slot, in words; SLOT_WORDS of plugins/pumice_vulkan/step.py is their number. Drafts are the tokens that the
// latest step picked for it: one of each row of a step with drafts, or those of a layer or model that drafts.
const uint SLOT = 20u;
const uint TOKEN = 0u; // the latest token
const uint POSITION = 1u; // that of the latest token
const uint N_TAKEN = 2u; // right tokens among those of the latest step with drafts
const uint DRAFTS = 4u;
const uint MOST_DRAFTS = SLOT - DRAFTS;
