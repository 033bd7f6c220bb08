"""State spaces."""

from functools import partial

from tiny_models import TIED, tiny

mamba = partial(
    tiny,
    "mamba",
    "attn_norm ssm_in=2*i,n ssm_conv1d=i,4+ ssm_x=3+2*s,i ssm_dt=i,3+ ssm_a!=i,s ssm_d!=i ssm_out=n,i",
    TIED,
    dims={"i": 128, "s": 8, "h": 0, "g": 0, "f": 0},
    ssm__inner_size=128,
    ssm__state_size=8,
    ssm__conv_kernel=4,
    ssm__time_step_rank=3,
)

MODELS = {"mamba": mamba(), "falcon-mamba": mamba(ssm__dt_b_c_rms=True)}
