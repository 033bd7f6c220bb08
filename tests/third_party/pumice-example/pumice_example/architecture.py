"""Stone: a decoder with RMSNorm, rotary positions, grouped attention and a gated feed-forward."""

from pumice.plugin import Architecture, GraphBuilder, HParams, Tensor
from pumice.plugin.nn import Rope
from pumice_example.operation import swiglu


class Stone(Architecture):
    def __init__(self, hparams: HParams) -> None:
        super().__init__(hparams)  # reads block_count, embedding_length, context_length
        self.n_head = hparams.positive("attention.head_count")
        self.n_head_kv = hparams.get_int("attention.head_count_kv", self.n_head)
        self.eps = hparams.get_float("attention.layer_norm_rms_epsilon")
        self.freq_base = hparams.get_float("rope.freq_base", 10000.0)

    def build(self, g: GraphBuilder) -> Tensor:
        x = g.embedding(g.weight("token_embd.weight"), g.tokens)  # [n_tokens, n_embd]
        for i in range(self.n_layer):
            with g.layer(i) as blk:  # "blk.0.", "blk.1.", ...
                x = x + self.attention(g, self.norm(g, x, blk + "attn_norm"), blk)
                x = x + self.feed_forward(g, self.norm(g, x, blk + "ffn_norm"), blk)
        x = g.get_rows(x, g.output_ids)  # only the rows whose logits are wanted
        return g.linear(self.norm(g, x, "output_norm"), g.weight("output.weight"))

    def norm(self, g: GraphBuilder, x: Tensor, name: str) -> Tensor:
        return g.rms_norm(x, g.weight(f"{name}.weight", (self.n_embd,)), self.eps)

    def attention(self, g: GraphBuilder, x: Tensor, blk: str) -> Tensor:
        head_dim = self.n_embd // self.n_head
        q = self.heads(g, x, f"{blk}attn_q.weight", self.n_head, head_dim)
        k = self.heads(g, x, f"{blk}attn_k.weight", self.n_head_kv, head_dim)
        v = self.heads(g, x, f"{blk}attn_v.weight", self.n_head_kv, head_dim)
        rope = Rope(n_rot=head_dim, neox=False, freq_base=self.freq_base)
        q, k = rope(g, q), rope(g, k)
        y = g.attention(q, k, v, scale=head_dim**-0.5)  # [n_tokens, n_head, head_dim]
        y = y.reshape(x.shape[0], self.n_embd)
        return g.linear(y, g.weight(f"{blk}attn_output.weight", (self.n_embd, self.n_embd)))

    def heads(self, g: GraphBuilder, x: Tensor, name: str, n_head: int, head_dim: int) -> Tensor:
        weight = g.weight(name, (n_head * head_dim, self.n_embd))
        return g.linear(x, weight).reshape(x.shape[0], n_head, head_dim)

    def feed_forward(self, g: GraphBuilder, x: Tensor, blk: str) -> Tensor:
        gate = g.linear(x, g.weight(f"{blk}ffn_gate.weight"))
        up = g.linear(x, g.weight(f"{blk}ffn_up.weight"))
        return g.linear(swiglu(g, gate, up), g.weight(f"{blk}ffn_down.weight"))
